//! Renders components into the objects to apply.

use std::sync::Arc;

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::pass::{Pass, fields};
use super::revision::Current;
use crate::api::oam::{Component, Trait, labels};
use crate::controllers::oam::dispatch::order::Stage;
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::parse::{Parsed, ParsedComponent, ParsedTrait};
use crate::controllers::oam::render::cache_key::component_key;
use crate::controllers::oam::render::component::{self, Rendered, Template, apply_trait};
use crate::controllers::oam::render::evaluate::{Cause, NamespaceEvaluator};
use crate::controllers::oam::render::identity::{Owner, Part, identify, set_workload_reference};
use crate::cue;

/// Label of objects of traits that create the workload.
const MANAGE_WORKLOAD: &str = "trait.oam.dev/manage-workload";
/// Elements of lists that an input can name.
const MAX_INDEX: usize = 1_000;

/// An object of a component.
#[derive(Clone, Debug)]
pub(super) struct ComponentObject {
    pub(super) manifest: Value,
    /// The type of the trait, empty for the workload.
    pub(super) trait_: String,
    /// The key in `outputs`, empty for the workload.
    pub(super) key: String,
    pub(super) stage: Stage,
}

/// The objects of a component, and what they were rendered from.
pub(super) struct ComponentObjects {
    pub(super) rendered: Arc<Rendered>,
    /// The workload, also if a trait creates it.
    pub(super) workload: Value,
    pub(super) objects: Vec<ComponentObject>,
    pub(super) context: Map<String, Value>,
}

/// The reason why a component can't be rendered.
#[derive(Debug)]
pub(super) enum RenderError {
    /// The template or its parameters, with the text for the user.
    Template { message: String, is_stopped: bool },
    /// The evaluator is missing or failed.
    Evaluator(cue::Error),
}

impl Pass<'_> {
    pub(super) fn evaluator(&self) -> NamespaceEvaluator<'_> {
        NamespaceEvaluator {
            pool: &self.reconciler.evaluator,
            namespace: &self.name.namespace,
        }
    }

    /// Renders a component without the traits of the last stage.
    pub(super) async fn render(
        &self,
        current: &Current,
        parsed: &Parsed,
        component: &ParsedComponent,
    ) -> Result<ComponentObjects, RenderError> {
        let _timer = self.reconciler.metrics.time(PassStage::Render);
        let context = self.context(current, parsed, component).await;
        let traits: Vec<_> = component
            .traits
            .iter()
            .filter(|one| !is_post_dispatch(self, one))
            .collect();
        let is_strict = self.reconciler.options.is_strict;
        let templates: Vec<Template<'_>> = traits.iter().filter_map(|one| trait_template(one, is_strict)).collect();
        let input = component::Component {
            name: &component.component.name,
            template: Template {
                name: &component.component.type_,
                source: component.definition.template().unwrap_or_default(),
                properties: component.component.properties.as_ref(),
                is_strict,
            },
            traits: &templates,
            context: &context,
        };
        let key = component_key(&input);
        let memories = &self.reconciler.memories;
        let name = &component.component.name;
        let rendered = match memories.rendered(self.name, name, &key) {
            Some(rendered) => {
                self.reconciler.metrics.count_render("cached");
                rendered
            }
            None => {
                let rendered = component::render(&self.evaluator(), &input).await;
                self.reconciler
                    .metrics
                    .count_render(if rendered.is_ok() { "evaluated" } else { "failed" });
                let rendered = Arc::new(rendered.map_err(|error| match error.cause {
                    Cause::Evaluator(cause) => RenderError::Evaluator(cause),
                    ref cause => RenderError::Template {
                        is_stopped: matches!(cause, Cause::Stopped(_)),
                        message: error.to_string(),
                    },
                })?);
                memories.remember_rendered(self.name, name, key, &rendered);
                rendered
            }
        };
        Ok(self.objects_of(current, component, rendered, context))
    }

    fn objects_of(
        &self,
        current: &Current,
        component: &ParsedComponent,
        rendered: Arc<Rendered>,
        context: Map<String, Value>,
    ) -> ComponentObjects {
        let metadata = OwnerFields::of(current);
        let owner = metadata.owner(self, current, component);
        let mut workload = rendered.workload.clone();
        let part = Part::Workload {
            component_type: &component.type_label,
        };
        identify(&mut workload, &owner, part);
        let is_managed = component.traits.iter().any(|one| one.definition.spec.manage_workload);
        let mut objects = Vec::new();
        if !is_managed {
            objects.push(ComponentObject {
                manifest: Value::Object(workload.clone()),
                trait_: String::new(),
                key: String::new(),
                stage: Stage::DefaultDispatch,
            });
        }
        for output in &rendered.outputs {
            let object = trait_object(output, component, &owner, &workload, self.reconciler.options.has_stages);
            objects.push(object);
        }
        ComponentObjects {
            workload: Value::Object(workload),
            rendered,
            objects,
            context,
        }
    }

    /// Renders the traits of the last stage, which see the live objects.
    pub(super) async fn render_post_traits(
        &self,
        current: &Current,
        component: &ParsedComponent,
        objects: &ComponentObjects,
        live: &Map<String, Value>,
    ) -> Result<Vec<ComponentObject>, RenderError> {
        let metadata = OwnerFields::of(current);
        let owner = metadata.owner(self, current, component);
        let Value::Object(workload) = &objects.workload else {
            return Ok(Vec::new());
        };
        let mut context = objects.context.clone();
        context.extend(live.clone());
        let mut rendered = Rendered::clone(&objects.rendered);
        let before = rendered.outputs.len();
        for one in component.traits.iter().filter(|one| is_post_dispatch(self, one)) {
            let Some(template) = trait_template(one, self.reconciler.options.is_strict) else {
                continue;
            };
            let applied = apply_trait(&self.evaluator(), rendered, template, &context).await;
            self.reconciler
                .metrics
                .count_render(if applied.is_ok() { "evaluated" } else { "failed" });
            rendered = applied.map_err(|cause| match cause {
                Cause::Evaluator(cause) => RenderError::Evaluator(cause),
                cause => RenderError::Template {
                    is_stopped: matches!(cause, Cause::Stopped(_)),
                    message: format!(
                        "component {}: trait {}: {cause}",
                        component.component.name, one.trait_.type_
                    ),
                },
            })?;
        }
        let outputs = rendered.outputs.iter().skip(before);
        Ok(outputs
            .map(|output| trait_object(output, component, &owner, workload, true))
            .collect())
    }

    /// Returns the context of a component's templates.
    async fn context(&self, current: &Current, parsed: &Parsed, component: &ParsedComponent) -> Map<String, Value> {
        let app = &current.app;
        let latest = self.status.latest_revision.as_ref();
        // All components in the context of each would take much memory.
        let traits = component.traits.iter();
        let traits = traits.filter_map(|one| crate::api::oam::Definition::template(&*one.definition));
        let mut templates = traits.chain(component.definition.template());
        let components: Vec<Value> = match templates.any(|template| template.contains("components")) {
            true => parsed.spec.components.iter().map(|one| json!(one)).collect(),
            false => Vec::new(),
        };
        let publish_version = app.annotations().get(labels::PUBLISH_VERSION);
        let context = json!({
            "name": component.component.name,
            "appName": self.name.name,
            "namespace": self.name.namespace,
            "appRevision": current.name(),
            "appRevisionNum": latest.map_or(0, |latest| latest.revision),
            "appLabels": app.labels(),
            "appAnnotations": app.annotations(),
            "revision": "",
            "cluster": "",
            "clusterVersion": self.reconciler.cluster_version().await,
            "components": components,
            "componentType": component.component.type_,
            "publishVersion": publish_version.map_or("", String::as_str),
            "workflowName": self.name.name,
            "replicaKey": "",
        });
        fields(&context)
    }
}

/// Returns true if a trait is applied after its workload is healthy.
pub(super) fn is_post_dispatch(pass: &Pass<'_>, one: &ParsedTrait) -> bool {
    pass.reconciler.options.has_stages && stage(one) == Stage::PostDispatch
}

fn stage(one: &ParsedTrait) -> Stage {
    // An unknown stage is reported when the Application is parsed.
    Stage::parse(&one.definition.spec.stage).unwrap_or_default()
}

fn trait_template(one: &ParsedTrait, is_strict: bool) -> Option<Template<'_>> {
    Some(Template {
        name: &one.type_label,
        source: crate::api::oam::Definition::template(&*one.definition)?,
        properties: one.trait_.properties.as_ref(),
        is_strict,
    })
}

fn trait_object(
    output: &component::Output,
    component: &ParsedComponent,
    owner: &Owner<'_>,
    workload: &Map<String, Value>,
    has_stages: bool,
) -> ComponentObject {
    let mut object = output.object.clone();
    let part = Part::Trait {
        trait_type: &output.trait_type,
        resource: &output.key,
    };
    identify(&mut object, owner, part);
    let definition = component.traits.iter().find(|one| one.type_label == output.trait_type);
    if let Some(definition) = definition.map(|one| &one.definition.spec) {
        if !definition.workload_ref_path.is_empty() {
            set_workload_reference(&mut object, &definition.workload_ref_path, workload);
        }
        if definition.manage_workload
            && let Some(labels) = object
                .get_mut("metadata")
                .and_then(|metadata| metadata.get_mut("labels"))
        {
            labels[MANAGE_WORKLOAD] = json!("true");
        }
    }
    let stage = definition.filter(|_| has_stages).map(stage).unwrap_or_default();
    ComponentObject {
        manifest: Value::Object(object),
        trait_: output.trait_type.clone(),
        key: output.key.clone(),
        stage,
    }
}

/// Labels and annotations of an Application as JSON.
struct OwnerFields {
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    revision: String,
}

impl OwnerFields {
    fn of(current: &Current) -> Self {
        Self {
            labels: fields(current.app.labels()),
            annotations: fields(current.app.annotations()),
            revision: current.name(),
        }
    }

    fn owner<'o>(&'o self, pass: &'o Pass<'_>, current: &'o Current, component: &'o ParsedComponent) -> Owner<'o> {
        Owner {
            app: &pass.name.name,
            namespace: &pass.name.namespace,
            labels: &self.labels,
            annotations: &self.annotations,
            component: &component.component.name,
            revision: &self.revision,
            revision_hash: current.hash(),
            replica_key: None,
            cluster: "",
        }
    }
}

/// Returns a component with values of the workflow in its parameters.
pub(super) fn with_inputs(component: &ParsedComponent, inputs: &[(&str, Value)]) -> Result<ParsedComponent, String> {
    let mut changed = component.clone();
    if inputs.is_empty() {
        return Ok(changed);
    }
    let mut value = json!({
        "properties": changed.component.properties.clone().unwrap_or_else(|| json!({})),
        "traits": changed.component.traits,
    });
    for (path, input) in inputs.iter().filter(|(path, _)| !path.is_empty()) {
        let path = path.strip_prefix("value.").unwrap_or(path);
        set_path(&mut value, path, input.clone()).ok_or_else(|| format!("invalid parameterKey {path}"))?;
    }
    changed.component.properties = Some(value["properties"].take());
    let traits: Vec<Trait> = serde_json::from_value(value["traits"].take()).map_err(|error| error.to_string())?;
    for (known, with_inputs) in changed.traits.iter_mut().zip(&traits) {
        known.trait_ = with_inputs.clone();
    }
    changed.component = Component {
        traits,
        ..changed.component
    };
    Ok(changed)
}

/// Sets a value at a path such as `properties.env[0].value`.
fn set_path(value: &mut Value, path: &str, new: Value) -> Option<()> {
    let normalized = path.replace('[', ".").replace(']', "");
    let mut target = value;
    for field in normalized.split('.').filter(|field| !field.is_empty()) {
        let field = field.trim_matches('"');
        target = child(target, field)?;
    }
    *target = new;
    Some(())
}

/// Returns a member of an object or list; missing ones are added.
fn child<'v>(target: &'v mut Value, field: &str) -> Option<&'v mut Value> {
    let index = field.parse::<usize>().ok();
    if target.is_null() {
        *target = if index.is_some() { json!([]) } else { json!({}) };
    }
    match target {
        Value::Array(items) => {
            let index = index.filter(|index| *index <= items.len() && *index < MAX_INDEX)?;
            if index == items.len() {
                items.push(Value::Null);
            }
            items.get_mut(index)
        }
        Value::Object(fields) => Some(fields.entry(field).or_insert(Value::Null)),
        _ => None,
    }
}

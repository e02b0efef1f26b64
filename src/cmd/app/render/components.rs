//! Renders all objects of an Application, as the reconciler does.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::api::oam::{Application, Definition, labels};
use crate::cmd::Error;
use crate::controllers::oam::dispatch::order::Stage;
use crate::controllers::oam::parse::{Parsed, ParsedComponent, ParsedPolicy, ParsedTrait, type_label};
use crate::controllers::oam::render::component::{self, Output, Template, render_template};
use crate::controllers::oam::render::evaluate::NamespaceEvaluator;
use crate::controllers::oam::render::identity::{Owner, Part, identify, set_workload_reference};
use crate::cue::Evaluator;

/// Label of objects of traits that create the workload.
const MANAGE_WORKLOAD: &str = "trait.oam.dev/manage-workload";
/// Built-in kinds without a namespace that Applications deploy.
const CLUSTER_SCOPED: [&str; 9] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "IngressClass",
    "MutatingWebhookConfiguration",
    "PersistentVolume",
    "PriorityClass",
    "StorageClass",
    "ValidatingWebhookConfiguration",
];

/// An Application in a revision.
#[derive(Clone, Copy)]
pub struct Release<'a> {
    pub application: &'a Application,
    pub revision: &'a str,
    pub number: i64,
    pub hash: &'a str,
}

#[derive(Debug, Default)]
pub struct Rendered {
    pub objects: Vec<Value>,
    /// Traits that need live objects, as sentences.
    pub postponed: Vec<String>,
}

pub struct Renderer {
    pub evaluator: Evaluator,
    pub cluster_version: Value,
}

impl Renderer {
    /// Renders an Application: policies with a template, then components in their order.
    pub async fn render(&self, release: &Release<'_>, parsed: &Parsed) -> Result<Rendered, Error> {
        let fields = ReleaseFields::new(release);
        let failed = |message: String| Error::Failed(format!("Application {}: {message}", fields.name));
        let mut rendered = Rendered::default();
        for policy in &parsed.policies {
            let objects = self.policy(&fields, policy).await;
            rendered.objects.extend(objects.map_err(failed)?);
        }
        for component in &parsed.components {
            let objects = self.component(&fields, parsed, component).await;
            rendered.objects.extend(objects.map_err(failed)?);
            let postponed = component.traits.iter().filter(|one| is_postponed(one)).map(|one| {
                format!(
                    "component {}: trait {} is rendered when the component is healthy",
                    component.component.name, one.trait_.type_
                )
            });
            rendered.postponed.extend(postponed);
        }
        rendered.objects.iter_mut().for_each(remove_namespace);
        Ok(rendered)
    }

    async fn policy(&self, fields: &ReleaseFields<'_>, policy: &ParsedPolicy) -> Result<Vec<Value>, String> {
        let Some(source) = policy.definition.template() else {
            return Ok(Vec::new());
        };
        let name = &policy.policy.name;
        let template = Template {
            name: &policy.policy.type_,
            source,
            properties: policy.policy.properties.as_ref(),
            is_strict: false,
        };
        let context = self.context(fields, name);
        let rendered = render_template(&self.namespace_evaluator(fields), template, &context).await;
        let rendered = rendered.map_err(|cause| format!("policy {name}: {cause}"))?;
        let type_ = type_label(&policy.policy.type_);
        let owner = fields.owner(name);
        let mut workload = rendered.workload;
        let component_type = &type_;
        identify(&mut workload, &owner, Part::Workload { component_type });
        let mut objects = vec![Value::Object(workload)];
        for output in rendered.outputs {
            objects.push(Value::Object(identified(&output, &owner)));
        }
        Ok(objects)
    }

    async fn component(
        &self,
        fields: &ReleaseFields<'_>,
        parsed: &Parsed,
        component: &ParsedComponent,
    ) -> Result<Vec<Value>, String> {
        let declared = &component.component;
        let mut context = self.context(fields, &declared.name);
        context.insert("componentType".to_owned(), json!(declared.type_));
        context.insert("components".to_owned(), json!(parsed.spec.components));
        let traits = component.traits.iter().filter(|one| !is_postponed(one));
        let templates: Vec<Template<'_>> = traits.filter_map(trait_template).collect();
        let input = component::Component {
            name: &declared.name,
            template: Template {
                name: &declared.type_,
                source: component.definition.template().unwrap_or_default(),
                properties: declared.properties.as_ref(),
                is_strict: false,
            },
            traits: &templates,
            context: &context,
        };
        let rendered = component::render(&self.namespace_evaluator(fields), &input).await;
        let rendered = rendered.map_err(|error| error.to_string())?;
        let owner = fields.owner(&declared.name);
        let mut workload = rendered.workload;
        let component_type = &component.type_label;
        identify(&mut workload, &owner, Part::Workload { component_type });
        let mut objects = Vec::new();
        if !component.traits.iter().any(|one| one.definition.spec.manage_workload) {
            objects.push(Value::Object(workload.clone()));
        }
        for output in &rendered.outputs {
            objects.push(trait_object(output, component, &owner, &workload));
        }
        Ok(objects)
    }

    fn namespace_evaluator<'a>(&'a self, fields: &'a ReleaseFields<'_>) -> NamespaceEvaluator<'a> {
        NamespaceEvaluator {
            pool: &self.evaluator,
            namespace: &fields.namespace,
        }
    }

    fn context(&self, fields: &ReleaseFields<'_>, name: &str) -> Map<String, Value> {
        let context = json!({
            "name": name,
            "appName": fields.name,
            "namespace": fields.namespace,
            "appRevision": fields.release.revision,
            "appRevisionNum": fields.release.number,
            "appLabels": fields.labels,
            "appAnnotations": fields.annotations,
            "revision": "",
            "cluster": "",
            "clusterVersion": self.cluster_version,
            "publishVersion": fields.annotations.get(labels::PUBLISH_VERSION).cloned().unwrap_or_else(|| json!("")),
            "workflowName": fields.name,
            "replicaKey": "",
        });
        match context {
            Value::Object(context) => context,
            _ => Map::new(),
        }
    }
}

/// The fields of a release as the renderer needs them.
struct ReleaseFields<'a> {
    release: &'a Release<'a>,
    name: String,
    namespace: String,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
}

impl<'a> ReleaseFields<'a> {
    fn new(release: &'a Release<'a>) -> Self {
        let texts = |texts: &BTreeMap<String, String>| {
            let texts = texts.iter();
            texts.map(|(name, text)| (name.clone(), json!(text))).collect()
        };
        Self {
            release,
            name: release.application.name_any(),
            namespace: release.application.namespace().unwrap_or_default(),
            labels: texts(release.application.labels()),
            annotations: texts(release.application.annotations()),
        }
    }

    fn owner<'o>(&'o self, component: &'o str) -> Owner<'o> {
        Owner {
            app: &self.name,
            namespace: &self.namespace,
            labels: &self.labels,
            annotations: &self.annotations,
            component,
            revision: self.release.revision,
            revision_hash: self.release.hash,
            replica_key: None,
            cluster: "",
        }
    }
}

fn is_postponed(one: &ParsedTrait) -> bool {
    Stage::parse(&one.definition.spec.stage) == Ok(Stage::PostDispatch)
}

fn trait_template(one: &ParsedTrait) -> Option<Template<'_>> {
    Some(Template {
        name: &one.type_label,
        source: one.definition.template()?,
        properties: one.trait_.properties.as_ref(),
        is_strict: false,
    })
}

fn identified(output: &Output, owner: &Owner<'_>) -> Map<String, Value> {
    let mut object = output.object.clone();
    let part = Part::Trait {
        trait_type: &output.trait_type,
        resource: &output.key,
    };
    identify(&mut object, owner, part);
    object
}

fn trait_object(
    output: &Output,
    component: &ParsedComponent,
    owner: &Owner<'_>,
    workload: &Map<String, Value>,
) -> Value {
    let mut object = identified(output, owner);
    let mut traits = component.traits.iter();
    let definition = traits.find(|one| one.type_label == output.trait_type);
    let spec = definition.map(|one| &one.definition.spec);
    if let Some(spec) = spec.filter(|spec| !spec.workload_ref_path.is_empty()) {
        set_workload_reference(&mut object, &spec.workload_ref_path, workload);
    }
    let mut object = Value::Object(object);
    if spec.is_some_and(|spec| spec.manage_workload) {
        object["metadata"]["labels"][MANAGE_WORKLOAD] = json!("true");
    }
    object
}

/// Removes the namespace of an object without one. Kinds that are not built in are known to the cluster only.
fn remove_namespace(object: &mut Value) {
    let is_cluster_scoped = CLUSTER_SCOPED.iter().any(|kind| object["kind"] == *kind)
        && object["apiVersion"]
            .as_str()
            .is_some_and(|version| version.contains(".k8s.io/") || version == "v1");
    if is_cluster_scoped && let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
}

//! The objects of one revision of an Application: contexts of templates, traits by stage, identities.

mod component;
mod context;

use std::sync::{Arc, OnceLock};

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::api::NamespacedName;
use crate::api::oam::{Application, Definition as _, LatestRevision, labels};
use crate::controllers::oam::context::Context;
use crate::controllers::oam::dispatch::order::Stage;
use crate::controllers::oam::parse::{Parsed, ParsedComponent, ParsedPolicy, ParsedTrait, type_label};
use crate::controllers::oam::placement::Place;
use crate::controllers::oam::render::cache_key::{CacheKey, post_dispatch_key};
use crate::controllers::oam::render::component::{DefinitionTemplate, Output, Rendered, apply_trait, render_template};
use crate::controllers::oam::render::evaluate::{Cause, ComponentError, Evaluate, TemplateSubject};
use crate::controllers::oam::render::identity::{Owner, Part, identify, remove_resource_type, set_workload_reference};
use crate::controllers::oam::trackers::LOCAL;

pub use component::ReleaseComponent;
use context::fields;
pub use context::{context_version, unknown_version};

/// Label of objects of traits that create the workload.
const MANAGE_WORKLOAD: &str = "trait.oam.dev/manage-workload";

/// An Application in one of its revisions.
#[derive(Clone, Debug)]
pub struct Release {
    pub name: NamespacedName,
    pub revision: LatestRevision,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    publish_version: String,
    workflow_name: String,
    /// The version of the controller's own cluster, as templates see it.
    cluster_version: Value,
    /// The context of all components, built with the first component.
    shared_context: OnceLock<Arc<Map<String, Value>>>,
    pub settings: ReleaseSettings,
}

/// The settings of the process for all templates.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseSettings {
    /// Rejects properties that templates do not declare.
    pub is_strict: bool,
    /// Applies traits with a stage before or after their workload.
    pub has_stages: bool,
}

impl ReleaseSettings {
    /// Returns the stage in which a trait is applied.
    #[must_use]
    pub fn stage(self, trait_: &ParsedTrait) -> Stage {
        if self.has_stages {
            stage(trait_)
        } else {
            Stage::DefaultDispatch
        }
    }

    /// Returns true if a trait is applied after its workload is healthy.
    #[must_use]
    pub fn is_post_dispatch(self, trait_: &ParsedTrait) -> bool {
        self.stage(trait_) == Stage::PostDispatch
    }
}

/// An object of a component or policy.
#[derive(Clone, Debug)]
pub struct ReleaseObject {
    pub manifest: Value,
    /// The type of the trait, empty for the workload.
    pub trait_: String,
    /// The key in `outputs`, empty for the workload.
    pub key: String,
    pub stage: Stage,
    /// Stays in the controller's own cluster, whatever the place: an object of a policy, or of a trait for the control
    /// plane only.
    pub is_local: bool,
}

/// The objects of a component, but for objects of the last stage, and what they were rendered from.
pub struct ComponentObjects {
    /// The key of `rendered`.
    pub key: CacheKey,
    pub rendered: Arc<Rendered>,
    /// The workload, also if a trait creates it.
    pub workload: Value,
    pub objects: Vec<ReleaseObject>,
    pub context: Context,
    pub place: Place,
    /// True if traits see the status of the live workload.
    pub reads_status: bool,
    /// That status, when they were rendered.
    pub output_status: Option<Value>,
}

impl Release {
    #[must_use]
    pub fn new(
        name: NamespacedName,
        application: &Application,
        revision: LatestRevision,
        cluster_version: Value,
        settings: ReleaseSettings,
    ) -> Self {
        let annotation = |name: &str| application.annotations().get(name).cloned().unwrap_or_default();
        Self {
            name,
            revision,
            labels: fields(application.labels()),
            annotations: fields(application.annotations()),
            publish_version: annotation(labels::PUBLISH_VERSION),
            workflow_name: annotation(labels::WORKFLOW_NAME),
            cluster_version,
            shared_context: OnceLock::new(),
            settings,
        }
    }

    /// Prepares a component for a place.
    #[must_use]
    pub fn component<'a>(
        &'a self,
        parsed: &Parsed,
        component: &'a ParsedComponent,
        place: &'a Place,
    ) -> ReleaseComponent<'a> {
        let traits = component
            .traits
            .iter()
            .filter(|trait_| !self.settings.is_post_dispatch(trait_));
        ReleaseComponent {
            release: self,
            component,
            traits: traits.filter_map(|trait_| self.trait_template(trait_)).collect(),
            context: self.component_context(parsed, component, place),
            output_status: None,
            place,
        }
    }

    /// Renders the traits of the last stage into further outputs. `live` has the live objects as `output` and `outputs`;
    /// without them, templates see the rendered objects.
    ///
    /// # Errors
    /// The first trait that fails.
    pub async fn render_post_dispatch<V: Evaluate>(
        &self,
        evaluator: &V,
        component: &ParsedComponent,
        objects: &ComponentObjects,
        live: &Map<String, Value>,
    ) -> Result<Vec<Output>, ComponentError<V::Error>> {
        let name = &component.component.name;
        let context = objects.context.with(live);
        let mut rendered = Rendered::clone(&objects.rendered);
        let before = rendered.outputs.len();
        for template in self.post_dispatch_templates(component) {
            let applied = apply_trait(evaluator, rendered, template, &context, None).await;
            rendered = applied.map_err(|cause| ComponentError {
                component: name.clone(),
                subject: TemplateSubject::Trait(template.name.to_owned()),
                cause,
            })?;
        }
        Ok(rendered.outputs.split_off(before))
    }

    /// Returns the key of what [`Self::render_post_dispatch`] returns.
    #[must_use]
    pub fn post_dispatch_key(
        &self,
        component: &ParsedComponent,
        objects: &ComponentObjects,
        live: &Map<String, Value>,
    ) -> CacheKey {
        let traits: Vec<_> = self.post_dispatch_templates(component).collect();
        post_dispatch_key(objects.key, &traits, &objects.context, live)
    }

    fn post_dispatch_templates<'a>(
        &self,
        component: &'a ParsedComponent,
    ) -> impl Iterator<Item = DefinitionTemplate<'a>> {
        let traits = component.traits.iter();
        traits
            .filter(|trait_| self.settings.is_post_dispatch(trait_))
            .filter_map(|trait_| self.trait_template(trait_))
    }

    /// Returns the objects of outputs of the last stage. As in KubeVela, they get neither labels nor annotations of the
    /// Application, and no type of resource.
    #[must_use]
    pub fn post_dispatch_objects(
        &self,
        component: &ParsedComponent,
        objects: &ComponentObjects,
        outputs: &[Output],
    ) -> Vec<ReleaseObject> {
        let none = Map::new();
        let owner = Owner {
            labels: &none,
            annotations: &none,
            ..self.owner(&component.component.name, &objects.place)
        };
        let Value::Object(workload) = &objects.workload else {
            return Vec::new();
        };
        let objects = outputs.iter().map(|output| {
            let mut object = self.trait_object(output, component, &owner, workload, &objects.place);
            remove_resource_type(&mut object.manifest);
            object
        });
        objects.collect()
    }

    /// Renders a policy. A policy without a template has no objects.
    ///
    /// # Errors
    /// Templates that the evaluator rejects.
    pub async fn policy<V: Evaluate>(
        &self,
        evaluator: &V,
        policy: &ParsedPolicy,
    ) -> Result<Vec<ReleaseObject>, Cause<V::Error>> {
        let Some(source) = policy.definition.template() else {
            return Ok(Vec::new());
        };
        let policy = &policy.policy;
        let template = DefinitionTemplate {
            name: &policy.type_,
            source,
            properties: policy.properties.as_ref(),
            is_strict: self.settings.is_strict,
            has_status: false,
        };
        let rendered = render_template(evaluator, template, &self.policy_context(&policy.name)).await?;
        let place = Place::default();
        let owner = self.owner(&policy.name, &place);
        let workload = identified_workload(&rendered, &owner, &type_label(&policy.type_));
        let outputs = rendered.outputs.iter().map(|output| ReleaseObject {
            manifest: Value::Object(identified_output(output, &owner)),
            trait_: output.trait_type.clone(),
            key: output.key.clone(),
            stage: Stage::DefaultDispatch,
            is_local: true,
        });
        let workload = ReleaseObject {
            is_local: true,
            ..ReleaseObject::workload(workload)
        };
        Ok(std::iter::once(workload).chain(outputs).collect())
    }

    fn owner<'o>(&'o self, component: &'o str, place: &'o Place) -> Owner<'o> {
        Owner {
            app: &self.name.name,
            namespace: &self.name.namespace,
            labels: &self.labels,
            annotations: &self.annotations,
            component,
            revision: &self.revision.name,
            revision_hash: &self.revision.revision_hash,
            replica_key: Some(place.replica_key.as_str()).filter(|key| !key.is_empty()),
            cluster: &place.cluster,
        }
    }

    fn trait_template<'a>(&self, trait_: &'a ParsedTrait) -> Option<DefinitionTemplate<'a>> {
        Some(DefinitionTemplate {
            name: &trait_.type_label,
            source: trait_.definition.template()?,
            properties: trait_.trait_.properties.as_ref(),
            is_strict: self.settings.is_strict,
            has_status: self.settings.has_stages && self.settings.stage(trait_) == Stage::DefaultDispatch,
        })
    }

    fn trait_object(
        &self,
        output: &Output,
        component: &ParsedComponent,
        owner: &Owner<'_>,
        workload: &Map<String, Value>,
        place: &Place,
    ) -> ReleaseObject {
        let mut object = identified_output(output, owner);
        let trait_ = component.traits.iter().find(|one| one.type_label == output.trait_type);
        let is_local = trait_.is_some_and(|trait_| trait_.definition.spec.control_plane_only);
        place.move_object(&mut object, is_local, &self.name.namespace);
        if let Some(spec) = trait_.map(|trait_| &trait_.definition.spec) {
            if !spec.workload_ref_path.is_empty() {
                set_workload_reference(&mut object, &spec.workload_ref_path, workload);
            }
            let metadata = object.get_mut("metadata").filter(|_| spec.manage_workload);
            if let Some(labels) = metadata.and_then(|metadata| metadata.get_mut("labels")) {
                labels[MANAGE_WORKLOAD] = json!("true");
            }
        }
        let stage = trait_.map(|trait_| self.settings.stage(trait_));
        ReleaseObject {
            manifest: Value::Object(object),
            trait_: output.trait_type.clone(),
            key: output.key.clone(),
            stage: stage.unwrap_or_default(),
            is_local,
        }
    }
}

impl ReleaseObject {
    fn workload(object: Map<String, Value>) -> Self {
        Self {
            manifest: Value::Object(object),
            trait_: String::new(),
            key: String::new(),
            stage: Stage::DefaultDispatch,
            is_local: false,
        }
    }

    /// Returns the cluster of the object of a component at a place; an empty text if the place names none.
    #[must_use]
    pub fn cluster<'a>(&self, place: &'a Place) -> &'a str {
        if self.is_local && !place.cluster.is_empty() {
            LOCAL
        } else {
            &place.cluster
        }
    }
}

fn identified_workload(rendered: &Rendered, owner: &Owner<'_>, component_type: &str) -> Map<String, Value> {
    let mut workload = rendered.workload.clone();
    identify(&mut workload, owner, Part::Workload { component_type });
    workload
}

fn identified_output(output: &Output, owner: &Owner<'_>) -> Map<String, Value> {
    let mut object = output.object.clone();
    let part = Part::Trait {
        trait_type: &output.trait_type,
        resource: &output.key,
    };
    identify(&mut object, owner, part);
    object
}

fn stage(trait_: &ParsedTrait) -> Stage {
    // An unknown stage is reported when the Application is parsed.
    Stage::parse(&trait_.definition.spec.stage).unwrap_or_default()
}

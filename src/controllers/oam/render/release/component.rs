//! A component of a release, and its objects.

use std::sync::Arc;

use serde_json::Value;

use super::context::CLUSTER_VERSION;
use super::{ComponentObjects, Release, ReleaseObject, identified_workload};
use crate::controllers::oam::context::Context;
use crate::controllers::oam::parse::ParsedComponent;
use crate::controllers::oam::placement::Place;
use crate::controllers::oam::render::cache_key::{CacheKey, component_key};
use crate::controllers::oam::render::component::{self, Base, DefinitionTemplate, Rendered};
use crate::controllers::oam::render::evaluate::{ComponentError, Evaluate};
use crate::controllers::oam::render::terraform::Terraform;
use crate::controllers::oam::source::reads_output_status;

/// A component with the templates of its traits, but for traits of the last stage.
pub struct ReleaseComponent<'a> {
    pub(super) release: &'a Release,
    pub(super) component: &'a ParsedComponent,
    pub(super) traits: Vec<DefinitionTemplate<'a>>,
    pub(super) context: Context,
    pub(super) output_status: Option<Value>,
    pub(super) place: &'a Place,
}

impl ReleaseComponent<'_> {
    fn input(&self) -> component::TemplatedComponent<'_> {
        let ParsedComponent {
            component, definition, ..
        } = self.component;
        let (name, properties) = (&component.type_, component.properties.as_ref());
        let base = match definition.terraform() {
            Some(definition) => Base::Terraform(Terraform {
                name,
                definition,
                properties,
                namespace: &self.release.name.namespace,
            }),
            None => Base::Template(DefinitionTemplate {
                name,
                source: definition.template().unwrap_or_default(),
                properties,
                is_strict: self.release.settings.is_strict,
                has_status: false,
            }),
        };
        component::TemplatedComponent {
            name: &component.name,
            base,
            traits: &self.traits,
            context: &self.context,
            output_status: self.output_status.as_ref(),
        }
    }

    /// Returns the component without its traits, if one of them reads the status of the live workload.
    #[must_use]
    pub fn workload_to_read(&self) -> Option<Self> {
        self.reads_status().then(|| Self {
            traits: Vec::new(),
            context: self.context.clone(),
            output_status: None,
            ..*self
        })
    }

    fn reads_status(&self) -> bool {
        let mut traits = self.traits.iter().filter(|template| template.has_status);
        traits.any(|template| reads_output_status(template.source))
    }

    /// Lets templates see the version of the joined cluster of the place. Its fields are empty otherwise.
    pub fn set_cluster_version(&mut self, version: Value) {
        self.context.insert(CLUSTER_VERSION, version);
    }

    /// Lets traits see the status of the live workload.
    pub fn set_output_status(&mut self, status: Option<Value>) {
        self.output_status = status;
    }

    /// Returns the key of what the component is rendered from.
    #[must_use]
    pub fn key(&self) -> CacheKey {
        component_key(&self.input())
    }

    /// Evaluates the templates.
    ///
    /// # Errors
    /// The first template that fails.
    pub async fn render<V: Evaluate>(&self, evaluator: &V) -> Result<Rendered, ComponentError<V::Error>> {
        component::render(evaluator, &self.input()).await
    }

    /// Returns the objects to apply, with the key of what they were rendered from.
    #[must_use]
    pub fn objects(self, key: CacheKey, rendered: Arc<Rendered>) -> ComponentObjects {
        let (release, component) = (self.release, self.component);
        let place = self.place;
        let owner = release.owner(&component.component.name, place);
        let mut workload = identified_workload(&rendered, &owner, &component.type_label);
        place.move_object(&mut workload, false, &release.name.namespace);
        let is_managed = component.traits.iter().any(|one| one.definition.spec.manage_workload);
        let mut objects = Vec::new();
        if !is_managed {
            objects.push(ReleaseObject::workload(workload.clone()));
        }
        let outputs = rendered.outputs.iter();
        objects.extend(outputs.map(|output| release.trait_object(output, component, &owner, &workload, place)));
        ComponentObjects {
            key,
            workload: Value::Object(workload),
            rendered,
            objects,
            reads_status: self.reads_status(),
            output_status: self.output_status,
            context: self.context,
            place: place.clone(),
        }
    }
}

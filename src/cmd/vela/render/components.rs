//! Renders the objects of an Application, as the reconciler does.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::api::NamespacedName;
use crate::api::oam::{Application, LatestRevision};
use crate::cmd::Error;
use crate::controllers::oam::parse::{Parsed, ParsedComponent};
use crate::controllers::oam::placement::Place;
use crate::controllers::oam::render::evaluate::{self, Cause, NamespaceEvaluator};
use crate::controllers::oam::render::release::{ComponentObjects, Release, ReleaseObject, ReleaseSettings};
use crate::controllers::oam::trackers::is_local;
use crate::cue::{self, Evaluator};

/// The defaults of the controller.
const SETTINGS: ReleaseSettings = ReleaseSettings {
    is_strict: false,
    has_stages: true,
};

/// Renders objects for clusters of one version.
pub struct Renderer<'a> {
    evaluator: &'a Evaluator,
    cluster_version: Value,
    release: Release,
    parsed: &'a Parsed,
}

pub enum RenderFailure {
    /// The template does not accept its context.
    Invalid(String),
    Failed(Error),
}

impl<'a> Renderer<'a> {
    pub fn new(
        evaluator: &'a Evaluator,
        cluster_version: &Value,
        application: &Application,
        revision: LatestRevision,
        parsed: &'a Parsed,
    ) -> Self {
        let name = NamespacedName::of(&application.metadata).unwrap_or_default();
        Self {
            evaluator,
            cluster_version: cluster_version.clone(),
            release: Release::new(name, application, revision, cluster_version.clone(), SETTINGS),
            parsed,
        }
    }

    pub async fn policies(&self) -> Result<Vec<ReleaseObject>, Error> {
        let mut objects = Vec::new();
        for policy in &self.parsed.policies {
            let rendered = self.release.policy(&self.evaluator(), policy).await;
            let name = &policy.policy.name;
            objects.extend(rendered.map_err(|cause| self.failed(&format!("policy {name}: {cause}")))?);
        }
        Ok(objects)
    }

    /// Renders a component without the traits that wait until it is healthy.
    pub async fn component(&self, component: &ParsedComponent, place: &Place) -> Result<ComponentObjects, Error> {
        let mut prepared = self.release.component(self.parsed, component, place);
        if !is_local(&place.cluster) {
            prepared.set_cluster_version(self.cluster_version.clone());
        }
        let rendered = prepared
            .render(&self.evaluator())
            .await
            .map_err(|error| self.failed(&error.to_string()))?;
        let key = prepared.key();
        Ok(prepared.objects(key, Arc::new(rendered)))
    }

    /// Renders the traits that wait until the component is healthy. Without live objects, they see the rendered ones.
    pub async fn post_traits(
        &self,
        component: &ParsedComponent,
        objects: &ComponentObjects,
        live: &Map<String, Value>,
    ) -> Result<Vec<ReleaseObject>, RenderFailure> {
        let evaluator = self.evaluator();
        let rendered = self
            .release
            .render_post_dispatch(&evaluator, component, objects, live)
            .await;
        let outputs = rendered.map_err(|error: evaluate::ComponentError<cue::Error>| {
            let message = error.to_string();
            match error.cause {
                Cause::Invalid(_) | Cause::NotAnObject(_) | Cause::User(_) => RenderFailure::Invalid(message),
                _ => RenderFailure::Failed(self.failed(&message)),
            }
        })?;
        Ok(self.release.post_dispatch_objects(component, objects, &outputs))
    }

    /// Returns true if the component has traits that wait until it is healthy.
    pub fn has_post_traits(&self, component: &ParsedComponent) -> bool {
        let settings = self.release.settings;
        component
            .traits
            .iter()
            .any(|declared| settings.is_post_dispatch(declared))
    }

    fn evaluator(&self) -> NamespaceEvaluator<'_> {
        NamespaceEvaluator {
            pool: self.evaluator,
            namespace: &self.release.name.namespace,
        }
    }

    fn failed(&self, message: &str) -> Error {
        Error::Failed(format!("Application {}: {message}", self.release.name.name))
    }
}

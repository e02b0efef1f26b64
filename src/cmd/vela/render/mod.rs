//! `portolan vela render`, and what it shares with `portolan vela diff`.

mod components;
pub mod definition_set;
pub mod plan;
pub mod starter_set;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{DEFINITION_NAMESPACE, manifests};
use crate::api::oam::{Application, LatestRevision};
use crate::budget::ResourceMetrics;
use crate::cmd::flags::non_empty;
use crate::cmd::{Error, output};
use crate::controllers::oam::parse::{
    Definitions, Parsed, parse, unsupported_application, unsupported_definitions, unsupported_overrides,
};
use crate::controllers::oam::references::REF_OBJECTS;
use crate::controllers::oam::render::release::context_version;
use crate::controllers::oam::revisions::names::revision_name;
use crate::cue::{self, Evaluator};
use crate::text::sanitize;
pub use components::{RenderFailure, Renderer};
use definition_set::DefinitionSet;
use plan::RenderPlan;

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

#[derive(Args, Clone, Debug)]
pub struct EvaluatorFlags {
    /// Path to the CUE evaluator (default: portolan-cue beside the executable or in PATH)
    #[arg(long, value_name = "FILE")]
    cue_evaluator: Option<String>,
}

impl EvaluatorFlags {
    pub fn evaluator(&self) -> Evaluator {
        let options = cue::EvaluatorOptions {
            program: non_empty(self.cue_evaluator.as_deref()).map(Into::into),
            workers: NonZeroUsize::MIN,
            ..cue::EvaluatorOptions::default()
        };
        Evaluator::new(options, ResourceMetrics::unregistered())
    }
}

/// Render the objects of Applications without a cluster
///
/// Prints them as the controller applies them, with the names of the first revision, in the order of the steps. Values of
/// Secrets are hidden. Traits that wait until their component is healthy see the rendered objects in place of live ones.
/// Notes name what is known at run time only: values of inputs, objects that templates of steps make, and joined clusters that
/// have the labels of a selector.
#[derive(Args, Debug)]
pub struct Render {
    /// Files with Applications; definitions, Policies and Workflows in them are used too; `-` for the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Directory with definitions (default: the starter set of `portolan vela definitions apply`)
    #[arg(long, value_name = "DIR")]
    definitions: Option<PathBuf>,
    /// Namespace of Applications without one
    #[arg(long, short, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    #[command(flatten)]
    evaluator: EvaluatorFlags,
}

impl Render {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let mut definitions = match &self.definitions {
            Some(directory) => DefinitionSet::of_directory(directory)?,
            None => DefinitionSet::starter()?,
        };
        let mut applications = Vec::new();
        for file in &self.files {
            for document in manifests::read(file)? {
                match manifests::oam_kind(&document) {
                    Some("Application") => applications.push(declared(document, &self.namespace)?),
                    _ if definitions.add(document.clone())? => {}
                    _ => warn(&format!("{} is not rendered", manifests::display(&document))),
                }
            }
        }
        if applications.is_empty() {
            return Err(Error::Failed(
                "the files contain no Application of core.oam.dev".to_owned(),
            ));
        }
        let evaluator = self.evaluator.evaluator();
        let version = context_version(&json!({ "major": "1", "minor": "35", "gitVersion": "v1.35.0" }));
        for application in &applications {
            let namespace = application.namespace().unwrap_or_default();
            let live = Definitions::live_for(application, &definitions, &namespace, DEFINITION_NAMESPACE);
            let parsed = parse_supported(application, &live)?;
            let plan = RenderPlan::new(application, &parsed, &live, None)?;
            let first = first_revision(&application.name_any());
            let renderer = Renderer::new(&evaluator, &version, application, first, &parsed);
            let mut objects = objects(&renderer, &plan).await?;
            objects.iter_mut().for_each(remove_namespace);
            objects.iter_mut().for_each(manifests::hide_secret_values);
            output::print(&manifests::yaml(&objects)?)?;
            for note in plan.notes() {
                eprintln!("note: {}", sanitize(&note));
            }
        }
        Ok(())
    }
}

/// Renders all objects. Traits that wait until their component is healthy see rendered objects in place of live ones.
async fn objects(renderer: &Renderer<'_>, plan: &RenderPlan) -> Result<Vec<Value>, Error> {
    let mut objects = renderer.policies().await?;
    for planned in &plan.components {
        let component = &planned.component;
        let rendered = renderer.component(component, &planned.place).await?;
        let post = match renderer.post_traits(component, &rendered, &Map::new()).await {
            Ok(post) => post,
            Err(RenderFailure::Failed(error)) => return Err(error),
            Err(RenderFailure::Invalid(message)) => {
                warn(&format!("not rendered without live objects: {message}"));
                Vec::new()
            }
        };
        objects.extend(rendered.objects.into_iter().chain(post));
    }
    Ok(objects.into_iter().map(|object| object.manifest).collect())
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

fn warn(text: &str) {
    eprintln!("warning: {}", sanitize(text));
}

fn declared(document: Value, namespace: &str) -> Result<Application, Error> {
    let display = manifests::display(&document);
    let mut application = serde_json::from_value::<Application>(document)
        .map_err(|error| Error::Failed(format!("{display}: {error}")))?;
    if application.name_any().is_empty() {
        return Err(Error::Failed("an Application has no metadata.name".to_owned()));
    }
    if application.namespace().is_none_or(|namespace| namespace.is_empty()) {
        application.metadata.namespace = Some(namespace.to_owned());
    }
    Ok(application)
}

/// Refuses what the controller does not support. Objects that components refer to are known to the controller only.
pub fn parse_supported(application: &Application, definitions: &Definitions<'_>) -> Result<Parsed, Error> {
    let failed = |message: String| Error::Failed(format!("Application {}: {message}", application.name_any()));
    let mut unsupported = unsupported_application(application);
    let parsed = parse(application, definitions);
    if let Ok(parsed) = &parsed {
        unsupported.extend(unsupported_definitions(&parsed.components));
        unsupported.extend(unsupported_overrides(&parsed.overrides));
    }
    let texts = unsupported.iter().map(ToString::to_string);
    let texts: Vec<String> = texts.chain(references(application)).collect();
    if !texts.is_empty() {
        return Err(failed(format!("not supported: {}", texts.join(", "))));
    }
    parsed.map_err(|error| failed(error.to_string()))
}

/// Returns the components that copy existing objects, which are not rendered here.
pub fn references(application: &Application) -> impl Iterator<Item = String> {
    let components = application.spec.components.iter();
    let references = components.filter(|component| component.type_ == REF_OBJECTS);
    references.map(|component| format!("component {} with references to existing objects", component.name))
}

pub fn first_revision(application: &str) -> LatestRevision {
    LatestRevision {
        name: revision_name(application, 1),
        revision: 1,
        revision_hash: String::new(),
    }
}

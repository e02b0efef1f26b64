use std::collections::BTreeMap;

use kube::ResourceExt;
use semver::Version;

use crate::api::oam::{Application, ApplicationRevisionSpec, Definition, labels};

/// First version of KubeVela whose revisions record the workflow of the application.
const RECORDS_WORKFLOW: Version = Version::new(1, 5, 7);

/// Returns true if two revisions have the same application, external policies and external workflow.
#[must_use]
pub fn has_same_application(recorded: &ApplicationRevisionSpec, new: &ApplicationRevisionSpec) -> bool {
    let mut policies = recorded.policies.iter().zip(&new.policies);
    let workflow = |spec: &ApplicationRevisionSpec| spec.workflow.as_ref().map(|workflow| workflow.spec.steps.clone());
    recorded.policies.len() == new.policies.len()
        && policies.all(|(recorded, new)| recorded.0 == new.0 && recorded.1.spec == new.1.spec)
        && workflow(recorded) == workflow(new)
        && has_same_spec(&recorded.application, &new.application)
}

fn has_same_spec(recorded: &Application, new: &Application) -> bool {
    if records_workflow(recorded) {
        return recorded.spec == new.spec;
    }
    let without_workflow = |application: &Application| {
        let mut spec = application.spec.clone();
        spec.workflow = None;
        spec
    };
    without_workflow(recorded) == without_workflow(new)
}

/// Returns true unless an old version of KubeVela recorded the application without its workflow.
fn records_workflow(recorded: &Application) -> bool {
    let annotation = |name: &str| recorded.annotations().get(name).filter(|value| !value.is_empty());
    if annotation(labels::PUBLISH_VERSION).is_some() {
        return true;
    }
    let version = annotation(labels::KUBEVELA_VERSION);
    let version = version.and_then(|version| Version::parse(version.trim_start_matches('v')).ok());
    version.is_none_or(|version| version >= RECORDS_WORKFLOW)
}

/// Returns true if two revisions have the same application and definitions.
#[must_use]
pub fn has_same_contents(recorded: &ApplicationRevisionSpec, new: &ApplicationRevisionSpec) -> bool {
    let mut workloads = recorded.workload_definitions.iter().zip(&new.workload_definitions);
    recorded.workload_definitions.len() == new.workload_definitions.len()
        && workloads.all(|(recorded, new)| recorded.0 == new.0 && recorded.1.spec == new.1.spec)
        && have_same_specs(&recorded.component_definitions, &new.component_definitions)
        && have_same_specs(&recorded.trait_definitions, &new.trait_definitions)
        && have_same_specs(&recorded.policy_definitions, &new.policy_definitions)
        && have_same_specs(&recorded.workflow_step_definitions, &new.workflow_step_definitions)
        && recorded.referred_objects == new.referred_objects
        && has_same_application(recorded, new)
}

/// Compares definitions by spec. Their metadata changes with every update of their status.
pub(super) fn have_same_specs<D: Definition>(recorded: &BTreeMap<String, D>, new: &BTreeMap<String, D>) -> bool {
    let mut pairs = recorded.iter().zip(new);
    recorded.len() == new.len() && pairs.all(|(recorded, new)| recorded.0 == new.0 && recorded.1.spec() == new.1.spec())
}

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use super::{
    Application, ApplicationRevision, ComponentDefinition, DefinitionRevision, Policy, PolicyDefinition,
    ResourceTracker, TraitDefinition, Workflow, WorkflowStepDefinition, WorkloadDefinition,
};
use crate::api::crd::simplify;

/// Returns the definitions of the group, for clusters without KubeVela.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        Application::crd(),
        ApplicationRevision::crd(),
        ResourceTracker::crd(),
        ComponentDefinition::crd(),
        TraitDefinition::crd(),
        PolicyDefinition::crd(),
        WorkflowStepDefinition::crd(),
        DefinitionRevision::crd(),
        workload_definition(),
        Policy::crd(),
        Workflow::crd(),
    ];
    crds.iter_mut().for_each(simplify);
    crds
}

/// Adds the version v1alpha2, which old manifests use. Both versions have the same fields.
fn workload_definition() -> CustomResourceDefinition {
    let mut crd = WorkloadDefinition::crd();
    if let Some(stored) = crd.spec.versions.first().cloned() {
        let mut served = stored;
        "v1alpha2".clone_into(&mut served.name);
        served.storage = false;
        if let Some(columns) = &mut served.additional_printer_columns {
            columns.retain(|column| column.name != "DESCRIPTION");
        }
        crd.spec.versions.insert(0, served);
    }
    crd
}

use std::sync::Arc;

use crate::api::oam::{
    ComponentDefinition, DefinitionKind, DefinitionRevision, Policy, PolicyDefinition, TraitDefinition, Workflow,
    WorkflowStepDefinition, WorkloadDefinition,
};

pub trait Lookup {
    fn component_definition(&self, namespace: &str, name: &str) -> Option<Arc<ComponentDefinition>>;
    fn workload_definition(&self, namespace: &str, name: &str) -> Option<Arc<WorkloadDefinition>>;
    fn trait_definition(&self, namespace: &str, name: &str) -> Option<Arc<TraitDefinition>>;
    fn policy_definition(&self, namespace: &str, name: &str) -> Option<Arc<PolicyDefinition>>;
    fn workflow_step_definition(&self, namespace: &str, name: &str) -> Option<Arc<WorkflowStepDefinition>>;

    /// Returns the names of the revisions of a definition, which have its kind and are labeled with its name.
    fn definition_revisions(&self, namespace: &str, kind: DefinitionKind, name: &str) -> Vec<String>;
    fn definition_revision(&self, namespace: &str, name: &str) -> Option<Arc<DefinitionRevision>>;

    fn policy(&self, namespace: &str, name: &str) -> Option<Arc<Policy>>;
    fn workflow(&self, namespace: &str, name: &str) -> Option<Arc<Workflow>>;
}

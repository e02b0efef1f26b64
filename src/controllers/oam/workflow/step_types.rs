//! Types of steps that deploy components.

use crate::api::oam::WorkflowStep;

/// Deploys all components by policies.
pub const DEPLOY: &str = "deploy";
/// Deploys one component.
pub const APPLY_COMPONENT: &str = "apply-component";
/// The same under the name that KubeVela gives it internally.
pub const BUILTIN_APPLY_COMPONENT: &str = "builtin-apply-component";

/// Returns true if a step deploys one component without a template.
#[must_use]
pub fn is_apply_component(step: &WorkflowStep) -> bool {
    step.type_ == APPLY_COMPONENT || step.type_ == BUILTIN_APPLY_COMPONENT
}

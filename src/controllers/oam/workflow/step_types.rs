//! Types of steps that deploy components.

use crate::api::oam::WorkflowStep;

/// Deploys all components by policies.
pub const DEPLOY: &str = "deploy";
/// Deploys one component.
pub const APPLY_COMPONENT: &str = "apply-component";
/// The same under the name that KubeVela gives it internally.
pub const BUILTIN_APPLY_COMPONENT: &str = "builtin-apply-component";
/// Deploy all components, or all but some, without regard to policies. Functions of `vela/op` have the same names.
const DEPLOY_WITHOUT_POLICIES: [&str; 3] = ["apply-application", APPLY_IN_PARALLEL, "apply-remaining"];
/// Does not wait until components are healthy, but for those that others depend on.
pub const APPLY_IN_PARALLEL: &str = "apply-application-in-parallel";

/// Returns true if a step deploys one component without a template.
#[must_use]
pub fn is_apply_component(step: &WorkflowStep) -> bool {
    step.type_ == APPLY_COMPONENT || step.type_ == BUILTIN_APPLY_COMPONENT
}

#[must_use]
pub fn deploys_without_policies(step: &WorkflowStep) -> bool {
    DEPLOY_WITHOUT_POLICIES.contains(&step.type_.as_str())
}

/// Returns true if a step deploys components by its template.
#[must_use]
pub fn deploys_many(step: &WorkflowStep) -> bool {
    step.type_ == DEPLOY || deploys_without_policies(step)
}

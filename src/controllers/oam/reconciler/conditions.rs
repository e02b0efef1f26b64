//! Conditions and phases of an Application.

pub use crate::api::oam::PARSED;

pub const REVISION: &str = "Revision";
pub const POLICY: &str = "Policy";
pub const RENDER: &str = "Render";
pub const WORKFLOW: &str = "Workflow";
pub const STATE_KEEP: &str = "StateKeep";
pub const SYNCED: &str = "Synced";
pub const READY: &str = "Ready";

pub mod phase {
    pub const STARTING: &str = "starting";
    pub const RENDERING: &str = "rendering";
    pub const GENERATING_POLICY: &str = "generatingPolicy";
    pub const RUNNING_WORKFLOW: &str = "runningWorkflow";
    pub const SUSPENDING: &str = "workflowSuspending";
    pub const TERMINATED: &str = "workflowTerminated";
    pub const FAILED: &str = "workflowFailed";
    pub const RUNNING: &str = "running";
    pub const UNHEALTHY: &str = "unhealthy";
    pub const DELETING: &str = "deleting";
}

//! The workflow engine: which steps run, and what their results mean. Pure; steps run outside.
//!
//! ```text
//!  WorkflowTurn::begin(steps, mode, status, store)
//!     loop: next_round() ── Check(step): run.condition_scope(step) ── record_check(step, result)
//!                       └── Run(step): run.context(step), run.inputs(step) ── record(step, result)
//!  WorkflowTurn::end() ── state, status, store, time of the next turn
//! ```
//!
//! Statuses, reasons and messages are KubeVela's. A level is the steps without a group, or the steps of one group. In
//! the mode StepByStep, a level stops at the first step that has not finished; in the mode DAG, it runs in rounds all
//! steps that depend on nothing unfinished. Groups and steps of the type `suspend` run here, all others outside.

mod backoff;
mod conditions;
mod groups;
mod inputs;
mod interface;
pub mod operations;
mod phase;
mod plan;
mod results;
mod round;
mod run;
mod statuses;
mod step_types;
mod store;
mod suspend;
#[cfg(test)]
mod tests;
mod timers;
mod turn;

pub use inputs::{InputScope, InputUsage, InputValue, InputsTooLarge, copy_inputs};
pub use interface::{FailureReason, StepResult, StepTask, TooManySteps, TurnOutcome, WorkflowSettings};
pub use phase::{State, StepPhase, StepReason};
pub use run::WorkflowRun;
pub use step_types::{
    APPLY_COMPONENT, APPLY_IN_PARALLEL, BUILTIN_APPLY_COMPONENT, DEPLOY, deploys_many, deploys_without_policies,
    is_apply_component,
};
pub use store::{InvalidStore, PathTooLong, Streak, VALUES_TOO_LARGE, ValueStore, check_path};
pub use turn::WorkflowTurn;

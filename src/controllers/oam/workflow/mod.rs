//! The workflow engine: which steps run, and what their results mean. Pure; steps run outside.
//!
//! ```text
//!  Turn::begin(steps, status, store)
//!     loop: next_round() ── steps to run, concurrently ── record(step, result)
//!  Turn::end() ── state, status, store, time of the next turn
//! ```
//!
//! Statuses, reasons and messages are those of KubeVela's engine. Only the mode DAG is there: the generated steps of an
//! Application without a workflow of its own.

mod backoff;
mod interface;
mod phase;
mod store;
#[cfg(test)]
mod tests;
mod turn;

pub use interface::{FailureReason, Outcome, Settings, StepResult, TooManySteps};
pub use phase::{State, StepPhase, StepReason};
pub use store::{InvalidStore, PathTooLong, Store, check_path};
pub use turn::Turn;

//! Decides what follows a sync in this process.

use std::time::Duration;

use super::scheduled;
use crate::catalog::ChangedCharts;
use crate::controllers::apprepository::decision::{Mode, retry_delay};
use crate::controllers::apprepository::sync::request::{SyncError, SyncOutcome, SyncRequest};
use crate::runtime::controller::{Action, ReconcileError};
use crate::runtime::workqueue::{Backoff, Priority};

/// Returns the result of the reconcile, after a number of `failures` in a row, with this time to the next tick.
pub fn after_sync(outcome: SyncOutcome, failures: u32, next_tick: Duration) -> Result<Action, ReconcileError> {
    match outcome {
        SyncOutcome::Interrupted(failed) => Err(retry(failed, failures)),
        SyncOutcome::Failed(failed) if failed.transient => Err(retry(failed, failures)),
        SyncOutcome::Failed(failed) => Err(ReconcileError::Terminal {
            message: failed.message,
            retry_after: Some(next_tick),
        }),
        SyncOutcome::Synced { is_complete: false, .. } => Ok(Action::RequeueAfter {
            delay: Duration::ZERO,
            priority: Some(Priority::CONTINUED),
        }),
        SyncOutcome::NotModified | SyncOutcome::Synced { .. } => Ok(scheduled(next_tick)),
    }
}

/// Retries after `failures`, as counted in the database. The queue's count includes API conflicts and is lost on
/// restart.
fn retry(failed: SyncError, failures: u32) -> ReconcileError {
    let delay = retry_delay(failures);
    ReconcileError::Transient {
        message: failed.message,
        backoff: Backoff {
            base: delay,
            cap: delay,
        },
        at_least: failed.retry_after.unwrap_or_default(),
    }
}

/// Returns the charts whose versions may lack rows of files after a sync.
#[must_use]
pub fn changed_charts(request: &SyncRequest, outcome: &SyncOutcome) -> ChangedCharts {
    let is_trusted = request.previous.as_ref().is_some_and(|previous| previous.trusted);
    match outcome {
        SyncOutcome::Synced { committed, .. } if is_trusted && request.mode == Mode::Conditional => {
            committed.written.clone()
        }
        SyncOutcome::Synced { .. } | SyncOutcome::Interrupted(_) => ChangedCharts::ALL,
        SyncOutcome::NotModified | SyncOutcome::Failed(_) => ChangedCharts::default(),
    }
}

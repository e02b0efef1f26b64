//! Decides what follows a sync in this process.

use std::time::Duration;

use super::scheduled;
use crate::catalog::{self, ChangedCharts, ErrorKind};
use crate::controllers::apprepository::decision::{SyncMode, retry_delay};
use crate::controllers::apprepository::sync::request::{SyncAborted, SyncError, SyncOutcome, SyncRequest, SyncResult};
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

/// The database counts the `failures`. The queue's count includes API conflicts and is lost on restart.
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
        SyncOutcome::Synced { committed, .. } if is_trusted && request.mode == SyncMode::Conditional => {
            committed.written.clone()
        }
        SyncOutcome::Synced { .. } | SyncOutcome::Interrupted(_) => ChangedCharts::ALL,
        SyncOutcome::NotModified | SyncOutcome::Failed(_) => ChangedCharts::default(),
    }
}

/// The work after a sync that recorded nothing.
#[derive(Debug)]
pub enum AbortPlan {
    /// The change that canceled the sync also enqueued the key or triggered an orphan check.
    AwaitEvent,
    /// The object was replaced, or has a tombstone, which is outdated if the API server was restored.
    ForgetTombstone,
    /// The repository waits for the end of a fault of the database, or for its backoff.
    ReportDatabase(catalog::Error),
}

#[must_use]
pub fn after_abort(aborted: SyncAborted) -> AbortPlan {
    match aborted {
        SyncAborted::Cancelled => AbortPlan::AwaitEvent,
        SyncAborted::Catalog(error) if is_superseded(&error) => AbortPlan::ForgetTombstone,
        SyncAborted::Catalog(error) => AbortPlan::ReportDatabase(error),
    }
}

const fn is_superseded(error: &catalog::Error) -> bool {
    matches!(error.kind(), ErrorKind::Superseded { .. })
}

/// Returns the value of the label `result`; `None` for a sync that does not count.
#[must_use]
pub const fn metric_label(result: &Result<SyncResult, SyncAborted>) -> Option<&'static str> {
    match result {
        Ok(SyncResult { outcome, .. }) => Some(match outcome {
            SyncOutcome::NotModified => "not_modified",
            SyncOutcome::Synced { .. } => "success",
            SyncOutcome::Interrupted(_) => "error",
            SyncOutcome::Failed(failed) if failed.transient => "error",
            SyncOutcome::Failed(_) => "stalled",
        }),
        Err(SyncAborted::Cancelled) => None,
        Err(SyncAborted::Catalog(error)) if is_superseded(error) => None,
        Err(SyncAborted::Catalog(_)) => Some("database"),
    }
}

/// Returns true if the sync went as far as the Secrets allow, so that another sync would change nothing.
#[must_use]
pub const fn has_used_secrets(result: &Result<SyncResult, SyncAborted>) -> bool {
    match result {
        Ok(SyncResult { outcome, .. }) => !matches!(outcome, SyncOutcome::Failed(failed) if failed.transient),
        Err(_) => false,
    }
}

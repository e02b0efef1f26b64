use std::time::Duration;

use super::client::JobError;
use super::secrets::CopyError;
use crate::catalog::RecordState;
use crate::controllers::apprepository::decision::MAX_REQUEUE;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::controllers::apprepository::tombstones::TombstoneError;
use crate::runtime::controller::ReconcileError;
use crate::runtime::workqueue::Backoff;

/// Backoff while an object can't be written.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(2),
    cap: Duration::from_secs(5 * 60),
};

/// A problem that is reported in the status.
pub struct Blocked {
    pub state: RecordState,
    /// The error of the reconcile: retried with backoff, or not before the next event.
    pub(super) is_transient: bool,
}

impl Blocked {
    pub(super) fn new(reason: &str, message: String, is_transient: bool) -> Self {
        let state = RecordState {
            ready: Some(false),
            stalled: !is_transient,
            reason: reason.to_owned(),
            message,
            failures: 1,
            ..RecordState::default()
        };
        Self { state, is_transient }
    }

    /// The caches of CronJobs, Jobs and pods were not filled in time.
    #[must_use]
    pub fn unlisted(namespace: &str) -> Self {
        let message = format!(
            "failed to list CronJobs, Jobs and pods in namespace {namespace} since the start; grant the service account the \
             verbs list and watch on cronjobs.batch, jobs.batch and pods"
        );
        Self::new("JobsUnknown", message, true)
    }

    #[must_use]
    pub fn into_error(self) -> ReconcileError {
        let Self { state, is_transient } = self;
        // A missing right or quota may be granted without an event.
        if is_transient || matches!(state.reason.as_str(), "JobsForbidden" | "JobsFailed" | "CronJobExists") {
            return ReconcileError::transient(state.message, BACKOFF);
        }
        ReconcileError::Terminal {
            message: state.message,
            retry_after: Some(MAX_REQUEUE),
        }
    }
}

impl From<JobError> for Blocked {
    fn from(error: JobError) -> Self {
        Self::new(error.reason(), error.to_string(), error.is_transient())
    }
}

impl From<SyncError> for Blocked {
    fn from(error: SyncError) -> Self {
        Self::new(&error.reason, error.message, error.transient)
    }
}

impl From<TombstoneError> for Blocked {
    fn from(error: TombstoneError) -> Self {
        let reason = match &error {
            TombstoneError::Api(_) => "JobsFailed",
            TombstoneError::Catalog(error) => error.reason(),
        };
        Self::new(reason, error.to_string(), true)
    }
}

impl From<CopyError> for Blocked {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Secret(error) => SyncError::from(error).into(),
            CopyError::Write(error) => error.into(),
        }
    }
}

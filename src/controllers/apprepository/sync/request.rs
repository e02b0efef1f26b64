use std::time::Duration;

use jiff::Timestamp;

use crate::catalog::{self, CommitSummary, Record};
use crate::controllers::apprepository::decision::SyncMode;
use crate::controllers::apprepository::secrets::SecretError;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::helm::index::Skipped;
use crate::http::FetchError;

#[derive(Clone, Debug)]
pub struct SyncRequest {
    pub spec: RepositorySpec,
    /// Stored record, reduced to what still applies after a restore or takeover.
    pub previous: Option<Record>,
    /// UID in the database when the sync was decided; the commit fails if it changed.
    pub expected_uid: Option<String>,
    pub mode: SyncMode,
    pub started: Timestamp,
    pub fresh_since: Timestamp,
}

#[derive(Clone, Debug)]
pub struct SyncResult {
    pub record: Record,
    pub outcome: SyncOutcome,
}

#[derive(Clone, Debug)]
pub enum SyncOutcome {
    NotModified,
    Synced {
        committed: CommitSummary,
        skipped: Skipped,
        /// False if another sync has to follow immediately.
        is_complete: bool,
    },
    /// A transient error stopped the sync of an OCI registry; the charts pulled so far were committed.
    Interrupted(SyncError),
    Failed(SyncError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncError {
    pub reason: String,
    /// Problem and next step, shown in conditions.
    pub message: String,
    /// A retry may succeed without a user's action.
    pub transient: bool,
    pub retry_after: Option<Duration>,
}

impl SyncError {
    /// Returns an error that needs a change by a user.
    #[must_use]
    pub fn stalled(reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.into(),
            transient: false,
            retry_after: None,
        }
    }

    #[must_use]
    pub fn transient(reason: &str, message: impl Into<String>) -> Self {
        Self {
            transient: true,
            ..Self::stalled(reason, message)
        }
    }
}

impl From<FetchError> for SyncError {
    fn from(error: FetchError) -> Self {
        Self::from(&error)
    }
}

impl From<&FetchError> for SyncError {
    fn from(error: &FetchError) -> Self {
        Self {
            reason: error.reason().to_owned(),
            message: error.to_string(),
            transient: error.is_transient(),
            retry_after: error.retry_after(),
        }
    }
}

impl From<SecretError> for SyncError {
    fn from(error: SecretError) -> Self {
        Self {
            transient: error.is_transient(),
            ..Self::stalled(error.reason(), error.to_string())
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SyncAborted {
    #[error("sync canceled: repository changed")]
    Cancelled,
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
}

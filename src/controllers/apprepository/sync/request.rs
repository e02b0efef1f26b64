//! The input and the result of one sync of a repository.

use std::time::Duration;

use jiff::Timestamp;

use crate::catalog::{self, CommitSummary, Record};
use crate::controllers::apprepository::decision::Mode;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::helm::index::Skipped;

/// A sync to run.
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// What is declared.
    pub declaration: RepositorySpec,
    /// What the database remembers; of a restored or taken-over repository only what may still be believed.
    pub previous: Option<Record>,
    /// The UID that the database held when the sync was decided: the transaction refuses to write over another.
    pub expected_uid: Option<String>,
    /// What of the memory is believed.
    pub mode: Mode,
    /// When it was decided.
    pub started: Timestamp,
    /// What the server has said since then is new enough: the time of the tick, or of whatever else has asked for it.
    pub wanted_since: Timestamp,
}

/// A sync whose outcome is recorded.
#[derive(Clone, Debug)]
pub struct SyncResult {
    /// What the database remembers now.
    pub record: Record,
    /// How it ended.
    pub outcome: SyncOutcome,
}

/// The outcome of a sync.
#[derive(Clone, Debug)]
pub enum SyncOutcome {
    /// The repository is as it was.
    NotModified,
    /// The index was read, and the catalogue is in step with it.
    Synced {
        /// What was written.
        committed: CommitSummary,
        /// What could not be used.
        skipped: Skipped,
        /// False where more is to be had, so that another attempt is to follow at once.
        is_complete: bool,
    },
    /// Charts were made of what could be had of a registry before it failed in a way that may pass by itself.
    Interrupted(SyncError),
    /// The charts stay as they were.
    Failed(SyncError),
}

/// The reason why a sync failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncError {
    /// The reason in `CamelCase`, for conditions and metrics.
    pub reason: String,
    /// What happened and what to do, as a sentence.
    pub message: String,
    /// Whether it may pass by itself.
    pub transient: bool,
    /// How long the server asks to be left alone.
    pub retry_after: Option<Duration>,
}

/// The reason why a sync ended without a recorded outcome.
#[derive(Debug, thiserror::Error)]
pub enum SyncAborted {
    /// It was given up, since the repository is being deleted or declared anew.
    #[error("the sync was cancelled, since its repository has changed")]
    Cancelled,
    /// The database could not be read or written.
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
}

//! One attempt to bring the catalogue in step with a repository: what goes in and what comes out. Decisions are made
//! elsewhere, so that an attempt may run in this process, as a command, or in a pod.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::decide::Mode;
use super::declaration::Declaration;
use crate::catalog::{self, Committed, Record};
use crate::source::index::Skipped;

/// An attempt to be made.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// What is declared.
    pub declaration: Declaration,
    /// What the database remembers; of a restored or taken-over repository only what may still be believed.
    pub previous: Option<Record>,
    /// The UID that the database held when the attempt was decided: the transaction refuses to write over another.
    pub expected_uid: Option<String>,
    /// What of the memory is believed.
    pub mode: Mode,
    /// When it was decided.
    pub started: Timestamp,
    /// What the server has said since then is new enough: the time of the tick, or of whatever else has asked for it.
    pub wanted_since: Timestamp,
}

/// An attempt that was made and recorded.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What the database remembers now.
    pub record: Record,
    /// How it ended.
    pub verdict: Verdict,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The repository is as it was.
    NotModified,
    /// The index was read, and the catalogue is in step with it.
    Synced {
        /// What was written.
        committed: Committed,
        /// What could not be used.
        skipped: Skipped,
        /// False where more is to be had, so that another attempt is to follow at once.
        is_complete: bool,
    },
    /// Charts were made of what could be had of a registry before it failed in a way that may pass by itself.
    Interrupted(Failed),
    /// The charts stay as they were.
    Failed(Failed),
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The reason in `CamelCase`, for conditions and metrics.
    pub reason: String,
    /// What happened and what to do, as a sentence.
    pub message: String,
    /// Whether it may pass by itself.
    pub transient: bool,
    /// How long the server asks to be left alone.
    pub retry_after: Option<Duration>,
}

/// Why nothing is known of how an attempt ended.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// It was given up, since the repository is being deleted or declared anew.
    #[error("the sync was cancelled, since its repository has changed")]
    Cancelled,
    /// The database could not be read or written.
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
}

/// Something that makes attempts.
pub trait Execute: Send + Sync + 'static {
    /// Makes one attempt and records how it ended. Whatever goes wrong outside the database is part of the verdict.
    fn attempt(&self, attempt: Attempt, cancel: CancellationToken) -> BoxFuture<'_, Result<Finished, AttemptError>>;
}

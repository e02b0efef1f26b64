use std::io;
use std::time::Duration;

use super::protocol::Kind;
use crate::runtime::worker_process::WorkerError;

const MIB: u64 = 1024 * 1024;

/// The reason why a text has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "no CUE evaluator: put portolan-cue beside portolan or into PATH (make evaluator builds it), or set --cue-evaluator"
    )]
    Missing,
    /// The evaluation was stopped.
    #[error("more than {0:?}")]
    Timeout(Duration),
    /// The evaluation was stopped; the limit in bytes.
    #[error("more than {}MiB", .0 / MIB)]
    Memory(u64),
    /// The text, or its result, is invalid.
    #[error("{text}")]
    Failed { kind: Kind, text: String },
    /// The process of the evaluator failed. Another attempt may succeed.
    #[error("CUE evaluator failed: {0}")]
    Crashed(String),
    /// The caller's turn is over, and the evaluation goes on in the background.
    #[error("waiting for a CUE evaluator")]
    Deferred,
}

impl Error {
    /// Returns true if the evaluation was stopped at a limit: another attempt will probably be stopped too.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Memory(_))
    }

    pub(super) const fn result(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Timeout(_) => "timeout",
            Self::Memory(_) => "memory",
            Self::Failed { kind, .. } => kind.name(),
            Self::Crashed(_) => "crashed",
            Self::Deferred => "deferred",
        }
    }

    /// `None` for a canceled call.
    pub(super) fn of_worker(error: WorkerError, timeout: Duration, memory: u64) -> Option<Self> {
        Some(match error {
            WorkerError::Canceled => return None,
            WorkerError::Deadline | WorkerError::Cpu => Self::Timeout(timeout),
            // The stack of an evaluation grows on the heap.
            WorkerError::Memory | WorkerError::Stack => Self::Memory(memory),
            WorkerError::Start(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            WorkerError::Failed(cause) => Self::Crashed(cause),
            start @ WorkerError::Start(_) => Self::Crashed(start.to_string()),
        })
    }
}

//! Failures to record a definition.

use std::time::Duration;

use crate::runtime::controller::ReconcileError;
use crate::runtime::kube_client::ApiError;
use crate::runtime::workqueue::Backoff;

pub(super) const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(5 * 60),
};
/// Pause after a refused request: no event reports a change of permissions.
pub(super) const REFUSED_RETRY: Duration = Duration::from_secs(10 * 60);

pub(super) enum DefinitionFailure {
    /// Only a user can help; the status says so.
    Reported(String),
    /// The cache is stale; the event will follow.
    Stale,
    Transient(String),
}

impl DefinitionFailure {
    pub(super) fn of(verb: &str, revision: &str, error: &ApiError) -> Self {
        let message = format!("failed to {verb} DefinitionRevision {revision}: {error}");
        if error.is_retryable() {
            Self::Transient(message)
        } else {
            Self::Reported(message)
        }
    }
}

pub(super) fn conflict(name: &str) -> DefinitionFailure {
    DefinitionFailure::Reported(format!(
        "DefinitionRevision {name} exists with other contents; choose another version or name"
    ))
}

pub(super) fn unusable(error: &str) -> ReconcileError {
    tracing::warn!(error, "definition is not recorded");
    ReconcileError::Terminal {
        message: format!("the definition {error}"),
        retry_after: None,
    }
}

pub(super) fn refused(message: &str, error: &ApiError) -> ReconcileError {
    if error.is_retryable() {
        return ReconcileError::transient(message, BACKOFF);
    }
    tracing::warn!(error = message, "request for a definition was refused");
    ReconcileError::Terminal {
        message: message.to_owned(),
        retry_after: Some(REFUSED_RETRY),
    }
}

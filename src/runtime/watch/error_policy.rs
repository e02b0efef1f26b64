use std::time::Duration;

use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff};
use tokio::time::Instant;

use super::events::no_version;
use crate::runtime::kube_client::{ApiError, is_api_server_unreachable};

/// Polling intervals for a definition that is not installed.
const REQUIRED_POLL: Duration = Duration::from_secs(3);
const OPTIONAL_POLL: Duration = Duration::from_secs(30);
/// Maximum delay between attempts. With the 30 s of client-go, a watch may be back half a minute after its API server.
const MAX_BACKOFF: Duration = Duration::from_secs(6);
/// Maximum delay while the API server does not respond: when it has started, it still refuses some requests.
const MAX_UNREACHABLE_BACKOFF: Duration = Duration::from_secs(3);
/// Denials in a row until a watch that worked counts as forbidden: a starting API server does not know the roles.
const BRIEF_DENIALS: u32 = 10;
/// Failures further apart are unrelated. Longer than the maximum backoff and the time limit of a request.
const SERIES_GAP: Duration = Duration::from_secs(120);

/// An allowed list ends a series, and the denied watch after it begins another.
const DENIAL_LOG_INTERVAL: Duration = Duration::from_secs(3600);

/// The reaction of a watch to errors. Every watch retries forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// Logs the first error. Keeps known objects: a missing definition does not prove that they were deleted.
    Required,
    /// Like `Required`, but the definition may be missing. The objects are gone with it.
    Optional,
    /// Reports errors as the health of the store, and polls kinds that may not be watched.
    PollWhenForbidden { interval: Duration },
}

pub(super) struct WatchFailure {
    pub(super) is_list: bool,
    pub(super) code: Option<u16>,
    pub(super) message: String,
}

impl From<&watcher::Error> for WatchFailure {
    fn from(error: &watcher::Error) -> Self {
        let (is_list, error) = match error {
            watcher::Error::InitialListFailed(error) => (true, ApiError::from(error)),
            watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => (false, error.into()),
            watcher::Error::WatchError(status) => (false, kube::Error::Api(status.clone()).into()),
            watcher::Error::NoResourceVersion => (true, no_version().into()),
        };
        Self {
            is_list,
            code: error.code,
            message: error.message,
        }
    }
}

impl WatchFailure {
    pub(super) fn is_not_served(&self) -> bool {
        self.code == Some(404)
    }

    /// Returns true if the API server refuses the request and will do so until a user changes something.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self.code, Some(401 | 403 | 405))
    }

    /// Returns true if permissions are missing, which may be brief while they are replaced.
    pub(super) fn is_unauthorized(&self) -> bool {
        matches!(self.code, Some(401 | 403))
    }
}

pub(super) struct WatchRetry {
    pub(super) wait: Duration,
    /// Opens another stream, which starts with a complete list.
    pub(super) reopens: bool,
}

/// The failures of a watch since its last success.
#[derive(Default)]
pub(super) struct WatchFailures {
    backoff: DefaultBackoff,
    /// The API server did not respond to the last request.
    is_unreachable: bool,
    /// The delay has started again in this series.
    has_restarted: bool,
    brief_denials: u32,
    first_and_last: Option<(Instant, Instant)>,
    /// The last logged failure: true for a missing definition.
    logged: Option<bool>,
    denial_logged: Option<Instant>,
}

impl WatchFailures {
    /// Records that the watch, not only its list, is permitted.
    pub(super) fn record_permission(&mut self) {
        self.brief_denials = BRIEF_DENIALS;
    }

    /// Returns true for missing permissions that are likely to return soon.
    pub(super) fn take_brief_denial(&mut self, failure: &WatchFailure, is_healthy: bool) -> bool {
        if !failure.is_unauthorized() {
            return false;
        }
        if failure.is_list {
            return is_healthy;
        }
        let is_brief = self.brief_denials > 0;
        self.brief_denials = self.brief_denials.saturating_sub(1);
        is_brief
    }

    /// Records a failure; returns the time since the first failure of the series.
    pub(super) fn record(&mut self) -> Duration {
        let now = Instant::now();
        // A healthy watch is silent while nothing changes.
        let first = match self.first_and_last {
            Some((first, last)) if now - last < SERIES_GAP => first,
            _ => now,
        };
        self.first_and_last = Some((first, now));
        now - first
    }

    /// Ends the series. Returns true if a failure was logged.
    pub(super) fn reset(&mut self) -> bool {
        self.backoff.reset();
        self.has_restarted = false;
        self.first_and_last = None;
        self.logged.take().is_some()
    }

    pub(super) fn retry(&mut self, policy: ErrorPolicy, failure: &WatchFailure, is_brief: bool) -> WatchRetry {
        let was_unreachable = std::mem::replace(&mut self.is_unreachable, failure.code.is_none());
        // Once: not each time that a load balancer selects another server.
        if was_unreachable && !self.is_unreachable && !std::mem::replace(&mut self.has_restarted, true) {
            self.backoff.reset();
        }
        let max = if self.is_unreachable {
            MAX_UNREACHABLE_BACKOFF
        } else {
            MAX_BACKOFF
        };
        let mut backoff = || self.backoff.next().unwrap_or_default().min(max);
        let reopen = |wait| WatchRetry { wait, reopens: true };
        match (policy, failure.code) {
            (ErrorPolicy::Required, Some(404)) => reopen(REQUIRED_POLL),
            (ErrorPolicy::Optional, Some(404)) => reopen(OPTIONAL_POLL),
            // The stream would request the expired version, or the missing kind, forever.
            (_, Some(404 | 410)) => reopen(backoff()),
            (ErrorPolicy::PollWhenForbidden { interval }, _) if failure.is_denied() => {
                reopen(if is_brief { backoff() } else { interval })
            }
            _ => WatchRetry {
                wait: backoff(),
                reopens: false,
            },
        }
    }

    /// Logs a failure unless the previous failure was of the same kind.
    pub(super) fn log(&mut self, policy: ErrorPolicy, resource: &str, failure: &WatchFailure) {
        let is_missing = failure.is_not_served();
        if self.logged == Some(is_missing) {
            return;
        }
        if failure.is_unauthorized() {
            let now = Instant::now();
            if self.denial_logged.is_some_and(|at| now - at < DENIAL_LOG_INTERVAL) {
                return;
            }
            self.denial_logged = Some(now);
        }
        let error = &failure.message;
        if failure.code.is_none() && is_api_server_unreachable() {
            tracing::debug!(error, "watch of {resource} failed, retrying");
            return;
        }
        self.logged = Some(is_missing);
        if is_missing && policy == ErrorPolicy::Optional {
            tracing::info!("custom resource definition {resource} is not installed, waiting for it");
        } else if is_missing {
            tracing::warn!(
                "custom resource definition {resource} is not installed, waiting for it; run `portolan crds --apply` to \
                 install it"
            );
        } else if failure.is_unauthorized() {
            let verb = if failure.is_list { "list" } else { "watch" };
            tracing::warn!(
                error,
                "not allowed to {verb} {resource}, retrying; grant Portolan's service account the verbs get, list and \
                 watch on it"
            );
        } else {
            tracing::warn!(error, "watch of {resource} failed, retrying");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::trace::log_lines::LogLines;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_not_allowed_is_logged_with_its_verb_once_an_hour() {
        let (log, _logging) = LogLines::start(Level::INFO);
        let denied = WatchFailure {
            is_list: false,
            code: Some(403),
            message: "forbidden".to_owned(),
        };
        let mut failures = WatchFailures::default();
        for _ in 0..119 {
            failures.log(ErrorPolicy::Required, "apprepositories.kubeapps.com", &denied);
            // The list succeeds in between.
            failures.reset();
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        let lines = log.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("not allowed to watch apprepositories.kubeapps.com"),
            "{lines:?}"
        );
    }

    #[test]
    fn an_api_server_that_responds_again_is_asked_soon() {
        let failure = |code| WatchFailure {
            is_list: true,
            code,
            message: String::new(),
        };
        let mut failures = WatchFailures::default();
        let mut wait = |code| failures.retry(ErrorPolicy::Required, &failure(code), false).wait;
        let unreachable: Vec<Duration> = (0..10).map(|_| wait(None)).collect();
        assert_eq!(unreachable.iter().max(), Some(&MAX_UNREACHABLE_BACKOFF));
        assert!(wait(Some(403)) < MAX_UNREACHABLE_BACKOFF, "the delay starts again");
        let refused: Vec<Duration> = (0..10).map(|_| wait(Some(403))).collect();
        assert_eq!(refused.iter().max(), Some(&MAX_BACKOFF));
        wait(None);
        assert_eq!(wait(Some(503)), MAX_BACKOFF, "once in a series");
    }
}

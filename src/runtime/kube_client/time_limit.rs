//! The time that a request has.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::response_timeout::ResponseTimedOut;

/// Limits each attempt, or the request with its waits and all attempts.
#[derive(Clone, Copy)]
pub(super) enum TimeLimit {
    None,
    Attempt(Duration),
    Total { limit: Duration, end: Instant },
}

impl TimeLimit {
    pub(super) fn start(limit: Option<Duration>, is_total: bool) -> Self {
        match limit {
            None => Self::None,
            Some(limit) if is_total => Self::Total {
                limit,
                end: Instant::now() + limit,
            },
            Some(limit) => Self::Attempt(limit),
        }
    }

    pub(super) async fn limit_wait<T>(self, wait: impl Future<Output = T>) -> Result<T, ResponseTimedOut> {
        match self {
            Self::Total { limit, end } => timeout_at(end, wait).await.map_err(|_| ResponseTimedOut(limit)),
            Self::None | Self::Attempt(_) => Ok(wait.await),
        }
    }

    pub(super) async fn limit_attempt<T>(self, attempt: impl Future<Output = T>) -> Result<T, ResponseTimedOut> {
        match self {
            Self::Attempt(limit) => timeout(limit, attempt).await.map_err(|_| ResponseTimedOut(limit)),
            Self::None | Self::Total { .. } => self.limit_wait(attempt).await,
        }
    }

    pub(super) fn lasts_until(self, time: Instant) -> bool {
        self.check_lasts_until(time).is_ok()
    }

    pub(super) fn check_lasts_until(self, time: Instant) -> Result<(), ResponseTimedOut> {
        match self {
            Self::Total { limit, end } if time >= end => Err(ResponseTimedOut(limit)),
            _ => Ok(()),
        }
    }
}

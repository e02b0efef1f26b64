//! Waiting for what can't be had yet.

use std::{fmt::Display, time::Duration};

use backon::{ExponentialBuilder, Retryable};

use crate::cmd::Failure;

/// Whether what can't be had yet is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// As a service does: an API server or a database may come up later than we do.
    Wait,
    /// As a command does.
    Fail,
}

impl Patience {
    /// Tries until it succeeds, as long as `may_pass` says that a failure may pass by itself.
    pub(super) async fn get<T, E: Display, F>(
        self,
        what: &str,
        may_pass: impl Fn(&E) -> bool,
        attempt: impl FnMut() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, E>>,
    {
        let backoff = ExponentialBuilder::default()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(60))
            .without_max_times()
            .with_jitter();
        attempt
            .retry(backoff)
            .when(|error| self == Self::Wait && may_pass(error))
            .notify(|error, delay| tracing::warn!(%error, retry_in = ?delay, "failed to reach {what}, retrying"))
            .await
            .map_err(|error| Failure::failed(format!("can't reach {what}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn tries(patience: Patience, may_pass: bool) -> (Result<u32, Failure>, u32) {
        let tries = Cell::new(0);
        let attempt = || {
            tries.set(tries.get() + 1);
            let result = if tries.get() < 5 { Err("away") } else { Ok(7) };
            async move { result }
        };
        let result = patience.get("the database", |_: &&str| may_pass, attempt).await;
        (result, tries.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_waits_for_what_may_come() {
        assert_eq!(tries(Patience::Wait, true).await, (Ok(7), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_passes_by_itself_is_not_waited_for() {
        let (result, tries) = tries(Patience::Wait, false).await;
        assert_eq!(
            (result.unwrap_err().to_string().as_str(), tries),
            ("can't reach the database: away", 1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_does_not_wait() {
        assert_eq!(tries(Patience::Fail, true).await.1, 1);
    }
}

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::http::FetchError;
use crate::oci::OciError;

/// Consecutive failures that count as a failure of the registry: two for each concurrent request.
const MAX_FAILURES: usize = 2 * super::CONCURRENCY;

/// Time and failure budget of one kind of request, shared by concurrent requests.
pub(super) struct RegistryBudget {
    until: Instant,
    failures: AtomicUsize,
    end: OnceLock<Arc<OciError>>,
}

impl RegistryBudget {
    pub(super) fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self {
            until: now.checked_add(time).unwrap_or(now),
            failures: AtomicUsize::new(0),
            end: OnceLock::new(),
        }
    }

    /// Returns a budget with the remaining time and no failures.
    pub(super) fn retry(&self) -> Self {
        Self {
            until: self.until,
            failures: AtomicUsize::new(0),
            end: OnceLock::new(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.get().is_some() || self.is_out_of_time()
    }

    pub(super) fn is_out_of_time(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Returns the error that exhausted the budget: the registry asked for a pause or keeps failing.
    pub(super) fn end(&self) -> Option<&Arc<OciError>> {
        self.end.get()
    }

    pub(super) fn record_answer(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    pub(super) fn record_failure(&self, error: &Arc<OciError>) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= MAX_FAILURES || is_pause_requested(error) {
            // The first such error is reported.
            let _ = self.end.set(error.clone());
        }
    }
}

/// Returns true if the fetcher sends no further requests: the host asked for a pause, or the sync has to end.
pub(super) const fn is_pause_requested(error: &OciError) -> bool {
    error.retry_after().is_some() || matches!(error, OciError::Fetch(FetchError::Aborted(_)))
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::*;

    fn error(retry_after: Option<Duration>) -> Arc<OciError> {
        Arc::new(OciError::Fetch(FetchError::Status {
            url: "https://example.com/v2/".to_owned(),
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after,
            challenges: Vec::new(),
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_failures_or_a_requested_pause_exhaust_the_budget() {
        let budget = RegistryBudget::new(Duration::from_secs(60));
        for _ in 0..3 {
            (1..MAX_FAILURES).for_each(|_| budget.record_failure(&error(None)));
            assert!(!budget.is_over());
            budget.record_answer();
        }
        (0..MAX_FAILURES).for_each(|_| budget.record_failure(&error(None)));
        assert!(budget.is_over() && budget.end().is_some());

        let budget = RegistryBudget::new(Duration::from_secs(60));
        budget.record_failure(&error(Some(Duration::from_secs(5))));
        assert!(budget.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_is_limited_in_time() {
        let budget = RegistryBudget::new(Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(!budget.is_over());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(budget.is_over() && budget.end().is_none());
    }
}

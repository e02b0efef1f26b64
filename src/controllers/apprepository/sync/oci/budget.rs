//! Limits the time and the failures of one sync of an OCI registry.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::oci::OciError;

/// Consecutive failures that count as a failure of the registry: two for each concurrent request.
const IN_A_ROW: usize = 2 * super::AT_ONCE;

/// Time and failure budget of one kind of request, shared by concurrent requests.
pub(super) struct Patience {
    until: Instant,
    failures: AtomicUsize,
    end: OnceLock<Arc<OciError>>,
}

impl Patience {
    pub(super) fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self {
            until: now.checked_add(time).unwrap_or(now),
            failures: AtomicUsize::new(0),
            end: OnceLock::new(),
        }
    }

    /// Returns a budget with the remaining time and no failures.
    pub(super) fn again(&self) -> Self {
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

    pub(super) fn answered(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, error: &Arc<OciError>) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= IN_A_ROW || wants_to_be_left_alone(error) {
            // The first such error is reported.
            let _ = self.end.set(error.clone());
        }
    }
}

/// Returns true if the host asked for a pause, during which the fetcher sends no requests.
pub(super) const fn wants_to_be_left_alone(error: &OciError) -> bool {
    error.retry_after().is_some()
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::*;
    use crate::http::FetchError;

    fn error(retry_after: Option<Duration>) -> Arc<OciError> {
        Arc::new(OciError::Fetch(FetchError::Status {
            url: "https://example.com/v2/".to_owned(),
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after,
            challenges: Vec::new(),
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn failures_end_it_only_in_a_row_or_where_the_host_asks_to_be_left_alone() {
        let patience = Patience::new(Duration::from_secs(60));
        for _ in 0..3 {
            (1..IN_A_ROW).for_each(|_| patience.failed(&error(None)));
            assert!(!patience.is_over());
            patience.answered();
        }
        (0..IN_A_ROW).for_each(|_| patience.failed(&error(None)));
        assert!(patience.is_over() && patience.end().is_some());

        let patience = Patience::new(Duration::from_secs(60));
        patience.failed(&error(Some(Duration::from_secs(5))));
        assert!(patience.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn its_time_is_bounded() {
        let patience = Patience::new(Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(!patience.is_over());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(patience.is_over() && patience.end().is_none());
    }
}

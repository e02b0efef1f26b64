//! How long a registry is asked in one attempt, and when it is given up before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::oci::OciError;

/// Failures one after the other, with no success in between, that are taken for the registry's and not for those of what was asked
/// for: two for each request that is under way at once.
const IN_A_ROW: usize = 2 * super::AT_ONCE;

/// What is left of the time and the patience for one kind of question. It is shared by the requests that are under way.
pub(super) struct Patience {
    until: Instant,
    failures: AtomicUsize,
    /// Why nothing more is asked.
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

    /// As much time as is left, and all of the patience.
    pub(super) fn again(&self) -> Self {
        Self {
            until: self.until,
            failures: AtomicUsize::new(0),
            end: OnceLock::new(),
        }
    }

    /// Whether no more is to be asked.
    pub(super) fn is_over(&self) -> bool {
        self.end.get().is_some() || self.is_out_of_time()
    }

    pub(super) fn is_out_of_time(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Why the registry was given up, if it was: it asks to be left alone, or does nothing but fail.
    pub(super) fn end(&self) -> Option<&Arc<OciError>> {
        self.end.get()
    }

    /// An answer came that is no sign of a registry in distress.
    pub(super) fn answered(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// A failure came that may pass by itself.
    pub(super) fn failed(&self, error: &Arc<OciError>) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= IN_A_ROW || wants_to_be_left_alone(error) {
            // The first that has said so tells why.
            let _ = self.end.set(error.clone());
        }
    }
}

/// Whether it is the host that has spoken, not only of what was asked for: whoever asks it now is not even sent there.
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

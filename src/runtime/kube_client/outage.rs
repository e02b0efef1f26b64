//! Reports an API server that does not respond: once, then at growing intervals, instead of each failed request.

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tower::BoxError;

use super::write_fence::NotLeading;
use crate::text::sanitize;

/// Failures in a row that are an outage. A single failure may be a connection that was closed while idle.
const OUTAGE: u32 = 3;
const FIRST_INTERVAL: Duration = Duration::from_secs(15);
const MAX_INTERVAL: Duration = Duration::from_secs(300);

/// Static, as the metrics of watches: watches start deep within each controller.
static OF_PROCESS: Outage = Outage::new();

/// Returns true while the API server does not respond. Errors that follow from it belong in the debug log.
#[must_use]
pub fn is_api_server_unreachable() -> bool {
    OF_PROCESS.is_active()
}

pub(super) fn observe<T>(result: Result<T, BoxError>) -> Result<T, BoxError> {
    match &result {
        Ok(_) => OF_PROCESS.record_response(),
        Err(error) if error.is::<NotLeading>() => {}
        Err(error) => OF_PROCESS.record_failure(error),
    }
    result
}

#[derive(Debug)]
struct Outage {
    failures: AtomicU32,
    report: Mutex<Option<OutageReport>>,
}

#[derive(Debug)]
struct OutageReport {
    since: Instant,
    next: Instant,
    interval: Duration,
}

impl Outage {
    const fn new() -> Self {
        Self {
            failures: AtomicU32::new(0),
            report: Mutex::new(None),
        }
    }

    fn is_active(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= OUTAGE
    }

    fn record_failure(&self, error: &dyn Display) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures < OUTAGE {
            return;
        }
        let now = Instant::now();
        let mut report = self.report.lock();
        let report = report.get_or_insert(OutageReport {
            since: now,
            next: now,
            interval: FIRST_INTERVAL,
        });
        if now < report.next {
            return;
        }
        let duration = now - report.since;
        report.next = now + report.interval;
        report.interval = (report.interval * 2).min(MAX_INTERVAL);
        let error = sanitize(&error.to_string());
        tracing::warn!(
            error,
            ?duration,
            "the API server does not respond, requests are retried"
        );
    }

    fn record_response(&self) {
        if self.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.failures.store(0, Ordering::Relaxed);
        if let Some(report) = self.report.lock().take() {
            let duration = report.since.elapsed();
            tracing::info!(?duration, "the API server responds again");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::trace::log_lines::LogLines;

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_logged_once_then_at_growing_intervals_and_at_its_end() {
        let (log, _logging) = LogLines::start(Level::INFO);
        let outage = Outage::new();
        for _ in 0..600 {
            outage.record_failure(&"connection refused");
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!(outage.is_active());
        outage.record_response();
        assert!(!outage.is_active());
        let lines = log.lines();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(
            lines[0].contains("does not respond") && lines[0].contains("connection refused"),
            "{lines:?}"
        );
        assert!(lines[3].contains("responds again"), "{lines:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn single_failures_between_responses_are_no_outage() {
        let (log, _logging) = LogLines::start(Level::INFO);
        let outage = Outage::new();
        for _ in 0..10 {
            outage.record_failure(&"connection closed");
            outage.record_failure(&"connection closed");
            outage.record_response();
        }
        assert_eq!(log.lines(), Vec::<String>::new());
    }
}

//! Waiting for a condition instead of for a time.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// The answer of one look: there, or not yet with what was seen instead.
pub trait Look {
    /// The awaited value.
    type Found;
    /// The found thing, or the reason to look again.
    fn into_result(self) -> Result<Self::Found, String>;
}

impl<T> Look for Option<T> {
    type Found = T;
    fn into_result(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Display> Look for Result<T, E> {
    type Found = T;
    fn into_result(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Looks until `look` finds what it looks for (`Some` or `Ok`), and fails the test with what was seen last when that takes
/// longer than `deadline`. `what` completes "waited for …".
pub async fn eventually<L: Look>(deadline: Duration, what: &str, mut look: impl AsyncFnMut() -> L) -> L::Found {
    const INTERVAL: Duration = Duration::from_millis(20);
    let started = Instant::now();
    let mut last = "no answer yet".to_owned();
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left, look()).await.map(Look::into_result) {
            Ok(Ok(found)) => return found,
            Ok(Err(seen)) => last = seen,
            Err(_) => {} // the look itself takes too long
        }
        // A look that answers at once is never timed out.
        assert!(
            started.elapsed() < deadline,
            "waited {deadline:?} for {what}; seen last: {last}"
        );
        tokio::time::sleep(INTERVAL).await;
    }
}

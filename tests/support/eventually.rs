//! Waits for conditions instead of fixed times.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// Deadline for expected changes, with a margin for busy machines.
pub const SOON: Duration = Duration::from_secs(30);

/// The result of one check: the expected value, or the observed state.
pub trait Look {
    /// The expected value.
    type Found;
    /// Returns the expected value, or the observed state as text.
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

/// Checks a condition until it returns `Some` or `Ok`. After `deadline`, the test fails with the last observed state.
/// `what` completes "waited for …".
pub async fn eventually<L: Look>(deadline: Duration, what: &str, mut look: impl AsyncFnMut() -> L) -> L::Found {
    const INTERVAL: Duration = Duration::from_millis(20);
    let started = Instant::now();
    let mut last = "no result".to_owned();
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left, look()).await.map(Look::into_result) {
            Ok(Ok(found)) => return found,
            Ok(Err(seen)) => last = seen,
            Err(_) => {} // the check itself takes too long
        }
        // A check that returns immediately never times out.
        assert!(
            started.elapsed() < deadline,
            "waited {deadline:?} for {what}; last result: {last}"
        );
        tokio::time::sleep(INTERVAL).await;
    }
}

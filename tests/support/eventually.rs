//! Waits for conditions instead of fixed times.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// Deadline for expected changes, with a margin for busy machines.
pub const SOON: Duration = Duration::from_secs(60);

/// The result of one check: the expected value, or the observed state.
pub trait Condition {
    /// The expected value.
    type Value;
    /// Returns the expected value, or the observed state as text.
    fn into_result(self) -> Result<Self::Value, String>;
}

impl<T> Condition for Option<T> {
    type Value = T;
    fn into_result(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Display> Condition for Result<T, E> {
    type Value = T;
    fn into_result(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Checks a condition until it returns `Some` or `Ok`. After `deadline`, the test fails with the last observed state.
/// `what` completes "waited for …".
pub async fn eventually<C: Condition>(deadline: Duration, what: &str, check: impl AsyncFnMut() -> C) -> C::Value {
    eventually_by(Duration::from_millis(20), deadline, what, check).await
}

/// Same, with the time between checks.
pub async fn eventually_by<C: Condition>(
    interval: Duration,
    deadline: Duration,
    what: &str,
    mut check: impl AsyncFnMut() -> C,
) -> C::Value {
    let started = Instant::now();
    let mut last = "no result".to_owned();
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left, check()).await.map(Condition::into_result) {
            Ok(Ok(value)) => return value,
            Ok(Err(observed)) => last = observed,
            Err(_) => {} // the check itself takes too long
        }
        // A check that returns immediately never times out.
        assert!(
            started.elapsed() < deadline,
            "waited {deadline:?} for {what}; last result: {last}"
        );
        tokio::time::sleep(interval).await;
    }
}

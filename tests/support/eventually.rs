//! Waits for conditions instead of fixed times.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// Deadline for expected changes, with a margin for busy machines.
pub const SOON: Duration = Duration::from_secs(60);

/// Time between checks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

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
    match try_eventually(deadline, what, check).await {
        Ok(value) => value,
        Err(late) => panic!("{late}"),
    }
}

/// Same, but returns what would fail the test.
pub async fn try_eventually<C: Condition>(
    deadline: Duration,
    what: &str,
    mut check: impl AsyncFnMut() -> C,
) -> Result<C::Value, String> {
    let started = Instant::now();
    let mut last = "no result".to_owned();
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left, check()).await.map(Condition::into_result) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(observed)) => last = observed,
            Err(_) => {} // the check itself takes too long
        }
        // A check that returns immediately never times out.
        if started.elapsed() >= deadline {
            return Err(format!("waited {deadline:?} for {what}; last result: {last}"));
        }
        // What takes seconds is not asked for as often as what takes moments: checks take time from other tests.
        let pause = (started.elapsed() / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
    }
}

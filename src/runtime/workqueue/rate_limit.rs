//! What slows retries: a delay for each key that doubles with its failures, and one bucket over all keys.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

use super::Item;
use crate::clock::TokioClock;

/// How long a key waits before it is tried again: `base` after its first failure, twice that after each further one, never
/// more than `cap`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub cap: Duration,
}

impl Backoff {
    /// For conflicts with the API server, which a fresh look at the object solves: 5 ms, at most 1000 s, as in client-go.
    pub const CONFLICT: Self = Self {
        base: Duration::from_millis(5),
        cap: Duration::from_secs(1000),
    };

    /// The delay after as many failures before this one.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let factor = 2_u32.checked_pow(failures).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }
}

/// The failures of each key since it was last forgotten.
pub(super) struct Failures<K>(HashMap<Arc<K>, u32>);

impl<K: Item> Failures<K> {
    pub(super) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Counts one more failure of the key, and gives back the delay that it earns.
    pub(super) fn next_delay(&mut self, key: &Arc<K>, backoff: Backoff) -> Duration {
        let failures = self.0.entry(Arc::clone(key)).or_default();
        let delay = backoff.delay(*failures);
        *failures = failures.saturating_add(1);
        delay
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }
}

/// The bucket over all keys: so many retries a second, with so many at once after a quiet time.
pub(super) struct Bucket(RateLimiter<NotKeyed, InMemoryState, TokioClock>);

impl Bucket {
    pub(super) fn new(rate_per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let quota = Quota::per_second(rate_per_second).allow_burst(burst);
        Self(RateLimiter::direct_with_clock(quota, TokioClock))
    }

    /// Takes a token, or says when there will be one.
    pub(super) fn take(&self) -> Result<(), Instant> {
        self.0
            .check()
            .map_err(|not_until| Instant::from_std(not_until.earliest_possible()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_with_each_failure_up_to_the_cap() {
        let backoff = Backoff {
            base: Duration::from_secs(5),
            cap: Duration::from_secs(15 * 60),
        };
        let seconds: Vec<u64> = (0..10).map(|failures| backoff.delay(failures).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]);
        assert_eq!(backoff.delay(u32::MAX), backoff.cap);
        assert_eq!(Backoff::CONFLICT.delay(0), Duration::from_millis(5));
        assert_eq!(Backoff::CONFLICT.delay(32), Duration::from_secs(1000));
    }

    #[test]
    fn the_longest_base_there_is_does_not_overflow() {
        let backoff = Backoff {
            base: Duration::MAX,
            cap: Duration::MAX,
        };
        assert_eq!(backoff.delay(7), Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_bucket_gives_a_burst_and_then_so_many_a_second_by_the_clock_of_the_test() {
        let bucket = Bucket::new(NonZeroU32::new(10).unwrap(), NonZeroU32::new(3).unwrap());
        let start = Instant::now();
        assert!((0..3).all(|_| bucket.take().is_ok()));
        assert_eq!(bucket.take(), Err(start + Duration::from_millis(100)));
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(bucket.take(), Ok(()));
        assert_eq!(bucket.take(), Err(start + Duration::from_millis(200)));
    }
}

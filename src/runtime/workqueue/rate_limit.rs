use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

use super::Item;
use crate::clock::TokioClock;

/// Exponential backoff: `base` after the first failure, doubled with each further failure, at most `cap`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    pub base: Duration,
    pub cap: Duration,
}

impl Backoff {
    /// For write conflicts: 5 ms to 1000 s, as in client-go.
    pub const CONFLICT: Self = Self {
        base: Duration::from_millis(5),
        cap: Duration::from_secs(1000),
    };

    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let factor = 2_u32.checked_pow(failures).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }
}

pub(super) struct Failures<K>(HashMap<Arc<K>, u32>);

impl<K: Item> Failures<K> {
    pub(super) fn new() -> Self {
        Self(HashMap::new())
    }

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

pub(super) struct Bucket(RateLimiter<NotKeyed, InMemoryState, TokioClock>);

impl Bucket {
    pub(super) fn new(rate_per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let quota = Quota::per_second(rate_per_second).allow_burst(burst);
        Self(RateLimiter::direct_with_clock(quota, TokioClock))
    }

    /// Takes a token, or returns the time of the next token.
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
    fn the_maximum_base_does_not_overflow() {
        let backoff = Backoff {
            base: Duration::MAX,
            cap: Duration::MAX,
        };
        assert_eq!(backoff.delay(7), Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_bucket_allows_a_burst_and_then_a_fixed_rate() {
        let bucket = Bucket::new(NonZeroU32::new(10).unwrap(), NonZeroU32::new(3).unwrap());
        let start = Instant::now();
        assert!((0..3).all(|_| bucket.take().is_ok()));
        assert_eq!(bucket.take(), Err(start + Duration::from_millis(100)));
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(bucket.take(), Ok(()));
        assert_eq!(bucket.take(), Err(start + Duration::from_millis(200)));
    }
}

//! The times of repeated deliveries.

use std::ops::Range;
use std::time::Duration;

use crate::runtime::jitter::jitter;

const FIRST_DELAY: Duration = Duration::from_secs(5);
/// Also the upper bound of a `Retry-After`.
const MAX_DELAY: Duration = Duration::from_hours(1);
/// Sinks that failed together are spread.
const JITTER: Range<f64> = 0.9..1.1;
/// Age at which a row is dropped, whatever the reason is that it was not delivered.
pub const MAX_AGE: Duration = Duration::from_hours(24);
/// Tries of a message whose request the sink rejects.
pub const MAX_REJECTIONS: u32 = 3;

/// Returns the time until the next try, after this many failures in a row.
#[must_use]
pub fn delay(failures: u32, retry_after: Option<Duration>) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let backoff = FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY);
    jitter(backoff, JITTER).max(retry_after.unwrap_or_default().min(MAX_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_that_fails_for_a_day_gets_few_requests() {
        let mut passed = Duration::ZERO;
        let mut tries = 0;
        while passed < MAX_AGE {
            tries += 1;
            let delay = delay(tries, None);
            assert!(delay >= FIRST_DELAY.mul_f64(JITTER.start), "{delay:?}");
            assert!(delay <= MAX_DELAY.mul_f64(JITTER.end), "{delay:?}");
            passed += delay;
        }
        // Ten until the delay is an hour, then one for each hour.
        assert!((30..=38).contains(&tries), "{tries}");
    }

    #[test]
    fn a_retry_after_is_obeyed_for_an_hour_at_most() {
        assert_eq!(delay(1, Some(Duration::from_secs(90))), Duration::from_secs(90));
        assert_eq!(delay(1, Some(Duration::MAX)), MAX_DELAY);
        assert!(delay(u32::MAX, Some(Duration::ZERO)) >= MAX_DELAY.mul_f64(JITTER.start));
    }
}

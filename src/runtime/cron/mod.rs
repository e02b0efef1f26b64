//! Intervals and cron expressions, in UTC. [`parse`] and [`Cron`] are pure.

mod cache;
mod clock_steps;
mod expression;
mod field;
mod go_duration;
mod trigger;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

pub use cache::Intervals;
pub use expression::{Cron, IntervalError, parse};
pub use trigger::CronTrigger;

pub const MAX_JITTER: Duration = Duration::from_secs(60);

/// Parses a duration as Go writes it, such as `1h30m`. `None` if it is invalid or negative.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let nanoseconds = go_duration::parse(text)?;
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

/// Returns the delay of an object after each tick: stable per UID, uniformly distributed, less than a tenth of `gap`
/// and a minute. `gap` is the shortest time between two ticks.
#[must_use]
pub fn jitter(uid: &str, gap: Duration) -> Duration {
    let limit = u64::try_from((gap / 10).min(MAX_JITTER).as_millis()).unwrap_or(u64::MAX);
    let digest = Sha256::digest(uid.as_bytes());
    let hash = digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte));
    Duration::from_millis(hash.checked_rem(limit).unwrap_or(0))
}

/// Returns when an object is due after `now`: at a tick of its schedule, with its [`jitter`]. `None` without a valid schedule.
#[must_use]
pub fn next_due(schedule: &str, uid: &str, now: Timestamp) -> Option<Timestamp> {
    let cron = parse(schedule).ok()?;
    let tick = cron.next_after(now)?;
    let jitter = SignedDuration::try_from(jitter(uid, cron.shortest_gap())).ok()?;
    tick.checked_add(jitter).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jitter_is_stable_and_within_a_tenth_of_the_gap_and_a_minute() {
        for (gap, limit) in [(0, 0), (60, 6), (600, 60), (86_400, 60)] {
            for uid in ["", "a", "6d598d42-b5fb-4254-beeb-9847fe9041a4"] {
                let jitter = super::jitter(uid, Duration::from_secs(gap));
                assert!(jitter <= Duration::from_secs(limit), "{uid} {gap}: {jitter:?}");
                assert_eq!(jitter, super::jitter(uid, Duration::from_secs(gap)));
            }
        }
        assert!(super::jitter("a", Duration::MAX) < MAX_JITTER);
    }

    #[test]
    fn jitters_are_spread_over_their_range() {
        let gap = Duration::from_secs(600);
        let late = (0..1000)
            .filter(|n| jitter(&format!("uid-{n}"), gap) > Duration::from_secs(30))
            .count();
        assert!((400..600).contains(&late), "{late} of 1000 in the second half");
    }
}

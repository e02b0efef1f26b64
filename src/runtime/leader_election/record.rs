//! What stands in a Lease, and when it may be taken: nothing here asks anybody or looks at a clock.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};
use tokio::time::Instant;

/// The holder; none where the Lease was released.
pub fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// A Lease that is taken at `now`, from whoever held it before.
pub fn taken(found: &LeaseSpec, identity: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        acquire_time: Some(MicroTime(now)),
        lease_transitions: Some(found.lease_transitions.unwrap_or_default().saturating_add(1)),
        ..renewed(found, identity, duration, now)
    }
}

/// A Lease that nobody had before.
pub fn first(identity: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        acquire_time: Some(MicroTime(now)),
        lease_transitions: Some(0),
        ..renewed(&LeaseSpec::default(), identity, duration, now)
    }
}

/// A Lease that is still held at `now`.
pub fn renewed(found: &LeaseSpec, identity: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(whole_seconds(duration)),
        renew_time: Some(MicroTime(now)),
        ..found.clone()
    }
}

/// A Lease that is given back at `now`. A second is the shortest that the API server takes.
pub fn released(found: &LeaseSpec, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..found.clone()
    }
}

/// Rounded up, so that nobody waits less than the holder counts on.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds.max(1)).unwrap_or(i32::MAX)
}

/// What was seen of a Lease that another holds.
#[derive(Debug, Default)]
pub struct Observed {
    last: Option<(LeaseSpec, Instant)>,
}

impl Observed {
    /// Notes how a Lease was found, and says whether it may be taken: nobody holds it, or it stands unchanged for longer
    /// than its holder asked for (`otherwise` where it does not say).
    pub fn may_take(&mut self, found: &LeaseSpec, otherwise: Duration, now: Instant) -> bool {
        let since = match &self.last {
            Some((last, since)) if last == found => *since,
            _ => {
                self.last = Some((found.clone(), now));
                now
            }
        };
        let asked = found
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        let duration = asked.map_or(otherwise, Duration::from_secs);
        holder(found).is_none() || now.duration_since(since) >= duration
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_millis(1500);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_lease_tells_since_when_it_is_held_and_how_often_it_changed_hands() {
        let mine = first("a", DURATION, at(1));
        assert_eq!(
            (mine.lease_transitions, mine.lease_duration_seconds),
            (Some(0), Some(2))
        );
        let mine = renewed(&mine, "a", DURATION, at(2));
        assert_eq!(
            (mine.acquire_time.clone(), mine.renew_time.clone()),
            (Some(MicroTime(at(1))), Some(MicroTime(at(2))))
        );
        assert_eq!((holder(&mine), mine.lease_transitions), (Some("a"), Some(0)));
        let nobodys = released(&mine, at(3));
        assert_eq!((holder(&nobodys), nobodys.lease_duration_seconds), (None, Some(1)));
        let other = taken(&nobodys, "b", Duration::from_secs(15), at(4));
        assert_eq!((holder(&other), other.lease_transitions), (Some("b"), Some(1)));
        assert_eq!(
            (other.acquire_time, other.lease_duration_seconds),
            (Some(MicroTime(at(4))), Some(15))
        );
    }

    #[test]
    fn what_others_have_put_into_a_lease_stays() {
        let found = LeaseSpec {
            strategy: Some("OldestEmulationVersion".to_owned()),
            ..LeaseSpec::default()
        };
        for spec in [
            taken(&found, "a", DURATION, at(1)),
            renewed(&found, "a", DURATION, at(1)),
            released(&found, at(1)),
        ] {
            assert_eq!(spec.strategy, found.strategy);
        }
    }

    #[test]
    fn a_lease_is_judged_by_how_long_it_was_seen_unchanged_and_by_no_time_that_stands_in_it() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        // Its times are long past, or are to come, by the clock of whoever wrote them.
        for second in [0, 100_000_000_000] {
            let found = first("a", Duration::from_secs(15), at(second));
            let mut observed = Observed::default();
            assert!(!observed.may_take(&found, DURATION, start));
            assert!(!observed.may_take(&found, DURATION, after(14)));
            let renewed = renewed(&found, "a", Duration::from_secs(15), at(second + 1));
            assert!(!observed.may_take(&renewed, DURATION, after(16)));
            assert!(!observed.may_take(&renewed, DURATION, after(30)));
            assert!(observed.may_take(&renewed, DURATION, after(31)));
        }
    }

    #[test]
    fn a_lease_without_a_holder_may_be_taken_at_once_and_one_without_a_duration_after_our_own() {
        let start = Instant::now();
        let mut observed = Observed::default();
        assert!(observed.may_take(&LeaseSpec::default(), DURATION, start));
        assert!(observed.may_take(&released(&first("a", DURATION, at(1)), at(2)), DURATION, start));
        let found = LeaseSpec {
            holder_identity: Some("a".to_owned()),
            ..LeaseSpec::default()
        };
        assert!(!observed.may_take(&found, DURATION, start));
        assert!(observed.may_take(&found, DURATION, start + DURATION));
    }
}

//! Contents of a Lease and the rules for taking it, without I/O or clock.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};
use tokio::time::Instant;

pub fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

pub fn taken(current: &LeaseSpec, identity: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        acquire_time: Some(MicroTime(now)),
        lease_transitions: Some(current.lease_transitions.unwrap_or_default().saturating_add(1)),
        ..renewed(current, identity, duration, now)
    }
}

pub fn first(identity: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        acquire_time: Some(MicroTime(now)),
        lease_transitions: Some(0),
        ..renewed(&LeaseSpec::default(), identity, duration, now)
    }
}

pub fn renewed(current: &LeaseSpec, identity: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(whole_seconds(duration)),
        renew_time: Some(MicroTime(now)),
        ..current.clone()
    }
}

pub fn released(current: &LeaseSpec, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        // The minimum that the API server accepts.
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..current.clone()
    }
}

/// Rounds up, so that no contender waits less than the holder expects.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds.max(1)).unwrap_or(i32::MAX)
}

#[derive(Debug, Default)]
pub struct ObservedLease {
    last: Option<(LeaseSpec, Instant)>,
}

impl ObservedLease {
    /// Returns true if the Lease has no holder, or was unchanged for its duration, by default `default`.
    pub fn may_take(&mut self, current: &LeaseSpec, default: Duration, now: Instant) -> bool {
        let since = match &self.last {
            Some((last, since)) if last == current => *since,
            _ => {
                self.last = Some((current.clone(), now));
                now
            }
        };
        let requested = current.lease_duration_seconds.filter(|seconds| *seconds > 0);
        let requested = requested.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = requested.map_or(default, Duration::from_secs);
        holder(current).is_none() || now.duration_since(since) >= duration
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
    fn a_lease_records_the_acquire_time_and_transitions() {
        let own = first("a", DURATION, at(1));
        assert_eq!((own.lease_transitions, own.lease_duration_seconds), (Some(0), Some(2)));
        let own = renewed(&own, "a", DURATION, at(2));
        assert_eq!(
            (own.acquire_time.clone(), own.renew_time.clone()),
            (Some(MicroTime(at(1))), Some(MicroTime(at(2))))
        );
        assert_eq!((holder(&own), own.lease_transitions), (Some("a"), Some(0)));
        let free = released(&own, at(3));
        assert_eq!((holder(&free), free.lease_duration_seconds), (None, Some(1)));
        let other = taken(&free, "b", Duration::from_secs(15), at(4));
        assert_eq!((holder(&other), other.lease_transitions), (Some("b"), Some(1)));
        assert_eq!(
            (other.acquire_time, other.lease_duration_seconds),
            (Some(MicroTime(at(4))), Some(15))
        );
    }

    #[test]
    fn unknown_fields_of_a_lease_are_kept() {
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
    fn expiry_is_measured_from_the_first_observation_and_not_by_timestamps() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        // Timestamps in the distant past and future, as clocks of other processes may have.
        for second in [0, 100_000_000_000] {
            let found = first("a", Duration::from_secs(15), at(second));
            let mut observed = ObservedLease::default();
            assert!(!observed.may_take(&found, DURATION, start));
            assert!(!observed.may_take(&found, DURATION, after(14)));
            let renewed = renewed(&found, "a", Duration::from_secs(15), at(second + 1));
            assert!(!observed.may_take(&renewed, DURATION, after(16)));
            assert!(!observed.may_take(&renewed, DURATION, after(30)));
            assert!(observed.may_take(&renewed, DURATION, after(31)));
        }
    }

    #[test]
    fn a_lease_without_holder_may_be_taken_immediately_and_one_without_duration_after_the_default() {
        let start = Instant::now();
        let mut observed = ObservedLease::default();
        assert!(observed.may_take(&LeaseSpec::default(), DURATION, start));
        assert!(observed.may_take(&released(&first("a", DURATION, at(1)), at(2)), DURATION, start));
        let found = LeaseSpec {
            holder_identity: Some("a".to_owned()),
            ..LeaseSpec::default()
        };
        assert!(!observed.may_take(&found, DURATION, start));
        assert!(observed.may_take(&found, DURATION, start + DURATION));
    }

    #[test]
    fn odd_content_of_a_lease_never_shortens_it() {
        let start = Instant::now();
        for duration in [None, Some(0), Some(-15), Some(i32::MIN)] {
            for renewed in [None, Some(at(-1)), Some(at(100_000_000_000))] {
                let found = LeaseSpec {
                    holder_identity: Some("other".to_owned()),
                    lease_duration_seconds: duration,
                    renew_time: renewed.map(MicroTime),
                    lease_transitions: Some(i32::MAX),
                    ..LeaseSpec::default()
                };
                let mut observed = ObservedLease::default();
                assert!(!observed.may_take(&found, DURATION, start));
                assert!(!observed.may_take(&found, DURATION, start + DURATION / 2));
                assert!(observed.may_take(&found, DURATION, start + DURATION));
                assert_eq!(taken(&found, "a", DURATION, at(1)).lease_transitions, Some(i32::MAX));
            }
        }
    }
}

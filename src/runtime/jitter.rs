use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::ops::Range;
use std::time::Duration;

/// Returns a random duration between `period` times the ends of `factors`.
#[must_use]
pub fn jitter(period: Duration, factors: Range<f64>) -> Duration {
    scale(period, factors, random())
}

/// As [`jitter`], but the same duration for a key.
#[must_use]
pub fn jitter_of(key: &str, period: Duration, factors: Range<f64>) -> Duration {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    scale(period, factors, hasher.finish())
}

#[must_use]
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn scale(period: Duration, factors: Range<f64>, number: u64) -> Duration {
    const STEPS: u32 = 10_000;
    let step = u32::try_from(number % u64::from(STEPS)).unwrap_or_default();
    let factor = factors.start + (factors.end - factors.start) * f64::from(step) / f64::from(STEPS);
    Duration::try_from_secs_f64(period.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn durations_are_spread_between_the_factors() {
        let random: BTreeSet<Duration> = (0..100).map(|_| jitter(HOUR, 0.9..1.1)).collect();
        let by_key: BTreeSet<Duration> = (0..100)
            .map(|key| jitter_of(&key.to_string(), HOUR, 0.9..1.1))
            .collect();
        for durations in [random, by_key] {
            assert!(durations.len() > 50);
            let range = HOUR.mul_f64(0.9)..HOUR.mul_f64(1.1);
            assert!(
                durations.iter().all(|duration| range.contains(duration)),
                "{durations:?}"
            );
        }
        assert_eq!(jitter(Duration::MAX, 1.0..1.25), Duration::MAX);
    }

    #[test]
    fn a_key_always_has_the_same_duration() {
        assert_eq!(jitter_of("1.0.0", HOUR, 0.0..1.0), jitter_of("1.0.0", HOUR, 0.0..1.0));
    }
}

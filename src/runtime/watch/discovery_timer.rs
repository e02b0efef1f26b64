use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::GroupKind;

const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// While CustomResourceDefinitions are not watched, and for kinds of groups that could not be asked.
const RETRY: Duration = Duration::from_secs(30);
/// Retry period for missing kinds otherwise: aggregated API servers add kinds without a definition.
const SLOW_RETRY: Duration = Duration::from_secs(300);
/// Delays of further requests after a definition has changed, since the API server serves new kinds with a lag.
const LAG: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// The timer of API discovery. Runs only while a subscribed kind is missing or a definition has changed.
#[derive(Debug, Default)]
pub(super) struct DiscoveryTimer {
    last: Option<Instant>,
    due: Option<Instant>,
    is_outdated: bool,
    /// Number of requests since a definition changed.
    lag: Option<usize>,
    missing: BTreeSet<GroupKind>,
}

impl DiscoveryTimer {
    pub(super) fn definition_changed(&mut self) {
        self.is_outdated = true;
        self.lag = Some(0);
    }

    /// Updates the missing kinds; returns true if discovery is due now.
    pub(super) fn update_missing(&mut self, is_needed: bool, missing: BTreeSet<GroupKind>) -> bool {
        if !is_needed {
            self.due = None;
            return false;
        }
        let now = Instant::now();
        let is_new = !missing.is_subset(&self.missing);
        self.missing = missing;
        if self.is_outdated || is_new || self.last.is_none() {
            let soonest = self.last.map_or(now, |last| last + MIN_INTERVAL);
            self.due = Some(self.due.map_or(soonest, |due| due.min(soonest)));
        }
        if self.missing.is_empty() && !self.is_outdated && self.last.is_some() {
            self.due = None;
        }
        self.due.is_some_and(|due| due <= now)
    }

    /// Records a request. If `is_slow`, only a changed definition is likely to add a missing kind.
    pub(super) fn record_attempt(&mut self, has_succeeded: bool, missing: BTreeSet<GroupKind>, is_slow: bool) {
        let now = Instant::now();
        self.last = Some(now);
        self.is_outdated = !has_succeeded;
        self.missing = missing;
        let lag = self.lag.and_then(|lag| LAG.get(lag)).filter(|_| has_succeeded);
        let wait = match lag {
            Some(wait) => {
                self.lag = self.lag.map(|lag| lag + 1);
                *wait
            }
            None if !has_succeeded => RETRY.min(LAG[1]),
            None if is_slow => SLOW_RETRY,
            None => RETRY,
        };
        self.due = (!self.missing.is_empty() || !has_succeeded).then_some(now + wait);
    }

    /// Waits until discovery is due; forever if none is scheduled.
    pub(super) async fn wait(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn missing(kinds: &[&str]) -> BTreeSet<GroupKind> {
        kinds.iter().map(|kind| GroupKind::new("example.com", *kind)).collect()
    }

    fn seconds_until_due(timer: &DiscoveryTimer) -> Option<u64> {
        timer.due.map(|due| (due - Instant::now()).as_secs())
    }

    /// A timer after one request that did not find `kinds`.
    fn discovered(kinds: &[&str], are_definitions_watched: bool) -> DiscoveryTimer {
        let mut timer = DiscoveryTimer::default();
        assert!(timer.update_missing(true, missing(kinds)));
        timer.record_attempt(true, missing(kinds), are_definitions_watched);
        timer
    }

    #[tokio::test(start_paused = true)]
    async fn discovery_does_not_run_without_subscriptions() {
        assert!(!DiscoveryTimer::default().update_missing(false, missing(&[])));
    }

    #[tokio::test(start_paused = true)]
    async fn discovery_stops_when_nothing_is_missing() {
        let mut timer = discovered(&[], false);
        assert_eq!(seconds_until_due(&timer), None);
        advance(Duration::from_secs(3600)).await;
        assert!(!timer.update_missing(true, missing(&[])));
    }

    #[tokio::test(start_paused = true)]
    async fn missing_kinds_are_rediscovered_periodically() {
        for (are_definitions_watched, seconds) in [(false, 30), (true, 300)] {
            let mut timer = discovered(&["Widget"], are_definitions_watched);
            assert_eq!(seconds_until_due(&timer), Some(seconds));
            assert!(!timer.update_missing(true, missing(&["Widget"])));
            advance(Duration::from_secs(seconds)).await;
            assert!(timer.update_missing(true, missing(&["Widget"])));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_kind_is_discovered_soon_but_at_most_once_a_second() {
        let mut timer = discovered(&["Widget"], true);
        assert!(!timer.update_missing(true, missing(&["Gadget", "Widget"])));
        assert_eq!(seconds_until_due(&timer), Some(1));
        advance(MIN_INTERVAL).await;
        assert!(timer.update_missing(true, missing(&["Gadget", "Widget"])));
    }

    #[tokio::test(start_paused = true)]
    async fn discovery_repeats_after_a_definition_change_until_the_kind_is_served() {
        let mut timer = discovered(&["Widget"], true);
        advance(Duration::from_secs(60)).await;
        timer.definition_changed();
        assert!(timer.update_missing(true, missing(&["Widget"])));
        for seconds in [1, 2, 4, 8, 300] {
            timer.record_attempt(true, missing(&["Widget"]), true);
            assert_eq!(seconds_until_due(&timer), Some(seconds));
        }
        timer.record_attempt(true, missing(&[]), true);
        assert_eq!(seconds_until_due(&timer), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_change_without_subscriptions_is_discovered_with_the_first_one() {
        let mut timer = discovered(&[], true);
        advance(Duration::from_secs(60)).await;
        timer.definition_changed();
        assert!(!timer.update_missing(false, missing(&[])));
        assert!(timer.update_missing(true, missing(&[])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_discovery_is_retried() {
        let mut timer = DiscoveryTimer::default();
        assert!(timer.update_missing(true, missing(&[])));
        timer.record_attempt(false, missing(&[]), true);
        assert!(!timer.update_missing(true, missing(&[])));
        advance(LAG[1]).await;
        assert!(timer.update_missing(true, missing(&[])));
    }
}

//! When to ask the API server for its kinds again.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::GroupKind;

/// The shortest time between two looks.
const APART: Duration = Duration::from_secs(1);
/// How often it is looked for a kind that is not known, where nothing tells of definitions.
const AGAIN: Duration = Duration::from_secs(30);
/// The same, where definitions are watched: kinds may also come by other servers behind the API server.
const SELDOM: Duration = Duration::from_secs(300);
/// After a definition has changed, the API server takes a while to serve what it defines: looks are taken after these.
const LAG: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// The times at which it is looked. A kind that nobody needs is not looked for.
#[derive(Debug, Default)]
pub(super) struct DiscoveryTimer {
    last: Option<Instant>,
    due: Option<Instant>,
    /// A definition has changed since the last look.
    is_outdated: bool,
    /// Looks taken since a definition has changed.
    lag: Option<usize>,
    /// What the last look was for and did not find.
    missing: BTreeSet<GroupKind>,
}

impl DiscoveryTimer {
    /// A definition has changed.
    pub(super) fn outdated(&mut self) {
        self.is_outdated = true;
        self.lag = Some(0);
    }

    /// These kinds are needed and not known to be served. Whether it is to be looked now.
    pub(super) fn is_due(&mut self, is_needed: bool, missing: BTreeSet<GroupKind>) -> bool {
        if !is_needed {
            self.due = None;
            return false;
        }
        let now = Instant::now();
        let is_new = !missing.is_subset(&self.missing);
        self.missing = missing;
        if self.is_outdated || is_new || self.last.is_none() {
            let soonest = self.last.map_or(now, |last| last + APART);
            self.due = Some(self.due.map_or(soonest, |due| due.min(soonest)));
        }
        if self.missing.is_empty() && !self.is_outdated && self.last.is_some() {
            self.due = None;
        }
        self.due.is_some_and(|due| due <= now)
    }

    /// It was looked; whether there was an answer, what was not found, and whether definitions are watched.
    pub(super) fn looked(&mut self, has_answer: bool, missing: BTreeSet<GroupKind>, are_watched: bool) {
        let now = Instant::now();
        self.last = Some(now);
        self.is_outdated = !has_answer;
        self.missing = missing;
        let lag = self.lag.and_then(|lag| LAG.get(lag)).filter(|_| has_answer);
        let wait = match lag {
            Some(wait) => {
                self.lag = self.lag.map(|lag| lag + 1);
                *wait
            }
            None if !has_answer => AGAIN.min(LAG[1]),
            None if are_watched => SELDOM,
            None => AGAIN,
        };
        self.due = (!self.missing.is_empty() || !has_answer).then_some(now + wait);
    }

    /// Waits until it is to be looked; for ever, if nothing is awaited.
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

    fn seconds_until_due(clock: &DiscoveryTimer) -> Option<u64> {
        clock.due.map(|due| (due - Instant::now()).as_secs())
    }

    /// A clock that has looked, and found all but these.
    fn looked(kinds: &[&str], are_watched: bool) -> DiscoveryTimer {
        let mut clock = DiscoveryTimer::default();
        assert!(clock.is_due(true, missing(kinds)));
        clock.looked(true, missing(kinds), are_watched);
        clock
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_looked_for_before_anything_is_needed() {
        assert!(!DiscoveryTimer::default().is_due(false, missing(&[])));
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_is_known_it_is_not_looked_again() {
        let mut clock = looked(&[], false);
        assert_eq!(seconds_until_due(&clock), None);
        advance(Duration::from_secs(3600)).await;
        assert!(!clock.is_due(true, missing(&[])));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_known_is_looked_for_now_and_then() {
        for (are_watched, seconds) in [(false, 30), (true, 300)] {
            let mut clock = looked(&["Widget"], are_watched);
            assert_eq!(seconds_until_due(&clock), Some(seconds));
            assert!(!clock.is_due(true, missing(&["Widget"])));
            advance(Duration::from_secs(seconds)).await;
            assert!(clock.is_due(true, missing(&["Widget"])));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_was_not_looked_for_yet_is_looked_for_soon_and_no_more_than_once_a_second() {
        let mut clock = looked(&["Widget"], true);
        assert!(!clock.is_due(true, missing(&["Gadget", "Widget"])));
        assert_eq!(seconds_until_due(&clock), Some(1));
        advance(APART).await;
        assert!(clock.is_due(true, missing(&["Gadget", "Widget"])));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_definition_has_changed_it_is_looked_again_for_what_lags() {
        let mut clock = looked(&["Widget"], true);
        advance(Duration::from_secs(60)).await;
        clock.outdated();
        assert!(clock.is_due(true, missing(&["Widget"])));
        for seconds in [1, 2, 4, 8, 300] {
            clock.looked(true, missing(&["Widget"]), true);
            assert_eq!(seconds_until_due(&clock), Some(seconds));
        }
        clock.looked(true, missing(&[]), true);
        assert_eq!(seconds_until_due(&clock), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_concerned_nobody_is_looked_at_when_somebody_needs_a_kind() {
        let mut clock = looked(&[], true);
        advance(Duration::from_secs(60)).await;
        clock.outdated();
        assert!(!clock.is_due(false, missing(&[])));
        assert!(clock.is_due(true, missing(&[])));
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_asked_again() {
        let mut clock = DiscoveryTimer::default();
        assert!(clock.is_due(true, missing(&[])));
        clock.looked(false, missing(&[]), true);
        assert!(!clock.is_due(true, missing(&[])));
        advance(LAG[1]).await;
        assert!(clock.is_due(true, missing(&[])));
    }
}

//! Backoff after a `Retry-After`, widened from the repository to its namespace and to the host.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::StatusCode;
use tokio::time::Instant;

use super::host_credentials::HostRequester;

/// Upper bound of a `Retry-After`, because several repositories may share a host.
const MAX_BACKOFF: Duration = Duration::from_mins(15);
/// Repositories of a namespace with a `Retry-After` that hold the requests of the namespace.
const REPOSITORIES_PER_NAMESPACE: usize = 2;
/// Namespaces with a `Retry-After` that hold all requests to the host.
const NAMESPACES_PER_HOST: usize = 3;
/// Upper bound of a hold of the host, and time until the next one: three namespaces of one tenant, whose own paths
/// answer with a `Retry-After`, would otherwise stop the repositories of all others.
const MAX_HOST_HOLD: Duration = Duration::from_mins(1);
/// Repositories with a `Retry-After`. A held namespace adds none, so there are few.
const MAX_HELD: usize = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostBackoff {
    pub(super) status: StatusCode,
    pub(super) until: Instant,
}

/// The repositories of one host that have received a `Retry-After`. Holds of namespaces and the host follow from them.
#[derive(Debug, Default)]
pub(super) struct Backoffs {
    by_requester: HashMap<HostRequester, HostBackoff>,
    /// The start of the last hold of the host.
    host_held_at: Option<Instant>,
}

impl Backoffs {
    /// Starts a backoff, or extends one. Returns its duration, which is at most [`MAX_BACKOFF`].
    pub(super) fn add(&mut self, requester: &HostRequester, status: StatusCode, retry_after: Duration) -> Duration {
        let duration = retry_after.min(MAX_BACKOFF);
        let until = Instant::now() + duration;
        self.remove_expired();
        if self.by_requester.len() >= MAX_HELD && !self.by_requester.contains_key(requester) {
            let soonest = self.by_requester.iter().min_by_key(|(_, backoff)| backoff.until);
            let soonest = soonest.map(|(requester, _)| requester.clone());
            soonest.and_then(|requester| self.by_requester.remove(&requester));
        }
        let backoff = self
            .by_requester
            .entry(requester.clone())
            .or_insert(HostBackoff { status, until });
        if backoff.until < until {
            *backoff = HostBackoff { status, until };
        }
        duration
    }

    /// Returns the backoff that holds the requests of `requester`: of the repository, of another repository with the
    /// same credentials, of its namespace, or of the host.
    pub(super) fn backoff_of(&mut self, requester: &HostRequester) -> Option<HostBackoff> {
        self.remove_expired();
        // A repository with its own proxy or certificates could forge a response of any host.
        let same_transport = |other: &HostRequester| other.transport == requester.transport;
        let same_account = |other: &HostRequester| {
            let is_same = (&other.namespace, &other.repository) == (&requester.namespace, &requester.repository);
            let has_same_credentials = other.credentials.is_some() && other.credentials == requester.credentials;
            same_transport(other) && (is_same || has_same_credentials)
        };
        let matches = self.by_requester.iter().filter(|(other, _)| same_account(other));
        let account = matches.map(|(_, backoff)| *backoff).max_by_key(|backoff| backoff.until);
        let namespace = self.until_fewer_than(REPOSITORIES_PER_NAMESPACE, |other| {
            (other.namespace == requester.namespace).then_some(&other.repository)
        });
        let host = self.until_fewer_than(NAMESPACES_PER_HOST, |other| {
            same_transport(other).then_some(&other.namespace)
        });
        let host = host.and_then(|backoff| host_hold(&mut self.host_held_at, backoff));
        let all = [account, namespace, host].into_iter().flatten();
        all.max_by_key(|backoff| backoff.until)
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.remove_expired();
        self.by_requester.is_empty()
    }

    /// Returns the backoff that ends when fewer than `count` keys have one.
    fn until_fewer_than<'a>(
        &'a self,
        count: usize,
        key: impl Fn(&'a HostRequester) -> Option<&'a String>,
    ) -> Option<HostBackoff> {
        let keyed = self
            .by_requester
            .iter()
            .filter_map(|(other, backoff)| Some((key(other)?, *backoff)));
        let mut latest_first: Vec<_> = keyed.collect();
        latest_first.sort_unstable_by_key(|(_, backoff)| std::cmp::Reverse(backoff.until));
        let mut seen = HashSet::new();
        let mut latest_of_each = latest_first.into_iter().filter(|(key, _)| seen.insert(*key));
        latest_of_each.nth(count - 1).map(|(_, backoff)| backoff)
    }

    fn remove_expired(&mut self) {
        let now = Instant::now();
        self.by_requester.retain(|_, backoff| backoff.until > now);
    }
}

/// Limits a hold of the host to [`MAX_HOST_HOLD`], and leaves as much time before the next one.
fn host_hold(held_at: &mut Option<Instant>, backoff: HostBackoff) -> Option<HostBackoff> {
    let now = Instant::now();
    let is_over = |at: &Instant| now.duration_since(*at) >= 2 * MAX_HOST_HOLD;
    if held_at.as_ref().is_none_or(is_over) {
        *held_at = Some(now);
    }
    let started = held_at.unwrap_or(now);
    let until = backoff.until.min(started + MAX_HOST_HOLD);
    (until > now).then_some(HostBackoff { until, ..backoff })
}

/// Parses a `Retry-After` header, in seconds or as a date. Returns zero for a date before `now`, `None` for invalid values.
pub(super) fn parse_retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // The backoff is bounded, so a value that overflows may saturate.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until = parse_http_date(value)?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

/// Parses a date in HTTP's preferred format, `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn parse_http_date(value: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(value).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::http::host_credentials::TransportKey;

    const STATUS: StatusCode = StatusCode::TOO_MANY_REQUESTS;

    fn repository(namespace: &str, repository: &str) -> HostRequester {
        HostRequester {
            namespace: namespace.to_owned(),
            repository: repository.to_owned(),
            ..HostRequester::default()
        }
    }

    fn held(backoffs: &mut Backoffs, requester: &HostRequester) -> Option<u64> {
        let backoff = backoffs.backoff_of(requester)?;
        Some(backoff.until.duration_since(Instant::now()).as_secs())
    }

    fn add(backoffs: &mut Backoffs, requester: &HostRequester, seconds: u64) {
        backoffs.add(requester, STATUS, Duration::from_secs(seconds));
    }

    #[tokio::test(start_paused = true)]
    async fn one_repository_is_held_alone() {
        let mut backoffs = Backoffs::default();
        add(&mut backoffs, &repository("a", "1"), 30);
        assert_eq!(held(&mut backoffs, &repository("a", "1")), Some(30));
        assert_eq!(held(&mut backoffs, &repository("a", "2")), None);
        assert_eq!(held(&mut backoffs, &repository("b", "1")), None);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(backoffs.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn repositories_with_the_same_credentials_are_held_together() {
        let mut backoffs = Backoffs::default();
        let with = |repository: HostRequester, credentials| HostRequester {
            credentials: Some([credentials; 32]),
            ..repository
        };
        add(&mut backoffs, &with(repository("a", "1"), 1), 30);
        assert_eq!(held(&mut backoffs, &with(repository("b", "2"), 1)), Some(30));
        assert_eq!(held(&mut backoffs, &with(repository("b", "2"), 2)), None);
        assert_eq!(held(&mut backoffs, &repository("b", "2")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_is_held_while_two_of_its_repositories_are() {
        let mut backoffs = Backoffs::default();
        add(&mut backoffs, &repository("a", "1"), 30);
        add(&mut backoffs, &repository("a", "2"), 60);
        assert_eq!(held(&mut backoffs, &repository("a", "3")), Some(30));
        assert_eq!(held(&mut backoffs, &repository("a", "2")), Some(60));
        assert_eq!(held(&mut backoffs, &repository("b", "3")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_held_while_three_namespaces_are_refused() {
        let mut backoffs = Backoffs::default();
        for (namespace, seconds) in [("a", 10), ("a", 90), ("b", 60)] {
            add(&mut backoffs, &repository(namespace, &seconds.to_string()), seconds);
        }
        assert_eq!(held(&mut backoffs, &repository("d", "x")), None);
        add(&mut backoffs, &repository("c", "1"), 30);
        assert_eq!(held(&mut backoffs, &repository("d", "x")), Some(30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_held_for_at_most_half_of_the_time() {
        let mut backoffs = Backoffs::default();
        let mut free = 0;
        for second in 0..600 {
            if second % 30 == 0 {
                for namespace in ["a", "b", "c"] {
                    add(&mut backoffs, &repository(namespace, "1"), 900);
                }
            }
            free += usize::from(held(&mut backoffs, &repository("d", "x")).is_none());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(free, 300);
        assert!(held(&mut backoffs, &repository("a", "1")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_repository_with_its_own_transport_cannot_hold_the_host_for_others() {
        let mut backoffs = Backoffs::default();
        for namespace in ["a", "b", "c"] {
            let forged = HostRequester {
                transport: Some(TransportKey::of_test(1)),
                ..repository(namespace, "1")
            };
            add(&mut backoffs, &forged, 30);
        }
        assert_eq!(held(&mut backoffs, &repository("d", "x")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_backoff_is_bounded_and_never_shortened() {
        let mut backoffs = Backoffs::default();
        let requester = repository("a", "1");
        assert_eq!(backoffs.add(&requester, STATUS, Duration::MAX), MAX_BACKOFF);
        add(&mut backoffs, &requester, 1);
        assert_eq!(held(&mut backoffs, &requester), Some(MAX_BACKOFF.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_backoffs_is_bounded() {
        let mut backoffs = Backoffs::default();
        for number in 0..3 * MAX_HELD {
            add(&mut backoffs, &repository(&number.to_string(), "1"), 30);
        }
        assert_eq!(backoffs.by_requester.len(), MAX_HELD);
    }

    #[rstest]
    #[case("120", Some(120))]
    #[case(" 0 ", Some(0))]
    #[case("99999999999999999999999", Some(u64::MAX))]
    #[case("Sun, 06 Nov 1994 08:49:37 GMT", Some(37))]
    #[case("Sun, 06 Nov 1994 08:48:00 GMT", Some(0))]
    #[case("", None)]
    #[case("-1", None)]
    #[case("1.5", None)]
    #[case("soon", None)]
    fn retry_after_accepts_seconds_and_dates(#[case] value: &str, #[case] seconds: Option<u64>) {
        let now: Timestamp = "1994-11-06T08:49:00Z".parse().unwrap();
        assert_eq!(parse_retry_after(value, now), seconds.map(Duration::from_secs));
    }
}

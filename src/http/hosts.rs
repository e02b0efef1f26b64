//! Rate limit, concurrency limit and `Retry-After` backoff of each host.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use parking_lot::Mutex;
use reqwest::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::error::FetchError;
use super::host_credentials::TransportKey;
use crate::clock::TokioClock;

/// Upper bound of a `Retry-After`, because several repositories may share a host.
const MAX_BACKOFF: Duration = Duration::from_mins(15);

const MAX_IDLE_HOSTS: usize = 1_024;

#[derive(Debug, Clone, Copy)]
pub(super) struct HostLimits {
    pub(super) requests_per_second: NonZeroU32,
    pub(super) burst: NonZeroU32,
    pub(super) max_concurrent_requests: usize,
}

/// Hosts by name, port and transport. A repository that chooses its proxy or CA could forge a `Retry-After` of any host, so
/// only requests with the same transport share a backoff.
#[derive(Debug)]
pub(super) struct Hosts {
    limits: HostLimits,
    hosts: Mutex<HashMap<HostKey, Arc<Host>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HostKey {
    transport: Option<TransportKey>,
    name: String,
}

#[derive(Debug)]
pub(super) struct Host {
    name: String,
    rate: RateLimiter<NotKeyed, InMemoryState, TokioClock>,
    permits: Arc<Semaphore>,
    backoff: Mutex<Option<HostBackoff>>,
}

#[derive(Debug, Clone, Copy)]
struct HostBackoff {
    status: StatusCode,
    until: Instant,
}

impl Hosts {
    pub(super) fn new(limits: HostLimits) -> Self {
        Self {
            limits,
            hosts: Mutex::default(),
        }
    }

    /// Returns the state of a host. Without a key, the transport is the one that repositories share by default.
    pub(super) fn get(&self, transport: Option<TransportKey>, name: &str) -> Arc<Host> {
        let key = HostKey {
            transport,
            name: name.to_owned(),
        };
        let mut hosts = self.hosts.lock();
        if let Some(host) = hosts.get(&key) {
            return Arc::clone(host);
        }
        if hosts.len() >= MAX_IDLE_HOSTS {
            // Idle hosts without a backoff lose at most a fraction of a second of their rate limit.
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.check_backoff().is_err());
        }
        let host = Arc::new(Host::new(name, &self.limits));
        hosts.insert(key, Arc::clone(&host));
        host
    }
}

impl Host {
    fn new(name: &str, limits: &HostLimits) -> Self {
        let quota = Quota::per_second(limits.requests_per_second).allow_burst(limits.burst);
        Self {
            name: name.to_owned(),
            rate: RateLimiter::direct_with_clock(quota, TokioClock),
            permits: Arc::new(Semaphore::new(limits.max_concurrent_requests)),
            backoff: Mutex::new(None),
        }
    }

    /// Waits for the rate limit and a permit. The caller holds the permit until it has read the body.
    pub(super) async fn acquire(&self) -> Result<OwnedSemaphorePermit, FetchError> {
        self.check_backoff()?;
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| FetchError::Client("the host's semaphore is closed".to_owned()))?;
        while let Err(not_yet) = self.rate.check() {
            tokio::time::sleep(not_yet.wait_time_from(TokioClock.now())).await;
        }
        // Another request may have received a `Retry-After` meanwhile.
        self.check_backoff()?;
        Ok(permit)
    }

    /// Blocks further requests to the host. Returns the duration, which is at most [`MAX_BACKOFF`].
    pub(super) fn back_off(&self, status: StatusCode, retry_after: Duration) -> Duration {
        let duration = retry_after.min(MAX_BACKOFF);
        let until = Instant::now() + duration;
        let mut backoff = self.backoff.lock();
        if backoff.is_none_or(|backoff| backoff.until < until) {
            *backoff = Some(HostBackoff { status, until });
        }
        duration
    }

    fn check_backoff(&self) -> Result<(), FetchError> {
        let mut backoff = self.backoff.lock();
        let Some(HostBackoff { status, until }) = *backoff else {
            return Ok(());
        };
        let remaining = until.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            *backoff = None;
            return Ok(());
        }
        Err(FetchError::BackingOff {
            host: self.name.clone(),
            status,
            remaining,
        })
    }
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

    fn hosts(requests_per_second: u32, burst: u32, max_concurrent_requests: usize) -> Hosts {
        Hosts::new(HostLimits {
            requests_per_second: NonZeroU32::new(requests_per_second).unwrap(),
            burst: NonZeroU32::new(burst).unwrap(),
            max_concurrent_requests,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_limit_applies_per_host() {
        let hosts = hosts(50, 100, 8);
        let start = Instant::now();
        for _ in 0..200 {
            drop(hosts.get(None, "a:443").acquire().await.unwrap());
        }
        let elapsed = start.elapsed();
        assert!((1_900..2_100).contains(&elapsed.as_millis()), "{elapsed:?}");
        drop(hosts.get(None, "b:443").acquire().await.unwrap());
        assert_eq!(start.elapsed(), elapsed);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_are_limited() {
        let hosts = hosts(1_000, 1_000, 2);
        let host = hosts.get(None, "a:443");
        let (first, _second) = (host.acquire().await.unwrap(), host.acquire().await.unwrap());
        let third = tokio::time::timeout(Duration::from_secs(60), host.acquire()).await;
        assert!(third.is_err());
        drop(first);
        drop(host.acquire().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_fail_until_the_backoff_ends() {
        let hosts = hosts(1_000, 1_000, 8);
        let host = hosts.get(None, "a:443");
        host.back_off(StatusCode::TOO_MANY_REQUESTS, Duration::from_secs(30));
        let error = hosts.get(None, "a:443").acquire().await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("TooManyRequests", true));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(
            host.acquire().await.unwrap_err().retry_after(),
            Some(Duration::from_secs(1))
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(host.acquire().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_a_permit_fails_if_a_backoff_starts() {
        let hosts = hosts(1_000, 1_000, 1);
        let host = hosts.get(None, "a:443");
        let permit = host.acquire().await.unwrap();
        let waiting = host.acquire();
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        host.back_off(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(30));
        drop(permit);
        assert!(matches!(waiting.await, Err(FetchError::BackingOff { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_backoff_is_bounded_and_never_shortened() {
        let hosts = hosts(1_000, 1_000, 1);
        let host = hosts.get(None, "a:443");
        assert_eq!(host.back_off(StatusCode::TOO_MANY_REQUESTS, Duration::MAX), MAX_BACKOFF);
        host.back_off(StatusCode::TOO_MANY_REQUESTS, Duration::from_secs(1));
        assert_eq!(host.acquire().await.unwrap_err().retry_after(), Some(MAX_BACKOFF));
    }

    #[tokio::test]
    async fn idle_hosts_are_evicted_and_backing_off_hosts_are_not() {
        let hosts = hosts(10, 10, 1);
        hosts
            .get(None, "backing-off")
            .back_off(StatusCode::TOO_MANY_REQUESTS, Duration::from_secs(60));
        let used = hosts.get(None, "used");
        for number in 0..3 * MAX_IDLE_HOSTS {
            hosts.get(None, &number.to_string());
        }
        assert!(hosts.hosts.lock().len() <= MAX_IDLE_HOSTS + 1);
        assert!(hosts.get(None, "backing-off").check_backoff().is_err());
        assert!(Arc::ptr_eq(&used, &hosts.get(None, "used")));
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

//! Concurrency limit, rate limit and backoff of each host.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;
use reqwest::StatusCode;
use tokio::time::Instant;

use super::error::FetchError;
use super::host_credentials::HostRequester;
use super::retry_after::{Backoffs, HostBackoff};
use crate::budget::{Budget, Reservation, ResourceMetrics};
use crate::clock::TokioClock;

/// Beyond it, idle hosts without a backoff are dropped: they lose at most a fraction of a second of their rate limit.
const MAX_IDLE_HOSTS: usize = 1_024;
/// Beyond it, idle hosts lose their backoff too: an index may name any number of hosts, and each may send a `Retry-After`.
const MAX_HOSTS: usize = 4_096;

#[derive(Debug, Clone)]
pub(super) struct HostLimits {
    pub(super) requests_per_second: NonZeroU32,
    pub(super) burst: NonZeroU32,
    pub(super) max_concurrent_requests: NonZeroU32,
    /// Metrics of the requests in flight to all hosts.
    pub(super) metrics: ResourceMetrics,
}

/// Hosts by name and port.
#[derive(Debug)]
pub(super) struct Hosts {
    limits: HostLimits,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
}

#[derive(Debug)]
pub(super) struct Host {
    name: String,
    rate: RateLimiter<NotKeyed, InMemoryState, TokioClock>,
    permits: Budget,
    backoffs: Mutex<Backoffs>,
}

impl Hosts {
    pub(super) fn new(limits: HostLimits) -> Self {
        Self {
            limits,
            hosts: Mutex::default(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        if let Some(host) = hosts.get(name) {
            return Arc::clone(host);
        }
        let is_used = |host: &Arc<Host>| Arc::strong_count(host) > 1;
        if hosts.len() >= MAX_IDLE_HOSTS {
            hosts.retain(|_, host| is_used(host) || !host.backoffs.lock().is_empty());
        }
        if hosts.len() >= MAX_HOSTS {
            hosts.retain(|_, host| is_used(host));
        }
        let host = Arc::new(Host::new(name, &self.limits));
        hosts.insert(name.to_owned(), Arc::clone(&host));
        host
    }
}

impl Host {
    fn new(name: &str, limits: &HostLimits) -> Self {
        let quota = Quota::per_second(limits.requests_per_second).allow_burst(limits.burst);
        Self {
            name: name.to_owned(),
            rate: RateLimiter::direct_with_clock(quota, TokioClock),
            permits: Budget::with_metrics(
                "host_requests",
                limits.max_concurrent_requests.get().into(),
                limits.metrics.clone(),
            ),
            backoffs: Mutex::default(),
        }
    }

    /// Waits for a permit and the rate limit. The caller holds the permit until it has read the body.
    pub(super) async fn acquire(&self, requester: &HostRequester) -> Result<Reservation, FetchError> {
        self.check_backoff(requester)?;
        let permit = self.permits.acquire(&requester.namespace, 1).await;
        while let Err(not_yet) = self.rate.check() {
            tokio::time::sleep(not_yet.wait_time_from(TokioClock.now())).await;
        }
        // Another request may have received a `Retry-After` meanwhile.
        self.check_backoff(requester)?;
        Ok(permit)
    }

    /// Holds further requests; see [`Backoffs`]. Returns the bounded duration.
    pub(super) fn back_off(&self, requester: &HostRequester, status: StatusCode, retry_after: Duration) -> Duration {
        self.backoffs.lock().add(requester, status, retry_after)
    }

    fn check_backoff(&self, requester: &HostRequester) -> Result<(), FetchError> {
        match self.backoffs.lock().backoff_of(requester) {
            None => Ok(()),
            Some(HostBackoff { status, until }) => Err(FetchError::BackingOff {
                host: self.name.clone(),
                status,
                remaining: until.saturating_duration_since(Instant::now()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(requests_per_second: u32, burst: u32, max_concurrent_requests: u32) -> Hosts {
        Hosts::new(HostLimits {
            requests_per_second: NonZeroU32::new(requests_per_second).unwrap(),
            burst: NonZeroU32::new(burst).unwrap(),
            max_concurrent_requests: NonZeroU32::new(max_concurrent_requests).unwrap(),
            metrics: ResourceMetrics::unregistered(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_limit_applies_per_host() {
        let hosts = hosts(50, 100, 8);
        let start = Instant::now();
        for _ in 0..200 {
            drop(hosts.get("a:443").acquire(&HostRequester::default()).await.unwrap());
        }
        let elapsed = start.elapsed();
        assert!((1_900..2_100).contains(&elapsed.as_millis()), "{elapsed:?}");
        drop(hosts.get("b:443").acquire(&HostRequester::default()).await.unwrap());
        assert_eq!(start.elapsed(), elapsed);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_are_limited() {
        let hosts = hosts(1_000, 1_000, 2);
        let host = hosts.get("a:443");
        let (first, _second) = (
            host.acquire(&HostRequester::default()).await.unwrap(),
            host.acquire(&HostRequester::default()).await.unwrap(),
        );
        let third = tokio::time::timeout(Duration::from_secs(60), host.acquire(&HostRequester::default())).await;
        assert!(third.is_err());
        drop(first);
        drop(host.acquire(&HostRequester::default()).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_fail_until_the_backoff_ends() {
        let hosts = hosts(1_000, 1_000, 8);
        let host = hosts.get("a:443");
        host.back_off(
            &HostRequester::default(),
            StatusCode::TOO_MANY_REQUESTS,
            Duration::from_secs(30),
        );
        let error = hosts.get("a:443").acquire(&HostRequester::default()).await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("TooManyRequests", true));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(
            host.acquire(&HostRequester::default()).await.unwrap_err().retry_after(),
            Some(Duration::from_secs(1))
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(host.acquire(&HostRequester::default()).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_a_permit_fails_if_a_backoff_starts() {
        let hosts = hosts(1_000, 1_000, 1);
        let host = hosts.get("a:443");
        let permit = host.acquire(&HostRequester::default()).await.unwrap();
        let requester = HostRequester::default();
        let waiting = host.acquire(&requester);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        host.back_off(
            &HostRequester::default(),
            StatusCode::SERVICE_UNAVAILABLE,
            Duration::from_secs(30),
        );
        drop(permit);
        assert!(matches!(waiting.await, Err(FetchError::BackingOff { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_yields_half_of_the_permits_to_another_one() {
        let hosts = hosts(1_000, 1_000, 8);
        let host = hosts.get("a:443");
        let of = |namespace: &str| HostRequester {
            namespace: namespace.to_owned(),
            ..HostRequester::default()
        };
        let mut hostile = Vec::new();
        for _ in 0..8 {
            hostile.push(host.acquire(&of("hostile")).await.unwrap());
        }
        assert_eq!(host.permits.used(), 8);
        let (more, honest) = (of("hostile"), of("honest"));
        let (more, honest) = (host.acquire(&more), host.acquire(&honest));
        tokio::pin!(more, honest);
        assert!(futures::poll!(&mut more).is_pending() && futures::poll!(&mut honest).is_pending());
        hostile.pop();
        assert!(futures::poll!(&mut more).is_pending());
        assert!(honest.await.is_ok());
    }

    #[tokio::test]
    async fn idle_hosts_are_evicted_and_backing_off_hosts_are_not() {
        let hosts = hosts(10, 10, 1);
        hosts.get("backing-off").back_off(
            &HostRequester::default(),
            StatusCode::TOO_MANY_REQUESTS,
            Duration::from_secs(60),
        );
        let used = hosts.get("used");
        for number in 0..3 * MAX_IDLE_HOSTS {
            hosts.get(&number.to_string());
        }
        assert!(hosts.hosts.lock().len() <= MAX_IDLE_HOSTS + 1);
        assert!(
            hosts
                .get("backing-off")
                .check_backoff(&HostRequester::default())
                .is_err()
        );
        assert!(Arc::ptr_eq(&used, &hosts.get("used")));
    }

    #[tokio::test]
    async fn hosts_that_all_send_retry_after_are_bounded() {
        let hosts = hosts(10, 10, 1);
        for number in 0..2 * MAX_HOSTS {
            let host = hosts.get(&number.to_string());
            host.back_off(
                &HostRequester::default(),
                StatusCode::TOO_MANY_REQUESTS,
                Duration::from_secs(60),
            );
        }
        assert!(hosts.hosts.lock().len() <= MAX_HOSTS);
    }
}

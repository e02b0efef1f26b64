//! What is held for each host: how often and how many at once it is asked, and whether it wants to be left alone.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;
use reqwest::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::error::FetchError;
use super::host_credentials::Identity;
use crate::clock::TokioClock;

/// Longest that a host's wish to be left alone is heeded: any repository may point at a host that others share.
const LONGEST_HOLD: Duration = Duration::from_mins(15);

/// Hosts that are kept though nothing is going on with them; beyond that the quiet ones are forgotten.
const KEPT_HOSTS: usize = 1_024;

/// The limits that hold for each host.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostLimits {
    pub(super) requests_per_second: NonZeroU32,
    pub(super) burst: NonZeroU32,
    pub(super) requests_at_once: usize,
}

/// All hosts, each by name and port, and by the way that it is reached: who chooses the proxy or the certificates may answer
/// in the name of any host, which must count for nobody else.
#[derive(Debug)]
pub(super) struct Hosts {
    limits: HostLimits,
    hosts: Mutex<HashMap<Key, Arc<Host>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    way: Option<Identity>,
    name: String,
}

/// One host.
#[derive(Debug)]
pub(super) struct Host {
    name: String,
    rate: RateLimiter<NotKeyed, InMemoryState, TokioClock>,
    turns: Arc<Semaphore>,
    hold: Mutex<Option<Hold>>,
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    status: StatusCode,
    until: Instant,
}

impl Hosts {
    pub(super) fn new(limits: HostLimits) -> Self {
        Self {
            limits,
            hosts: Mutex::new(HashMap::new()),
        }
    }

    /// The host, as it is reached in this way; none is the way that all repositories share.
    pub(super) fn get(&self, way: Option<Identity>, name: &str) -> Arc<Host> {
        let key = Key {
            way,
            name: name.to_owned(),
        };
        let mut hosts = self.hosts.lock();
        if let Some(host) = hosts.get(&key) {
            return Arc::clone(host);
        }
        if hosts.len() >= KEPT_HOSTS {
            // One that is in use or on hold has something to remember; the others lose at most a part of a second's count.
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.check_hold().is_err());
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
            turns: Arc::new(Semaphore::new(limits.requests_at_once)),
            hold: Mutex::new(None),
        }
    }

    /// Waits until the host may be asked. The turn lasts until it is dropped, so until the body has been read.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit, FetchError> {
        self.check_hold()?;
        let turn = Arc::clone(&self.turns)
            .acquire_owned()
            .await
            .map_err(|_| FetchError::Client("the host's turns are over".to_owned()))?;
        while let Err(not_yet) = self.rate.check() {
            tokio::time::sleep(not_yet.wait_time_from(TokioClock.now())).await;
        }
        // It may have asked to be left alone while this one waited.
        self.check_hold()?;
        Ok(turn)
    }

    /// Leaves the host alone for a while. Returns for how long.
    pub(super) fn hold(&self, status: StatusCode, wanted: Duration) -> Duration {
        let duration = wanted.min(LONGEST_HOLD);
        let until = Instant::now() + duration;
        let mut hold = self.hold.lock();
        if hold.is_none_or(|hold| hold.until < until) {
            *hold = Some(Hold { status, until });
        }
        duration
    }

    fn check_hold(&self) -> Result<(), FetchError> {
        let mut hold = self.hold.lock();
        let Some(Hold { status, until }) = *hold else {
            return Ok(());
        };
        let remaining = until.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            *hold = None;
            return Ok(());
        }
        Err(FetchError::OnHold {
            host: self.name.clone(),
            status,
            remaining,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(requests_per_second: u32, burst: u32, requests_at_once: usize) -> Hosts {
        Hosts::new(HostLimits {
            requests_per_second: NonZeroU32::new(requests_per_second).unwrap(),
            burst: NonZeroU32::new(burst).unwrap(),
            requests_at_once,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_asked_no_more_often_than_allowed_and_another_is_not_delayed() {
        let hosts = hosts(50, 100, 8);
        let start = Instant::now();
        for _ in 0..200 {
            drop(hosts.get(None, "a:443").turn().await.unwrap());
        }
        let elapsed = start.elapsed();
        assert!((1_900..2_100).contains(&elapsed.as_millis()), "{elapsed:?}");
        drop(hosts.get(None, "b:443").turn().await.unwrap());
        assert_eq!(start.elapsed(), elapsed);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_under_way_at_once_than_allowed() {
        let hosts = hosts(1_000, 1_000, 2);
        let host = hosts.get(None, "a:443");
        let (first, _second) = (host.turn().await.unwrap(), host.turn().await.unwrap());
        let waits = tokio::time::timeout(Duration::from_secs(60), host.turn()).await;
        assert!(waits.is_err());
        drop(first);
        drop(host.turn().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_wants_to_be_left_alone_is_not_asked_until_then() {
        let hosts = hosts(1_000, 1_000, 8);
        let host = hosts.get(None, "a:443");
        host.hold(StatusCode::TOO_MANY_REQUESTS, Duration::from_secs(30));
        let error = hosts.get(None, "a:443").turn().await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("TooManyRequests", true));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(
            host.turn().await.unwrap_err().retry_after(),
            Some(Duration::from_secs(1))
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(host.turn().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_waits_for_its_turn_hears_that_the_host_went_on_hold() {
        let hosts = hosts(1_000, 1_000, 1);
        let host = hosts.get(None, "a:443");
        let turn = host.turn().await.unwrap();
        let waiting = host.turn();
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        host.hold(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(30));
        drop(turn);
        assert!(matches!(waiting.await, Err(FetchError::OnHold { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_is_bounded_and_never_shortened() {
        let hosts = hosts(1_000, 1_000, 1);
        let host = hosts.get(None, "a:443");
        assert_eq!(host.hold(StatusCode::TOO_MANY_REQUESTS, Duration::MAX), LONGEST_HOLD);
        host.hold(StatusCode::TOO_MANY_REQUESTS, Duration::from_secs(1));
        assert_eq!(host.turn().await.unwrap_err().retry_after(), Some(LONGEST_HOLD));
    }

    #[tokio::test]
    async fn quiet_hosts_are_forgotten_and_those_on_hold_are_not() {
        let hosts = hosts(10, 10, 1);
        hosts
            .get(None, "held")
            .hold(StatusCode::TOO_MANY_REQUESTS, Duration::from_secs(60));
        let used = hosts.get(None, "used");
        for number in 0..3 * KEPT_HOSTS {
            hosts.get(None, &number.to_string());
        }
        assert!(hosts.hosts.lock().len() <= KEPT_HOSTS + 1);
        assert!(hosts.get(None, "held").check_hold().is_err());
        assert!(Arc::ptr_eq(&used, &hosts.get(None, "used")));
    }
}

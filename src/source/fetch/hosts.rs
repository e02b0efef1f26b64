//! Manners towards hosts: how many requests each gets, at once and in a second, and leaving alone those that ask for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use url::Url;

use super::{FetchError, Settings};

/// From so many hosts on, those that nobody talks to are forgotten.
const KEPT: usize = 1024;

/// The hosts that were talked to.
pub(super) struct Hosts {
    quota: Quota,
    at_once: usize,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
}

/// One host.
pub(super) struct Host {
    name: String,
    bucket: DefaultDirectRateLimiter,
    slots: Arc<Semaphore>,
    hold: Mutex<Option<Instant>>,
}

impl Hosts {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            quota: Quota::per_second(settings.requests_per_second).allow_burst(settings.burst),
            at_once: settings.requests_at_once.max(1),
            hosts: Mutex::default(),
        }
    }

    /// The host of `url`, by name and port.
    pub(super) fn of(&self, url: &Url) -> Arc<Host> {
        let name = format!(
            "{}:{}",
            url.host_str().unwrap_or_default(),
            url.port_or_known_default().unwrap_or_default()
        );
        let mut hosts = lock(&self.hosts);
        if hosts.len() >= KEPT && !hosts.contains_key(&name) {
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.held_for().is_some());
        }
        let make = || {
            Arc::new(Host {
                name: name.clone(),
                bucket: RateLimiter::direct(self.quota),
                slots: Arc::new(Semaphore::new(self.at_once)),
                hold: Mutex::default(),
            })
        };
        Arc::clone(hosts.entry(name.clone()).or_insert_with(make))
    }
}

impl Host {
    /// Waits for a turn; the permit is to be kept until the body is read. A host that has asked to be left alone fails at once:
    /// to wait here would keep a worker from others.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit, FetchError> {
        self.check_hold()?;
        let permit = Arc::clone(&self.slots).acquire_owned().await;
        // The semaphore is never closed.
        let permit = permit.map_err(|_| FetchError::Timeout { after: Duration::ZERO })?;
        self.bucket.until_ready().await;
        self.check_hold()?;
        Ok(permit)
    }

    /// Leaves the host alone for `time`, or for longer if that was asked for before.
    pub(super) fn hold(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut hold = lock(&self.hold);
        *hold = Some(hold.map_or(until, |before| before.max(until)));
    }

    fn held_for(&self) -> Option<Duration> {
        let left = lock(&self.hold).as_ref()?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    fn check_hold(&self) -> Result<(), FetchError> {
        match self.held_for() {
            Some(left) => Err(FetchError::OnHold {
                host: self.name.clone(),
                left,
            }),
            None => Ok(()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks hold is whole between any two statements, so a panic elsewhere leaves nothing to mend.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

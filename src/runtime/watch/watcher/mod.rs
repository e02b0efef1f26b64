//! A watch that retries forever and keeps a store up to date.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::runtime::watcher::{self, Event};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error_policy::{ErrorPolicy, WatchFailure, WatchFailures, WatchRetry};
use super::events::Events;
use super::metrics;
use super::store::{Change, Store, Stored, WatchHealth};
use crate::budget::{offloadable_watch, return_to_runtime};
use crate::runtime::kube_client::response_timeout::SLOW_WATCH_TIMEOUT;

const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which failing lists invalidate the last known state.
const STALE_LIMIT: Duration = Duration::from_secs(30);
/// Time for events that arrived together, before others. Each may be compared with the selectors of many Applications.
const MAX_BUSY: Duration = Duration::from_millis(1);
/// Delay after a panic, which is likely to recur.
const PANIC_DELAY: Duration = Duration::from_secs(60);
/// Time without failure after which a forbidden watch counts as allowed. The API server refuses it immediately.
const PROBATION: Duration = Duration::from_secs(5);
/// The same for other failures. The request for a watch may wait as long as its timeout.
const SLOW_PROBATION: Duration = Duration::from_secs(SLOW_WATCH_TIMEOUT.as_secs() + 5);

#[derive(Debug)]
pub(super) enum Notification<T> {
    Change(Change<T>),
    Health,
    NotServed,
}

pub(super) struct Watch<T> {
    /// For messages, such as `deployments.apps in namespace shop`.
    pub(super) description: String,
    pub(super) open: Box<dyn Fn() -> Events<T> + Send + Sync>,
    pub(super) store: Store<T>,
    pub(super) policy: ErrorPolicy,
    /// Time from a complete list to the next list, as long as the watch works.
    pub(super) relist_period: Option<Duration>,
    pub(super) notify: Box<dyn Fn(Notification<T>) + Send + Sync>,
}

impl<T: Stored + Send + Sync + 'static> Watch<T> {
    /// Runs forever, also after a panic: projections run while events are decoded and may panic on unexpected objects.
    pub(super) async fn run_despite_panics(self) {
        while AssertUnwindSafe(self.run()).catch_unwind().await.is_err() {
            self.set_failed("internal error while decoding an object, see log", false);
            sleep(PANIC_DELAY).await;
        }
    }

    pub(super) async fn run(&self) {
        let mut failures = WatchFailures::default();
        loop {
            let wait = offloadable_watch(self.process_stream(&mut failures)).await;
            sleep(wait).await;
        }
    }

    /// Processes one stream; returns the delay before the next stream.
    async fn process_stream(&self, failures: &mut WatchFailures) -> Duration {
        let mut events = (self.open)();
        let mut is_listing = true;
        let mut watched_since = Instant::now();
        let mut busy = Duration::ZERO;
        loop {
            let relist_at = self.relist_period.and_then(|period| watched_since.checked_add(period));
            let retry = match self.next(&mut events, is_listing, relist_at).await {
                Some(Ok(event)) => {
                    // Part of a list proves nothing: its next page may fail each time.
                    if !matches!(event, Event::Init | Event::InitApply(_)) && failures.reset() {
                        tracing::info!(watch = self.description, "watch re-established");
                    }
                    is_listing = matches!(event, Event::Init | Event::InitApply(_));
                    match event {
                        Event::InitDone => {
                            watched_since = Instant::now();
                            return_to_runtime();
                        }
                        Event::Apply(_) | Event::Delete(_) => failures.record_permission(),
                        Event::Init | Event::InitApply(_) => {}
                    }
                    let began = Instant::now();
                    self.on_event(event);
                    busy += began.elapsed();
                    if busy > MAX_BUSY {
                        yield_now().await;
                        busy = Duration::ZERO;
                    }
                    continue;
                }
                Some(Err(error)) => {
                    if !is_listing && !self.store.is_polled() && watched_since.elapsed() >= PROBATION {
                        failures.record_permission();
                    }
                    self.on_failure(&WatchFailure::from(&error), failures)
                }
                None if is_listing => {
                    let failure = WatchFailure {
                        is_list: true,
                        code: None,
                        message: format!("no response within {}s", PAGE_TIMEOUT.as_secs()),
                    };
                    WatchRetry {
                        reopens: true,
                        ..self.on_failure(&failure, failures)
                    }
                }
                None => return Duration::ZERO,
            };
            if retry.reopens {
                return retry.wait;
            }
            sleep(retry.wait).await;
        }
    }

    /// Returns the next event; none at the end of the stream, after the time limit of a list, or when the next list is due.
    async fn next(
        &self,
        events: &mut Events<T>,
        is_listing: bool,
        relist_at: Option<Instant>,
    ) -> Option<Result<Event<T>, watcher::Error>> {
        if is_listing {
            return timeout(PAGE_TIMEOUT, events.next()).await.ok().flatten();
        }
        if self.store.is_polled() {
            let probation = if self.store.is_denied() {
                PROBATION
            } else {
                SLOW_PROBATION
            };
            if let Ok(event) = timeout(probation, events.next()).await {
                return event;
            }
            self.set_health(WatchHealth::Healthy);
        }
        match relist_at {
            Some(relist_at) => timeout_at(relist_at, events.next()).await.ok().flatten(),
            None => events.next().await,
        }
    }

    fn on_event(&self, event: Event<T>) {
        let is_healthy = match event {
            Event::Init | Event::InitApply(_) => false,
            Event::InitDone => !self.store.is_polled(),
            // Only a working watch sends these.
            Event::Apply(_) | Event::Delete(_) => true,
        };
        let changes = self.store.apply(event);
        if is_healthy {
            self.set_health(WatchHealth::Healthy);
        }
        for change in changes {
            (self.notify)(Notification::Change(change));
        }
    }

    fn on_failure(&self, failure: &WatchFailure, failures: &mut WatchFailures) -> WatchRetry {
        let WatchFailure { is_list, code, message } = failure;
        tracing::debug!(watch = self.description, is_list, code, error = message, "watch failed");
        metrics::record(&self.description, self.policy, failure);
        let is_brief = failures.take_brief_denial(failure, self.store.is_healthy());
        let retry = failures.retry(self.policy, failure, is_brief);
        let is_stale = failures.record() >= STALE_LIMIT;
        match self.policy {
            ErrorPolicy::PollWhenForbidden { .. } if is_brief && !failure.is_list => {}
            ErrorPolicy::PollWhenForbidden { interval } => self.update_health(failure, is_stale, interval),
            policy => failures.log(policy, &self.description, failure),
        }
        if failure.is_not_served() {
            (self.notify)(Notification::NotServed);
            if failure.is_list && self.policy == ErrorPolicy::Optional {
                self.store.set_not_served();
                if !self.store.is_empty() {
                    // The objects are gone with their definition, and the watch no longer reports their deletion.
                    self.on_event(Event::Init);
                    self.on_event(Event::InitDone);
                }
            }
        }
        retry
    }

    fn update_health(&self, failure: &WatchFailure, is_stale: bool, interval: Duration) {
        let message = &failure.message;
        if failure.is_list {
            // Keeps the last known state for a while: an API server restart is not reported.
            let is_current = match failure.code {
                // Discovery decides whether the kind still exists. If it does, the failure must be visible.
                Some(404) => true,
                Some(405) => false,
                _ if failure.is_unauthorized() => self.store.is_healthy(),
                _ => self.store.is_synced(),
            };
            if is_stale || !is_current {
                self.set_failed(message, failure.is_denied());
            }
        } else if failure.is_denied() {
            let seconds = interval.as_secs();
            self.set_polled(&format!("{message}; polling every {seconds}s instead"), true);
        } else if is_stale && !matches!(failure.code, Some(404 | 410)) {
            self.set_polled(&format!("{message}; showing the last known state"), false);
        }
    }

    fn set_failed(&self, message: &str, is_denied: bool) {
        self.set_health(WatchHealth::Failed {
            message: format!("failed to list {}: {message}", self.description),
            is_denied,
        });
    }

    fn set_polled(&self, message: &str, is_denied: bool) {
        self.set_health(WatchHealth::Polled {
            reason: format!("failed to watch {}: {message}", self.description),
            is_denied,
        });
    }

    fn set_health(&self, health: WatchHealth) {
        if self.store.set_health(health) {
            (self.notify)(Notification::Health);
        }
    }
}

#[cfg(test)]
mod tests;

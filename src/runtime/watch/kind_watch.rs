//! A single watch that retries forever and falls back to polling where watching is forbidden.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use kube::api::ListParams;
use kube::core::Status;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, Event};
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};

use super::discovery::Resource;
use super::projection::{Decoded, Object, Project};
use super::store::{Change, Health, Store};
use crate::runtime::kube_client::ApiError;

/// Objects per page of a list; at most one page is in memory.
const PAGE: u32 = 200;
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which failing lists invalidate the last known state.
const STALE_LIMIT: Duration = Duration::from_secs(30);
/// Failures further apart are unrelated. Longer than the maximum backoff.
const SERIES_GAP: Duration = Duration::from_secs(60);
/// Delay after a panic, which is likely to recur.
const PANIC_DELAY: Duration = Duration::from_secs(60);
/// Time without failure after which a forbidden watch counts as allowed.
const PROBATION: Duration = Duration::from_secs(5);

const NO_VERSION: &str = "list response has no resourceVersion";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    All,
    Namespace(String),
}

pub type Events<K> = BoxStream<'static, Result<Event<Object<K>>, watcher::Error>>;

/// Returns the events of all objects of a kind in the scope, projected by `T` and converted by `convert`.
#[must_use]
pub fn events<T: Project, K: Send + 'static>(
    client: Client,
    resource: &Resource,
    scope: &Scope,
    convert: fn(T) -> K,
) -> Events<K> {
    let config = watcher::Config::default().page_size(PAGE);
    let api = api::<T>(client, resource, scope);
    let watcher = watcher::watcher(api.clone(), config);
    let events = watcher.flat_map(move |event| match event {
        Err(watcher::Error::NoResourceVersion) => list_once(api.clone()).left_stream(),
        event => stream::iter([event]).right_stream(),
    });
    let object = move |object: Decoded<T>| Object::new(object.meta, convert(object.projection));
    events.map_ok(move |event| map(event, object)).boxed()
}

/// Lists objects without a resource version, as some aggregated API servers return them: they cannot be watched.
fn list_once<T: Project>(api: Api<Decoded<T>>) -> BoxStream<'static, Result<Event<Decoded<T>>, watcher::Error>> {
    let parameters = ListParams::default().limit(PAGE);
    stream::once(async move { api.list(&parameters).await })
        .flat_map(|list| {
            let events: Vec<_> = match list {
                Ok(list) if list.metadata.continue_.as_deref().unwrap_or_default().is_empty() => {
                    let objects = list.items.into_iter().map(|object| Ok(Event::InitApply(object)));
                    let all = [Ok(Event::Init)]
                        .into_iter()
                        .chain(objects)
                        .chain([Ok(Event::InitDone)]);
                    all.chain([Err(watcher::Error::WatchStartFailed(no_version()))])
                        .collect()
                }
                Ok(_) => vec![Err(watcher::Error::NoResourceVersion)],
                Err(error) => vec![Err(watcher::Error::InitialListFailed(error))],
            };
            stream::iter(events)
        })
        .boxed()
}

/// The error that API servers return for kinds that cannot be watched.
fn no_version() -> kube::Error {
    kube::Error::Api(Box::new(Status {
        code: 405,
        message: NO_VERSION.to_owned(),
        ..Status::default()
    }))
}

fn api<T: Project>(client: Client, resource: &Resource, scope: &Scope) -> Api<Decoded<T>> {
    match scope {
        Scope::All => Api::all_with(client, &resource.api),
        Scope::Namespace(namespace) => Api::namespaced_with(client, namespace, &resource.api),
    }
}

fn map<A, B>(event: Event<A>, change: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(change(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(change(object)),
        Event::Delete(object) => Event::Delete(change(object)),
    }
}

#[derive(Debug)]
pub(super) enum Notification<K> {
    Change(Change<K>),
    Health,
    NotServed,
}

pub(super) struct Watch<K> {
    /// For messages, such as `deployments.apps in namespace shop`.
    pub(super) description: String,
    pub(super) open: Box<dyn Fn() -> Events<K> + Send + Sync>,
    pub(super) store: Arc<Store<K>>,
    /// Polling interval where watching is forbidden.
    pub(super) sync_period: Duration,
    pub(super) notify: Box<dyn Fn(Notification<K>) + Send + Sync>,
}

#[derive(Default)]
struct FailureSeries {
    first_and_last: Option<(Instant, Instant)>,
}

impl FailureSeries {
    fn record(&mut self) -> Duration {
        let now = Instant::now();
        // A healthy watch is silent while nothing changes.
        let first = match self.first_and_last {
            Some((first, last)) if now - last < SERIES_GAP => first,
            _ => now,
        };
        self.first_and_last = Some((first, now));
        now - first
    }
}

enum Next {
    Resume(Duration),
    Restart(Duration),
}

impl<K: PartialEq + Send + Sync + 'static> Watch<K> {
    pub(super) async fn run(self) {
        let mut backoff = DefaultBackoff::default();
        let mut failures = FailureSeries::default();
        loop {
            // Projections run while events are decoded and may panic on unexpected objects.
            let stream = AssertUnwindSafe(self.process_stream(&mut backoff, &mut failures));
            let wait = stream.catch_unwind().await.unwrap_or_else(|_| {
                self.set_failed("internal error while decoding an object, see log");
                PANIC_DELAY
            });
            sleep(wait).await;
        }
    }

    /// Processes one stream; returns the delay before the next one.
    async fn process_stream(&self, backoff: &mut DefaultBackoff, failures: &mut FailureSeries) -> Duration {
        let mut events = (self.open)();
        let mut is_listing = true;
        loop {
            let next = match self.next(&mut events, is_listing).await {
                Some(Ok(event)) => {
                    // The stream emits the start of a list before it sends a request.
                    if !matches!(event, Event::Init) {
                        backoff.reset();
                        *failures = FailureSeries::default();
                    }
                    is_listing = match event {
                        Event::Init | Event::InitApply(_) => true,
                        Event::InitDone | Event::Apply(_) | Event::Delete(_) => false,
                    };
                    self.on_event(event);
                    continue;
                }
                Some(Err(error)) => self.on_error(&error, backoff, failures),
                None if is_listing => {
                    let message = format!("no response within {}s", PAGE_TIMEOUT.as_secs());
                    self.list_failed(&message, failures.record());
                    Next::Restart(backoff.next().unwrap_or_default())
                }
                None => Next::Restart(Duration::ZERO),
            };
            match next {
                Next::Resume(wait) => sleep(wait).await,
                Next::Restart(wait) => return wait,
            }
        }
    }

    /// Returns the next event; none at the end of the stream or after the time limit of a list.
    async fn next(&self, events: &mut Events<K>, is_listing: bool) -> Option<Result<Event<Object<K>>, watcher::Error>> {
        if is_listing {
            return timeout(PAGE_TIMEOUT, events.next()).await.ok().flatten();
        }
        if self.store.health().polled.is_some() {
            if let Ok(event) = timeout(PROBATION, events.next()).await {
                return event;
            }
            self.set_health(Health::default());
        }
        events.next().await
    }

    fn on_event(&self, event: Event<Object<K>>) {
        let health = match event {
            Event::Init | Event::InitApply(_) => None,
            Event::InitDone => Some(Health {
                failed: None,
                polled: self.store.health().polled,
            }),
            // Only a working watch sends these.
            Event::Apply(_) | Event::Delete(_) => Some(Health::default()),
        };
        let changes = self.store.apply(event);
        if let Some(health) = health {
            self.set_health(health);
        }
        for change in changes {
            (self.notify)(Notification::Change(change));
        }
    }

    fn on_error(&self, error: &watcher::Error, backoff: &mut DefaultBackoff, failures: &mut FailureSeries) -> Next {
        let (is_list, code, message) = describe(error);
        tracing::debug!(watch = self.description, is_list, code, error = message, "watch failed");
        match code {
            Some(404) => {
                (self.notify)(Notification::NotServed);
                // Discovery decides whether the kind still exists. If it does, the failure must be visible.
                let failing = failures.record();
                if is_list && failing >= STALE_LIMIT {
                    self.set_failed(&message);
                }
                Next::Restart(backoff.next().unwrap_or_default())
            }
            // The stream would request the expired version forever.
            Some(410) => {
                if is_list {
                    self.list_failed(&message, failures.record());
                }
                Next::Restart(backoff.next().unwrap_or_default())
            }
            Some(401 | 403) if is_list && self.store.is_healthy() => {
                // Permissions may be missing briefly while they are replaced.
                self.list_failed(&message, failures.record());
                Next::Restart(backoff.next().unwrap_or_default())
            }
            Some(401 | 403 | 405) if is_list => {
                self.set_failed(&message);
                Next::Restart(self.sync_period)
            }
            Some(401 | 403 | 405) => {
                let seconds = self.sync_period.as_secs();
                self.set_polled(&format!("{message}; polling every {seconds}s instead"));
                Next::Restart(self.sync_period)
            }
            _ => {
                let failing = failures.record();
                if is_list {
                    self.list_failed(&message, failing);
                } else if failing >= STALE_LIMIT {
                    self.set_polled(&format!("{message}; showing the last known state"));
                }
                Next::Resume(backoff.next().unwrap_or_default())
            }
        }
    }

    /// Keeps the last known state for a while: an API server restart is not reported.
    fn list_failed(&self, message: &str, failing: Duration) {
        if !self.store.is_complete() || failing >= STALE_LIMIT {
            self.set_failed(message);
        }
    }

    fn set_failed(&self, message: &str) {
        self.set_health(Health {
            failed: Some(format!("failed to list {}: {message}", self.description)),
            polled: None,
        });
    }

    fn set_polled(&self, message: &str) {
        self.set_health(Health {
            failed: None,
            polled: Some(format!("failed to watch {}: {message}", self.description)),
        });
    }

    fn set_health(&self, health: Health) {
        if self.store.set_health(health) {
            (self.notify)(Notification::Health);
        }
    }
}

/// Returns true for a failed list, the HTTP status if there was a response, and the message.
fn describe(error: &watcher::Error) -> (bool, Option<u16>, String) {
    let (is_list, error) = match error {
        watcher::Error::InitialListFailed(error) => (true, error),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => (false, error),
        watcher::Error::WatchError(status) => return (false, Some(status.code), status.message.clone()),
        watcher::Error::NoResourceVersion => {
            return (true, Some(405), NO_VERSION.to_owned());
        }
    };
    let error = ApiError::from(error);
    (is_list, error.code, error.message)
}

#[cfg(test)]
mod tests;

//! One watch: taken up again whatever happens to it, and replaced by lists where it is forbidden.

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
use super::store::{Change, Store, Trouble};
use crate::runtime::kube_client::ApiError;

/// Objects that are asked for at a time: a page is the largest that has to be in memory at once.
const PAGE: u32 = 200;
/// How long a page may take.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a list may fail before what was seen last is not relied upon any more.
const BELIEVED: Duration = Duration::from_secs(30);
/// Failures that are further apart have nothing to do with each other; the longest wait between two tries is shorter.
const SERIES: Duration = Duration::from_secs(60);
/// How long to wait after a panic, which is likely to come again.
const PANICKED: Duration = Duration::from_secs(60);
/// A watch that was forbidden and has not failed for so long is allowed by now.
const PROBATION: Duration = Duration::from_secs(5);

const NO_VERSION: &str = "the API server gives the list no version";

/// The namespaces of a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All of them; also that of kinds without namespaces.
    All,
    /// This one.
    Namespace(String),
}

/// The events of a watch.
pub type Events<K> = BoxStream<'static, Result<Event<Object<K>>, watcher::Error>>;

/// The events of all objects of a kind in the scope, with as much of each as `T` reads; `kept` turns that into what is kept.
#[must_use]
pub fn events<T: Project, K: Send + 'static>(
    client: Client,
    resource: &Resource,
    scope: &Scope,
    kept: fn(T) -> K,
) -> Events<K> {
    let config = watcher::Config::default().page_size(PAGE);
    let api = api::<T>(client, resource, scope);
    let watcher = watcher::watcher(api.clone(), config);
    let events = watcher.flat_map(move |event| match event {
        Err(watcher::Error::NoResourceVersion) => listed(api.clone()).left_stream(),
        event => stream::iter([event]).right_stream(),
    });
    let object = move |object: Decoded<T>| Object::new(object.meta, kept(object.kept));
    events.map_ok(move |event| map(event, object)).boxed()
}

/// The objects of a list that has no version, such as servers give that make up their objects when they are asked: there is nothing
/// from where it could be watched.
fn listed<T: Project>(api: Api<Decoded<T>>) -> BoxStream<'static, Result<Event<Decoded<T>>, watcher::Error>> {
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

/// What a watch answers that there can't be.
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

/// What a watch has to tell.
#[derive(Debug)]
pub(super) enum News<K> {
    /// Something is otherwise in the store.
    Change(Change<K>),
    /// What is the matter with the watch is otherwise.
    Trouble,
    /// The API server does not know the kind any more.
    NotServed,
}

/// A watch that keeps a store.
pub(super) struct Watch<K> {
    /// What is watched, for people: `deployments.apps in namespace shop`.
    pub(super) what: String,
    /// Begins the watch anew, with a complete list.
    pub(super) open: Box<dyn Fn() -> Events<K> + Send + Sync>,
    pub(super) store: Arc<Store<K>>,
    /// How often what may not be watched is listed.
    pub(super) sync_period: Duration,
    /// Called for all that happens, in order. It never waits.
    pub(super) told: Box<dyn Fn(News<K>) + Send + Sync>,
}

/// Since when a watch fails, without anything coming in between.
#[derive(Default)]
struct Failing {
    first_and_last: Option<(Instant, Instant)>,
}

impl Failing {
    /// Notes a failure now; says for how long it has been failing.
    fn since(&mut self) -> Duration {
        let now = Instant::now();
        // A watch that runs is silent while nothing happens.
        let first = match self.first_and_last {
            Some((first, last)) if now - last < SERIES => first,
            _ => now,
        };
        self.first_and_last = Some((first, now));
        now - first
    }
}

/// What to do after an error.
enum Next {
    /// Go on with the same stream, which knows where it was.
    Resume(Duration),
    /// Begin with a list.
    Restart(Duration),
}

impl<K: PartialEq + Send + Sync + 'static> Watch<K> {
    /// Follows the events. It never ends.
    pub(super) async fn run(self) {
        let mut backoff = DefaultBackoff::default();
        let mut failing = Failing::default();
        loop {
            // What is kept of an object is made while the events are waited for, by code that may know nothing of what is in it.
            let follow = AssertUnwindSafe(self.follow(&mut backoff, &mut failing));
            let wait = follow.catch_unwind().await.unwrap_or_else(|_| {
                self.set_failed("Portolan itself has failed over one of them; its log says where");
                PANICKED
            });
            sleep(wait).await;
        }
    }

    /// Follows one stream until another has to be begun; says how long to wait before.
    async fn follow(&self, backoff: &mut DefaultBackoff, failing: &mut Failing) -> Duration {
        let mut events = (self.open)();
        let mut is_listing = true;
        loop {
            let next = match self.next(&mut events, is_listing).await {
                Some(Ok(event)) => {
                    // The beginning of a list is told before the API server has been asked for anything.
                    if !matches!(event, Event::Init) {
                        backoff.reset();
                        *failing = Failing::default();
                    }
                    is_listing = match event {
                        Event::Init | Event::InitApply(_) => true,
                        Event::InitDone | Event::Apply(_) | Event::Delete(_) => false,
                    };
                    self.take(event);
                    continue;
                }
                Some(Err(error)) => self.failed(&error, backoff, failing),
                None if is_listing => {
                    let message = format!("no answer within {} s", ANSWER.as_secs());
                    self.list_failed(&message, failing.since());
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

    /// The next event. Nothing, where none comes in time or ever.
    async fn next(&self, events: &mut Events<K>, is_listing: bool) -> Option<Result<Event<Object<K>>, watcher::Error>> {
        if is_listing {
            return timeout(ANSWER, events.next()).await.ok().flatten();
        }
        if self.store.trouble().polled.is_some() {
            if let Ok(event) = timeout(PROBATION, events.next()).await {
                return event;
            }
            self.set_trouble(Trouble::default());
        }
        events.next().await
    }

    fn take(&self, event: Event<Object<K>>) {
        let trouble = match event {
            Event::Init | Event::InitApply(_) => None,
            Event::InitDone => Some(Trouble {
                failed: None,
                polled: self.store.trouble().polled,
            }),
            // Only a watch that runs tells of these.
            Event::Apply(_) | Event::Delete(_) => Some(Trouble::default()),
        };
        let changes = self.store.take(event);
        if let Some(trouble) = trouble {
            self.set_trouble(trouble);
        }
        for change in changes {
            (self.told)(News::Change(change));
        }
    }

    fn failed(&self, error: &watcher::Error, backoff: &mut DefaultBackoff, failing: &mut Failing) -> Next {
        let (is_list, code, message) = read(error);
        tracing::debug!(what = self.what, is_list, code, message, "the watch failed");
        match code {
            Some(404) => {
                (self.told)(News::NotServed);
                // It is asked then what is served. If the kind still is, although its objects are not, that has to be known.
                let failing = failing.since();
                if is_list && failing >= BELIEVED {
                    self.set_failed(&message);
                }
                Next::Restart(backoff.next().unwrap_or_default())
            }
            // It would ask for a version that is no more, for ever.
            Some(410) => {
                if is_list {
                    self.list_failed(&message, failing.since());
                }
                Next::Restart(backoff.next().unwrap_or_default())
            }
            Some(401 | 403) if is_list && self.store.is_sound() => {
                // Rights that are being exchanged are away for a moment.
                self.list_failed(&message, failing.since());
                Next::Restart(backoff.next().unwrap_or_default())
            }
            Some(401 | 403 | 405) if is_list => {
                self.set_failed(&message);
                Next::Restart(self.sync_period)
            }
            Some(401 | 403 | 405) => {
                let seconds = self.sync_period.as_secs();
                self.set_polled(&format!("{message}; they are listed every {seconds} s instead"));
                Next::Restart(self.sync_period)
            }
            _ => {
                let failing = failing.since();
                if is_list {
                    self.list_failed(&message, failing);
                } else if failing >= BELIEVED {
                    self.set_polled(&format!("{message}; what was seen last is shown"));
                }
                Next::Resume(backoff.next().unwrap_or_default())
            }
        }
    }

    /// What was seen before is believed for a while: a server that is being restarted is no news.
    fn list_failed(&self, message: &str, failing: Duration) {
        if !self.store.is_complete() || failing >= BELIEVED {
            self.set_failed(message);
        }
    }

    fn set_failed(&self, message: &str) {
        self.set_trouble(Trouble {
            failed: Some(format!("can't list {}: {message}", self.what)),
            polled: None,
        });
    }

    fn set_polled(&self, message: &str) {
        self.set_trouble(Trouble {
            failed: None,
            polled: Some(format!("can't watch {}: {message}", self.what)),
        });
    }

    fn set_trouble(&self, trouble: Trouble) {
        if self.store.set_trouble(trouble) {
            (self.told)(News::Trouble);
        }
    }
}

/// Whether it was a list that failed, the HTTP status that the API server answered with, if it did, and what it said.
fn read(error: &watcher::Error) -> (bool, Option<u16>, String) {
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

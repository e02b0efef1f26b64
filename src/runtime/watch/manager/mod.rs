//! Starts, shares and stops watches according to the subscriptions.

mod resolve;
mod state;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use parking_lot::{Mutex, RwLock};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until};

use self::resolve::DiscoveryRequests;
pub use self::resolve::ResolveError;
pub use self::state::{KindState, KindView, ObjectState};
use super::discovery::{MAX_KINDS, Resource, Served, discover};
use super::discovery_timer::DiscoveryTimer;
use super::error_policy::ErrorPolicy;
use super::events::{ObjectEvents, events, limited};
use super::handles::{KindWatches, WatchHandle, demands};
use super::planner::plan;
use super::store::Change;
use super::subscriptions::Subscriptions;
use super::watcher::Notification;
use super::{FieldSet, GroupKind, KindFilter, Object, Project, Scope};
use crate::runtime::kube_client::call;

/// Subscriptions and definitions often change in bursts.
const DEBOUNCE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// Time between two lists of a kind that cannot be watched.
    pub sync_period: Duration,
    /// Time between two lists of other kinds; never if `None`.
    pub relist_period: Option<Duration>,
    /// Time for which a kind stays watched after its last user: the next often comes soon, and a list is expensive.
    pub linger: Duration,
    pub kinds: KindFilter,
    /// Watches kinds in the whole cluster, however few namespaces subscribe to them.
    pub prefers_cluster_wide: bool,
    /// Usually [`MAX_WATCHES`](super::MAX_WATCHES).
    pub max_watches: usize,
}

#[derive(Debug)]
pub enum KindEvent<K> {
    Object {
        old: Option<Arc<Object<K>>>,
        new: Option<Arc<Object<K>>>,
    },
    Kind,
}

type Open<K> = dyn Fn(Client, &GroupKind, &Resource, &Scope) -> ObjectEvents<K> + Send + Sync;
type KindListener<K> = dyn Fn(&GroupKind, KindEvent<K>) + Send + Sync;

/// The watches of all subscribed kinds. Clones share the watches. `U` identifies a subscriber.
pub struct WatchManager<U, K> {
    shared: Arc<Shared<U, K>>,
}

impl<U, K> Clone for WatchManager<U, K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

struct Shared<U, K> {
    client: Client,
    settings: WatchSettings,
    open: Box<Open<K>>,
    listener: Box<KindListener<K>>,
    subscriptions: Mutex<Subscriptions<U>>,
    kinds: RwLock<Kinds<K>>,
    changed: Notify,
    rediscover: Notify,
    requests: DiscoveryRequests,
}

struct Kinds<K> {
    served: ServedKinds,
    running: HashMap<GroupKind, KindWatches<K>>,
    is_discovery_failing: bool,
    is_limit_logged: bool,
}

enum ServedKinds {
    Pending,
    Failed(String),
    Known(Served),
}

type PendingDiscovery = BoxFuture<'static, Result<Served, String>>;

struct StopAll<U, K>(Arc<Shared<U, K>>);

impl<U, K> Drop for StopAll<U, K> {
    fn drop(&mut self) {
        self.0.kinds.write().running.clear();
    }
}

#[derive(Clone, Debug, PartialEq)]
struct ObjectGeneration(i64);

impl Project for ObjectGeneration {
    const FIELDS: FieldSet = FieldSet::Metadata;

    fn project(generation: i64, _: Option<&RawValue>, _: Option<&RawValue>) -> Self {
        Self(generation)
    }
}

impl<U, K> WatchManager<U, K>
where
    U: Ord + Send + Sync + 'static,
    K: Clone + PartialEq + Send + Sync + 'static,
{
    /// Creates a manager without watches. `open` starts a watch; `listener` receives all events and must not block.
    pub fn new(
        client: Client,
        settings: WatchSettings,
        open: impl Fn(Client, &GroupKind, &Resource, &Scope) -> ObjectEvents<K> + Send + Sync + 'static,
        listener: impl Fn(&GroupKind, KindEvent<K>) + Send + Sync + 'static,
    ) -> Self {
        let subscriptions = Subscriptions::new(settings.linger, settings.max_watches);
        let shared = Shared {
            client,
            settings,
            open: Box::new(open),
            listener: Box::new(listener),
            subscriptions: Mutex::new(subscriptions),
            kinds: RwLock::new(Kinds {
                served: ServedKinds::Pending,
                running: HashMap::new(),
                is_discovery_failing: false,
                is_limit_logged: false,
            }),
            changed: Notify::new(),
            rediscover: Notify::new(),
            requests: DiscoveryRequests::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Replaces the kinds of a subscriber. Excluded kinds are neither discovered nor watched.
    pub fn subscribe(&self, user: U, namespace: &str, mut kinds: BTreeSet<GroupKind>) {
        kinds.retain(|kind| self.shared.settings.kinds.may_admit(kind));
        if self.shared.subscriptions.lock().set(user, namespace, kinds) {
            self.shared.changed.notify_one();
        }
    }

    pub fn unsubscribe(&self, user: &U) {
        if self.shared.subscriptions.lock().remove(user) {
            self.shared.changed.notify_one();
        }
    }

    /// Starts and stops watches as subscriptions and definitions change. Never returns; dropping it stops the watches.
    pub async fn run(self) {
        let shared = &self.shared;
        let _stop = StopAll(Arc::clone(shared));
        let mut timer = DiscoveryTimer::default();
        // Started with the first discovery: without subscriptions there are no requests.
        let mut definitions: Option<WatchHandle<ObjectGeneration>> = None;
        // Subscriptions are served from cached results while discovery is in progress.
        let mut discovery: Option<PendingDiscovery> = None;
        let mut served_request = 0;
        loop {
            let next_end = shared.subscriptions.lock().next_end();
            tokio::select! {
                () = shared.changed.notified() => {}
                Some(()) = OptionFuture::from(next_end.map(sleep_until)) => {}
                () = shared.rediscover.notified(), if discovery.is_none() => timer.definition_changed(),
                () = timer.wait(), if discovery.is_none() => {}
                Some(served) = OptionFuture::from(discovery.as_mut()) => {
                    discovery = None;
                    let has_succeeded = self.apply_discovery(served);
                    let subscribed = shared.subscriptions.lock().namespaces();
                    let are_definitions_watched = definitions.as_ref().is_some_and(WatchHandle::is_live);
                    let missing = shared.missing(&subscribed);
                    // No definition changes when an aggregated API server is back.
                    let is_slow = are_definitions_watched && shared.are_complete(&missing);
                    timer.record_attempt(has_succeeded, missing, is_slow);
                    shared.requests.finish(served_request);
                }
            }
            sleep(DEBOUNCE).await;
            let subscribed = shared.subscriptions.lock().namespaces();
            let last_request = shared.requests.last();
            let is_needed = !subscribed.is_empty() || last_request > 0;
            let is_due = discovery.is_none() && timer.update_missing(is_needed, shared.missing(&subscribed));
            if discovery.is_none() && (is_due || last_request > served_request) {
                definitions.get_or_insert_with(|| self.watch_definitions());
                served_request = last_request;
                discovery = Some(self.start_discovery());
            }
            self.update_watches(&subscribed);
        }
    }

    fn watch_definitions(&self) -> WatchHandle<ObjectGeneration> {
        let resource = Resource::of::<CustomResourceDefinition>(false);
        let client = self.shared.client.clone();
        let shared = Arc::clone(&self.shared);
        WatchHandle::start(
            resource.name(),
            self.shared.policy(),
            None,
            move || {
                let events =
                    events::<ObjectGeneration, _>(client.clone(), &resource, &Scope::All, std::convert::identity);
                limited(events, MAX_KINDS)
            },
            move |notification| match notification {
                Notification::Change(Change::Synced { .. }) | Notification::Health | Notification::NotServed => {}
                Notification::Change(_) => shared.rediscover.notify_one(),
            },
        )
    }

    fn start_discovery(&self) -> PendingDiscovery {
        let client = self.shared.client.clone();
        async move {
            let served = call(discover(&client)).await;
            served.map_err(|error| format!("API discovery failed: {error}"))
        }
        .boxed()
    }

    /// Applies a discovery result and notifies subscribers of changed kinds. Returns true on success.
    fn apply_discovery(&self, mut served: Result<Served, String>) -> bool {
        let has_succeeded = served.is_ok();
        let before = {
            let mut kinds = self.shared.kinds.write();
            let was_failing = std::mem::replace(&mut kinds.is_discovery_failing, !has_succeeded);
            match (&kinds.served, &mut served) {
                // Recent results are likely to be still valid.
                (ServedKinds::Known(_), Err(error)) => {
                    if !was_failing {
                        tracing::warn!(error, "API discovery failed, using cached results");
                    }
                    return false;
                }
                (ServedKinds::Known(before), Ok(now)) => now.keep(before),
                _ => {}
            }
            std::mem::replace(
                &mut kinds.served,
                served.map_or_else(ServedKinds::Failed, ServedKinds::Known),
            )
        };
        let subscribed = self.shared.subscriptions.lock().namespaces();
        // Watches are updated first, as subscribers read the state immediately.
        self.update_watches(&subscribed);
        let has_changed = |kind: &&GroupKind| match (&before, &self.shared.kinds.read().served) {
            (ServedKinds::Known(before), ServedKinds::Known(now)) => {
                before.get(kind) != now.get(kind) || before.is_complete(&kind.group) != now.is_complete(&kind.group)
            }
            (ServedKinds::Failed(before), ServedKinds::Failed(now)) => before != now,
            _ => true,
        };
        let affected: Vec<_> = subscribed.keys().filter(has_changed).collect();
        for kind in affected {
            (self.shared.listener)(kind, KindEvent::Kind);
        }
        has_succeeded
    }

    fn update_watches(&self, subscribed: &BTreeMap<GroupKind, BTreeSet<String>>) {
        let mut affected = Vec::new();
        {
            let mut kinds = self.shared.kinds.write();
            let Kinds {
                served,
                running,
                is_limit_logged,
                ..
            } = &mut *kinds;
            let ServedKinds::Known(served) = served else { return };
            running
                .retain(|kind, running| subscribed.contains_key(kind) && served.get(kind) == Some(&running.resource));
            let demands = demands(subscribed, served, running, &self.shared.settings);
            for (kind, desired) in plan(&demands, self.shared.settings.max_watches) {
                let (Some(namespaces), Some(resource)) = (subscribed.get(&kind), served.get(&kind)) else {
                    continue;
                };
                let running = running.entry(kind.clone()).or_insert_with(|| KindWatches::of(resource));
                for scope in &desired {
                    if !running.watches.contains_key(scope) {
                        let watch = self.start(&kind, resource, scope);
                        running.watches.insert(scope.clone(), watch);
                    }
                }
                if running.stop_unneeded(&desired, namespaces) {
                    affected.push(kind.clone());
                }
                if !running.omitted.is_empty() && !std::mem::replace(is_limit_logged, true) {
                    let limit = self.shared.settings.max_watches;
                    tracing::warn!(kind = %kind, "limit of {limit} watches reached, some kinds are not watched");
                }
            }
        }
        for kind in &affected {
            (self.shared.listener)(kind, KindEvent::Kind);
        }
    }

    fn start(&self, kind: &GroupKind, resource: &Resource, scope: &Scope) -> WatchHandle<K> {
        let description = match scope {
            Scope::Namespace(namespace) => format!("{} in namespace {namespace}", resource.name()),
            Scope::All => resource.name(),
        };
        let (opener, notifier) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let (kind, resource, scope) = (kind.clone(), resource.clone(), scope.clone());
        let notified_kind = kind.clone();
        WatchHandle::start(
            description,
            self.shared.policy(),
            self.shared.settings.relist_period,
            move || (opener.open)(opener.client.clone(), &kind, &resource, &scope),
            move |notification| notifier.notify(&notified_kind, notification),
        )
    }
}

impl<U: Ord, K> Shared<U, K> {
    fn notify(&self, kind: &GroupKind, notification: Notification<Arc<Object<K>>>) {
        let event = match notification {
            Notification::Change(Change::Applied { old, new, .. }) => KindEvent::Object { old, new: Some(new) },
            Notification::Change(Change::Deleted(old) | Change::MissingFromList(old)) => KindEvent::Object {
                old: Some(old),
                new: None,
            },
            Notification::Change(Change::Synced { is_first: false }) => return,
            Notification::Change(Change::Synced { is_first: true }) | Notification::Health => {
                // Another watch may be waiting to be replaced by this one.
                self.changed.notify_one();
                KindEvent::Kind
            }
            Notification::NotServed => return self.rediscover.notify_one(),
        };
        (self.listener)(kind, event);
    }

    fn policy(&self) -> ErrorPolicy {
        ErrorPolicy::PollWhenForbidden {
            interval: self.settings.sync_period,
        }
    }

    fn missing(&self, subscribed: &BTreeMap<GroupKind, BTreeSet<String>>) -> BTreeSet<GroupKind> {
        let kinds = self.kinds.read();
        let is_missing =
            |kind: &&GroupKind| !matches!(&kinds.served, ServedKinds::Known(served) if served.get(kind).is_some());
        subscribed.keys().filter(is_missing).cloned().collect()
    }

    fn are_complete(&self, missing: &BTreeSet<GroupKind>) -> bool {
        match &self.kinds.read().served {
            ServedKinds::Known(served) => missing.iter().all(|kind| served.is_complete(&kind.group)),
            ServedKinds::Pending | ServedKinds::Failed(_) => true,
        }
    }
}

#[cfg(test)]
mod tests;

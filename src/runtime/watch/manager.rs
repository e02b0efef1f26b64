//! All watches: begun, shared and stopped by what is needed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::ApiResource;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::discovery::{Resource, discover};
use super::discovery_timer::DiscoveryTimer;
use super::handles::{Running, WatchHandle, needs};
use super::kind_watch::{Events, News, Scope, events};
use super::planner::{MOST, plan};
use super::store::Change;
use super::subscriptions::Subscriptions;
use super::{GroupKind, Object, Project, Reads};
use crate::runtime::kube_client::call;

/// How long changes of needs and definitions are gathered: they come many at a time.
const GATHERED: Duration = Duration::from_millis(20);

/// Settings of [`WatchManager`].
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often objects are listed that may not be watched.
    pub sync_period: Duration,
}

/// What has happened to a kind.
#[derive(Debug)]
pub enum KindEvent<K> {
    /// An object came, went or changed.
    Object {
        /// As it was, if it was there.
        old: Option<Arc<Object<K>>>,
        /// As it is, if it is there.
        new: Option<Arc<Object<K>>>,
    },
    /// Something else is known of the kind as a whole: whoever needs it is to look again.
    Kind,
}

/// What is known of a kind in a namespace.
#[derive(Debug)]
pub enum KindState<K> {
    /// Nothing yet; it will be told.
    Pending,
    /// The API server does not serve such a kind.
    Unknown,
    /// The objects are not known, and why.
    Failed(String),
    /// The objects.
    Objects(View<K>),
}

/// The objects of a kind in a namespace; of a kind without namespaces all.
#[derive(Debug)]
pub struct View<K> {
    /// The kind, as it is asked for.
    pub resource: Resource,
    /// The objects by name.
    pub objects: Vec<Arc<Object<K>>>,
    /// Why they are not watched, in which case they may be older than they look.
    pub polled: Option<String>,
}

/// Who begins a watch: for this kind, served as this, in this scope.
type Open<K> = dyn Fn(Client, &GroupKind, &Resource, &Scope) -> Events<K> + Send + Sync;
type Listener<K> = dyn Fn(&GroupKind, KindEvent<K>) + Send + Sync;

/// The watches of all kinds that some user needs. A handle: clones are the same watches. Users are known by `U`.
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
    settings: Settings,
    open: Box<Open<K>>,
    listener: Box<Listener<K>>,
    needs: Mutex<Subscriptions<U>>,
    kinds: RwLock<Kinds<K>>,
    /// Subscriptions have changed, or a watch has become complete.
    changed: Notify,
    /// What the API server serves may have changed.
    outdated: Notify,
}

/// What is known of kinds.
struct Kinds<K> {
    served: Served,
    running: HashMap<GroupKind, Running<K>>,
}

/// What the API server serves.
enum Served {
    /// It was not asked yet.
    Unasked,
    /// It has never said; why.
    Failed(String),
    /// These, when it was asked last.
    Kinds(HashMap<GroupKind, Resource>),
}

/// What the API server will say that it serves, or why it does not say.
type Answer = BoxFuture<'static, Result<HashMap<GroupKind, Resource>, String>>;

/// Waits for an answer; for ever, if none was asked for.
async fn arrival(answer: &mut Option<Answer>) -> Result<HashMap<GroupKind, Resource>, String> {
    match answer {
        Some(answer) => answer.await,
        None => std::future::pending().await,
    }
}

/// Stops all watches when it is dropped.
struct StopAll<U, K>(Arc<Shared<U, K>>);

impl<U, K> Drop for StopAll<U, K> {
    fn drop(&mut self) {
        self.0
            .kinds
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .running
            .clear();
    }
}

/// The version of a definition, of which nothing else is of interest.
#[derive(Clone, Debug, PartialEq)]
struct Generation(i64);

impl Project for Generation {
    const READS: Reads = Reads::Metadata;

    fn keep(generation: i64, _: Option<&RawValue>, _: Option<&RawValue>) -> Self {
        Self(generation)
    }
}

impl<U, K> WatchManager<U, K>
where
    U: Ord + Send + Sync + 'static,
    K: Clone + PartialEq + Send + Sync + 'static,
{
    /// No watches yet. `open` begins one, `listener` is told of all that happens; it must not wait.
    pub fn new(
        client: Client,
        settings: Settings,
        open: impl Fn(Client, &GroupKind, &Resource, &Scope) -> Events<K> + Send + Sync + 'static,
        listener: impl Fn(&GroupKind, KindEvent<K>) + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared {
            client,
            settings,
            open: Box::new(open),
            listener: Box::new(listener),
            needs: Mutex::default(),
            kinds: RwLock::new(Kinds {
                served: Served::Unasked,
                running: HashMap::new(),
            }),
            changed: Notify::new(),
            outdated: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Says what `user` needs: these kinds in this namespace, and nothing that it needed before.
    pub fn need(&self, user: U, namespace: &str, kinds: BTreeSet<GroupKind>) {
        if self.shared.needs().set(user, namespace, kinds) {
            self.shared.changed.notify_one();
        }
    }

    /// Says that `user` needs nothing any more.
    pub fn release(&self, user: &U) {
        if self.shared.needs().remove(user) {
            self.shared.changed.notify_one();
        }
    }

    /// What is known of a kind in a namespace. It has to be needed; otherwise nothing ever is.
    #[must_use]
    pub fn look(&self, kind: &GroupKind, namespace: &str) -> KindState<K> {
        let kinds = self.shared.kinds_read();
        let resource = match &kinds.served {
            Served::Unasked => return KindState::Pending,
            Served::Failed(error) => return KindState::Failed(error.clone()),
            Served::Kinds(served) => match served.get(kind) {
                None => return KindState::Unknown,
                Some(resource) => resource,
            },
        };
        if !resource.can_list {
            return KindState::Failed(format!(
                "{} can't be listed: there are no objects of this kind to find",
                resource.name()
            ));
        }
        let Some(running) = kinds.running.get(kind) else {
            return KindState::Pending;
        };
        let scopes = [Scope::All, Scope::Namespace(namespace.to_owned())];
        let watches = || scopes.iter().filter_map(|scope| running.watches.get(scope));
        let Some(watch) = watches()
            .find(|watch| watch.store.is_sound())
            .or_else(|| watches().find(|watch| watch.store.is_settled()))
        else {
            if scopes.iter().any(|scope| running.left_out.contains(scope)) {
                return KindState::Failed(format!(
                    "{} are not watched here: {MOST} watches are run already, which is the most; use fewer kinds \
                     or fewer namespaces",
                    resource.name()
                ));
            }
            return KindState::Pending;
        };
        let trouble = watch.store.trouble();
        if let Some(failed) = trouble.failed {
            return KindState::Failed(failed);
        }
        let namespace = if resource.is_namespaced { namespace } else { "" };
        KindState::Objects(View {
            resource: resource.clone(),
            objects: watch.store.objects(namespace),
            polled: trouble.polled,
        })
    }

    /// Has the watches of a kind show the result of our own write before they have seen it, and tells of it as of any change.
    /// `meta` is the API server's response to the write.
    pub fn assume(&self, kind: &GroupKind, meta: ObjectMeta) {
        let (namespace, name) = (
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        );
        let stores: Vec<_> = {
            let kinds = self.shared.kinds_read();
            let watches = kinds.running.get(kind).map(|running| &running.watches);
            [Scope::All, Scope::Namespace(namespace.clone())]
                .iter()
                .filter_map(|scope| watches?.get(scope))
                .map(|watch| Arc::clone(&watch.store))
                .collect()
        };
        // A write of the metadata changes nothing of what is kept beside them.
        let Some(stored) = stores.iter().find_map(|store| store.get(&namespace, &name)) else {
            return;
        };
        let object = Object::new(meta, stored.kept.clone());
        for store in stores {
            if let Some(change) = store.assume(object.clone()) {
                self.shared.tell(kind, News::Change(change));
            }
        }
    }

    /// The number of watches, and of the objects that they hold.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let kinds = self.shared.kinds_read();
        let watches = || kinds.running.values().flat_map(|running| running.watches.values());
        (watches().count(), watches().map(|watch| watch.store.len()).sum())
    }

    /// Begins and stops watches as needs and definitions change. It never ends; when it is dropped, so are the watches.
    pub async fn run(self) {
        let shared = &self.shared;
        let _stop = StopAll(Arc::clone(shared));
        let mut clock = DiscoveryTimer::default();
        // Who declares nothing costs no request.
        let mut definitions: Option<WatchHandle<Generation>> = None;
        // What is known is worked with while the API server takes its time.
        let mut answer: Option<Answer> = None;
        loop {
            tokio::select! {
                () = shared.changed.notified() => {}
                () = shared.outdated.notified(), if answer.is_none() => clock.outdated(),
                () = clock.wait(), if answer.is_none() => {}
                served = arrival(&mut answer) => {
                    answer = None;
                    let has_answer = self.take(served);
                    let needed = shared.needs().namespaces();
                    let are_watched = definitions.as_ref().is_some_and(WatchHandle::is_followed);
                    clock.looked(has_answer, shared.missing(&needed), are_watched);
                }
            }
            sleep(GATHERED).await;
            let needed = shared.needs().namespaces();
            if answer.is_none() && clock.is_due(!needed.is_empty(), shared.missing(&needed)) {
                definitions.get_or_insert_with(|| self.watch_definitions());
                answer = Some(self.ask());
            }
            self.arrange(&needed);
        }
    }

    /// Watches the definitions of kinds, which tells when to ask for the kinds again.
    fn watch_definitions(&self) -> WatchHandle<Generation> {
        let resource = Resource {
            api: ApiResource::erase::<CustomResourceDefinition>(&()),
            is_namespaced: false,
            can_list: true,
        };
        let client = self.shared.client.clone();
        let shared = Arc::downgrade(&self.shared);
        WatchHandle::begin(
            resource.name(),
            self.shared.settings.sync_period,
            move || events::<Generation, _>(client.clone(), &resource, &Scope::All, std::convert::identity),
            move |news| {
                if let (News::Change(Change::Object { .. }), Some(shared)) = (news, shared.upgrade()) {
                    shared.outdated.notify_one();
                }
            },
        )
    }

    /// Asks what is served.
    fn ask(&self) -> Answer {
        let client = self.shared.client.clone();
        async move {
            let served = call(discover(&client)).await;
            served.map_err(|error| format!("can't ask the API server for its kinds: {error}"))
        }
        .boxed()
    }

    /// Takes in what is served, and tells whoever is concerned if that is otherwise than before. Whether there was an answer.
    fn take(&self, served: Result<HashMap<GroupKind, Resource>, String>) -> bool {
        let has_answer = served.is_ok();
        let before = {
            let mut kinds = self.shared.kinds_write();
            match (&kinds.served, &served) {
                // What was served a moment ago is likely to be so still.
                (Served::Kinds(_), Err(error)) => {
                    tracing::warn!(
                        error,
                        "the kinds of the API server are not known to be as they were; trying again"
                    );
                    return false;
                }
                _ => std::mem::replace(&mut kinds.served, served.map_or_else(Served::Failed, Served::Kinds)),
            }
        };
        let needed = self.shared.needs().namespaces();
        // The watches are arranged first: who is told looks at once.
        self.arrange(&needed);
        let is_otherwise = |kind: &&GroupKind| match (&before, &self.shared.kinds_read().served) {
            (Served::Kinds(before), Served::Kinds(now)) => before.get(*kind) != now.get(*kind),
            (Served::Failed(before), Served::Failed(now)) => before != now,
            _ => true,
        };
        let concerned: Vec<_> = needed.keys().filter(is_otherwise).collect();
        for kind in concerned {
            (self.shared.listener)(kind, KindEvent::Kind);
        }
        has_answer
    }

    /// Begins the watches that are needed, and stops those that are not.
    fn arrange(&self, needed: &BTreeMap<GroupKind, BTreeSet<String>>) {
        let mut concerned = Vec::new();
        {
            let mut kinds = self.shared.kinds_write();
            let Kinds { served, running } = &mut *kinds;
            let Served::Kinds(served) = served else { return };
            running.retain(|kind, running| needed.contains_key(kind) && served.get(kind) == Some(&running.resource));
            for (kind, wanted) in plan(&needs(needed, served, running), MOST) {
                let (Some(namespaces), Some(resource)) = (needed.get(&kind), served.get(&kind)) else {
                    continue;
                };
                let running = running.entry(kind.clone()).or_insert_with(|| Running::of(resource));
                for scope in &wanted {
                    if !running.watches.contains_key(scope) {
                        let watch = self.begin(&kind, resource, scope);
                        running.watches.insert(scope.clone(), watch);
                    }
                }
                if running.settle(&wanted, namespaces) {
                    concerned.push(kind);
                }
            }
        }
        for kind in &concerned {
            (self.shared.listener)(kind, KindEvent::Kind);
        }
    }

    fn begin(&self, kind: &GroupKind, resource: &Resource, scope: &Scope) -> WatchHandle<K> {
        let what = match scope {
            Scope::Namespace(namespace) => format!("{} in namespace {namespace}", resource.name()),
            Scope::All => resource.name(),
        };
        let (opened, told) = (Arc::downgrade(&self.shared), Arc::downgrade(&self.shared));
        let (kind, resource, scope) = (kind.clone(), resource.clone(), scope.clone());
        let of = kind.clone();
        WatchHandle::begin(
            what,
            self.shared.settings.sync_period,
            move || match opened.upgrade() {
                Some(shared) => (shared.open)(shared.client.clone(), &kind, &resource, &scope),
                None => stream::pending().boxed(),
            },
            move |news| {
                if let Some(shared) = told.upgrade() {
                    shared.tell(&of, news);
                }
            },
        )
    }
}

impl<U: Ord, K> Shared<U, K> {
    fn tell(&self, kind: &GroupKind, news: News<K>) {
        let told = match news {
            News::Change(Change::Object { old, new }) => KindEvent::Object { old, new },
            News::Change(Change::Listed { first: false }) => return,
            News::Change(Change::Listed { first: true }) | News::Trouble => {
                // It may be what another watch was waiting for to be stopped.
                self.changed.notify_one();
                KindEvent::Kind
            }
            News::NotServed => return self.outdated.notify_one(),
        };
        (self.listener)(kind, told);
    }

    /// The kinds that are needed and not known to be served.
    fn missing(&self, needed: &BTreeMap<GroupKind, BTreeSet<String>>) -> BTreeSet<GroupKind> {
        let kinds = self.kinds_read();
        let is_missing =
            |kind: &&GroupKind| !matches!(&kinds.served, Served::Kinds(served) if served.contains_key(*kind));
        needed.keys().filter(is_missing).cloned().collect()
    }

    fn needs(&self) -> MutexGuard<'_, Subscriptions<U>> {
        // Nothing that can panic runs under these locks, so what they hold is whole.
        self.needs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kinds_read(&self) -> RwLockReadGuard<'_, Kinds<K>> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn kinds_write(&self) -> RwLockWriteGuard<'_, Kinds<K>> {
        self.kinds.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

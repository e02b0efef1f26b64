use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{ResolveError, ServedKinds, WatchManager};
use crate::api::NamespacedName;
use crate::runtime::watch::discovery::Resource;
use crate::runtime::watch::handles::KindWatches;
use crate::runtime::watch::store::{Store, Stored, WatchHealth};
use crate::runtime::watch::watcher::Notification;
use crate::runtime::watch::{GroupKind, Object, Scope};

#[derive(Debug)]
pub enum KindState<K> {
    /// Not listed yet; an event will follow.
    Pending,
    /// May not be watched by [`Settings::kinds`].
    Excluded,
    Unknown,
    Failed(String),
    Objects(KindView<K>),
}

/// The objects of a kind in a namespace; all objects if the kind is cluster-scoped.
#[derive(Debug)]
pub struct KindView<K> {
    pub resource: Resource,
    pub objects: Vec<Arc<Object<K>>>,
    /// The reason why the kind is polled instead of watched; the objects may be stale.
    pub polled: Option<String>,
}

/// An object of a watched kind.
#[derive(Debug)]
pub enum ObjectState<K> {
    Found(Arc<Object<K>>),
    /// The watch is complete and current, and has no such object.
    Absent,
    /// Not watched in this version, or the watch is incomplete or has failed.
    Unknown,
}

impl<U, K> WatchManager<U, K>
where
    U: Ord + Send + Sync + 'static,
    K: Clone + PartialEq + Send + Sync + 'static,
{
    /// Returns the state of a kind in a namespace. Stays pending without a subscription.
    #[must_use]
    pub fn state(&self, kind: &GroupKind, namespace: &str) -> KindState<K> {
        let filter = &self.shared.settings.kinds;
        if !filter.may_admit(kind) {
            return KindState::Excluded;
        }
        let kinds = self.shared.kinds.read();
        let resource = match &kinds.served {
            ServedKinds::Pending => return KindState::Pending,
            ServedKinds::Failed(error) => return KindState::Failed(error.clone()),
            ServedKinds::Known(served) => match served.get(kind) {
                None if !served.is_complete(&kind.group) => {
                    return KindState::Failed(ResolveError::Group(kind.group.to_string()).to_string());
                }
                None => return KindState::Unknown,
                Some(resource) if !filter.admits(kind, resource) => return KindState::Excluded,
                Some(resource) => resource,
            },
        };
        if !resource.can_list {
            return KindState::Failed(format!(
                "{} cannot be listed: objects of this kind are never stored",
                resource.name()
            ));
        }
        let Some(running) = kinds.running.get(kind) else {
            return KindState::Pending;
        };
        let scopes = [Scope::All, Scope::Namespace(namespace.to_owned())];
        let watches = || scopes.iter().filter_map(|scope| running.watches.get(scope));
        let Some(watch) = watches()
            .find(|watch| watch.store.is_healthy())
            .or_else(|| watches().find(|watch| watch.store.is_settled()))
        else {
            if scopes.iter().any(|scope| running.omitted.contains(scope)) {
                return KindState::Failed(format!(
                    "{} are not watched in this namespace: limit of {} watches reached; select fewer kinds or use \
                     fewer namespaces",
                    resource.name(),
                    self.shared.settings.max_watches
                ));
            }
            return KindState::Pending;
        };
        let polled = match watch.store.health() {
            WatchHealth::Failed { message, .. } => return KindState::Failed(message),
            WatchHealth::Polled { reason, .. } => Some(reason),
            WatchHealth::Healthy => None,
        };
        let namespace = if resource.is_namespaced { namespace } else { "" };
        KindState::Objects(KindView {
            resource: resource.clone(),
            objects: watch.store.objects(namespace),
            polled,
        })
    }

    /// Returns an object if its kind is watched in this version.
    #[must_use]
    pub fn object(&self, kind: &GroupKind, api_version: &str, namespace: &str, name: &str) -> ObjectState<K> {
        let kinds = self.shared.kinds.read();
        let Some(running) = kinds.running.get(kind) else {
            return ObjectState::Unknown;
        };
        let Resource { api, is_namespaced, .. } = &running.resource;
        if api.api_version != api_version {
            return ObjectState::Unknown;
        }
        let live = |scope: &Scope| running.watches.get(scope).filter(|watch| watch.is_live());
        let Some(watch) = live(&Scope::All).or_else(|| live(&Scope::Namespace(namespace.to_owned()))) else {
            return ObjectState::Unknown;
        };
        let namespace = if *is_namespaced { namespace } else { "" };
        match watch.store.find(namespace, name) {
            Some(object) => ObjectState::Found(object),
            None => ObjectState::Absent,
        }
    }

    /// Returns true if the watches of a subscribed kind are complete or have failed, or if there are none.
    #[must_use]
    pub fn is_settled(&self, kind: &GroupKind) -> bool {
        let kinds = self.shared.kinds.read();
        let resource = match &kinds.served {
            ServedKinds::Pending => return false,
            ServedKinds::Failed(_) => return true,
            ServedKinds::Known(served) => served.get(kind),
        };
        let is_watched = |resource: &Resource| resource.can_list && self.shared.settings.kinds.admits(kind, resource);
        if !resource.is_some_and(is_watched) {
            return true;
        }
        let running = kinds.running.get(kind);
        running.is_some_and(|running| running.watches.values().all(|watch| watch.store.is_settled()))
    }

    /// Stores the API server's response to our own write before the watch delivers it, and reports it like any change.
    pub fn assume(&self, kind: &GroupKind, meta: ObjectMeta) {
        let Some(name) = NamespacedName::of(&meta) else { return };
        let stores = self.stores(kind, None, &name.namespace);
        // A metadata write does not change the projection.
        let Some(stored) = stores.iter().find_map(|store| store.get(&name)) else {
            return;
        };
        let mut object = Arc::new(Object::new(meta, stored.projection.clone()));
        object.share(&stored);
        for store in stores {
            if let Some(change) = store.assume(Arc::clone(&object)) {
                self.shared.notify(kind, Notification::Change(change));
            }
        }
    }

    /// Same for a response with the whole object, in this version of its API. A created object need not be known yet.
    pub fn assume_object(&self, kind: &GroupKind, api_version: &str, object: Object<K>, is_created: bool) {
        let mut object = Arc::new(object);
        for store in self.stores(kind, Some(api_version), object.namespace()) {
            if let Some(stored) = store.find(object.namespace(), object.name()) {
                object.share(&stored);
            }
            let change = if is_created {
                store.assume_created(Arc::clone(&object))
            } else {
                store.assume(Arc::clone(&object))
            };
            if let Some(change) = change {
                self.shared.notify(kind, Notification::Change(change));
            }
        }
    }

    fn stores(&self, kind: &GroupKind, api_version: Option<&str>, namespace: &str) -> Vec<Store<Arc<Object<K>>>> {
        let kinds = self.shared.kinds.read();
        let is_watched =
            |running: &&KindWatches<K>| api_version.is_none_or(|version| version == running.resource.api.api_version);
        let Some(running) = kinds.running.get(kind).filter(is_watched) else {
            return Vec::new();
        };
        let scopes = [Scope::All, Scope::Namespace(namespace.to_owned())];
        let watches = scopes.iter().filter_map(|scope| running.watches.get(scope));
        watches.map(|watch| watch.store.clone()).collect()
    }

    /// Returns the number of kinds beyond the limit of watches, and the number of kinds that may not be watched.
    #[must_use]
    pub fn unwatched_kinds(&self) -> (usize, usize) {
        let kinds = self.shared.kinds.read();
        let is_denied = |running: &&KindWatches<K>| running.watches.values().any(|watch| watch.store.is_denied());
        let count = |is: &dyn Fn(&&KindWatches<K>) -> bool| kinds.running.values().filter(is).count();
        (count(&|running| !running.omitted.is_empty()), count(&is_denied))
    }

    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let kinds = self.shared.kinds.read();
        let watches = || kinds.running.values().flat_map(|running| running.watches.values());
        (watches().count(), watches().map(|watch| watch.store.len()).sum())
    }
}

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use parking_lot::RwLock;
use tokio::sync::watch;

use super::Seen;
use crate::api::NamespacedName;
use crate::api::is_older;

/// The last known state of all objects of a kind. Clones share the store.
#[derive(Debug)]
pub struct Store<K> {
    state: Arc<RwLock<State<K>>>,
    synced: Arc<watch::Sender<bool>>,
}

#[derive(Debug)]
struct State<K> {
    objects: HashMap<NamespacedName, Seen<K>>,
    /// Objects that are the assumed result of our own write, not yet delivered by the watch.
    assumed: HashSet<NamespacedName>,
}

pub(super) struct Outdated;

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            synced: Arc::clone(&self.synced),
        }
    }
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            state: Arc::new(RwLock::new(State {
                objects: HashMap::new(),
                assumed: HashSet::new(),
            })),
            synced: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl<K> Store<K> {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn get(&self, name: &NamespacedName) -> Option<Seen<K>> {
        self.state.read().objects.get(name).cloned()
    }

    #[must_use]
    pub fn names(&self) -> Vec<NamespacedName> {
        self.state.read().objects.keys().cloned().collect()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true after the first complete list; before, objects may be missing.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub async fn wait_until_synced(&self) {
        // Fails only without a sender, which `self` owns.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Stores the result of our own write unless the store has a newer version, a deletion, or a recreated object.
    /// Older versions are ignored until the watch delivers the write or a list that began after it.
    pub fn assume(&self, name: &NamespacedName, result: K)
    where
        K: Resource,
    {
        let result = Seen::Object(Arc::new(result));
        let mut state = self.state.write();
        if let Some(current) = state.objects.get_mut(name)
            && is_before(current, &result)
        {
            *current = result;
            state.assumed.insert(name.clone());
        }
    }

    pub(super) fn begin_list(&self) {
        self.state.write().assumed.clear();
    }

    /// Stores an object; returns the replaced one.
    pub(super) fn insert(&self, name: NamespacedName, seen: Seen<K>) -> Result<Option<Seen<K>>, Outdated>
    where
        K: Resource,
    {
        let mut state = self.state.write();
        if state.assumed.contains(&name) {
            if state
                .objects
                .get(&name)
                .is_some_and(|current| is_before(&seen, current))
            {
                return Err(Outdated);
            }
            state.assumed.remove(&name);
        }
        Ok(state.objects.insert(name, seen))
    }

    pub(super) fn remove(&self, name: &NamespacedName) -> Option<Seen<K>> {
        let mut state = self.state.write();
        state.assumed.remove(name);
        state.objects.remove(name)
    }

    pub(super) fn set_synced(&self) {
        self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
    }
}

fn is_before<K: Resource>(seen: &Seen<K>, current: &Seen<K>) -> bool {
    let (seen, current) = (seen.meta(), current.meta());
    let version = |meta: &ObjectMeta| meta.resource_version.clone().unwrap_or_default();
    seen.uid == current.uid && is_older(&version(seen), &version(current))
}

//! The cache: what is there now, as far as the events have told.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;
use tokio::sync::watch;

use super::{ObjectName, Seen};

/// All objects of a kind as they were last seen. A handle: clones are the same store.
#[derive(Debug)]
pub struct Store<K> {
    objects: Arc<RwLock<HashMap<ObjectName, Seen<K>>>>,
    synced: Arc<watch::Sender<bool>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            objects: Arc::clone(&self.objects),
            synced: Arc::clone(&self.synced),
        }
    }
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: Arc::default(),
            synced: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl<K> Store<K> {
    /// An empty store that is not synced.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The object of this name.
    #[must_use]
    pub fn get(&self, name: &ObjectName) -> Option<Seen<K>> {
        self.objects.read().get(name).cloned()
    }

    /// The names of all objects, in no order.
    #[must_use]
    pub fn names(&self) -> Vec<ObjectName> {
        self.objects.read().keys().cloned().collect()
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.read().len()
    }

    /// Whether there are no objects, or none are known yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a complete list has been seen. Before that, an object that is not here may exist all the same.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until a complete list has been seen.
    pub async fn wait_until_synced(&self) {
        // Fails only once the sender is gone, which `self` holds.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    pub(super) fn insert(&self, name: ObjectName, seen: Seen<K>) -> Option<Seen<K>> {
        self.objects.write().insert(name, seen)
    }

    pub(super) fn remove(&self, name: &ObjectName) -> Option<Seen<K>> {
        self.objects.write().remove(name)
    }

    pub(super) fn set_synced(&self) {
        self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
    }
}

//! A key in the hands of a worker.

use std::fmt;
use std::sync::Arc;

use super::shared::Shared;
use super::{Item, Priority};

/// A key in the hands of a worker. Nobody else is given the key while the claim lives; dropping it says that the work is
/// done, and the key is queued again if it was added meanwhile.
pub struct Claim<K: Item> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) key: Arc<K>,
    pub(super) priority: Priority,
}

impl<K: Item> Claim<K> {
    /// What is to be worked on.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority at which it was handed out: the one that a retry should keep.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }
}

impl<K: Item> Drop for Claim<K> {
    fn drop(&mut self) {
        self.shared.done(&self.key);
    }
}

impl<K: Item> fmt::Debug for Claim<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

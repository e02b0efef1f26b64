use std::fmt;
use std::sync::Arc;

use super::shared::Shared;
use super::{Item, Priority};

/// A key being processed. Dropping the claim marks the key done and requeues it if it was added again meanwhile.
pub struct Claim<K: Item> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) key: Arc<K>,
    pub(super) priority: Priority,
}

impl<K: Item> Claim<K> {
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority at which the key was dequeued; retries should keep it.
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

use std::sync::Arc;

use parking_lot::Mutex;

use crate::budget::{Full, Transfer};

/// Bytes of a tag in a list, besides its name.
const LISTED: usize = 48;

/// The memory of the tags of one registry, charged as they arrive. Clones share it.
#[derive(Clone, Debug)]
pub struct TagMemory(Arc<Mutex<Transfer>>);

impl TagMemory {
    #[must_use]
    pub fn new(transfer: Transfer) -> Self {
        Self(Arc::new(Mutex::new(transfer)))
    }

    /// Charges more bytes. If the budget is full, the largest holder of the namespace that holds most is aborted.
    pub fn charge(&self, bytes: usize) {
        // It fails only after an abort, for which the sync waits.
        let _ = self.0.lock().grow(bytes as u64);
    }

    pub(super) fn charge_listed(&self, tags: &[String]) {
        // Also held in the set of seen tags.
        self.charge(tags.iter().map(|tag| 2 * (tag.len() + LISTED)).sum());
    }

    pub fn aborted(&self) -> impl Future<Output = Full> + use<> {
        self.0.lock().aborted()
    }
}

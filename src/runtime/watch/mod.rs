//! Watches of arbitrary kinds: discovery, objects in memory, and owner references.
//!
//! ```text
//!  subscriptions ──► WatchManager ──► plan ──► one watch per kind and namespace ──► Store
//!                         ▲                          │
//!  definitions ──► discovery                         └─► KindEvent: object changed, list complete
//! ```
//!
//! Only identifying metadata and the result of [`Project`] are kept of an object; the rest is dropped while decoding.

mod compact_owner_refs;
mod discovery;
mod discovery_timer;
mod handles;
mod kind_watch;
mod manager;
mod planner;
pub(super) mod projection;
mod store;
mod subscriptions;

use std::fmt;
use std::sync::Arc;

pub use compact_owner_refs::OwnerReferences;
pub use discovery::Resource;
pub use kind_watch::{Events, Scope, events};
pub use manager::{KindEvent, KindState, Settings, View, WatchManager};
pub use projection::{FieldSet, Labels, Object, Project};

/// A kind in any version, like `metav1.GroupKind`. Clones share the texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    pub group: Arc<str>,
    pub kind: Arc<str>,
}

impl GroupKind {
    #[must_use]
    pub fn new(group: impl Into<Arc<str>>, kind: impl Into<Arc<str>>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
        }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => f.write_str(&self.kind),
            group => write!(f, "{}.{group}", self.kind),
        }
    }
}

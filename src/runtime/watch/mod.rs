//! Arbitrary objects of the cluster: which kinds there are, what exists of them, who owns whom.
//!
//! ```text
//!  needs (user ─► kinds, namespace) ──► WatchManager ──► plan ──► one watch for each kind and namespace ──► store
//!                                          │                          │
//!  definitions change ──► Discovery ───────┘                          └─► KindEvent: this object has changed, this list is there
//! ```
//!
//! Of an object its metadata are kept as far as they say who it is and whose, and what [`Project`] makes of its spec and status while
//! it is decoded: the rest is never held. What the objects are watched for is the caller's affair.

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
pub use projection::{Labels, Object, Project, Reads};

/// A kind of objects in any of its versions, as `metav1.GroupKind`. Clones share its texts: each Application's kinds are held in
/// several places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// The API group; empty for the core.
    pub group: Arc<str>,
    /// The kind, such as `Deployment`.
    pub kind: Arc<str>,
}

impl GroupKind {
    /// The kind of this name in this group.
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

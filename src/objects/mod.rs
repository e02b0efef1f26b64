//! Arbitrary objects of the cluster: which kinds there are, what exists of them, who owns whom.
//!
//! ```text
//!  needs (user ─► kinds, namespace) ──► Watches ──► plan ──► one watch for each kind and namespace ──► store
//!                                          │                          │
//!  definitions change ──► Discovery ───────┘                          └─► Told: this object has changed, this list is there
//! ```
//!
//! Of an object its metadata are kept as far as they say who it is and whose, and what [`Keep`] makes of its spec and status while
//! it is decoded: the rest is never held. What the objects are watched for is the caller's affair.

mod clock;
mod discovery;
mod needs;
mod object;
pub mod owners;
mod packed;
mod plan;
mod running;
mod store;
mod watch;
mod watches;

use std::fmt;
use std::sync::Arc;

pub use discovery::Resource;
pub use object::{Keep, Labels, Object, Reads};
pub use packed::OwnerReferences;
pub use watch::{Events, Scope, events};
pub use watches::{Look, Settings, Told, View, Watches};

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

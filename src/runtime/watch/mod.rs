//! Watches: objects of a cluster in memory, reported as changes.
//!
//! ```text
//!  events (kube's watcher) ──► Watch, retried by ErrorPolicy ──► Store ──► Change
//!                                                                  ▲
//!  manifests::events ──────────────────────────────────────► run ──┘
//!
//!  subscriptions ──► WatchManager ──► plan ──► one Watch per kind and namespace
//!                         ▲                          │
//!  definitions ──► discovery                         └─► KindEvent: object changed, list complete
//! ```
//!
//! A store holds declared objects as [`Cached`]. Of an object of an arbitrary kind, it holds identifying metadata and
//! the result of [`Project`]; the rest is dropped while decoding. A [`Document`] keeps the whole object as text.

mod cached;
mod compact_owner_refs;
mod discovery;
mod discovery_timer;
mod error_policy;
mod events;
mod handles;
mod kind_filter;
mod manager;
mod metadata;
pub mod metrics;
mod planner;
pub(super) mod projection;
mod store;
mod subscriptions;
mod watcher;

use std::fmt;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::core::{ApiResource, DynamicResourceScope};
use kube::runtime::watcher::Event;
use kube::{Api, Client};

pub use cached::{Cached, MAX_DECODED_BYTES, cluster_informer, decode, informer, raw_informer, run, too_large};
pub use compact_owner_refs::OwnerReferences;
pub use discovery::{Resource, Served, discover};
pub use error_policy::ErrorPolicy;
pub use events::{ObjectEvents, documents, events};
pub use kind_filter::KindFilter;
pub use manager::{KindEvent, KindState, KindView, ObjectState, ResolveError, WatchManager, WatchSettings};
pub use metadata::{MetadataEvent, watch_cluster_metadata, watch_metadata, watch_names};
pub use planner::MAX_WATCHES;
pub use projection::{Document, DocumentCache, FieldSet, Labels, Object, Project};
pub use store::{Change, Store, Stored};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    All,
    Namespace(String),
}

#[derive(Clone, Debug)]
pub struct Selection {
    pub scope: Scope,
    /// A label selector; all objects of the scope if `None`.
    pub labels: Option<String>,
}

impl From<Scope> for Selection {
    fn from(scope: Scope) -> Self {
        Self { scope, labels: None }
    }
}

impl Scope {
    fn dynamic_api<K>(&self, client: Client, resource: &Resource) -> Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match self {
            Self::All => Api::all_with(client, &resource.api),
            Self::Namespace(namespace) => Api::namespaced_with(client, namespace, &resource.api),
        }
    }

    fn api<K>(&self, client: Client) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self {
            Self::All => Api::all(client),
            Self::Namespace(namespace) => Api::namespaced(client, namespace),
        }
    }
}

fn map<A, B>(event: Event<A>, convert: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(convert(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(convert(object)),
        Event::Delete(object) => Event::Delete(convert(object)),
    }
}

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

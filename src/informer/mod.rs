//! Where objects come from: a watch on a cluster, or a directory of manifests.
//!
//! ```text
//!  cluster::events   ─┐                                       ┌─► Store: what is there now
//!                     ├─ Event<DeserializeGuard<K>> ──► run ──┤
//!  manifests::events ─┘                                       └─► Change: look at this object
//! ```
//!
//! Both origins give the events of a watch: the beginning of a complete list, its objects, its end; then each change. So all
//! that follows is one code. An object that can't be decoded is [`Seen::Undecodable`] and never holds up the others.

pub mod cluster;
pub mod manifests;
mod run;
pub mod secrets;
mod store;

use std::{
    fmt::{self, Display},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::DeserializeGuard};

pub use run::{Change, run};
pub use store::Store;

use crate::text;

/// Decoders quote what they could not read: no more than this many bytes of it is kept.
const MAX_ERROR: usize = 1_024;

/// The name of an object among those of its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The namespace that it is in.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

impl ObjectName {
    /// The name that the metadata give; nothing where they have none.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let name = meta.name.clone().filter(|name| !name.is_empty())?;
        Some(Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name,
        })
    }
}

impl Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object as it was last seen.
#[derive(Debug)]
pub enum Seen<K> {
    /// The object.
    Object(Arc<K>),
    /// One that does not decode: all that is known of it is its metadata.
    Undecodable {
        /// Its metadata, with its UID, annotations and finalizers.
        meta: Arc<ObjectMeta>,
        /// What is wrong with it.
        error: String,
    },
}

impl<K> Clone for Seen<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Object(object) => Self::Object(Arc::clone(object)),
            Self::Undecodable { meta, error } => Self::Undecodable {
                meta: Arc::clone(meta),
                error: error.clone(),
            },
        }
    }
}

impl<K: Resource> Seen<K> {
    /// Its metadata, which are there whether it decodes or not.
    #[must_use]
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Object(object) => object.meta(),
            Self::Undecodable { meta, .. } => meta,
        }
    }

    /// The object, if it decodes.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Object(object) => Some(object),
            Self::Undecodable { .. } => None,
        }
    }
}

impl<K> From<DeserializeGuard<K>> for Seen<K> {
    fn from(DeserializeGuard(object): DeserializeGuard<K>) -> Self {
        match object {
            Ok(object) => Self::Object(Arc::new(object)),
            Err(invalid) => Self::Undecodable {
                meta: Arc::new(invalid.metadata),
                error: text::truncate(&text::printable(&invalid.error), MAX_ERROR),
            },
        }
    }
}

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
mod run;
pub mod secrets;
mod store;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::DeserializeGuard};

pub use run::{Change, run};
pub use store::Store;

use crate::text;

/// Decoders quote what they could not read: no more than this many bytes of it is kept.
const MAX_ERROR: usize = 1_024;

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

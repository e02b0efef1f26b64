//! Informers: events of a cluster or of a directory of manifests, stored and reported as changes.
//!
//! ```text
//!  cluster::events   ─┐                                       ┌─► Store
//!                     ├─ Event<DeserializeGuard<K>> ──► run ──┤
//!  manifests::events ─┘                                       └─► Change ──► work queue
//! ```
//!
//! Both sources emit the events of kube's watcher. An undecodable object becomes [`Seen::Undecodable`] and does not
//! block the others.

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

/// Maximum length of a decoding error, in bytes; decoders quote their input.
const MAX_ERROR: usize = 1_024;

#[derive(Debug)]
pub enum Seen<K> {
    Object(Arc<K>),
    /// Only the metadata could be decoded.
    Undecodable {
        meta: Arc<ObjectMeta>,
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
    #[must_use]
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Object(object) => object.meta(),
            Self::Undecodable { meta, .. } => meta,
        }
    }

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

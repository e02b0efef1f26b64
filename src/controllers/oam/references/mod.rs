//! Components of type ref-objects, which deploy copies of existing objects, or objects of manifests at URLs.
//!
//! ```text
//!  properties.objects ─► requests ─► fetch: live objects, cleaned ─► referredObjects of the revision
//!             .urls ─► load: their objects, with the URL ───┘
//!                           └────────► resolve: the objects themselves in properties.objects ─► template
//! ```
//!
//! Pure but for [`FetchObjects`]. A published version is deployed from what its revision records.

mod objects;
mod redact;
mod request;
mod select;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

pub use redact::{complete, has_redacted, redacted};
pub use select::References;

pub const REF_OBJECTS: &str = "ref-objects";

/// Maximum number of references of an application. Each is a request.
const MAX_REFERENCES: usize = 200;
/// Maximum number of URLs of an application. Each is a request to a server that may be slow.
const MAX_URLS: usize = 10;
/// Maximum number of objects that the references of an application find.
const MAX_OBJECTS: usize = 1_000;
/// Maximum size of these objects as JSON. The revision records them.
const MAX_BYTES: usize = 1 << 20;
/// Maximum size of the properties of all components with their objects. Several components may have the same objects.
const MAX_RESOLVED_BYTES: usize = 16 << 20;

/// A kind in a version of its API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectKind {
    pub api_version: String,
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRequest {
    /// `local` for the controller's own.
    pub cluster: String,
    pub kind: ObjectKind,
    /// Ignored for cluster-scoped kinds.
    pub namespace: String,
    pub selector: ObjectSelector,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectSelector {
    Name(String),
    Labels(BTreeMap<String, String>),
}

/// Objects that an application may refer to, by `--ref-objects-available-scope`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReferenceScope {
    #[default]
    Global,
    Cluster,
    Namespace,
}

impl ReferenceScope {
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "global" => Some(Self::Global),
            "cluster" => Some(Self::Cluster),
            "namespace" => Some(Self::Namespace),
            _ => None,
        }
    }
}

pub trait FetchObjects {
    /// Objects have kind and API version; missing objects are absent. The error has no contents of objects.
    fn fetch(&self, request: &ObjectRequest) -> impl Future<Output = Result<Vec<Value>, String>> + Send;

    /// Returns the objects of a manifest. The error has neither contents of it nor secrets of the URL.
    fn load(&self, url: &str) -> impl Future<Output = Result<Vec<Value>, String>> + Send;
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("invalid properties for ref-objects in component {component}: {cause}")]
    Invalid { component: String, cause: String },
    #[error("invalid object selector for ref-objects, name and labelSelector cannot be both set")]
    NameAndLabels,
    #[error("neither resource or apiVersion/kind is set for referring objects")]
    NoKind,
    #[error("no kind found for resource {resource} in group {group:?}")]
    UnknownResource { group: String, resource: String },
    #[error("cannot refer to objects outside the application's namespace")]
    OtherNamespace,
    #[error("cannot refer to objects outside control plane")]
    OtherCluster,
    #[error("the cluster of a reference in component {0} is not a valid name")]
    ClusterName(String),
    #[error("{0} references to objects exceed the limit of {MAX_REFERENCES}; split the application")]
    TooManyReferences(usize),
    #[error("the references find more than {MAX_OBJECTS} objects or {} MiB; narrow them", MAX_BYTES >> 20)]
    TooManyObjects,
    #[error("the objects of all components exceed {} MiB; refer to each object once", MAX_RESOLVED_BYTES >> 20)]
    TooLarge,
    #[error("failed to load ref object {object}: {cause}")]
    Fetch { object: String, cause: String },
    #[error("{0} URLs of objects exceed the limit of {MAX_URLS}; put several objects into one document")]
    TooManyUrls(usize),
    #[error("failed to load Kubernetes objects from url {url}: {cause}")]
    Load { url: String, cause: String },
    #[error("component {0} refers to no existing object")]
    NoObjects(String),
    #[error("referring objects from url is disabled (feature gate DisableReferObjectsFromURL)")]
    UrlsDisabled,
}

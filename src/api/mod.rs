//! The custom resources as types; their CRDs are generated from them.
//!
//! The AppRepository is Kubeapps' own resource, field by field, so that objects, readers and habits carry over; what is
//! new with us is `spec.suspend` and a status that says how things stand. The Application is that of
//! kubernetes-sigs/application, with nothing new at all. Two rules follow from that:
//!
//! - *Decoding is lenient.* Kubeapps' clients write nulls and zero values wherever they have nothing to say
//!   (`auth: {}`, `containers: null`, `filterRule: {jq: ""}`), so all of these mean the same as an absent field.
//! - *Validation is no stricter than the neighbours'.* A schema that refused an object which theirs accepted would block
//!   every later write to it, the removal of its finalizer too. What is wrong with a value is said by the controller.

mod app_repository;
mod application;
mod crd;
pub(crate) mod lenient;
mod metadata;
mod status;

pub use app_repository::{AppRepository, AppRepositorySpec, Auth, AuthCustomCa, AuthHeader, FilterRule, SecretKeyRef};
pub use application::{
    Application, ApplicationCondition, ApplicationSpec, ApplicationStatus, ComponentKind, ComponentStatus, Contact,
    Descriptor, Icon, InfoItem, InfoSource, IngressReference, KeyReference, Link, ObjectReference, ServiceReference,
};
pub use crd::{crds, crds_yaml};
pub(crate) use metadata::Metadata;
pub use metadata::{Guarded, NamespacedName, Partial, is_older};
pub use status::{AppRepositoryStatus, Files, LastSync, SkippedEntry};

/// The finalizer that stands on every AppRepository, ours and Kubeapps': its charts go before the object goes.
pub const FINALIZER: &str = "apprepositories.kubeapps.com/apprepo-cleanup-finalizer";

/// Annotation: a new value asks for a resync.
pub const REQUESTED_AT: &str = "apprepositories.kubeapps.com/requested-at";

/// Annotation: a new value asks for a resync; the name that Flux' tools use.
pub const FLUX_REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Annotation: `"true"` suspends syncs, also where Kubeapps' own CRD prunes `spec.suspend`.
pub const SUSPEND: &str = "apprepositories.kubeapps.com/suspend";

/// Annotation: the digest of an index that was refused for being much smaller than the last one, and may be taken.
pub const ALLOW_SHRINK: &str = "apprepositories.kubeapps.com/allow-shrink";

/// Annotation: `"true"` lets an object go although its charts can't be removed, as when the database is lost for good.
pub const SKIP_CLEANUP: &str = "apprepositories.kubeapps.com/skip-cleanup";

//! Custom resource types. The CRDs are generated from them.
//!
//! AppRepository is compatible with Kubeapps, plus `spec.suspend` and more status. Application is that of
//! kubernetes-sigs/application. [`oam`] holds the types of KubeVela.
//!
//! - *Decoding is lenient.* Kubeapps' clients write nulls and zero values, which mean absent fields.
//! - *Validation is not stricter than upstream.* Otherwise existing objects would reject every update, including the removal of
//!   a finalizer. The controller reports invalid values in the status.

mod app_repository;
mod application;
pub mod conditions;
mod crd;
pub mod jobs;
pub(crate) mod lenient;
mod metadata;
pub mod oam;
mod pod_template;
pub mod raw;
mod status;

pub use app_repository::{AppRepository, AppRepositorySpec, Auth, AuthCustomCa, AuthHeader, FilterRule, SecretKeyRef};
pub use application::{
    Application, ApplicationCondition, ApplicationSpec, ApplicationStatus, ComponentKind, ComponentStatus, Contact,
    Descriptor, Icon, InfoItem, InfoSource, IngressReference, KeyReference, Link, ServiceReference,
};
pub use crd::{crds, crds_yaml};
pub(crate) use metadata::Metadata;
pub(crate) use metadata::impl_resource;
pub use metadata::{Guarded, NamespacedName, Partial, is_object_name, is_older};
pub use pod_template::PodTemplate;
pub use raw::Raw;
pub use status::{AppRepositoryStatus, Files, LastSync, SkippedEntry};

/// Finalizer of AppRepositories, shared with Kubeapps. Charts are deleted before the object.
pub const FINALIZER: &str = "apprepositories.kubeapps.com/apprepo-cleanup-finalizer";

/// Annotation: a new value requests a resync.
pub const REQUESTED_AT: &str = "apprepositories.kubeapps.com/requested-at";

/// Annotation: like [`REQUESTED_AT`], with the name used by Flux.
pub const FLUX_REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Annotation: a new value requests a conditional sync. An RFC 3339 time also requests later looks, see
/// `controllers::apprepository::decision`.
pub const POLL_AT: &str = "portolan.dev/poll-at";

/// Annotation: the Secret with the type and token of the receiver of the repository.
pub const RECEIVER: &str = "portolan.dev/receiver";

/// Annotation: `"true"` suspends syncs, for clusters where Kubeapps' CRD prunes `spec.suspend`.
pub const SUSPEND: &str = "apprepositories.kubeapps.com/suspend";

/// Annotation: digest of a much smaller index to accept.
pub const ALLOW_SHRINK: &str = "apprepositories.kubeapps.com/allow-shrink";

/// Annotation: `"true"` removes the finalizer without deleting charts, for example after the database was lost.
pub const SKIP_CLEANUP: &str = "apprepositories.kubeapps.com/skip-cleanup";

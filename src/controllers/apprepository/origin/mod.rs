//! Source of AppRepositories, and target of their status and events: a cluster or a directory of manifests.

mod cluster;
mod directory;
mod secret;

pub use cluster::ClusterOrigin;
pub use directory::Directory;
pub use secret::{SecretReadError, read as read_secret};

use kube::api::ObjectMeta;

use crate::api::{AppRepositoryStatus, NamespacedName};
pub use crate::catalog::ONE_SHOT;
use crate::runtime::events::Event;
use crate::runtime::kube_client::ApiError;
use crate::runtime::manifests::SecretContent;
use crate::text::sanitize;

pub enum Origin {
    Cluster(Box<ClusterOrigin>),
    /// Manifests are never written.
    Directory(Directory),
}

impl Origin {
    /// Returns the ID that marks rows of this origin in a shared database.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Cluster(cluster) => cluster.id(),
            Self::Directory(directory) => directory.id(),
        }
    }

    /// Returns true for manifests, which may use `file:` URLs.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory(_))
    }

    pub async fn is_same_cluster(&self) -> Result<bool, ApiError> {
        match self {
            Self::Cluster(cluster) => cluster.is_same_cluster().await,
            Self::Directory(_) => Ok(true),
        }
    }

    /// Reads a Secret; `None` if it does not exist. The name must be valid, since it becomes part of a path.
    pub async fn secret(&self, name: &NamespacedName) -> Result<Option<SecretContent>, SecretReadError> {
        match self {
            Self::Cluster(cluster) => cluster.secret(name).await,
            Self::Directory(directory) => directory.secret(name).await,
        }
    }

    /// Returns true if the object has this UID now, or does not exist if `None`. A cached directory is never stale.
    pub async fn has_uid(&self, name: &NamespacedName, uid: Option<&str>) -> Result<bool, ApiError> {
        match self {
            Self::Cluster(cluster) => {
                let live = cluster.metadata(name).await?;
                Ok(live.and_then(|live| live.uid).as_deref() == uid)
            }
            Self::Directory(_) => Ok(true),
        }
    }

    /// Returns true if the object has this UID and generation at the moment, and is not being deleted.
    pub async fn is_live(&self, name: &NamespacedName, meta: &ObjectMeta) -> Result<bool, ApiError> {
        match self {
            Self::Cluster(cluster) => Ok(cluster.metadata(name).await?.is_some_and(|live| {
                (live.uid, live.generation, live.deletion_timestamp) == (meta.uid.clone(), meta.generation, None)
            })),
            Self::Directory(_) => Ok(true),
        }
    }

    pub async fn has_status(&self) -> Result<bool, ApiError> {
        match self {
            Self::Cluster(cluster) => cluster.has_status().await,
            Self::Directory(_) => Ok(false),
        }
    }

    /// Writes the status; returns the metadata of the result.
    pub async fn write_status(&self, meta: &ObjectMeta, status: &AppRepositoryStatus) -> Result<ObjectMeta, ApiError> {
        match self {
            Self::Cluster(cluster) => cluster.write_status(meta, status).await,
            Self::Directory(_) => Ok(meta.clone()),
        }
    }

    /// Logs an event, and publishes it in a cluster. Failures to publish are only logged.
    pub async fn publish(&self, meta: &ObjectMeta, event: Event) {
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        let note = sanitize(&event.note);
        if event.is_warning {
            tracing::warn!(namespace, name, reason = event.reason, "{note}");
        } else {
            tracing::info!(namespace, name, reason = event.reason, "{note}");
        }
        if let Self::Cluster(cluster) = self {
            cluster.publish(meta, event).await;
        }
    }

    /// Adds the finalizer, which blocks the deletion until the charts are removed.
    pub async fn add_finalizer(&self, meta: &ObjectMeta) -> Result<(), ApiError> {
        match self {
            Self::Cluster(cluster) => cluster.add_finalizer(meta).await,
            Self::Directory(_) => Ok(()),
        }
    }

    pub async fn remove_finalizer(&self, meta: &ObjectMeta) -> Result<(), ApiError> {
        match self {
            Self::Cluster(cluster) => cluster.remove_finalizer(meta).await,
            Self::Directory(_) => Ok(()),
        }
    }
}

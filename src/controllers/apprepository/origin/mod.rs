//! Where declarations come from, and where news of them goes back to: a cluster or a folder of manifests.

mod cluster;
mod directory;
mod secret;

pub use cluster::{Cluster, FIELD_MANAGER};
pub use directory::Folder;
pub use secret::{SecretReadError, read as read_secret};

use kube::api::ObjectMeta;

use crate::api::AppRepositoryStatus;
use crate::api::NamespacedName;
use crate::runtime::kube_client::ApiError;
use crate::runtime::manifests::SecretContent;

/// The origin of the rows that one-shot commands write: no list of declarations can miss them, so nothing but a command or an
/// object of the same name ever removes them.
pub const ONE_SHOT: &str = "one-shot";

/// Where the declarations come from.
pub enum Origin {
    /// The API server of a cluster.
    Cluster(Box<Cluster>),
    /// A folder of manifests: nothing is written back into it, so news is logged.
    Folder(Folder),
}

/// Something that a user may want to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Whether it is bad news.
    pub warning: bool,
    /// The event's reason, in `CamelCase`.
    pub reason: &'static str,
    /// What happened, and what to do.
    pub note: String,
}

impl Origin {
    /// What tells this origin from others in a database that several use.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Cluster(cluster) => cluster.id(),
            Self::Folder(folder) => folder.id(),
        }
    }

    /// Whether declarations are manifests in a folder, which may name files.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Folder(_))
    }

    /// The Secret of this name, which must be one that objects can have: a path is made of it. Nothing if there is none.
    ///
    /// # Errors
    /// It can't be read.
    pub async fn secret(&self, name: &NamespacedName) -> Result<Option<SecretContent>, SecretReadError> {
        match self {
            Self::Cluster(cluster) => cluster.secret(name).await,
            Self::Folder(folder) => folder.secret(name).await,
        }
    }

    /// Whether anybody reads a status.
    ///
    /// # Errors
    /// The API server can't be asked.
    pub async fn has_status(&self) -> Result<bool, ApiError> {
        match self {
            Self::Cluster(cluster) => cluster.has_status().await,
            Self::Folder(_) => Ok(false),
        }
    }

    /// Writes the status of the object that `meta` names.
    ///
    /// # Errors
    /// The API server does not take it.
    pub async fn write_status(&self, meta: &ObjectMeta, status: &AppRepositoryStatus) -> Result<(), ApiError> {
        match self {
            Self::Cluster(cluster) => cluster.write_status(meta, status).await,
            Self::Folder(_) => Ok(()),
        }
    }

    /// Tells users. Whether they hear it is never a reason to fail: what could not be told is logged.
    pub async fn publish(&self, meta: &ObjectMeta, news: News) {
        match self {
            Self::Cluster(cluster) => cluster.publish(meta, news).await,
            Self::Folder(_) => Folder::publish(meta, &news),
        }
    }

    /// Makes the object wait, when it is deleted, until its charts are gone. Does nothing where there is no need.
    ///
    /// # Errors
    /// The API server does not take it.
    pub async fn add_finalizer(&self, meta: &ObjectMeta) -> Result<(), ApiError> {
        match self {
            Self::Cluster(cluster) => cluster.add_finalizer(meta).await,
            Self::Folder(_) => Ok(()),
        }
    }

    /// Lets the object go. Does nothing where the finalizer is not there.
    ///
    /// # Errors
    /// The API server does not take it.
    pub async fn remove_finalizer(&self, meta: &ObjectMeta) -> Result<(), ApiError> {
        match self {
            Self::Cluster(cluster) => cluster.remove_finalizer(meta).await,
            Self::Folder(_) => Ok(()),
        }
    }
}

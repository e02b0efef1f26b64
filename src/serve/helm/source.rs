//! The source of archives, which knows the credentials of repositories.

use std::io::Read;

use futures::future::BoxFuture;

use crate::api::NamespacedName;

/// A version in the stored rows of a repository.
#[derive(Clone, Debug)]
pub struct ArchiveRequest {
    pub repository: NamespacedName,
    /// The URL of the repository at its last sync, which relative URLs of archives refer to.
    pub repository_url: String,
    /// True if the record of the repository names no credentials.
    pub is_public: bool,
    /// True if the record of the repository is that of a registry, whose digests are those of manifests.
    pub is_registry: bool,
    /// The first URL of the version.
    pub url: String,
    pub version: String,
    /// The digests in the index, of the version and its duplicates. The first is that of the version.
    pub digests: Vec<String>,
}

/// A complete archive.
pub struct FetchedArchive {
    pub bytes: u64,
    pub content: Box<dyn Read + Send>,
    /// False if the index contains no digest to compare.
    pub is_verified: bool,
}

/// Messages name no host, path or credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// `reason` is that of conditions, such as `DigestMismatch`.
    #[error("failed to fetch the archive from its repository: {reason}")]
    Failed { reason: String },
    #[error("the archive can't be fetched now, try again in {retry_after}s")]
    Busy {
        /// In seconds.
        retry_after: u64,
    },
}

pub trait ArchiveSource: Send + Sync {
    /// Fetches an archive and compares its digest.
    fn fetch(&self, request: ArchiveRequest) -> BoxFuture<'_, Result<FetchedArchive, ArchiveError>>;
}

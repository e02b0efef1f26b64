//! Downloads single archives of a repository, for imports and for the catalog that is served.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use url::Url;

use crate::catalog::MAX_URL_CHARACTERS;
use crate::controllers::apprepository::spec::{RepositoryKind, RepositorySpec};
use crate::controllers::apprepository::sync::limits;
use crate::controllers::apprepository::sync::location::{FileAccess, locate_file};
use crate::controllers::apprepository::sync::request::SyncError;
use crate::helm::location::{ArchiveLocation, InvalidLocation, locate_archive};
use crate::http::{self as fetch, Body, FetchError, FetchLimits, Fetcher, Request, Response};
use crate::oci::{self, ChartReference, OciError, Registry};

const SPOOL_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("the index contains no archive URL for this version")]
    NoUrl,
    #[error("the URL of the archive has more than {} characters", MAX_URL_CHARACTERS)]
    LongUrl,
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Oci(#[from] OciError),
    #[error("{}", .0.message)]
    File(SyncError),
}

impl From<SyncError> for DownloadError {
    fn from(error: SyncError) -> Self {
        Self::File(error)
    }
}

impl From<InvalidLocation> for DownloadError {
    fn from(error: InvalidLocation) -> Self {
        Self::Fetch(FetchError::InvalidUrl(error.to_string()))
    }
}

impl DownloadError {
    /// Returns the reason as in conditions. It names no host.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::NoUrl => "NotFound",
            Self::LongUrl => "InvalidURL",
            Self::Fetch(error) => error.reason(),
            Self::Oci(error) => error.reason(),
            Self::File(error) => &error.reason,
        }
    }

    /// Returns the pause that the host asked for, or after which the spool may have space.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Fetch(error) => pause(error),
            Self::Oci(OciError::Fetch(error)) => pause(error),
            Self::NoUrl | Self::LongUrl | Self::Oci(_) | Self::File(_) => None,
        }
    }
}

fn pause(error: &FetchError) -> Option<Duration> {
    match error {
        FetchError::Spool(_) | FetchError::SpoolFull(_) => Some(SPOOL_PAUSE),
        error => error.retry_after(),
    }
}

/// An archive in the spool.
pub struct Download {
    pub body: Body,
    /// Digest of its manifest, if it comes from a registry.
    pub manifest: Option<String>,
}

/// The result of a comparison with the digest that the index contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Same,
    Different,
    /// The index contains no SHA-256 digest.
    NotComparable,
}

impl Download {
    /// Compares the digest that the index contains: of the archive or, in a registry, of its manifest.
    #[must_use]
    pub fn compare(&self, named: &str) -> Comparison {
        compare(named, &self.body.sha256, self.manifest.as_deref())
    }
}

fn compare(named: &str, archive: &str, manifest: Option<&str>) -> Comparison {
    let named = hex(named);
    let is_comparable = named.len() == 64 && named.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_comparable {
        Comparison::NotComparable
    } else if named == archive || manifest.is_some_and(|manifest| hex(manifest) == named) {
        Comparison::Same
    } else {
        Comparison::Different
    }
}

pub(super) fn hex(digest: &str) -> String {
    digest.trim().trim_start_matches("sha256:").to_ascii_lowercase()
}

/// Downloads archives of one repository, with its credentials.
pub struct ArchiveDownloader<'a> {
    spec: &'a RepositorySpec,
    session: &'a Fetcher,
    files: &'a FileAccess,
    limits: FetchLimits,
    /// Shared by downloads, with their tokens.
    registries: Mutex<Vec<Arc<Registry>>>,
}

impl<'a> ArchiveDownloader<'a> {
    /// `packed_bytes` is the limit of the flag, which an annotation lowers.
    #[must_use]
    pub fn new(
        spec: &'a RepositorySpec,
        session: &'a Fetcher,
        files: &'a FileAccess,
        fetch_limits: &FetchLimits,
        packed_bytes: u64,
    ) -> Self {
        let max_bytes = spec
            .archive_max_bytes
            .map_or(packed_bytes, |bytes| bytes.min(packed_bytes));
        Self {
            spec,
            session,
            files,
            limits: fetch::FetchLimits {
                max_bytes,
                ..limits(spec, fetch_limits)
            },
            registries: Mutex::default(),
        }
    }

    /// Downloads the archive at a URL of the index.
    pub async fn download(&self, url: Option<&str>, version: &str) -> Result<Download, DownloadError> {
        let url = url.ok_or(DownloadError::NoUrl)?;
        if url.chars().nth(MAX_URL_CHARACTERS).is_some() {
            return Err(DownloadError::LongUrl);
        }
        match locate_archive(url, &self.spec.url)? {
            ArchiveLocation::Web(url) => self.fetch(url).await.map(without_manifest),
            ArchiveLocation::Registry(reference) => self.pull(&reference, version).await,
            ArchiveLocation::File(path) => self.read(&path).await.map(without_manifest),
        }
    }

    async fn fetch(&self, url: Url) -> Result<Body, DownloadError> {
        let request = Request {
            // The digest covers the bytes as stored on the server.
            verbatim: true,
            ..Request::new(url)
        };
        let Response { body, .. } = self.session.send(&request, &self.limits).await?;
        Ok(body)
    }

    async fn pull(&self, reference: &str, version: &str) -> Result<Download, DownloadError> {
        let reference = ChartReference::parse(reference, Some(version))?;
        let registry = self.registry(&reference)?;
        let manifest = (registry.manifest(&reference.repository, &reference.reference).await)?;
        let body = (registry.layer(&reference.repository, &manifest, &self.limits).await)?;
        Ok(Download {
            body,
            manifest: Some(manifest.digest),
        })
    }

    /// Prefers the declared registry, whose URL tells whether to use plain HTTP.
    fn registry(&self, reference: &ChartReference) -> Result<Arc<Registry>, DownloadError> {
        let mut registries = self.registries.lock();
        if let Some(registry) = registries.iter().find(|registry| registry.contains(reference)) {
            return Ok(Arc::clone(registry));
        }
        let limits = oci::Limits {
            fetch: self.limits,
            ..oci::Limits::default()
        };
        let at = |url: &Url| Registry::new(self.session.clone(), url, limits);
        let declared = Url::parse(&self.spec.url).ok().and_then(|url| at(&url).ok());
        let registry =
            match declared.filter(|registry| self.spec.kind == RepositoryKind::Oci && registry.contains(reference)) {
                Some(registry) => registry,
                None => at(&reference.registry)?,
            };
        let registry = Arc::new(registry);
        registries.push(Arc::clone(&registry));
        Ok(registry)
    }

    async fn read(&self, path: &str) -> Result<Body, DownloadError> {
        let invalid = |_| FetchError::InvalidUrl("the URL of the archive is not valid UTF-8".to_owned());
        let path = String::from_utf8(fetch::percent_decoded(path)).map_err(invalid)?;
        let path = locate_file(&self.spec.url, &path, self.spec.manifest.as_deref(), self.files)?;
        Ok(self.session.read_file(&path, &self.limits).await?)
    }
}

const fn without_manifest(body: Body) -> Download {
    Download { body, manifest: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_an_archive_is_verified() {
        let (one, other) = ("ab".repeat(32), "cd".repeat(32));
        for same in [one.clone(), one.to_uppercase(), format!("sha256:{one}")] {
            assert_eq!(compare(&same, &one, None), Comparison::Same);
        }
        for unknown in ["", "md5:abc"] {
            assert_eq!(compare(unknown, &one, None), Comparison::NotComparable);
        }
        let manifest = format!("sha256:{other}");
        assert_eq!(compare(&manifest, &one, Some(&manifest)), Comparison::Same);
        assert_eq!(compare(&other, &one, None), Comparison::Different);
    }
}

//! Fetches, verifies and reads one chart archive.

use std::io::Seek;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use url::Url;

use super::locate::{ArchiveLocation, locate_archive};
use crate::budget::{Reservation, WorkError};
use crate::catalog::{ChartFiles, FetchedFiles, MissingFiles};
use crate::controllers::apprepository::spec::{Kind, RepositorySpec};
use crate::controllers::apprepository::sync::location::locate_file;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::controllers::apprepository::sync::{SyncContext, limits};
use crate::helm::archive::{self, ArchiveError};
use crate::http::{self as fetch, Body, FetchError, Fetcher, Request, Response};
use crate::oci::{self, ChartReference, OciError, Registry};
use crate::text::truncate;

const MESSAGE_BYTES: usize = 512;
pub(super) const DISK_FULL_PAUSE: Duration = Duration::from_secs(60);
/// Pause if no memory, CPU or database connection was available in time.
pub(super) const BUSY_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) enum ImportError {
    /// No request was made: the host asked for a pause, or the disk is full. The version is not at fault.
    Deferred(Duration),
    /// The request failed. The host may have set the time of the next one.
    Failed {
        message: String,
        retry_after: Option<Duration>,
    },
}

impl ImportError {
    pub(super) fn failed(message: impl std::fmt::Display) -> Self {
        Self::Failed {
            message: truncate(&message.to_string(), MESSAGE_BYTES),
            retry_after: None,
        }
    }
}

impl From<SyncError> for ImportError {
    fn from(failed: SyncError) -> Self {
        Self::failed(failed.message)
    }
}

impl From<FetchError> for ImportError {
    fn from(error: FetchError) -> Self {
        match &error {
            FetchError::BackingOff { remaining, .. } => Self::Deferred(*remaining),
            FetchError::Spool(_) | FetchError::SpoolFull(_) => Self::Deferred(DISK_FULL_PAUSE),
            _ => Self::Failed {
                message: truncate(&error.to_string(), MESSAGE_BYTES),
                retry_after: error.retry_after(),
            },
        }
    }
}

impl From<OciError> for ImportError {
    fn from(error: OciError) -> Self {
        match error {
            OciError::Fetch(error) => error.into(),
            error => Self::Failed {
                retry_after: error.retry_after(),
                message: truncate(&error.to_string(), MESSAGE_BYTES),
            },
        }
    }
}

impl From<ArchiveError> for ImportError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Read(_) => Self::Deferred(DISK_FULL_PAUSE),
            error => Self::failed(error),
        }
    }
}

impl From<WorkError> for ImportError {
    fn from(error: WorkError) -> Self {
        match error {
            WorkError::Exhausted(_) => Self::Deferred(BUSY_PAUSE),
            WorkError::Panicked => Self::failed("decoder panicked; please report this bug"),
        }
    }
}

pub(super) struct ArchiveFetcher<'a> {
    context: &'a SyncContext,
    limits: archive::Limits,
    spec: &'a RepositorySpec,
    session: &'a Fetcher,
    registries: Mutex<Vec<Arc<Registry>>>,
}

impl<'a> ArchiveFetcher<'a> {
    pub(super) fn new(
        context: &'a SyncContext,
        limits: archive::Limits,
        spec: &'a RepositorySpec,
        session: &'a Fetcher,
    ) -> Self {
        // The flag's limit, lowered by the annotation.
        let packed_bytes = spec
            .archive_max_bytes
            .map_or(limits.packed_bytes, |bytes| bytes.min(limits.packed_bytes));
        Self {
            context,
            limits: archive::Limits { packed_bytes, ..limits },
            spec,
            session,
            registries: Mutex::default(),
        }
    }

    /// Returns the files of one version, and the memory reserved for storing them.
    pub(super) async fn files(&self, missing: &MissingFiles) -> Result<(FetchedFiles, Reservation), ImportError> {
        let (body, manifest) = self.fetch(missing).await?;
        check(&missing.digest, &body.sha256, manifest.as_deref())?;
        let (limits, missing, mut body) = (self.limits, missing.clone(), body.into_reader());
        let namespace = &self.spec.name.namespace;
        let reading = self.context.budgets.run(namespace, limits.memory(), move || {
            body.rewind().map_err(ArchiveError::Read)?;
            let files = archive::read(&mut body, &limits)?;
            let files = ChartFiles {
                readme: files.readme,
                values: files.values,
                additional_values: files.additional_values,
                schema: files.schema,
            };
            FetchedFiles::new(missing, &files).map_err(ImportError::failed)
        });
        let (files, mut reservation) = reading.await?;
        let files = files?;
        reservation.shrink(files.memory());
        Ok((files, reservation))
    }

    /// Fetches the archive, with the manifest digest if it comes from an OCI registry.
    async fn fetch(&self, missing: &MissingFiles) -> Result<(Body, Option<String>), ImportError> {
        let Some(url) = missing.urls.as_ref().and_then(|urls| urls.first()) else {
            return Err(ImportError::failed(
                "the index contains no archive URL for this version",
            ));
        };
        match locate_archive(url, &self.spec.url)? {
            ArchiveLocation::Web(url) => Ok((self.download(url).await?, None)),
            ArchiveLocation::Registry(reference) => self.pull(&reference, &missing.version).await,
            ArchiveLocation::File(path) => Ok((self.read(&path).await?, None)),
        }
    }

    async fn download(&self, url: Url) -> Result<Body, ImportError> {
        let request = Request {
            // The digest covers the bytes as stored on the server.
            verbatim: true,
            ..Request::new(url)
        };
        let Response { body, .. } = self.session.send(&request, &self.bounds()).await?;
        Ok(body)
    }

    async fn pull(&self, reference: &str, version: &str) -> Result<(Body, Option<String>), ImportError> {
        let reference = ChartReference::parse(reference, Some(version))?;
        let registry = self.registry(&reference)?;
        let manifest = (registry.manifest(&reference.repository, &reference.reference).await)?;
        let body = (registry.layer(&reference.repository, &manifest, &self.bounds()).await)?;
        Ok((body, Some(manifest.digest)))
    }

    /// Returns the registry of a reference. The declared registry is preferred, since only its URL tells whether to use
    /// plain HTTP. All archives of a batch share it and its token.
    fn registry(&self, reference: &ChartReference) -> Result<Arc<Registry>, ImportError> {
        let mut registries = self.registries.lock();
        if let Some(registry) = registries.iter().find(|registry| registry.contains(reference)) {
            return Ok(Arc::clone(registry));
        }
        let limits = oci::Limits {
            fetch: limits(self.spec, &self.context.fetch_limits),
            ..oci::Limits::default()
        };
        let at = |url: &Url| Registry::new(self.session.clone(), url, limits);
        let declared = Url::parse(&self.spec.url).ok().and_then(|url| at(&url).ok());
        let registry = match declared.filter(|registry| self.spec.kind == Kind::Oci && registry.contains(reference)) {
            Some(registry) => registry,
            None => at(&reference.registry)?,
        };
        let registry = Arc::new(registry);
        registries.push(Arc::clone(&registry));
        Ok(registry)
    }

    async fn read(&self, path: &str) -> Result<Body, ImportError> {
        let manifest = self.spec.manifest.as_deref();
        let path = locate_file(&self.spec.url, path, manifest, &self.context.files)?;
        Ok(self.session.read_file(&path, &self.bounds()).await?)
    }

    fn bounds(&self) -> fetch::Limits {
        fetch::Limits {
            max_bytes: self.limits.packed_bytes,
            ..limits(self.spec, &self.context.fetch_limits)
        }
    }
}

/// Compares the digest with the index. In an OCI registry, an index may contain the digest of the archive or of its
/// manifest. Other digests than SHA-256 are not compared.
fn check(named: &str, archive: &str, manifest: Option<&str>) -> Result<(), ImportError> {
    let hex = |text: &str| text.trim().trim_start_matches("sha256:").to_ascii_lowercase();
    let missing = hex(named);
    let is_comparable = missing.len() == 64 && missing.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_comparable || missing == archive || manifest.is_some_and(|manifest| hex(manifest) == missing) {
        return Ok(());
    }
    Err(ImportError::failed(format!(
        "the SHA-256 of the archive is {archive}, but the index contains {missing}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_an_archive_is_verified() {
        let (one, other) = ("ab".repeat(32), "cd".repeat(32));
        for same in [one.clone(), one.to_uppercase(), format!("sha256:{one}")] {
            assert!(check(&same, &one, None).is_ok());
        }
        assert!(check("", &one, None).is_ok());
        assert!(check("md5:abc", &one, None).is_ok());
        assert!(check(&format!("sha256:{other}"), &one, Some(&format!("sha256:{other}"))).is_ok());
        let Err(ImportError::Failed { message, .. }) = check(&other, &one, None) else {
            panic!("it was taken")
        };
        assert!(message.contains(&one) && message.contains(&other), "{message}");
    }
}

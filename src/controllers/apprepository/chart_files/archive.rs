use std::io::Seek;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use url::Url;

use super::locate::{ArchiveLocation, locate_archive};
use crate::budget::{Reservation, WorkError};
use crate::catalog::{self, ChartFiles, FetchedFiles, MAX_URL_CHARACTERS, MissingFiles};
use crate::controllers::apprepository::spec::{RepositoryKind, RepositorySpec};
use crate::controllers::apprepository::sync::location::locate_file;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::controllers::apprepository::sync::{SyncContext, limits};
use crate::helm::archive::{self, ArchiveError};
use crate::http::{self as fetch, Body, FetchError, Fetcher, Request, Response};
use crate::oci::{self, ChartReference, OciError, Registry};
use crate::text::truncate;

const MESSAGE_BYTES: usize = 512;
/// Time after which no further archive of a group is read, since the CPU permit is shared.
const GROUP_TIME: Duration = Duration::from_millis(100);
pub(super) const DISK_FULL_PAUSE: Duration = Duration::from_secs(60);
/// Pause if no memory, CPU or database connection was available in time.
pub(super) const BUSY_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) enum ImportError {
    /// No request was made: the host asked for a pause, or the disk is full. The version is not at fault.
    Deferred(Duration),
    /// The request failed. The host may have set the time of the next request.
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
            FetchError::Status { url, status, .. } if matches!(status.as_u16(), 404 | 410) => Self::failed(format!(
                "{url} returned {status}; the index names a file that is not there"
            )),
            _ => Self::Failed {
                message: truncate(&error.to_string(), MESSAGE_BYTES),
                retry_after: error.retry_after(),
            },
        }
    }
}

impl From<catalog::Error> for ImportError {
    fn from(_: catalog::Error) -> Self {
        Self::Deferred(BUSY_PAUSE)
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

pub(super) struct Archive {
    missing: MissingFiles,
    body: Body,
    /// The index contains another digest.
    pub(super) warning: Option<String>,
}

impl Archive {
    pub(super) const fn bytes(&self) -> u64 {
        self.body.bytes
    }

    pub(super) const fn missing(&self) -> &MissingFiles {
        &self.missing
    }
}

pub(super) struct Group {
    pub(super) files: Vec<Result<FetchedFiles, (MissingFiles, ImportError)>>,
    /// Archives that did not fit.
    pub(super) rest: Vec<Archive>,
    /// Memory of storing the files.
    pub(super) reservation: Reservation,
}

pub(super) struct ArchiveFetcher<'a> {
    context: &'a SyncContext,
    limits: archive::ArchiveLimits,
    spec: &'a RepositorySpec,
    session: &'a Fetcher,
    registries: Mutex<Vec<Arc<Registry>>>,
}

impl<'a> ArchiveFetcher<'a> {
    pub(super) fn new(
        context: &'a SyncContext,
        limits: archive::ArchiveLimits,
        spec: &'a RepositorySpec,
        session: &'a Fetcher,
    ) -> Self {
        // The flag's limit, lowered by the annotation.
        let packed_bytes = spec
            .archive_max_bytes
            .map_or(limits.packed_bytes, |bytes| bytes.min(limits.packed_bytes));
        Self {
            context,
            limits: archive::ArchiveLimits { packed_bytes, ..limits },
            spec,
            session,
            registries: Mutex::default(),
        }
    }

    /// Returns the archive of one version, in the spool.
    pub(super) async fn archive(&self, missing: &MissingFiles) -> Result<Archive, ImportError> {
        let (body, manifest) = self.fetch(missing).await?;
        let warning = if has_digest(&missing.digest, &body, manifest.as_deref()) {
            None
        } else {
            self.warning(missing, &body, manifest.as_deref()).await?
        };
        Ok(Archive {
            missing: missing.clone(),
            body,
            warning,
        })
    }

    /// Returns the warning of another digest than the index contains. An index may list a version several times.
    async fn warning(
        &self,
        missing: &MissingFiles,
        body: &Body,
        manifest: Option<&str>,
    ) -> Result<Option<String>, ImportError> {
        let catalog = &self.context.catalog;
        let listed = catalog
            .version_digests(&self.spec.name, &missing.chart_id, &missing.version)
            .await?;
        let is_listed = listed.iter().any(|digest| has_digest(digest, body, manifest));
        let warning = format!(
            "the SHA-256 of the archive is {}, but the index contains {}; its files were imported",
            body.sha256,
            hex(&missing.digest)
        );
        Ok((!is_listed).then_some(warning))
    }

    /// Reads archives one after the other on one thread, as many as one group may have.
    pub(super) async fn read_group(&self, archives: Vec<Archive>) -> Result<Group, WorkError> {
        let limits = self.limits;
        let reading = self
            .context
            .budgets
            .run(&self.spec.name.namespace, limits.memory(), move || {
                let (started, mut bytes) = (Instant::now(), 0);
                let (mut archives, mut files) = (archives.into_iter(), Vec::new());
                while bytes < archive::GROUP_BYTES && (files.is_empty() || started.elapsed() < GROUP_TIME) {
                    let Some(Archive { missing, body, warning }) = archives.next() else {
                        break;
                    };
                    let read = catch_unwind(AssertUnwindSafe(|| read_archive(missing.clone(), body, &limits)))
                        .unwrap_or_else(|_| Err(WorkError::Panicked.into()));
                    bytes += read.as_ref().map_or(0, FetchedFiles::bytes);
                    files.push(match read {
                        Ok(files) => Ok(files.with_warning(warning)),
                        Err(error) => Err((missing, error)),
                    });
                }
                (files, archives.collect())
            });
        let ((files, rest), mut reservation): ((Vec<_>, _), _) = reading.await?;
        reservation.shrink(files.iter().flatten().map(FetchedFiles::memory).sum());
        Ok(Group {
            files,
            rest,
            reservation,
        })
    }

    /// Fetches the archive, with the manifest digest if it comes from an OCI registry.
    async fn fetch(&self, missing: &MissingFiles) -> Result<(Body, Option<String>), ImportError> {
        let Some(url) = &missing.url else {
            return Err(ImportError::failed(
                "the index contains no archive URL for this version",
            ));
        };
        if url.chars().nth(MAX_URL_CHARACTERS).is_some() {
            let message = format!("the URL of the archive has more than {MAX_URL_CHARACTERS} characters");
            return Err(ImportError::failed(message));
        }
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

    /// Prefers the declared registry, whose URL tells whether to use plain HTTP. A batch shares it and its token.
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
        let registry =
            match declared.filter(|registry| self.spec.kind == RepositoryKind::Oci && registry.contains(reference)) {
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

    fn bounds(&self) -> fetch::FetchLimits {
        fetch::FetchLimits {
            max_bytes: self.limits.packed_bytes,
            ..limits(self.spec, &self.context.fetch_limits)
        }
    }
}

fn read_archive(
    missing: MissingFiles,
    body: Body,
    limits: &archive::ArchiveLimits,
) -> Result<FetchedFiles, ImportError> {
    let mut body = body.into_reader();
    body.rewind().map_err(ArchiveError::Read)?;
    let files = archive::read(&mut body, limits)?;
    let warning = files
        .metadata_problem
        .map(|problem| format!("Chart.yaml was not imported: {problem}; package the chart again"));
    let metadata = files.metadata;
    let files = ChartFiles {
        readme: files.readme,
        values: files.values,
        additional_values: files.additional_values,
        schema: files.schema,
    };
    let fetched = FetchedFiles::new(missing, &files).map_err(ImportError::failed)?;
    Ok(fetched.with_metadata(metadata).with_warning(warning))
}

/// In an OCI registry, the index may contain the digest of the archive or of its manifest. Compares SHA-256 only.
fn has_digest(named: &str, body: &Body, manifest: Option<&str>) -> bool {
    is_same(named, &body.sha256, manifest)
}

fn is_same(named: &str, archive: &str, manifest: Option<&str>) -> bool {
    let named = hex(named);
    let is_comparable = named.len() == 64 && named.bytes().all(|byte| byte.is_ascii_hexdigit());
    !is_comparable || named == archive || manifest.is_some_and(|manifest| hex(manifest) == named)
}

fn hex(digest: &str) -> String {
    digest.trim().trim_start_matches("sha256:").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_an_archive_is_verified() {
        let (one, other) = ("ab".repeat(32), "cd".repeat(32));
        for same in [one.clone(), one.to_uppercase(), format!("sha256:{one}")] {
            assert!(is_same(&same, &one, None));
        }
        assert!(is_same("", &one, None));
        assert!(is_same("md5:abc", &one, None));
        assert!(is_same(
            &format!("sha256:{other}"),
            &one,
            Some(&format!("sha256:{other}"))
        ));
        assert!(!is_same(&other, &one, None));
    }
}

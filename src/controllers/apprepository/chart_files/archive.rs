use std::io::Seek;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::download::{ArchiveDownloader, Comparison, Download, DownloadError, hex};
use crate::budget::{Reservation, WorkError};
use crate::catalog::{self, ChartFiles, FetchedFiles, MissingFiles};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::sync::SyncContext;
use crate::helm::archive::{self, ArchiveError};
use crate::http::{Body, FetchError, Fetcher};
use crate::oci::OciError;
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

impl From<DownloadError> for ImportError {
    fn from(error: DownloadError) -> Self {
        match error {
            DownloadError::Fetch(error) => error.into(),
            DownloadError::Oci(error) => error.into(),
            error => Self::failed(error),
        }
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
    downloader: ArchiveDownloader<'a>,
}

impl<'a> ArchiveFetcher<'a> {
    pub(super) fn new(
        context: &'a SyncContext,
        limits: archive::ArchiveLimits,
        spec: &'a RepositorySpec,
        session: &'a Fetcher,
    ) -> Self {
        let (files, fetch_limits) = (&context.files, &context.fetch_limits);
        Self {
            context,
            limits,
            spec,
            downloader: ArchiveDownloader::new(spec, session, files, fetch_limits, limits.packed_bytes),
        }
    }

    /// Returns the archive of one version, in the spool.
    pub(super) async fn archive(&self, missing: &MissingFiles) -> Result<Archive, ImportError> {
        let url = missing.url.as_deref();
        let download = self.downloader.download(url, &missing.version).await?;
        let warning = match download.compare(&missing.digest) {
            Comparison::Same | Comparison::NotComparable => None,
            Comparison::Different => self.warning(missing, &download).await?,
        };
        Ok(Archive {
            missing: missing.clone(),
            body: download.body,
            warning,
        })
    }

    /// Returns the warning of another digest than the index contains. An index may list a version several times.
    async fn warning(&self, missing: &MissingFiles, download: &Download) -> Result<Option<String>, ImportError> {
        let catalog = &self.context.catalog;
        let listed = catalog
            .version_digests(&self.spec.name, &missing.chart_id, &missing.version)
            .await?;
        let is_listed = listed
            .iter()
            .any(|digest| download.compare(digest) != Comparison::Different);
        let warning = format!(
            "the SHA-256 of the archive is {}, but the index contains {}; its files were imported",
            download.body.sha256,
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

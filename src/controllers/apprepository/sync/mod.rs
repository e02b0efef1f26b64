//! Syncs one repository: fetch, decode, validate, commit.
//!
//! ```text
//! Secrets ─► filter ─┬─► index: locate ─► fetch ─► decode ─┬─► filter, spool ─► shrink guard ─► one transaction
//!                    └─► registry: tags ─► pulls ─► charts ┘
//!                         (304, same bytes or same tags: one row touched)
//! ```
//! No transaction or lock is held before the commit. A process that dies earlier has written nothing.

mod chart_rows;
mod commit;
mod commit_result;
mod download_cache;
pub mod filter;
pub mod filter_process;
mod helm_index;
mod index_cache;
pub mod location;
pub mod object_limits;
mod oci;
pub mod request;
pub mod rows;
pub mod shrink_guard;
mod verify;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures::FutureExt;
use tracing::Instrument;

use super::decision::{SyncMode, is_unmodified};
use super::metrics::RepositoryMetrics;
use super::running_syncs::SyncAttempt;
use super::secrets::source::CredentialSource;
use super::spec::{RepositoryKind, RepositorySpec};
use crate::api::NamespacedName;
use crate::budget::{Budgets, Full, Reservation, return_to_runtime};
use crate::catalog::{Baseline, Catalog, DigestUpdate, ErrorKind, OciRemovals, Record, Refused, RetainedPart};
use crate::helm::index::{DecodeLimits, SharedSplit, Summary};
use crate::http::{self as fetch, Body, FetchError, Fetched, Fetcher, Validators};
use crate::trace::trace_span;
use download_cache::{Download, DownloadCache, DownloadRequest};
use filter_process::FilterProcesses;
use index_cache::CommonDigestKey;
use location::{FileAccess, Location, locate};
use request::{SyncAborted, SyncError, SyncRequest, SyncResult};
use rows::Spool;

#[derive(Clone)]
pub struct SyncContext {
    pub catalog: Catalog,
    pub fetcher: Fetcher,
    pub credentials: CredentialSource,
    pub fetch_limits: fetch::FetchLimits,
    pub decode_limits: DecodeLimits,
    pub budgets: Budgets,
    /// Maximum memory of one decode in bytes.
    pub index_memory: u64,
    pub filters: FilterProcesses,
    pub verify_delta: bool,
    /// A retagged version does not change the list of tags, so that all tag digests are checked at this interval.
    pub check_digests: Duration,
    /// Retention of versions that left the index; `None` deletes them immediately.
    pub keep_removed: Option<Duration>,
    /// Directory of temporary files; `None` for the system's default.
    pub spool_dir: Option<PathBuf>,
    pub files: FileAccess,
    /// Marks the rows of this process; see [`super::origin::Origin::id`].
    pub origin: String,
}

pub struct Syncer {
    context: SyncContext,
    metrics: RepositoryMetrics,
    downloads: DownloadCache,
    digest_key: CommonDigestKey,
}

impl Syncer {
    #[must_use]
    pub fn new(context: SyncContext, metrics: RepositoryMetrics) -> Self {
        Self {
            context,
            metrics,
            downloads: DownloadCache::default(),
            digest_key: CommonDigestKey::default(),
        }
    }

    pub async fn record(&self, name: &NamespacedName) -> Result<Option<Record>, SyncAborted> {
        Ok(self.context.catalog.record(name).await?)
    }

    /// Runs one sync and records its outcome. All failures outside the database are part of the outcome.
    pub async fn sync(&self, request: SyncRequest, attempt: SyncAttempt) -> Result<SyncResult, SyncAborted> {
        let run = |request, ignore_cache| SyncerRun {
            syncer: self,
            request,
            attempt: attempt.clone(),
            secret_versions: String::new(),
            baseline: None,
            ignore_cache,
        };
        // Boxed, since a sync is a large future and polls deeply.
        match run(request.clone(), false).run().boxed().await {
            // Another process changed the charts during the sync.
            Err(SyncAborted::Catalog(error)) if *error.kind() == ErrorKind::StaleDigests => {
                run(request, true).run().boxed().await
            }
            done => done,
        }
    }
}

struct SyncerRun<'a> {
    syncer: &'a Syncer,
    request: SyncRequest,
    attempt: SyncAttempt,
    secret_versions: String,
    baseline: Option<Baseline>,
    /// Ignores stored digests, because the charts changed during the sync.
    ignore_cache: bool,
}

/// Result of fetching and decoding, before anything is written.
enum Prepared {
    Unchanged(Option<Validators>),
    /// The body was refused, now or by an earlier sync.
    Refused(Refused),
    Failed(SyncError),
    Index(Box<DecodedRows>),
}

struct DecodedRows {
    spool: Spool,
    filtered_out: HashSet<String>,
    deprecated: Spool,
    summary: Summary,
    sha256: String,
    validators: Validators,
    remaining: Option<Remaining>,
    retain: Retain,
    /// Tags and repositories that are no longer in the registry.
    gone: OciRemovals,
    digests: Option<DigestUpdate>,
    /// Held until the rows are written.
    memory: Reservation,
}

#[derive(Clone)]
struct Remaining {
    pulled: u64,
    listed: u64,
    /// Some repositories could not be listed, so that the counts are incomplete.
    listing_failed: bool,
    made_progress: bool,
    /// Transient error that stopped the sync; `None` if it reached its limit.
    error: Option<SyncError>,
}

/// Stored charts to retain although they are not in the index, besides `--keep-removed`.
enum Retain {
    /// Everything: it is unknown what was removed.
    All,
    Charts(HashMap<String, RetainedPart>),
}

impl SyncerRun<'_> {
    const fn catalog(&self) -> &Catalog {
        &self.syncer.context.catalog
    }

    async fn run(self) -> Result<SyncResult, SyncAborted> {
        let canceled = self.attempt.canceled.clone();
        // A canceled sync writes nothing: its transaction is rolled back.
        canceled
            .run_until_cancelled_owned(self.prepare_and_commit().boxed())
            .await
            .unwrap_or(Err(SyncAborted::Cancelled))
    }

    async fn prepare_and_commit(mut self) -> Result<SyncResult, SyncAborted> {
        match self.prepare().boxed().await? {
            Prepared::Unchanged(validators) => self.save_unchanged(validators).await,
            Prepared::Refused(refused) => {
                let failed = SyncError::stalled(&refused.reason, &refused.message);
                self.save_failed(failed, Some(refused)).await
            }
            Prepared::Failed(failed) => {
                let refused = self.last_refusal();
                self.save_failed(failed, refused).await
            }
            Prepared::Index(decoded) => self.commit(*decoded).boxed().instrument(trace_span!("commit")).await,
        }
    }

    async fn prepare(&mut self) -> Result<Prepared, SyncAborted> {
        if let Err(prepared) = self.check_filter().await {
            return Ok(prepared);
        }
        self.baseline = self.load_baseline().await?;
        let session = match self.session().await {
            Ok(session) => session,
            Err(failed) => return Ok(Prepared::Failed(failed)),
        };
        match self.request.spec.kind {
            RepositoryKind::Helm => self.prepare_index(&session).await,
            RepositoryKind::Oci => self.prepare_registry(session).instrument(trace_span!("fetch")).await,
        }
    }

    async fn session(&mut self) -> Result<Fetcher, SyncError> {
        let (mut access, secret_versions) = self.syncer.context.credentials.access(&self.request.spec).await?;
        // A large Secret, or a large object, was decoded before. What follows computes on threads of its own.
        return_to_runtime();
        self.secret_versions = secret_versions;
        access.tracker = self.attempt.requests.clone();
        // Validators of a response to other credentials do not apply.
        if self.have_secrets_changed()
            && let Some(previous) = &mut self.request.previous
        {
            (previous.etag, previous.last_modified) = (None, None);
            if let Some(refused) = &mut previous.refused {
                (refused.etag, refused.last_modified) = (None, None);
            }
        }
        Ok(self.syncer.context.fetcher.with(access)?)
    }

    fn have_secrets_changed(&self) -> bool {
        let previous = self.request.previous.as_ref();
        previous.is_none_or(|previous| previous.credentials != self.secret_versions)
    }

    async fn prepare_index(&self, session: &Fetcher) -> Result<Prepared, SyncAborted> {
        match self.body(session).instrument(trace_span!("fetch")).await {
            Ok((body, split)) => self.decode(body, &split).instrument(trace_span!("decode")).await,
            Err(prepared) => Ok(prepared),
        }
    }

    async fn body(&self, session: &Fetcher) -> Result<(Body, SharedSplit), Prepared> {
        let refused = self.last_refusal();
        let (fetched, split, is_initiator) = self.fetch(session, refused.as_ref()).await?;
        let body = match (fetched, refused) {
            (Fetched::NotModified, refused) => {
                if is_initiator {
                    self.syncer.metrics.not_modified();
                }
                return Err(refused.map_or(Prepared::Unchanged(None), Prepared::Refused));
            }
            (Fetched::Body(body), refused) => {
                if is_initiator {
                    self.syncer.metrics.index_bytes(body.bytes);
                }
                if let Some(refused) = refused.filter(|refused| refused.digest == body.sha256) {
                    return Err(Prepared::Refused(Refused {
                        etag: body.validators.etag,
                        last_modified: body.validators.last_modified,
                        ..refused
                    }));
                }
                body
            }
        };
        if self.is_same_as_last(&body.sha256) {
            return Err(Prepared::Unchanged(Some(body.validators)));
        }
        Ok((body, split))
    }

    fn last_refusal(&self) -> Option<Refused> {
        let refused = self.request.previous.as_ref()?.refused.as_ref()?;
        let applies = self.request.mode == SyncMode::Conditional && refused.inputs == self.request.spec.refusal_key();
        applies.then(|| refused.clone())
    }

    /// Returns the record of the last success, if the rows still match this spec.
    fn last_success(&self) -> Option<&Record> {
        let key = self.request.spec.change_key.as_str();
        self.request.previous.as_ref().filter(|previous| {
            self.request.mode == SyncMode::Conditional
                && !self.ignore_cache
                && previous.last_success.is_some()
                && previous.change_key == key
                && is_unmodified(previous)
        })
    }

    fn is_same_as_last(&self, digest: &str) -> bool {
        let last = self.last_success();
        last.is_some_and(|last| last.index_digest == digest)
    }

    /// Fetches the index. The boolean is true if this sync sent the request.
    async fn fetch(
        &self,
        session: &Fetcher,
        refused: Option<&Refused>,
    ) -> Result<(Fetched, SharedSplit, bool), Prepared> {
        let spec = &self.request.spec;
        let limits = limits(spec, &self.syncer.context.fetch_limits);
        let location = locate(&spec.url, spec.manifest.as_deref(), &self.syncer.context.files);
        match location.map_err(Prepared::Failed)? {
            Location::File(path) => {
                let body = session
                    .read_file(&path, &limits)
                    .await
                    .map_err(|error| self.fetch_failed(&error))?;
                Ok((Fetched::Body(body), SharedSplit::default(), true))
            }
            Location::Web(url) => {
                let stored = match (refused, self.last_success()) {
                    (Some(refused), _) => Some((&refused.etag, &refused.last_modified)),
                    (None, Some(last)) => Some((&last.etag, &last.last_modified)),
                    (None, None) => None,
                };
                let validators = stored.map(|(etag, last_modified)| Validators {
                    etag: etag.clone(),
                    last_modified: last_modified.clone(),
                });
                let request = DownloadRequest {
                    requester: &spec.name,
                    session,
                    url: &url,
                    validators,
                    limits,
                    fresh_since: self.request.fresh_since,
                };
                let Download { result, is_initiator } = self.syncer.downloads.get(request).await;
                match &result.fetched {
                    Ok(fetched) => Ok((fetched.clone(), result.split.clone(), is_initiator)),
                    Err(error) => Err(self.fetch_failed(error)),
                }
            }
        }
    }

    fn fetch_failed(&self, error: &FetchError) -> Prepared {
        let Some(validators) = error.validators().cloned() else {
            return Prepared::Failed(error.into());
        };
        Prepared::Refused(self.refuse(validators, String::new(), error.reason(), error.to_string()))
    }

    /// Builds a refusal that is recognized by validators or digest.
    fn refuse(&self, validators: Validators, digest: String, reason: &str, message: String) -> Refused {
        Refused {
            etag: validators.etag,
            last_modified: validators.last_modified,
            digest,
            reason: reason.to_owned(),
            message,
            confirm: None,
            inputs: self.request.spec.refusal_key(),
        }
    }
}

fn spool_error(error: &io::Error) -> SyncError {
    if let Some(full) = error.get_ref().and_then(|error| error.downcast_ref::<Full>()) {
        return FetchError::SpoolFull(full.clone()).into();
    }
    let message = format!(
        "failed to access temporary file: {error}; free disk space or choose another directory with --spool-dir"
    );
    SyncError::transient("SpoolFailed", message)
}

/// Returns the flag's limits, lowered by the spec.
pub(super) fn limits(spec: &RepositorySpec, bounds: &fetch::FetchLimits) -> fetch::FetchLimits {
    let timeout = spec.fetch_timeout.filter(|timeout| !timeout.is_zero());
    fetch::FetchLimits {
        max_bytes: spec.index_max_bytes,
        total: timeout.map_or(bounds.total, |timeout| timeout.min(bounds.total)),
        ..*bounds
    }
}

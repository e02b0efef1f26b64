//! Syncs one repository: fetch, decode, validate, commit.
//!
//! ```text
//! filter ─► Secrets ─┬─► index: locate ─► fetch ─► decode ─┬─► filter, spool ─► shrink guard ─► one transaction
//!                    └─► registry: tags ─► pulls ─► charts ┘
//!                         (304, same bytes or same tags: one row touched)
//! ```
//! No transaction or lock is held before the commit. A process that dies earlier has written nothing.

mod chart_rows;
mod commit;
mod commit_result;
mod download_cache;
mod fetch;
pub mod filter;
pub mod filter_process;
mod helm_index;
mod index_cache;
pub mod location;
pub mod object_limits;
mod oci;
pub mod request;
pub mod rows;
mod shrink_guard;
mod verify;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tracing::{Instrument, Span};

use super::decision::{SyncMode, is_unmodified};
use super::metrics::RepositoryMetrics;
use super::running_syncs::SyncAttempt;
use super::secrets::source::CredentialSource;
use super::spec::{RepositoryKind, RepositorySpec};
use crate::api::NamespacedName;
use crate::budget::{Budgets, Exhausted, Full, Reservation, WorkError, return_to_runtime};
use crate::catalog::{Baseline, Catalog, DigestUpdate, ErrorKind, OciRemovals, Record, Refused, RetainedPart};
use crate::helm::index::{DecodeLimits, Summary};
use crate::http::{FetchError, FetchLimits, Fetcher, Validators};
use crate::trace::trace_span;
use chart_rows::{RowBuilder, RowSettings};
use commit::{commit, save_failed, save_unchanged};
use download_cache::DownloadCache;
use fetch::fetch_index;
use filter::{ChartFilter, check_filter};
use filter_process::{FilterProcesses, process_memory};
use helm_index::decode_index;
use index_cache::CommonDigestKey;
use location::FileAccess;
use oci::prepare_registry;
use request::{SyncAborted, SyncError, SyncRequest, SyncResult};
use rows::Spool;
use shrink_guard::{check_shrink, load_baseline};

#[derive(Clone)]
pub struct SyncContext {
    pub catalog: Catalog,
    pub fetcher: Fetcher,
    pub credentials: CredentialSource,
    pub fetch_limits: FetchLimits,
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
            ignore_cache,
        };
        // Boxed, since a sync is a large future and polls deeply.
        match sync_once(run(request.clone(), false)).boxed().await {
            // Another process changed the charts during the sync.
            Err(SyncAborted::Catalog(error)) if *error.kind() == ErrorKind::StaleDigests => {
                sync_once(run(request, true)).boxed().await
            }
            done => done,
        }
    }
}

/// The inputs of one sync. A stage takes them and the results of earlier stages.
struct SyncerRun<'a> {
    syncer: &'a Syncer,
    request: SyncRequest,
    attempt: SyncAttempt,
    /// Empty before the session is open.
    secret_versions: String,
    /// Ignores stored digests, because the charts changed during the sync.
    ignore_cache: bool,
}

impl SyncerRun<'_> {
    const fn catalog(&self) -> &Catalog {
        &self.syncer.context.catalog
    }

    fn fetch_limits(&self) -> FetchLimits {
        limits(&self.request.spec, &self.syncer.context.fetch_limits)
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

    fn have_secrets_changed(&self) -> bool {
        let previous = self.request.previous.as_ref();
        previous.is_none_or(|previous| previous.credentials != self.secret_versions)
    }

    /// Reserves memory for work, and for the process of its filter.
    async fn reserve(&self, memory: u64) -> Result<WorkPermits, Exhausted> {
        let (context, namespace) = (&self.syncer.context, &self.request.spec.name.namespace);
        if self.request.spec.filter.is_none() {
            let (memory, _filter) = (context.budgets.memory(namespace, memory).await?, None);
            return Ok(WorkPermits { memory, _filter });
        }
        let memory = memory + process_memory(context.filters.memory);
        let (memory, filter) = context.budgets.filter_memory(namespace, memory).await?;
        let _filter = Some(filter);
        Ok(WorkPermits { memory, _filter })
    }

    /// Runs work on a blocking thread with a CPU permit.
    fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, WorkError>> {
        let namespace = &self.request.spec.name.namespace;
        let span = Span::current();
        let work = move || span.in_scope(work);
        self.syncer.context.budgets.compute(namespace, work)
    }

    fn builder(&self) -> RowBuilder {
        let context = &self.syncer.context;
        let settings = RowSettings {
            spec: self.request.spec.clone(),
            spool_dir: context.spool_dir.clone(),
            spool: context.budgets.spool.clone(),
            cancel: self.attempt.canceled.clone(),
        };
        RowBuilder::new(settings, self.filter())
    }

    fn filter(&self) -> Option<ChartFilter> {
        let rule = Arc::new(self.request.spec.filter.clone()?);
        let (processes, cancel) = (self.syncer.context.filters.clone(), self.attempt.canceled.clone());
        Some(ChartFilter::new(processes, rule, cancel))
    }
}

struct WorkPermits {
    memory: Reservation,
    _filter: Option<Reservation>,
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
    /// Counts to compare the next index with.
    baseline: Baseline,
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

async fn sync_once(run: SyncerRun<'_>) -> Result<SyncResult, SyncAborted> {
    let canceled = run.attempt.canceled.clone();
    // A canceled sync writes nothing: its transaction is rolled back.
    canceled
        .run_until_cancelled_owned(stages(run).boxed())
        .await
        .unwrap_or(Err(SyncAborted::Cancelled))
}

async fn stages(mut run: SyncerRun<'_>) -> Result<SyncResult, SyncAborted> {
    match prepare(&mut run).boxed().await? {
        Prepared::Unchanged(validators) => save_unchanged(&run, validators).await,
        Prepared::Refused(refused) => {
            let failed = SyncError::stalled(&refused.reason, &refused.message);
            save_failed(&run, failed, Some(refused)).await
        }
        Prepared::Failed(failed) => {
            let refused = run.last_refusal();
            save_failed(&run, failed, refused).await
        }
        Prepared::Index(decoded) => commit(&run, *decoded).boxed().instrument(trace_span!("commit")).await,
    }
}

async fn prepare(run: &mut SyncerRun<'_>) -> Result<Prepared, SyncAborted> {
    if let Err(prepared) = check_filter(run).await {
        return Ok(prepared);
    }
    let baseline = load_baseline(run.catalog(), &run.request).await?;
    let session = match open_session(run).await {
        Ok(session) => session,
        Err(failed) => return Ok(Prepared::Failed(failed)),
    };
    let prepared = match run.request.spec.kind {
        RepositoryKind::Helm => prepare_index(run, &session).await?,
        RepositoryKind::Oci => prepare_registry(run, session).instrument(trace_span!("fetch")).await?,
    };
    Ok(match prepared {
        Prepared::Index(decoded) => check_shrink(&run.request.spec, baseline, decoded),
        prepared => prepared,
    })
}

async fn open_session(run: &mut SyncerRun<'_>) -> Result<Fetcher, SyncError> {
    let (mut access, secret_versions) = run.syncer.context.credentials.access(&run.request.spec).await?;
    // A large Secret, or a large object, was decoded before. What follows computes on threads of its own.
    return_to_runtime();
    run.secret_versions = secret_versions;
    access.tracker = run.attempt.requests.clone();
    // Validators of a response to other credentials do not apply.
    if run.have_secrets_changed()
        && let Some(previous) = &mut run.request.previous
    {
        (previous.etag, previous.last_modified) = (None, None);
        if let Some(refused) = &mut previous.refused {
            (refused.etag, refused.last_modified) = (None, None);
        }
    }
    Ok(run.syncer.context.fetcher.with(access)?)
}

async fn prepare_index(run: &SyncerRun<'_>, session: &Fetcher) -> Result<Prepared, SyncAborted> {
    match fetch_index(run, session).instrument(trace_span!("fetch")).await {
        Ok((body, split)) => decode_index(run, body, &split).instrument(trace_span!("decode")).await,
        Err(prepared) => Ok(prepared),
    }
}

/// Builds a refusal that is recognized by validators or digest.
fn refuse(
    spec: &RepositorySpec,
    validators: Validators,
    digest: String,
    reason: &str,
    message: impl ToString,
) -> Refused {
    Refused {
        etag: validators.etag,
        last_modified: validators.last_modified,
        digest,
        reason: reason.to_owned(),
        message: message.to_string(),
        confirm: None,
        inputs: spec.refusal_key(),
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

fn resource_exhausted(error: &Exhausted) -> SyncError {
    SyncError::transient("ResourceExhausted", error.to_string())
}

/// Returns the flag's limits, lowered by the spec.
pub(super) fn limits(spec: &RepositorySpec, bounds: &FetchLimits) -> FetchLimits {
    let timeout = spec.fetch_timeout.filter(|timeout| !timeout.is_zero());
    FetchLimits {
        max_bytes: spec.index_max_bytes,
        total: timeout.map_or(bounds.total, |timeout| timeout.min(bounds.total)),
        ..*bounds
    }
}

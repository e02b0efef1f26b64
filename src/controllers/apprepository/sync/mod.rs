//! Syncs one repository: fetch, decode, validate, commit in one transaction.
//!
//! ```text
//!  Secrets ─► filter ─┬─► index: locate ─► fetch ─► decode ─┬─► select, spool ─► guard ─► one transaction
//!                     └─► registry: tags ─► pulls ─► charts ┘
//!                          (304, the same bytes or the same tags: one row touched)
//! ```
//! No transaction is open and no lock is held before the last step. A process that dies on the way has written nothing.

mod chart_rows;
mod commit;
mod download_cache;
mod helm_index;
mod index_cache;
pub mod location;
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
use tokio_util::sync::CancellationToken;

use super::decision::{Mode, are_as_left};
use super::metrics::Metrics;
use super::secrets::source::Keys;
use super::spec::{Kind, RepositorySpec};
use crate::api::NamespacedName;
use crate::catalog::{self, Catalog, DigestUpdate, OciRemovals, Record, Refused, RetainedPart};
use crate::helm::index::{DecodeLimits, SharedSplit, Summary};
use crate::http::{self as fetch, Body, FetchError, Fetched, Fetcher, Validators};
use crate::jq::{self as filter, Filter};
use download_cache::{Answer, DownloadCache, Wanted};
use index_cache::DigestKey;
use location::{FileAccess, Location, locate};
use request::{SyncAborted, SyncError, SyncRequest, SyncResult};
use rows::Spool;

/// Clients and settings that syncs use.
#[derive(Clone)]
pub struct SyncContext {
    /// The catalogue to write to.
    pub catalog: Catalog,
    /// The way to the network.
    pub fetcher: Fetcher,
    /// Where the values of Secrets are.
    pub keys: Keys,
    /// The bounds of one download.
    pub fetch_limits: fetch::Limits,
    /// The bounds of one index.
    pub decode_limits: DecodeLimits,
    /// The bounds of one filter.
    pub filter_limits: filter::Limits,
    /// Whether what only the changes of an index give is held against what the whole gives.
    pub verify_delta: bool,
    /// How long after one look at the digests of all tags of an OCI repository the next is due: a tag that was published
    /// anew with other content is not seen in the list of tags.
    pub check_digests: Duration,
    /// How long versions are kept that have left the index; not at all, without it.
    pub keep_removed: Option<Duration>,
    /// Where rows wait that are too many for memory; the system's own place by default.
    pub spool_dir: Option<PathBuf>,
    /// Which files `file:` URLs may name.
    pub files: FileAccess,
    /// What the rows are marked with as theirs: see [`super::origin::Origin::id`].
    pub origin: String,
}

/// Syncs repositories.
pub struct Syncer {
    context: SyncContext,
    metrics: Metrics,
    rounds: DownloadCache,
    digest_key: DigestKey,
}

impl Syncer {
    /// Creates a syncer with this context.
    #[must_use]
    pub fn new(context: SyncContext, metrics: Metrics) -> Self {
        Self {
            context,
            metrics,
            rounds: DownloadCache::default(),
            digest_key: DigestKey::default(),
        }
    }

    /// Returns the stored record of a repository.
    ///
    /// # Errors
    /// The database fails.
    pub async fn record(&self, name: &NamespacedName) -> Result<Option<Record>, SyncAborted> {
        Ok(self.context.catalog.record(name).await?)
    }

    /// Runs one sync and records its outcome. All failures outside the database are part of the outcome.
    ///
    /// # Errors
    /// The sync was canceled, or the database fails.
    pub async fn sync(&self, request: SyncRequest, cancel: CancellationToken) -> Result<SyncResult, SyncAborted> {
        let run = |request, knows_nothing| Run {
            syncer: self,
            request,
            cancel: cancel.clone(),
            credentials: String::new(),
            knows_nothing,
        };
        // Each on the heap: a sync is a large state, and polling it goes deep.
        match run(request.clone(), false).run().boxed().await {
            // Another process has changed the charts meanwhile.
            Err(SyncAborted::Catalog(catalog::Error::StaleDigests)) => run(request, true).run().boxed().await,
            done => done,
        }
    }
}

/// One sync under way.
struct Run<'a> {
    syncer: &'a Syncer,
    request: SyncRequest,
    cancel: CancellationToken,
    /// The names and versions of the Secrets that this sync has read.
    credentials: String,
    /// Ignores what the database remembers of the charts: they have turned out to be others.
    knows_nothing: bool,
}

/// What was found outside, before anything is written.
enum Found {
    Unchanged(Option<Validators>),
    /// The body is refused, now or by an earlier sync.
    Refused(Refused),
    Failed(SyncError),
    Index(Box<Decoded>),
}

/// An index that may be written.
struct Decoded {
    spool: Spool,
    /// Identifiers of the charts that the filter has left out.
    filtered_out: HashSet<String>,
    summary: Summary,
    sha256: String,
    validators: Validators,
    /// What is left for attempts to come.
    rest: Option<Rest>,
    /// What stays in the catalogue though it is not among the rows.
    stays: Stays,
    /// What a registry has no more.
    gone: OciRemovals,
    /// What is to be remembered of the charts of an index.
    cuts: Option<DigestUpdate>,
}

/// What one attempt has left of a registry.
#[derive(Clone)]
struct Rest {
    /// Versions that are there.
    pulled: u64,
    /// All versions.
    listed: u64,
    /// Whether there are charts that could not be listed, so that nobody knows how many there are.
    is_in_the_dark: bool,
    /// Whether the attempt has pulled anything.
    has_come_on: bool,
    /// Why there are no more, where that is not because one attempt takes no more. It may pass by itself.
    failed: Option<SyncError>,
}

/// What stays in the catalogue although it is not among the rows of a sync, beside what is kept for a while.
enum Stays {
    /// Everything: it can't be told what has left.
    All,
    /// Of these charts, by their identifiers, what can't be told of.
    Held(HashMap<String, RetainedPart>),
}

impl Run<'_> {
    const fn catalog(&self) -> &Catalog {
        &self.syncer.context.catalog
    }

    async fn run(self) -> Result<SyncResult, SyncAborted> {
        let cancel = self.cancel.clone();
        // What is dropped on the way has written nothing: a transaction under way is rolled back.
        cancel
            .run_until_cancelled_owned(self.finish().boxed())
            .await
            .unwrap_or(Err(SyncAborted::Cancelled))
    }

    async fn finish(mut self) -> Result<SyncResult, SyncAborted> {
        match self.look().boxed().await? {
            Found::Unchanged(validators) => self.save_unchanged(validators).await,
            Found::Refused(refused) => {
                let failed = SyncError {
                    reason: refused.reason.clone(),
                    message: refused.message.clone(),
                    transient: false,
                    retry_after: None,
                };
                self.save_failed(failed, Some(refused)).await
            }
            Found::Failed(failed) => {
                let refused = self.refused();
                self.save_failed(failed, refused).await
            }
            Found::Index(decoded) => self.commit(*decoded).boxed().await,
        }
    }

    /// Everything that writes no chart.
    async fn look(&mut self) -> Result<Found, SyncAborted> {
        let filter = match self.filter().await {
            Ok(filter) => filter,
            Err(found) => return Ok(found),
        };
        let session = match self.session().await {
            Ok(session) => session,
            Err(failed) => return Ok(Found::Failed(failed)),
        };
        match self.request.declaration.kind {
            Kind::Helm => self.look_at_index(&session, filter).await,
            Kind::Oci => self.look_at_registry(session, filter).await,
        }
    }

    /// The way to this repository's server, with its credentials.
    async fn session(&mut self) -> Result<Fetcher, SyncError> {
        let (access, credentials) = self.syncer.context.keys.access(&self.request.declaration).await?;
        self.credentials = credentials;
        // What other credentials were shown is no measure of what these are.
        if self.has_other_credentials()
            && let Some(previous) = &mut self.request.previous
        {
            (previous.etag, previous.last_modified) = (None, None);
            if let Some(refused) = &mut previous.refused {
                (refused.etag, refused.last_modified) = (None, None);
            }
        }
        Ok(self.syncer.context.fetcher.with(access)?)
    }

    /// Whether the Secrets are others than those of the last success, or have changed since.
    fn has_other_credentials(&self) -> bool {
        let previous = self.request.previous.as_ref();
        previous.is_none_or(|previous| previous.credentials != self.credentials)
    }

    async fn look_at_index(&self, session: &Fetcher, filter: Option<Filter>) -> Result<Found, SyncAborted> {
        match self.body(session).await {
            Ok((body, cuts)) => self.decode(body, &cuts, filter).await,
            Err(found) => Ok(found),
        }
    }

    /// A body that is another than the last, and what others make of it too. Otherwise what there is to say without decoding any.
    async fn body(&self, session: &Fetcher) -> Result<(Body, SharedSplit), Found> {
        let refused = self.refused();
        let (fetched, cuts, is_own) = self.fetch(session, refused.as_ref()).await?;
        let body = match (fetched, refused) {
            (Fetched::NotModified, refused) => {
                if is_own {
                    self.syncer.metrics.not_modified();
                }
                return Err(refused.map_or(Found::Unchanged(None), Found::Refused));
            }
            (Fetched::Body(body), refused) => {
                if is_own {
                    self.syncer.metrics.index_bytes(body.bytes);
                }
                if let Some(refused) = refused.filter(|refused| refused.digest == body.sha256) {
                    return Err(Found::Refused(with_validators(refused, &body.validators)));
                }
                body
            }
        };
        if self.is_same_as_last(&body.sha256) {
            return Err(Found::Unchanged(Some(body.validators)));
        }
        Ok((body, cuts))
    }

    /// What is remembered as refused, where that is believed: the same body would be refused again.
    fn refused(&self) -> Option<Refused> {
        let refused = self.request.previous.as_ref()?.refused.as_ref()?;
        let stands = self.request.mode == Mode::Conditional && refused.inputs == self.request.declaration.grounds();
        stands.then(|| refused.clone())
    }

    /// Where the rows are as this declaration gives them, and as the last success has left them, the record that tells of it.
    fn last_success(&self) -> Option<&Record> {
        let key = self.request.declaration.change_key.as_str();
        self.request.previous.as_ref().filter(|previous| {
            self.request.mode == Mode::Conditional
                && !self.knows_nothing
                && previous.last_success.is_some()
                && previous.change_key == key
                && are_as_left(previous)
        })
    }

    fn is_same_as_last(&self, digest: &str) -> bool {
        self.last_success()
            .is_some_and(|previous| previous.index_digest == digest)
    }

    /// What stands at the URL, what others that have got the same make of it too, and whether it was fetched for this attempt alone
    /// or first.
    async fn fetch(&self, session: &Fetcher, refused: Option<&Refused>) -> Result<(Fetched, SharedSplit, bool), Found> {
        let declaration = &self.request.declaration;
        let limits = limits(declaration, &self.syncer.context.fetch_limits);
        let location = locate(
            &declaration.url,
            declaration.manifest.as_deref(),
            &self.syncer.context.files,
        );
        match location.map_err(Found::Failed)? {
            Location::File(path) => {
                match fetch::read_file(&path, self.syncer.context.spool_dir.as_deref(), &limits).await {
                    Ok(body) => Ok((Fetched::Body(body), SharedSplit::default(), true)),
                    Err(error) => Err(self.not_fetched(&error)),
                }
            }
            Location::Web(url) => {
                let validators = match (refused, self.last_success()) {
                    (Some(refused), _) => Some((&refused.etag, &refused.last_modified)),
                    (None, Some(last)) => Some((&last.etag, &last.last_modified)),
                    (None, None) => None,
                };
                let wanted = Wanted {
                    asker: &declaration.name,
                    session,
                    url: &url,
                    validators: validators.map(|(etag, last_modified)| Validators {
                        etag: etag.clone(),
                        last_modified: last_modified.clone(),
                    }),
                    limits,
                    since: self.request.wanted_since,
                };
                let Answer { result, is_own } = self.syncer.rounds.get(wanted).await;
                match &result.fetched {
                    Ok(fetched) => Ok((fetched.clone(), result.cuts.clone(), is_own)),
                    Err(error) => Err(self.not_fetched(error)),
                }
            }
        }
    }

    fn not_fetched(&self, error: &FetchError) -> Found {
        match error.validators().cloned() {
            Some(validators) => {
                Found::Refused(self.refuse(validators, String::new(), error.reason(), error.to_string()))
            }
            None => Found::Failed(error.into()),
        }
    }

    /// A body that is refused, with what it takes to know it again.
    fn refuse(&self, validators: Validators, digest: String, reason: &str, message: String) -> Refused {
        Refused {
            etag: validators.etag,
            last_modified: validators.last_modified,
            digest,
            reason: reason.to_owned(),
            message,
            confirm: None,
            inputs: self.request.declaration.grounds(),
        }
    }
}

fn spool_failed(error: &io::Error) -> SyncError {
    SyncError {
        reason: "SpoolFailed".to_owned(),
        message: format!(
            "what is to be written could not be kept in a temporary file, or not be read back ({error}); make room there, or name another folder with --spool-dir"
        ),
        transient: true,
        retry_after: None,
    }
}

fn with_validators(refused: Refused, validators: &Validators) -> Refused {
    Refused {
        etag: validators.etag.clone(),
        last_modified: validators.last_modified.clone(),
        ..refused
    }
}

/// The flags' bounds, lowered by what the declaration asks for.
pub(crate) fn limits(declaration: &RepositorySpec, bounds: &fetch::Limits) -> fetch::Limits {
    fetch::Limits {
        max_bytes: declaration.index_max_bytes,
        total: declaration
            .fetch_timeout
            .filter(|time| *time > Duration::ZERO)
            .map_or(bounds.total, |time| time.min(bounds.total)),
        ..*bounds
    }
}

impl From<FetchError> for SyncError {
    fn from(error: FetchError) -> Self {
        Self::from(&error)
    }
}

impl From<&FetchError> for SyncError {
    fn from(error: &FetchError) -> Self {
        Self {
            reason: error.reason().to_owned(),
            message: error.to_string(),
            transient: error.is_transient(),
            retry_after: error.retry_after(),
        }
    }
}

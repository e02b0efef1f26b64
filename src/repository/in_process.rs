//! Attempts made in this process: fetch, decode, judge, and then write in one transaction.
//!
//! ```text
//!  locate ─► fetch ─► (304 or the same bytes: one row touched)
//!               └──► decode ─► spool ─► guard ─► one transaction
//! ```
//! No transaction is open and no lock is held before the last step. A process that dies on the way has written nothing.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::decide::{Mode, are_as_left, handled, is_lost};
use super::declaration::Declaration;
use super::execute::{Attempt, AttemptError, Execute, Failed, Finished, Verdict};
use super::guard;
use super::locate::{FileAccess, Location, locate};
use super::metrics::Metrics;
use super::rows::{self, Pushed, Spool};
use super::summary::{account, last_sync, ready_message, unless_quiet};
use crate::catalog::{Catalog, Commit, Committed, HistoryEntry, Record, Refused, State};
use crate::source::fetch::{self, Body, FetchError, Fetched, Fetcher, Validators};
use crate::source::index::{self, Chart, DecodeError, DecodeLimits, Sink, Summary};

/// What attempts may use.
#[derive(Clone)]
pub struct Tools {
    /// The catalogue to write to.
    pub catalog: Catalog,
    /// The way to the network.
    pub fetcher: Fetcher,
    /// The bounds of one download.
    pub fetch_limits: fetch::Limits,
    /// The bounds of one index.
    pub decode_limits: DecodeLimits,
    /// Where rows wait that are too many for memory; the system's own place by default.
    pub spool_dir: Option<PathBuf>,
    /// Which files `file:` URLs may name.
    pub files: FileAccess,
    /// What the rows are marked with as theirs: see [`super::origin::Origin::id`].
    pub origin: String,
}

/// Makes attempts in this process.
pub struct InProcess {
    tools: Tools,
    metrics: Metrics,
}

impl InProcess {
    /// An executor with these tools.
    #[must_use]
    pub fn new(tools: Tools, metrics: Metrics) -> Self {
        Self { tools, metrics }
    }
}

impl Execute for InProcess {
    fn attempt(&self, attempt: Attempt, cancel: CancellationToken) -> BoxFuture<'_, Result<Finished, AttemptError>> {
        Run {
            tools: &self.tools,
            metrics: &self.metrics,
            attempt,
            cancel,
        }
        .run()
        .boxed()
    }
}

/// One attempt under way.
struct Run<'a> {
    tools: &'a Tools,
    metrics: &'a Metrics,
    attempt: Attempt,
    cancel: CancellationToken,
}

/// What was found outside, before anything is written.
enum Found {
    Unchanged(Option<Validators>),
    /// The body is one that was refused before.
    StillRefused(Refused),
    Refused(Refused),
    Failed(Failed),
    Index(Box<Decoded>),
}

/// An index that may be written.
struct Decoded {
    spool: Spool,
    summary: Summary,
    sha256: String,
    validators: Validators,
}

impl Run<'_> {
    async fn run(self) -> Result<Finished, AttemptError> {
        let found = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(AttemptError::Cancelled),
            found = self.look() => found?,
        };
        match found {
            Found::Unchanged(validators) => self.save_unchanged(validators).await,
            Found::StillRefused(refused) | Found::Refused(refused) => {
                let failed = Failed {
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
            Found::Index(decoded) => self.commit(*decoded).await,
        }
    }

    /// Everything that needs no database.
    async fn look(&self) -> Result<Found, AttemptError> {
        let refused = self.refused();
        let fetched = match self.fetch(refused.as_ref()).await {
            Ok(fetched) => fetched,
            Err(found) => return Ok(found),
        };
        let body = match (fetched, refused) {
            (Fetched::NotModified, Some(refused)) => return Ok(Found::StillRefused(refused)),
            (Fetched::NotModified, None) => {
                self.metrics.not_modified();
                return Ok(Found::Unchanged(None));
            }
            (Fetched::Body(body), refused) => {
                self.metrics.index_bytes(body.bytes);
                if let Some(refused) = refused.filter(|refused| refused.digest == body.sha256) {
                    return Ok(Found::StillRefused(with_validators(refused, &body.validators)));
                }
                body
            }
        };
        if self.is_same_as_last(&body) {
            return Ok(Found::Unchanged(Some(body.validators)));
        }
        self.decode(body).await
    }

    /// What is remembered as refused, where that is believed: the same body would be refused again.
    fn refused(&self) -> Option<Refused> {
        let refused = self.attempt.previous.as_ref()?.refused.as_ref()?;
        let stands = self.attempt.mode == Mode::Conditional && refused.given == self.attempt.declaration.grounds();
        stands.then(|| refused.clone())
    }

    /// Where the rows are as this declaration gives them, and as the last success has left them, the record that tells of it.
    fn last_success(&self) -> Option<&Record> {
        let key = self.attempt.declaration.change_key.as_str();
        self.attempt.previous.as_ref().filter(|previous| {
            self.attempt.mode == Mode::Conditional
                && previous.last_success.is_some()
                && previous.change_key == key
                && are_as_left(previous)
        })
    }

    fn is_same_as_last(&self, body: &Body) -> bool {
        self.last_success()
            .is_some_and(|previous| previous.index_digest == body.sha256)
    }

    async fn fetch(&self, refused: Option<&Refused>) -> Result<Fetched, Found> {
        let declaration = &self.attempt.declaration;
        let limits = limits(declaration, &self.tools.fetch_limits);
        let location = locate(&declaration.url, declaration.manifest.as_deref(), &self.tools.files);
        let fetched = match location.map_err(Found::Failed)? {
            Location::File(path) => fetch::read_file(&path, self.tools.spool_dir.as_deref(), &limits)
                .await
                .map(Fetched::Body),
            Location::Web(url) => {
                let validators = match (refused, self.last_success()) {
                    (Some(refused), _) => Some((&refused.etag, &refused.last_modified)),
                    (None, Some(last)) => Some((&last.etag, &last.last_modified)),
                    (None, None) => None,
                };
                let validators = validators.map(|(etag, last_modified)| Validators {
                    etag: etag.clone(),
                    last_modified: last_modified.clone(),
                });
                self.tools.fetcher.get(&url, validators.as_ref(), &limits).await
            }
        };
        fetched.map_err(|error| match error.validators().cloned() {
            Some(validators) => {
                Found::Refused(self.refuse(validators, String::new(), error.reason(), error.to_string()))
            }
            None => Found::Failed(error.into()),
        })
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
            given: self.attempt.declaration.grounds(),
        }
    }

    /// Decodes off the threads that serve everybody else: an index may take a second.
    async fn decode(&self, body: Body) -> Result<Found, AttemptError> {
        let mut sink = RowSink {
            declaration: self.attempt.declaration.clone(),
            cancel: self.cancel.clone(),
            spool: Spool::new(self.tools.spool_dir.as_deref()),
            spool_dir: self.tools.spool_dir.clone(),
            twins: Vec::new(),
        };
        let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
        let limits = self.tools.decode_limits;
        let task = tokio::task::spawn_blocking(move || {
            let result = index::decode(body.into_reader(), &limits, &mut sink);
            (result, sink)
        });
        let (result, RowSink { spool, twins, .. }) = match task.await {
            Ok(done) => done,
            // The same bytes would do it again, so this is as good as a refusal by the rules.
            Err(error) if error.is_panic() => {
                tracing::error!(repository = %self.attempt.declaration.name, sha256, "the decoder has panicked over an index");
                let message =
                    "the index can't be decoded because of a defect in Portolan; please report it, with the index";
                return Ok(Found::Refused(self.refuse(
                    validators,
                    sha256,
                    "DecoderFailed",
                    message.to_owned(),
                )));
            }
            Err(_) => return Err(AttemptError::Cancelled),
        };
        Ok(match result {
            Ok(mut summary) => {
                for chart in twins {
                    summary
                        .skipped
                        .add(&chart, None, "another chart of the index has the same name");
                }
                self.judge(Decoded {
                    spool,
                    summary,
                    sha256,
                    validators,
                })
            }
            Err(DecodeError::Sink(SinkError::Cancelled)) => return Err(AttemptError::Cancelled),
            Err(DecodeError::Sink(SinkError::Spool(error))) => Found::Failed(spool_failed(&error)),
            Err(DecodeError::Read(error)) => Found::Failed(spool_failed(&error)),
            Err(error) => Found::Refused(self.refuse(validators, sha256, error.reason(), error.to_string())),
        })
    }

    /// Whether the index is believed.
    fn judge(&self, decoded: Decoded) -> Found {
        let declaration = &self.attempt.declaration;
        // Another URL, type or list of OCI repositories has another size; and a catalogue that has lost its charts is filled
        // again with whatever there is.
        let baseline = (self.attempt.previous.as_ref())
            .filter(|previous| declaration.change_key.has_source_of(&previous.change_key) && !is_lost(previous))
            .and_then(|previous| previous.baseline.as_ref());
        match guard::check(baseline, &decoded.summary, declaration.allow_shrink.as_deref()) {
            Ok(()) => Found::Index(Box::new(decoded)),
            Err(shrunk) => {
                let refused = self.refuse(
                    decoded.validators,
                    decoded.sha256,
                    super::SHRINK_REFUSED,
                    shrunk.to_string(),
                );
                Found::Refused(Refused {
                    confirm: Some(shrunk.digest().to_owned()),
                    ..refused
                })
            }
        }
    }

    async fn save_unchanged(self, validators: Option<Validators>) -> Result<Finished, AttemptError> {
        let mut record = self.new_record();
        let recovered = record.state.ready == Some(false);
        if let Some(validators) = validators {
            record.etag = validators.etag;
            record.last_modified = validators.last_modified;
        }
        record.refused = None;
        record.last_success = Some(Timestamp::now());
        record.state = ready(account(&record).as_ref().map_or_else(String::new, ready_message));
        let history = recovered.then(|| self.history(&record, "Succeeded", &record.index_digest));
        self.tools
            .catalog
            .save(&record, self.attempt.expected_uid.as_deref(), history.as_ref())
            .await?;
        Ok(Finished {
            record,
            verdict: Verdict::NotModified,
        })
    }

    async fn save_failed(self, failed: Failed, refused: Option<Refused>) -> Result<Finished, AttemptError> {
        let mut record = self.new_record();
        let state = State {
            ready: Some(false),
            stalled: !failed.transient,
            reason: failed.reason.clone(),
            message: failed.message.clone(),
            failures: record.state.failures.saturating_add(1),
        };
        let before = std::mem::replace(&mut record.state, state);
        record.refused = refused;
        if self.attempt.mode == Mode::Complete {
            // Everything was to be compared and was not: the next attempt must not take "unchanged" for an answer.
            record.etag = None;
            record.last_modified = None;
            record.index_digest.clear();
        }
        // A failure that repeats itself is one line of history, not one a try.
        let is_new = before.ready != Some(false) || before.reason != failed.reason;
        let result = if failed.transient { "Failed" } else { "Stalled" };
        let digest = record
            .refused
            .as_ref()
            .map(|refused| refused.digest.clone())
            .unwrap_or_default();
        let history = is_new.then(|| self.history(&record, result, &digest));
        self.tools
            .catalog
            .save(&record, self.attempt.expected_uid.as_deref(), history.as_ref())
            .await?;
        Ok(Finished {
            record,
            verdict: Verdict::Failed(failed),
        })
    }

    async fn commit(self, decoded: Decoded) -> Result<Finished, AttemptError> {
        let Decoded {
            spool,
            summary,
            sha256,
            validators,
        } = decoded;
        let mut record = self.new_record();
        let is_first_or_recovered = record.state.ready != Some(true);
        record.etag = validators.etag;
        record.last_modified = validators.last_modified;
        record.index_digest.clone_from(&sha256);
        record.change_key = self.attempt.declaration.change_key.as_str().to_owned();
        record.baseline = Some(guard::baseline(&summary));
        record.refused = None;
        record.last_success = Some(Timestamp::now());
        let (charts, versions) = (spool.charts(), spool.versions());
        let rows = match spool.into_rows() {
            Ok(rows) => rows,
            Err(error) => return self.save_failed(spool_failed(&error), None).await,
        };
        let skipped = summary.skipped.clone();
        let started = self.attempt.started;
        let complete = move |committed: &Committed, record: &mut Record| {
            let new = last_sync(&summary, charts, versions, committed, started);
            let account = unless_quiet(new, account(record));
            record.state = ready(ready_message(&account));
            // An account holds string keys and finite numbers only, for which JSON can't fail.
            record.last_sync = serde_json::to_value(account).ok();
        };
        let (history, skipped_before) = (self.history(&record, "Succeeded", &sha256), skipped.count);
        let concluded = {
            let complete = complete.clone();
            move |committed: &Committed, record: &mut Record| {
                complete(committed, record);
                let is_news = is_first_or_recovered || committed.is_change();
                is_news.then(|| HistoryEntry {
                    duration: since(started),
                    skipped: skipped_before + committed.rejected.len() as u64,
                    reason: record.state.reason.clone(),
                    message: record.state.message.clone(),
                    charts,
                    versions,
                    added: committed.added,
                    changed: committed.changed,
                    removed: committed.removed,
                    ..history
                })
            }
        };
        let commit = Commit::new(record.clone(), self.attempt.expected_uid.clone(), sha256).conclude_with(concluded);
        let committed = self.tools.catalog.commit(commit, rows).await?;
        complete(&committed, &mut record);
        (record.trusted, record.charts) = (true, charts);
        let mut skipped = skipped;
        for (chart, reason) in &committed.rejected {
            skipped.add(chart, None, reason);
        }
        Ok(Finished {
            record,
            verdict: Verdict::Synced { committed, skipped },
        })
    }

    /// What is remembered after this attempt whatever comes of it: who was tried, when, and what was asked for.
    fn new_record(&self) -> Record {
        let Attempt {
            declaration,
            previous,
            started,
            ..
        } = &self.attempt;
        let mut record = previous.clone().unwrap_or_else(|| Record {
            name: declaration.name.clone(),
            ..Record::default()
        });
        if record.spec_hash.as_deref() != Some(declaration.spec_hash.as_str()) {
            record.spec_hash = Some(declaration.spec_hash.clone());
            record.generation = declaration.generation.unwrap_or(record.generation + 1);
        }
        record.uid.clone_from(&declaration.uid);
        record.origin.clone_from(&self.tools.origin);
        record.url.clone_from(&declaration.url);
        record.kind = declaration.kind.as_str().to_owned();
        record.handled = handled(declaration, &record.handled);
        record.schedule = declaration.schedule.clone().or(record.schedule);
        record.last_attempt = Some(*started);
        record
    }

    /// A line of history about this attempt.
    fn history(&self, record: &Record, result: &str, digest: &str) -> HistoryEntry {
        HistoryEntry {
            started_at: self.attempt.started,
            duration: since(self.attempt.started),
            result: result.to_owned(),
            reason: record.state.reason.clone(),
            message: record.state.message.clone(),
            digest: digest.to_owned(),
            ..HistoryEntry::default()
        }
    }
}

/// Makes rows of charts and keeps them for writing.
struct RowSink {
    declaration: Declaration,
    cancel: CancellationToken,
    spool: Spool,
    spool_dir: Option<PathBuf>,
    /// Charts whose identifier another one has taken.
    twins: Vec<String>,
}

impl Sink for RowSink {
    type Error = SinkError;

    fn chart(&mut self, chart: Chart) -> Result<(), SinkError> {
        if self.cancel.is_cancelled() {
            return Err(SinkError::Cancelled);
        }
        let row = rows::row(&self.declaration, chart);
        if self.spool.push(&row).map_err(SinkError::Spool)? == Pushed::Duplicate {
            self.twins.push(row.info.name);
        }
        Ok(())
    }

    fn start_over(&mut self) -> Result<(), SinkError> {
        self.spool = Spool::new(self.spool_dir.as_deref());
        self.twins.clear();
        Ok(())
    }
}

/// Why a chart could not be kept for writing.
#[derive(Debug, thiserror::Error)]
enum SinkError {
    #[error("the sync was cancelled")]
    Cancelled,
    #[error("{0}")]
    Spool(io::Error),
}

/// The state of a repository whose charts are in step.
fn ready(message: String) -> State {
    State {
        ready: Some(true),
        stalled: false,
        reason: "Synced".to_owned(),
        message,
        failures: 0,
    }
}

fn since(started: Timestamp) -> Duration {
    Duration::try_from(Timestamp::now().duration_since(started)).unwrap_or_default()
}

fn spool_failed(error: &io::Error) -> Failed {
    Failed {
        reason: "SpoolFailed".to_owned(),
        message: format!(
            "the rows to be written could not be kept in a temporary file ({error}); make room there, or name another folder with --spool-dir"
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
fn limits(declaration: &Declaration, bounds: &fetch::Limits) -> fetch::Limits {
    fetch::Limits {
        max_bytes: declaration.index_max_bytes,
        total: declaration
            .fetch_timeout
            .filter(|time| *time > Duration::ZERO)
            .map_or(bounds.total, |time| time.min(bounds.total)),
        ..*bounds
    }
}

impl From<FetchError> for Failed {
    fn from(error: FetchError) -> Self {
        Self {
            reason: error.reason().to_owned(),
            message: error.to_string(),
            transient: error.is_transient(),
            retry_after: error.retry_after(),
        }
    }
}

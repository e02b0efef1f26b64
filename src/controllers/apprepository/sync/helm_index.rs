//! Decodes a Helm index and applies the shrink guard.

use std::collections::HashMap;
use std::io::{Read, Seek};
use std::sync::Arc;

use tracing::Span;

use super::chart_rows::{BuiltRows, RowBuilder, RowError, RowSettings};
use super::filter::ChartFilter;
use super::filter_process::process_memory;
use super::index_cache::IndexCache;
use super::request::{SyncAborted, SyncError};
use super::shrink_guard as guard;
use super::verify::{FullDecode, full_decode};
use super::{DecodedRows, Prepared, Retain, SyncerRun, spool_error};
use crate::budget::{Exhausted, Reservation, WorkError};
use crate::catalog::{self, Baseline, DigestUpdate, OciRemovals, Refused};
use crate::controllers::apprepository::SHRINK_REFUSED;
use crate::controllers::apprepository::decision::has_lost_charts;
use crate::helm::index::{self, DecodeError, DecodeLimits, SharedSplit, Summary};
use crate::http::{Body, Validators};
use crate::jq::FilterError;

impl SyncerRun<'_> {
    pub(super) async fn decode(&self, body: Body, digests: &SharedSplit) -> Result<Prepared, SyncAborted> {
        let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
        // If the incremental decoder panics, the full decoder may still work.
        for is_incremental in [true, false] {
            let decoded = self.decode_once(is_incremental, body.clone(), digests.clone());
            if let Some(prepared) = decoded.await? {
                return Ok(prepared);
            }
            tracing::error!(sha256, "index decoder panicked");
        }
        // The same bytes would panic again, so that the index is refused.
        let message = "index decoder panicked; please report this bug with the index file";
        let refused = self.refuse(validators, sha256, "InternalError", message.to_owned());
        Ok(Prepared::Refused(refused))
    }

    /// Decodes on a blocking thread, since an index may take a second and a filter longer. Returns `None` if the decoder
    /// panicked.
    async fn decode_once(
        &self,
        is_incremental: bool,
        body: Body,
        shared: SharedSplit,
    ) -> Result<Option<Prepared>, SyncAborted> {
        let permits = match self.reserve(self.syncer.context.index_memory).await {
            Ok(permits) => permits,
            Err(error) => return Ok(Some(Prepared::Failed(resource_exhausted(&error)))),
        };
        // Read only now: it is a part of the reserved memory.
        let cache = if is_incremental {
            self.index_cache().await?
        } else {
            None
        };
        let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
        let builder = self.builder();
        let verification = self.syncer.context.verify_delta.then(|| self.builder());
        let limits = self.syncer.context.decode_limits;
        let work = move || {
            let outcome = decode(body, &shared, &limits, cache, builder, verification);
            (outcome, permits)
        };
        let (outcome, WorkPermits { mut memory, .. }) = match self.compute(work).await {
            Ok(done) => done,
            Err(WorkError::Exhausted(error)) => return Ok(Some(Prepared::Failed(resource_exhausted(&error)))),
            Err(WorkError::Panicked) => return Ok(None),
        };
        memory.shrink(outcome.0.rows.commit_memory());
        let DecodeOutcome {
            result,
            mut rows,
            cache,
        } = self.choose_outcome(outcome, &sha256).await?;
        let digests = cache.map(|cache| cache.digest_update(&mut rows));
        let index = DecodedIndex {
            result,
            rows,
            digests,
            memory,
        };
        self.conclude(index, sha256, validators).map(Some)
    }

    /// Reserves memory for work, and for the process of its filter.
    pub(super) async fn reserve(&self, memory: u64) -> Result<WorkPermits, Exhausted> {
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
    pub(super) fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, WorkError>> {
        let namespace = &self.request.spec.name.namespace;
        let span = Span::current();
        let work = move || span.in_scope(work);
        self.syncer.context.budgets.compute(namespace, work)
    }

    /// Returns the result of the full decode if it differs.
    async fn choose_outcome(
        &self,
        outcome: (DecodeOutcome, Option<FullDecode>),
        sha256: &str,
    ) -> Result<DecodeOutcome, SyncAborted> {
        let (outcome, full) = outcome;
        if let (Ok(summary), Some(full)) = (&outcome.result, full)
            && let Some(difference) = self.find_difference(summary, &outcome.rows, &full).await?
        {
            tracing::error!(
                sha256,
                difference,
                "incremental decode differs from full decode, using full decode; please report this bug with both index files"
            );
            self.syncer.metrics.verification_failure();
            return Ok(DecodeOutcome {
                result: full.result,
                rows: full.rows,
                cache: None,
            });
        }
        Ok(outcome)
    }

    fn conclude(&self, index: DecodedIndex, sha256: String, validators: Validators) -> Result<Prepared, SyncAborted> {
        let DecodedIndex {
            result,
            rows,
            digests,
            memory,
        } = index;
        let BuiltRows {
            spool,
            filtered_out,
            deprecated,
            duplicates,
            ..
        } = rows;
        Ok(match result {
            Ok(mut summary) => {
                for chart in duplicates {
                    let reason = "another chart of the index has the same name";
                    summary.skipped.add(&chart, None, reason);
                }
                self.check_shrink(DecodedRows {
                    spool,
                    filtered_out,
                    deprecated,
                    summary,
                    sha256,
                    validators,
                    remaining: None,
                    retain: Retain::Charts(HashMap::new()),
                    gone: OciRemovals::default(),
                    digests,
                    memory,
                })
            }
            Err(DecodeError::Sink(error)) => return self.row_failed(error, validators, sha256),
            Err(DecodeError::Read(error)) => Prepared::Failed(spool_error(&error)),
            Err(error) => Prepared::Refused(self.refuse(validators, sha256, error.reason(), error.to_string())),
        })
    }

    pub(super) fn builder(&self) -> RowBuilder {
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
        Some(ChartFilter::new(
            self.syncer.context.filters.clone(),
            rule,
            self.attempt.canceled.clone(),
        ))
    }

    pub(super) fn row_failed(
        &self,
        error: RowError,
        validators: Validators,
        sha256: String,
    ) -> Result<Prepared, SyncAborted> {
        match error {
            RowError::Cancelled => Err(SyncAborted::Cancelled),
            // Without cached charts there are no such duplicates.
            RowError::DuplicateId => Ok(Prepared::Failed(SyncError::transient(
                "DecodeInterrupted",
                error.to_string(),
            ))),
            RowError::Spool(error) => Ok(Prepared::Failed(spool_error(&error))),
            RowError::Filter(error) if self.is_retried(&error) => Ok(Prepared::Failed(filter_failed(&error))),
            // Not remembered with the index: the fault may be of the machine.
            RowError::Filter(error) if error.is_transient() => {
                Ok(Prepared::Failed(SyncError::stalled(error.reason(), error.to_string())))
            }
            // The same filter fails again on the same charts.
            RowError::Filter(error) => Ok(Prepared::Refused(self.refuse(
                validators,
                sha256,
                error.reason(),
                error.to_string(),
            ))),
        }
    }

    /// Compiles a filter that was not used before, before anything is fetched: an invalid one costs no request.
    pub(super) async fn check_filter(&self) -> Result<(), Prepared> {
        let Some(mut filter) = self.filter().filter(|_| self.last_success().is_none()) else {
            return Ok(());
        };
        let permits = match self.reserve(0).await {
            Ok(permits) => permits,
            Err(error) => return Err(Prepared::Failed(resource_exhausted(&error))),
        };
        let compile = move || {
            let compiled = filter.compile();
            drop(permits);
            compiled
        };
        let failed = match self.compute(compile).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if self.is_retried(&error) => filter_failed(&error),
            Ok(Err(error)) => SyncError::stalled(error.reason(), error.to_string()),
            Err(WorkError::Exhausted(error)) => resource_exhausted(&error),
            Err(WorkError::Panicked) => {
                let message = "filter compiler panicked; please report this bug with the filter";
                SyncError::stalled("InternalError", message)
            }
        };
        Err(Prepared::Failed(failed))
    }

    /// Returns true for a failure that a retry may mend: a transient one, until it occurs the third time in a row.
    fn is_retried(&self, error: &FilterError) -> bool {
        let previous = self.request.previous.as_ref().map(|previous| &previous.state);
        let is_third = previous.is_some_and(|state| state.reason == error.reason() && state.failures >= 2);
        error.is_transient() && !is_third
    }

    pub(super) fn check_shrink(&self, mut decoded: DecodedRows) -> Prepared {
        let allowed = self.request.spec.allow_shrink.as_deref();
        let Err(shrunk) = guard::check(self.baseline.as_ref(), &decoded.summary, allowed) else {
            return Prepared::Index(Box::new(decoded));
        };
        if (decoded.remaining.as_ref()).is_some_and(|remaining| remaining.listing_failed) {
            // The missing charts may only have failed to be listed: retain everything until they can.
            decoded.retain = Retain::All;
            decoded.gone = OciRemovals::default();
            return Prepared::Index(Box::new(decoded));
        }
        let refused = self.refuse(decoded.validators, decoded.sha256, SHRINK_REFUSED, shrunk.to_string());
        Prepared::Refused(Refused {
            confirm: Some(shrunk.digest),
            ..refused
        })
    }

    /// Returns comparable counts of the last accepted index, or of stored charts, as after a takeover or a restore.
    pub(super) async fn load_baseline(&self) -> Result<Option<Baseline>, catalog::Error> {
        let spec = &self.request.spec;
        if let Some(previous) = &self.request.previous {
            let has_other_source =
                !previous.change_key.is_empty() && !spec.change_key.has_source_of(&previous.change_key);
            // Another source has another size, and lost charts are restored from any index.
            if has_other_source || has_lost_charts(previous) {
                return Ok(None);
            }
            if previous.baseline.is_some() {
                return Ok(previous.baseline);
            }
        }
        self.catalog().stored_counts(&spec.name, &spec.url).await
    }
}

pub(super) struct WorkPermits {
    pub(super) memory: Reservation,
    _filter: Option<Reservation>,
}

struct DecodedIndex {
    result: Result<Summary, DecodeError<RowError>>,
    rows: BuiltRows,
    digests: Option<DigestUpdate>,
    memory: Reservation,
}

struct DecodeOutcome {
    result: Result<Summary, DecodeError<RowError>>,
    rows: BuiltRows,
    cache: Option<IndexCache>,
}

/// Decodes the changes, and the full index too for verification.
fn decode(
    body: Body,
    shared: &SharedSplit,
    limits: &DecodeLimits,
    mut cache: Option<IndexCache>,
    mut builder: RowBuilder,
    verification: Option<RowBuilder>,
) -> (DecodeOutcome, Option<FullDecode>) {
    let mut input = body.into_reader();
    if verification.is_some() {
        builder = builder.with_fingerprints();
    }
    let result = match &mut cache {
        Some(cache) => {
            builder = builder.with_outcomes(std::mem::take(&mut cache.outcomes));
            decode_changes(&mut input, shared, limits, cache, &mut builder)
        }
        None => decode_all(&mut input, limits, &mut builder),
    };
    let rows = builder.finish();
    let is_incremental = result.is_ok() && rows.is_incremental();
    let full = verification
        .filter(|_| is_incremental)
        .map(|builder| full_decode(input, limits, builder.with_fingerprints()));
    let outcome = DecodeOutcome { result, rows, cache };
    (outcome, full)
}

/// Decodes the changes, or everything if a cached chart shares its ID with another.
fn decode_changes(
    mut input: impl Read + Seek,
    shared: &SharedSplit,
    limits: &DecodeLimits,
    cache: &mut IndexCache,
    builder: &mut RowBuilder,
) -> Result<Summary, DecodeError<RowError>> {
    let mut decode = |cache: &IndexCache, builder: &mut RowBuilder| {
        let summary = index::decode_changes(&mut input, limits, &cache.index, shared, builder)?;
        builder.flush().map_err(DecodeError::Sink)?;
        Ok(summary)
    };
    let result = decode(cache, builder);
    if !matches!(result, Err(DecodeError::Sink(RowError::DuplicateId))) {
        return result;
    }
    cache.reset();
    builder.reset();
    decode(cache, builder)
}

pub(super) fn decode_all(
    input: impl Read + Seek,
    limits: &DecodeLimits,
    builder: &mut RowBuilder,
) -> Result<Summary, DecodeError<RowError>> {
    let summary = index::decode(input, limits, builder)?;
    builder.flush().map_err(DecodeError::Sink)?;
    Ok(summary)
}

pub(super) fn resource_exhausted(error: &Exhausted) -> SyncError {
    SyncError::transient("ResourceExhausted", error.to_string())
}

fn filter_failed(error: &FilterError) -> SyncError {
    SyncError::transient(error.reason(), error.to_string())
}

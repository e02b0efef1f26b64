//! Decodes a Helm index.

use std::collections::HashMap;
use std::io::{Read, Seek};

use super::chart_rows::{BuiltRows, RowBuilder, RowError};
use super::filter::filter_failed;
use super::index_cache::{IndexCache, load_index_cache};
use super::request::{SyncAborted, SyncError, SyncRequest};
use super::shrink_guard as guard;
use super::verify::{FullDecode, find_difference, full_decode};
use super::{DecodedRows, Prepared, Retain, SyncerRun, WorkPermits, refuse, resource_exhausted, spool_error};
use crate::budget::{Reservation, WorkError};
use crate::catalog::OciRemovals;
use crate::helm::index::{self, DecodeError, DecodeLimits, SharedSplit, Summary};
use crate::http::{Body, Validators};

pub(super) async fn decode_index(
    run: &SyncerRun<'_>,
    body: Body,
    split: &SharedSplit,
) -> Result<Prepared, SyncAborted> {
    let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
    // If the incremental decoder panics, the full decoder may still work.
    for is_incremental in [true, false] {
        let decoded = decode_once(run, is_incremental, body.clone(), split.clone());
        if let Some(prepared) = decoded.await? {
            return Ok(prepared);
        }
        tracing::error!(sha256, "index decoder panicked");
    }
    // The same bytes would panic again, so that the index is refused.
    let message = "index decoder panicked; please report this bug with the index file";
    let refused = refuse(&run.request.spec, validators, sha256, "InternalError", message);
    Ok(Prepared::Refused(refused))
}

/// Decodes on a blocking thread, since an index may take a second and a filter longer. Returns `None` if the decoder
/// panicked.
async fn decode_once(
    run: &SyncerRun<'_>,
    is_incremental: bool,
    body: Body,
    shared: SharedSplit,
) -> Result<Option<Prepared>, SyncAborted> {
    let permits = match run.reserve(run.syncer.context.index_memory).await {
        Ok(permits) => permits,
        Err(error) => return Ok(Some(Prepared::Failed(resource_exhausted(&error)))),
    };
    // Read only now: it is a part of the reserved memory.
    let cache = if is_incremental {
        load_index_cache(run).await?
    } else {
        None
    };
    let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
    let builder = run.builder();
    let verification = run.syncer.context.verify_delta.then(|| run.builder());
    let limits = run.syncer.context.decode_limits;
    let work = move || {
        let outcome = decode(body, &shared, &limits, cache, builder, verification);
        (outcome, permits)
    };
    let (outcome, WorkPermits { mut memory, .. }) = match run.compute(work).await {
        Ok(done) => done,
        Err(WorkError::Exhausted(error)) => return Ok(Some(Prepared::Failed(resource_exhausted(&error)))),
        Err(WorkError::Panicked) => return Ok(None),
    };
    memory.shrink(outcome.0.rows.commit_memory());
    let outcome = choose_outcome(run, outcome, &sha256).await?;
    conclude(&run.request, outcome, memory, sha256, validators).map(Some)
}

/// Returns the result of the full decode if it differs.
async fn choose_outcome(
    run: &SyncerRun<'_>,
    outcome: (DecodeOutcome, Option<FullDecode>),
    sha256: &str,
) -> Result<DecodeOutcome, SyncAborted> {
    let (outcome, full) = outcome;
    let (catalog, name) = (run.catalog(), &run.request.spec.name);
    if let (Ok(summary), Some(full)) = (&outcome.result, full)
        && let Some(difference) = find_difference(catalog, name, summary, &outcome.rows, &full).await?
    {
        tracing::error!(
            sha256,
            difference,
            "incremental decode differs from full decode, using full decode; please report this bug with both index files"
        );
        run.syncer.metrics.verification_failure();
        return Ok(DecodeOutcome {
            result: full.result,
            rows: full.rows,
            cache: None,
        });
    }
    Ok(outcome)
}

fn conclude(
    request: &SyncRequest,
    mut outcome: DecodeOutcome,
    memory: Reservation,
    sha256: String,
    validators: Validators,
) -> Result<Prepared, SyncAborted> {
    let digests = outcome.cache.map(|cache| cache.digest_update(&mut outcome.rows));
    Ok(match outcome.result {
        Ok(mut summary) => {
            for chart in outcome.rows.duplicates {
                let reason = "another chart of the index has the same name";
                summary.skipped.add(&chart, None, reason);
            }
            Prepared::Index(Box::new(DecodedRows {
                spool: outcome.rows.spool,
                filtered_out: outcome.rows.filtered_out,
                deprecated: outcome.rows.deprecated,
                baseline: guard::baseline(&summary),
                summary,
                sha256,
                validators,
                remaining: None,
                retain: Retain::Charts(HashMap::new()),
                gone: OciRemovals::default(),
                digests,
                memory,
            }))
        }
        Err(DecodeError::Sink(error)) => return row_failed(request, error, validators, sha256),
        Err(DecodeError::Read(error)) => Prepared::Failed(spool_error(&error)),
        Err(error) => Prepared::Refused(refuse(&request.spec, validators, sha256, error.reason(), &error)),
    })
}

pub(super) fn row_failed(
    request: &SyncRequest,
    error: RowError,
    validators: Validators,
    sha256: String,
) -> Result<Prepared, SyncAborted> {
    Ok(match error {
        RowError::Cancelled => return Err(SyncAborted::Cancelled),
        // Without cached charts there are no such duplicates.
        RowError::DuplicateId => Prepared::Failed(SyncError::transient("DecodeInterrupted", error.to_string())),
        RowError::Spool(error) => Prepared::Failed(spool_error(&error)),
        // Not remembered with the index: the fault may be of the machine.
        RowError::Filter(error) if error.is_transient() => {
            Prepared::Failed(filter_failed(request.previous.as_ref(), &error))
        }
        // The same filter fails again on the same charts.
        RowError::Filter(error) => Prepared::Refused(refuse(&request.spec, validators, sha256, error.reason(), &error)),
    })
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

//! Decodes a Helm index and applies the shrink guard.

use std::collections::HashMap;
use std::io::{Read, Seek};

use super::chart_rows::{BuiltRows, RowBuilder, RowError};
use super::index_cache::IndexCache;
use super::request::{SyncAborted, SyncError};
use super::shrink_guard as guard;
use super::verify::{FullDecode, full_decode};
use super::{Decoded, Prepared, Retain, Run, spool_error};
use crate::catalog::{Baseline, DigestUpdate, OciRemovals, Refused};
use crate::controllers::apprepository::SHRINK_REFUSED;
use crate::controllers::apprepository::decision::has_lost_charts;
use crate::helm::index::{self, DecodeError, DecodeLimits, SharedSplit, Summary};
use crate::http::{Body, Validators};
use crate::jq::{self as filter, Filter, FilterError};

impl Run<'_> {
    pub(super) async fn decode(
        &self,
        body: Body,
        digests: &SharedSplit,
        filter: Option<Filter>,
    ) -> Result<Prepared, SyncAborted> {
        let cache = self.index_cache().await?;
        let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
        // If the incremental decoder panics, the full decoder may still work.
        let tries = if cache.is_some() { vec![cache, None] } else { vec![None] };
        for cache in tries {
            let decoded = self.decode_with_cache(
                cache,
                body.clone(),
                digests.clone(),
                filter.as_ref().map(Filter::with_full_time_budget),
            );
            if let Ok(prepared) = decoded.await? {
                return Ok(prepared);
            }
            tracing::error!(sha256, "index decoder panicked");
        }
        // The same bytes would panic again, so that the index is refused.
        let message = "index decoder panicked; please report this bug with the index file";
        let refused = self.refuse(validators, sha256, "InternalError", message.to_owned());
        Ok(Prepared::Refused(refused))
    }

    /// Decodes on a separate thread, since an index may take a second and a filter longer.
    async fn decode_with_cache(
        &self,
        cache: Option<IndexCache>,
        body: Body,
        shared: SharedSplit,
        filter: Option<Filter>,
    ) -> Result<Result<Prepared, DecoderPanicked>, SyncAborted> {
        let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
        let builder = self.builder(filter.clone());
        let verification = self
            .syncer
            .context
            .verify_delta
            .then(|| self.builder(filter.as_ref().map(Filter::with_full_time_budget)));
        let limits = self.syncer.context.decode_limits;
        let task = filter::on_large_stack(move || decode(body, &shared, &limits, cache, builder, verification));
        let outcome = match task.await {
            Ok(outcome) => outcome,
            Err(error) if error.is_transient() => return Ok(Ok(Prepared::Failed(resource_exhausted(&error)))),
            Err(_) => return Ok(Err(DecoderPanicked)),
        };
        let DecodeOutcome {
            result,
            mut rows,
            cache,
        } = self.verified(outcome, &sha256).await?;
        let digests = cache.map(|cache| cache.digest_update(&mut rows));
        self.prepared(result, rows, digests, sha256, validators).map(Ok)
    }

    /// Returns the result of the full decode if it differs.
    async fn verified(
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

    fn prepared(
        &self,
        result: Result<Summary, DecodeError<RowError>>,
        rows: BuiltRows,
        digests: Option<DigestUpdate>,
        sha256: String,
        validators: Validators,
    ) -> Result<Prepared, SyncAborted> {
        let BuiltRows {
            spool,
            filtered_out,
            duplicates,
            ..
        } = rows;
        Ok(match result {
            Ok(mut summary) => {
                for chart in duplicates {
                    let reason = "another chart of the index has the same name";
                    summary.skipped.add(&chart, None, reason);
                }
                self.check_shrink(Decoded {
                    spool,
                    filtered_out,
                    summary,
                    sha256,
                    validators,
                    remaining: None,
                    retain: Retain::Charts(HashMap::new()),
                    gone: OciRemovals::default(),
                    digests,
                })
            }
            Err(DecodeError::Sink(error)) => return self.row_failed(error, validators, sha256),
            Err(DecodeError::Read(error)) => Prepared::Failed(spool_error(&error)),
            Err(error) => Prepared::Refused(self.refuse(validators, sha256, error.reason(), error.to_string())),
        })
    }

    pub(super) fn builder(&self, filter: Option<Filter>) -> RowBuilder {
        RowBuilder::new(
            self.request.spec.clone(),
            filter,
            self.syncer.context.spool_dir.clone(),
            self.cancel.clone(),
        )
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
            // The same filter fails again on the same charts.
            RowError::Filter(error) => Ok(Prepared::Refused(self.refuse(
                validators,
                sha256,
                error.reason(),
                error.to_string(),
            ))),
        }
    }

    /// Compiles the filter before anything is fetched: an invalid one costs no request.
    pub(super) async fn filter(&self) -> Result<Option<Filter>, Prepared> {
        let Some(rule) = self.request.spec.filter.clone() else {
            return Ok(None);
        };
        let limits = self.syncer.context.filter_limits;
        let compiled = filter::on_large_stack(move || Filter::compile(&rule, limits)).await;
        let failed = match compiled {
            Ok(Ok(filter)) => return Ok(Some(filter)),
            Ok(Err(error)) => SyncError::stalled(error.reason(), error.to_string()),
            Err(error) if error.is_transient() => resource_exhausted(&error),
            Err(_) => {
                let message = "filter compiler panicked; please report this bug with the filter";
                SyncError::stalled("InvalidFilter", message)
            }
        };
        Err(Prepared::Failed(failed))
    }

    pub(super) fn check_shrink(&self, mut decoded: Decoded) -> Prepared {
        let allowed = self.request.spec.allow_shrink.as_deref();
        let Err(shrunk) = guard::check(self.baseline(), &decoded.summary, allowed) else {
            return Prepared::Index(Box::new(decoded));
        };
        if (decoded.remaining.as_ref()).is_some_and(|remaining| remaining.listing_failed) {
            // The missing charts may be those that could not be listed: retain everything until they can.
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

    /// Returns the counts of the last accepted index, if they are comparable.
    pub(super) fn baseline(&self) -> Option<&Baseline> {
        // Another source has another size, and lost charts are restored from any index.
        let key = &self.request.spec.change_key;
        (self.request.previous.as_ref())
            .filter(|previous| key.has_source_of(&previous.change_key) && !has_lost_charts(previous))
            .and_then(|previous| previous.baseline.as_ref())
    }
}

struct DecoderPanicked;

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
        None => index::decode(&mut input, limits, &mut builder),
    };
    let rows = builder.finish();
    let is_delta = result.is_ok() && !rows.unchanged.is_empty();
    let full = verification
        .filter(|_| is_delta)
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
    let result = index::decode_changes(&mut input, limits, &cache.known, shared, builder);
    if !matches!(result, Err(DecodeError::Sink(RowError::DuplicateId))) {
        return result;
    }
    cache.reset();
    builder.reset();
    index::decode_changes(&mut input, limits, &cache.known, shared, builder)
}

/// Reports a failure to start a thread, which is transient.
pub(super) fn resource_exhausted(error: &FilterError) -> SyncError {
    SyncError::transient("ResourceExhausted", error.to_string())
}

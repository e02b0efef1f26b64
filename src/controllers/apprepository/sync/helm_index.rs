//! Decodes a Helm index and applies the shrink guard.

use std::collections::HashMap;
use std::io::{Read, Seek};

use super::chart_rows::{Selected, Selection, SelectionError};
use super::index_cache::Memory;
use super::request::{SyncAborted, SyncError};
use super::shrink_guard as guard;
use super::verify::{Whole, whole};
use super::{Decoded, Found, Run, Stays, spool_failed};
use crate::catalog::{Baseline, DigestUpdate, OciGone, Refused};
use crate::controllers::apprepository::SHRINK_REFUSED;
use crate::controllers::apprepository::decision::is_lost;
use crate::helm::index::{self, DecodeError, DecodeLimits, SharedSplit, Summary};
use crate::http::{Body, Validators};
use crate::jq::{self as filter, Filter, FilterError};

impl Run<'_> {
    pub(super) async fn decode(
        &self,
        body: Body,
        cuts: &SharedSplit,
        filter: Option<Filter>,
    ) -> Result<Found, SyncAborted> {
        let memory = self.memory().await?;
        let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
        // If the incremental decoder panics, the full decoder may still work.
        let tries = if memory.is_some() {
            vec![memory, None]
        } else {
            vec![None]
        };
        for memory in tries {
            let decoded = self.decode_knowing(memory, body.clone(), cuts.clone(), filter.as_ref().map(Filter::anew));
            if let Ok(found) = decoded.await? {
                return Ok(found);
            }
            tracing::error!(repository = %self.request.declaration.name, sha256, "the decoder has panicked over an index");
        }
        // The same bytes would panic again, so that the index is refused.
        let message = "the index can't be decoded because of a defect in Portolan; please report it, with the index";
        let refused = self.refuse(validators, sha256, "DecoderFailed", message.to_owned());
        Ok(Found::Refused(refused))
    }

    /// Decodes on a separate thread, since an index may take a second and a filter longer.
    async fn decode_knowing(
        &self,
        memory: Option<Memory>,
        body: Body,
        shared: SharedSplit,
        filter: Option<Filter>,
    ) -> Result<Result<Found, Panicked>, SyncAborted> {
        let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
        let selection = self.selection(filter.clone());
        let verifying = self
            .syncer
            .context
            .verify_delta
            .then(|| self.selection(filter.as_ref().map(Filter::anew)));
        let limits = self.syncer.context.decode_limits;
        let task = filter::on_large_stack(move || decode(body, &shared, &limits, memory, selection, verifying));
        let outcome = match task.await {
            Ok(outcome) => outcome,
            Err(error) if error.is_transient() => return Ok(Ok(Found::Failed(no_thread(&error)))),
            Err(_) => return Ok(Err(Panicked)),
        };
        let Outcome {
            result,
            mut selected,
            memory,
        } = self.verified(outcome, &sha256).await?;
        let cuts = memory.map(|memory| memory.to_be_stored(&mut selected));
        self.found(result, selected, cuts, sha256, validators).map(Ok)
    }

    /// Returns the result of the full decode if it differs.
    async fn verified(&self, outcome: (Outcome, Option<Whole>), sha256: &str) -> Result<Outcome, SyncAborted> {
        let (outcome, whole) = outcome;
        if let (Ok(summary), Some(whole)) = (&outcome.result, whole)
            && let Some(difference) = self.difference(summary, &outcome.selected, &whole).await?
        {
            tracing::error!(
                repository = %self.request.declaration.name, sha256, difference,
                "the changes of the index are not what the whole gives; the whole counts. Please report this defect, with both indexes"
            );
            self.syncer.metrics.delta_mismatch();
            return Ok(Outcome {
                result: whole.result,
                selected: whole.selected,
                memory: None,
            });
        }
        Ok(outcome)
    }

    fn found(
        &self,
        result: Result<Summary, DecodeError<SelectionError>>,
        selected: Selected,
        cuts: Option<DigestUpdate>,
        sha256: String,
        validators: Validators,
    ) -> Result<Found, SyncAborted> {
        let Selected {
            spool,
            filtered_out,
            twins,
            ..
        } = selected;
        Ok(match result {
            Ok(mut summary) => {
                for chart in twins {
                    summary
                        .skipped
                        .add(&chart, None, "another chart of the index has the same name");
                }
                self.judge(Decoded {
                    spool,
                    filtered_out,
                    summary,
                    sha256,
                    validators,
                    rest: None,
                    stays: Stays::Held(HashMap::new()),
                    gone: OciGone::default(),
                    cuts,
                })
            }
            Err(DecodeError::Sink(error)) => return self.unselected(error, validators, sha256),
            Err(DecodeError::Read(error)) => Found::Failed(spool_failed(&error)),
            Err(error) => Found::Refused(self.refuse(validators, sha256, error.reason(), error.to_string())),
        })
    }

    pub(super) fn selection(&self, filter: Option<Filter>) -> Selection {
        Selection::new(
            self.request.declaration.clone(),
            filter,
            self.syncer.context.spool_dir.clone(),
            self.cancel.clone(),
        )
    }

    pub(super) fn unselected(
        &self,
        error: SelectionError,
        validators: Validators,
        sha256: String,
    ) -> Result<Found, SyncAborted> {
        match error {
            SelectionError::Cancelled => Err(SyncAborted::Cancelled),
            // Without cached charts there are no such duplicates.
            SelectionError::Twins => Ok(Found::Failed(SyncError {
                reason: "DecodeInterrupted".to_owned(),
                message: error.to_string(),
                transient: true,
                retry_after: None,
            })),
            SelectionError::Spool(error) => Ok(Found::Failed(spool_failed(&error))),
            // The same filter fails again on the same charts.
            SelectionError::Filter(error) => Ok(Found::Refused(self.refuse(
                validators,
                sha256,
                error.reason(),
                error.to_string(),
            ))),
        }
    }

    /// Compiles the filter before anything is fetched: an invalid one costs no request.
    pub(super) async fn filter(&self) -> Result<Option<Filter>, Found> {
        let Some(rule) = self.request.declaration.filter.clone() else {
            return Ok(None);
        };
        let limits = self.syncer.context.filter_limits;
        let compiled = filter::on_large_stack(move || Filter::compile(&rule, limits)).await;
        let failed = |reason: &str, message: String| {
            Found::Failed(SyncError {
                reason: reason.to_owned(),
                message,
                transient: false,
                retry_after: None,
            })
        };
        match compiled {
            Err(error) if error.is_transient() => Err(Found::Failed(no_thread(&error))),
            Ok(Ok(filter)) => Ok(Some(filter)),
            Ok(Err(error)) => Err(failed(error.reason(), error.to_string())),
            Err(_) => Err(failed(
                "InvalidFilter",
                "the filter can't be compiled because of a defect in Portolan; please report it, with the filter"
                    .to_owned(),
            )),
        }
    }

    pub(super) fn judge(&self, mut decoded: Decoded) -> Found {
        let allowed = self.request.declaration.allow_shrink.as_deref();
        let Err(shrunk) = guard::check(self.baseline(), &decoded.summary, allowed) else {
            return Found::Index(Box::new(decoded));
        };
        if decoded.rest.as_ref().is_some_and(|rest| rest.is_in_the_dark) {
            // The missing charts may be those that could not be listed: retain everything until they can.
            decoded.stays = Stays::All;
            decoded.gone = OciGone::default();
            return Found::Index(Box::new(decoded));
        }
        let refused = self.refuse(decoded.validators, decoded.sha256, SHRINK_REFUSED, shrunk.to_string());
        Found::Refused(Refused {
            confirm: Some(shrunk.digest().to_owned()),
            ..refused
        })
    }

    /// Returns the counts of the last accepted index, if they are comparable.
    pub(super) fn baseline(&self) -> Option<&Baseline> {
        // Another source has another size, and lost charts are restored from any index.
        let key = &self.request.declaration.change_key;
        (self.request.previous.as_ref())
            .filter(|previous| key.has_source_of(&previous.change_key) && !is_lost(previous))
            .and_then(|previous| previous.baseline.as_ref())
    }
}

struct Panicked;

struct Outcome {
    result: Result<Summary, DecodeError<SelectionError>>,
    selected: Selected,
    memory: Option<Memory>,
}

/// Decodes the changes, and the full index too if it is to be verified.
fn decode(
    body: Body,
    shared: &SharedSplit,
    limits: &DecodeLimits,
    mut memory: Option<Memory>,
    mut selection: Selection,
    verifying: Option<Selection>,
) -> (Outcome, Option<Whole>) {
    let mut input = body.into_reader();
    if verifying.is_some() {
        selection = selection.with_fingerprints();
    }
    let result = match &mut memory {
        Some(memory) => {
            selection = selection.with_fates(std::mem::take(&mut memory.fates));
            decode_changes(&mut input, shared, limits, memory, &mut selection)
        }
        None => index::decode(&mut input, limits, &mut selection),
    };
    let selected = selection.finish();
    let is_delta = result.is_ok() && !selected.unchanged.is_empty();
    let whole = verifying
        .filter(|_| is_delta)
        .map(|selection| whole(input, limits, selection.with_fingerprints()));
    let outcome = Outcome {
        result,
        selected,
        memory,
    };
    (outcome, whole)
}

/// Decodes the changes, or everything if a cached chart shares its ID with another.
fn decode_changes(
    mut input: impl Read + Seek,
    shared: &SharedSplit,
    limits: &DecodeLimits,
    memory: &mut Memory,
    selection: &mut Selection,
) -> Result<Summary, DecodeError<SelectionError>> {
    let result = index::decode_changes(&mut input, limits, &memory.known, shared, selection);
    if !matches!(result, Err(DecodeError::Sink(SelectionError::Twins))) {
        return result;
    }
    memory.forget();
    selection.forget();
    index::decode_changes(&mut input, limits, &memory.known, shared, selection)
}

/// Reports a failure to start a thread, which is transient.
pub(super) fn no_thread(error: &FilterError) -> SyncError {
    SyncError {
        reason: "NoThread".to_owned(),
        message: error.to_string(),
        transient: true,
        retry_after: None,
    }
}

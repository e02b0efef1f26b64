//! An index of which most is known is cut while it comes: nothing of what has not changed is kept, not even for a moment.
//!
//! ```text
//!  200 ─► memory of the last sync ─► sieve ◄─ bytes ─► SHA-256 ─┬─ as the last time ─► unchanged
//!                                                               ├─ told by its parts ─► what has changed is decoded
//!                                                               └─ otherwise ─► fetched once more, as a whole
//! ```
//! So it is where the server says by itself that nothing has changed: then a body is another than the last. Of a server that does not,
//! most bodies are the last one again, and to hash them is cheaper than to cut them too. What is remembered is read only when a body
//! comes: an answer of 304 needs none of it. Whoever has to share a body with others gets it whole.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;

use super::memory::Memory;
use super::selection::{Selected, SelectionError};
use super::{Found, Run};
use crate::filter::{self, Filter};
use crate::repository::execute::AttemptError;
use crate::source::fetch::{Body, Tap, Tapping};
use crate::source::index::{self, DecodeError, Sieve, Summary};

/// What a body has come to so far, if it came to a sieve. A handle: clones are the same.
#[derive(Clone, Default)]
pub(super) struct Sifting(Arc<Mutex<Option<Sifter>>>);

struct Sifter {
    memory: Memory,
    sieve: Sieve,
}

/// What came of an index that was cut while it came.
struct Outcome {
    /// Nothing: the whole is needed.
    result: Option<Result<Summary, DecodeError<SelectionError>>>,
    selected: Selected,
    memory: Memory,
    is_json: bool,
}

impl Sifting {
    fn tap(&self, memory: Memory, sieve: Sieve) -> Tap {
        *self.lock() = Some(Sifter { memory, sieve });
        let sifting = self.clone();
        Box::new(move |bytes| match &mut *sifting.lock() {
            Some(sifter) => sifter.sieve.take(bytes),
            None => Err(io::Error::other("the body was taken before it was there")),
        })
    }

    fn take(&self) -> Option<Sifter> {
        self.lock().take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Sifter>> {
        // Who panics over a body takes the attempt with him.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run<'_> {
    /// What a new body goes to, where it need not be there as a whole: of an index that is verified, or of which nothing counts that
    /// is remembered, it has to be, and what may be no other than the last is better hashed first.
    pub(super) fn tapping(&self, sifting: &Sifting) -> Option<Tapping> {
        let last = self.last_success()?;
        let is_told = last.etag.is_some() || last.last_modified.is_some();
        if self.tools.verify_delta || !is_told {
            return None;
        }
        let (memory, sifting) = (self.remembered(), sifting.clone());
        let (limits, spool_dir) = (self.tools.decode_limits, self.tools.spool_dir.clone());
        let tap = async move {
            // What is the matter is found out again by who decodes the whole.
            let memory = memory.await.ok().flatten()?;
            if memory.known.charts.is_empty() || !memory.cuts_every_notation() {
                return None;
            }
            let sieve = Sieve::new(Arc::clone(&memory.known), &limits, spool_dir.as_deref());
            Some(sifting.tap(memory, sieve))
        };
        Some(Box::new(move || tap.boxed()))
    }

    /// Decodes what has changed of a body that went to a sieve. None: it is needed as a whole.
    pub(super) async fn decode_sifted(
        &self,
        body: &Body,
        sifting: &Sifting,
        filter: Option<Filter>,
    ) -> Result<Option<Found>, AttemptError> {
        let Some(sifter) = sifting.take() else { return Ok(None) };
        let selection = self.selection(filter);
        let limits = self.tools.decode_limits;
        let task = filter::on_large_stack(move || {
            let Sifter { mut memory, sieve } = sifter;
            let mut sifted = sieve.finish()?;
            let mut selection = selection
                .with_fates(std::mem::take(&mut memory.fates))
                .with_rows(std::mem::take(&mut memory.rows));
            let (result, is_json) = match &mut sifted {
                Some(sifted) => {
                    let result = index::decode_sifted(sifted, &limits, &memory.known, &mut selection);
                    (result.transpose(), sifted.is_json)
                }
                None => (None, false),
            };
            Ok::<_, io::Error>(Outcome {
                result,
                selected: selection.finish(),
                memory,
                is_json,
            })
        });
        // Whatever has gone wrong, the whole is tried after it, and tells what it is.
        let Ok(Ok(outcome)) = task.await else { return Ok(None) };
        let Outcome {
            result: Some(result),
            mut selected,
            memory,
            is_json,
        } = outcome
        else {
            return Ok(None);
        };
        if matches!(result, Err(DecodeError::Sink(SelectionError::Twins))) {
            return Ok(None);
        }
        let cuts = memory.to_be_stored(&mut selected, is_json);
        let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
        self.found(result, selected, Some(cuts), sha256, validators).map(Some)
    }
}

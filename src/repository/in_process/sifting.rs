//! An index of which most is known is cut while it comes: nothing of what has not changed is kept once its chart is over.
//!
//! ```text
//!  200 ─► memory of the last sync ─► sieve ◄─ bytes ─► SHA-256 ─┬─ as the last time ─► unchanged
//!                                                               ├─ told by its parts ─► what has changed is decoded
//!                                                               └─ otherwise ─► fetched once more, as a whole
//! ```
//! So it is where the server has said before that nothing has changed: then a body is most likely another than the last. Of a server
//! that never does, most bodies are the last one again, and to hash them is cheaper than to cut them too. What is remembered is read
//! only when a body comes: an answer of 304 needs none of it. Whoever has to share a body with others gets it whole, and so does
//! whoever had to fetch one twice, until a whole one is told by its parts; after the third time, until the process ends.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;

use super::decode::no_thread;
use super::memory::Memory;
use super::selection::{Selected, SelectionError};
use super::{Found, Run, spool_failed};
use crate::catalog::RepositoryName;
use crate::filter::{self, Filter};
use crate::repository::execute::{AttemptError, Failed};
use crate::source::fetch::{Body, Tap, Tapping};
use crate::source::index::{self, DecodeError, Sieve, Summary};

/// How long the database may take while a server waits for its body to be read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Repositories that are remembered to need whole bodies. They would be other names each time: then all are forgotten.
const KNOWN: usize = 20_000;

/// How often a repository may have fetched a body twice and yet be believed to be one that can be told by its parts.
const TWICE: u8 = 3;

/// The repositories that had to fetch a body twice. A handle: clones are the same.
#[derive(Clone, Default)]
pub(super) struct Wholes(Arc<Mutex<HashMap<RepositoryName, Fetched>>>);

/// How a repository fetches its bodies.
#[derive(Default)]
struct Fetched {
    whole: bool,
    /// How often it has fetched one twice.
    twice: u8,
}

impl Wholes {
    fn has(&self, name: &RepositoryName) -> bool {
        self.lock().get(name).is_some_and(|fetched| fetched.whole)
    }

    fn add(&self, name: &RepositoryName) {
        let mut wholes = self.lock();
        if wholes.len() >= KNOWN {
            wholes.clear();
        }
        let fetched = wholes.entry(name.clone()).or_default();
        fetched.whole = true;
        fetched.twice = fetched.twice.saturating_add(1);
    }

    /// A whole body of this repository was told by its parts.
    pub(super) fn told_by_parts(&self, name: &RepositoryName) {
        if let Some(fetched) = self.lock().get_mut(name) {
            fetched.whole = fetched.twice >= TWICE;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RepositoryName, Fetched>> {
        // The map is whole between any two statements, so a panic elsewhere leaves nothing to mend.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a body has come to so far, if it came to a sieve. A handle: clones are the same.
#[derive(Clone, Default)]
pub(super) struct Sifting(Arc<Mutex<Option<Sifter>>>);

struct Sifter {
    memory: Memory,
    sieve: Sieve,
}

/// What came of an index that was cut while it came.
struct Outcome {
    result: Result<Summary, DecodeError<SelectionError>>,
    selected: Selected,
    memory: Memory,
    is_json: bool,
}

impl Sifting {
    fn tap(&self, memory: Memory, sieve: Sieve) -> Tap {
        *self.lock() = Some(Sifter { memory, sieve });
        let sifting = self.clone();
        Box::new(move |bytes| {
            let mut sifter = sifting.lock();
            let Some(Sifter { sieve, .. }) = &mut *sifter else {
                return Ok(());
            };
            // What a defect makes of the parts need not be what it makes of the whole.
            let taken = catch_unwind(AssertUnwindSafe(|| sieve.take(bytes).map(|()| sieve.is_in_vain())));
            let is_in_vain = taken.unwrap_or(Ok(true))?;
            if is_in_vain {
                *sifter = None;
            }
            Ok(())
        })
    }

    fn take(&self) -> Option<Sifter> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sifter>> {
        // A panic while it is held is caught, and takes what it holds away.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run<'_> {
    /// What a new body goes to, where it need not be there as a whole: of an index that is verified, or of which nothing counts that
    /// is remembered, it has to be, and what may be no other than the last is better hashed first.
    pub(super) fn tapping(&self, sifting: &Sifting) -> Option<Tapping> {
        let last = self.last_success()?;
        let is_told = last.etag.is_some() || last.last_modified.is_some();
        let name = &self.attempt.declaration.name;
        if !is_told || last.refused.is_some() || self.tools.verify_delta || self.wholes.has(name) {
            return None;
        }
        let (memory, sifting) = (self.memory(), sifting.clone());
        let (limits, spool_dir) = (self.tools.decode_limits, self.tools.spool_dir.clone());
        let tap = async move {
            // What is the matter is found out again by who decodes the whole.
            let memory = tokio::time::timeout(PATIENCE, memory).await.ok()?.ok()??;
            if !memory.is_of_cuts() {
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
        let outcome = match self.sifted(sifting, filter).await {
            Ok(outcome) => outcome,
            Err(failed) => return Ok(Some(Found::Failed(failed))),
        };
        self.metrics.streamed(outcome.is_some());
        let Some(outcome) = outcome else {
            let name = &self.attempt.declaration.name;
            tracing::info!(repository = %name, "the index can't be told by its parts, and is fetched once more as a whole");
            self.wholes.add(name);
            return Ok(None);
        };
        let Outcome {
            result,
            mut selected,
            memory,
            is_json,
        } = outcome;
        let cuts = memory.to_be_stored(&mut selected, is_json);
        let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
        self.found(result, selected, Some(cuts), sha256, validators).map(Some)
    }

    /// Finishes the sieve and decodes what it has kept. None: that does not tell the index; the whole does.
    async fn sifted(&self, sifting: &Sifting, filter: Option<Filter>) -> Result<Option<Outcome>, Failed> {
        let Some(Sifter { mut memory, sieve }) = sifting.take() else {
            return Ok(None);
        };
        let selection = self.selection(filter);
        let limits = self.tools.decode_limits;
        let task = filter::on_large_stack(move || {
            let Some(mut sifted) = sieve.finish()? else {
                return Ok(None);
            };
            let mut selection = selection
                .with_fates(std::mem::take(&mut memory.fates))
                .with_rows(std::mem::take(&mut memory.rows));
            let result = match index::decode_sifted(&mut sifted, &limits, &memory.known, &mut selection).transpose() {
                None | Some(Err(DecodeError::Sink(SelectionError::Twins))) => return Ok(None),
                Some(Err(DecodeError::Read(error))) => return Err(error),
                Some(result) => result,
            };
            Ok(Some(Outcome {
                result,
                selected: selection.finish(),
                memory,
                is_json: sifted.is_json,
            }))
        });
        match task.await {
            Ok(outcome) => outcome.map_err(|error| spool_failed(&error)),
            Err(error) if error.is_transient() => Err(no_thread(&error)),
            // A panic, which has been told where it was. What a defect makes of the parts need not be what it makes of the whole.
            Err(_) => Ok(None),
        }
    }
}

//! Deduplicates downloads of identical requests made by several AppRepositories.
//!
//! ```text
//! 09:10:00  tick of the schedule            oldest acceptable response: 09:10:00
//! 09:10:02  team-a/bitnami ─► fetch, started at 09:10:02 ─┬─► team-a
//! 09:10:02  team-b/bitnami ─► joins the request ──────────┼─► team-b
//! 09:10:41  team-c/bitnami ─► cached response is fresh ───┴─► team-c
//! 09:10:50  team-d, requested sync ─► needs a newer response ─► fetch
//! ```
//! A response serves only identical requests: same URL, credentials, TLS settings, proxies and limits.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use jiff::Timestamp;

use crate::api::NamespacedName;
use crate::helm::index::SharedSplit;
use crate::http::{FetchError, Fetched, Fetcher, Limits, Requester, Validators};

/// TTL of a shared response. Must exceed the schedule jitter (1 min).
const HELD: Duration = Duration::from_secs(90);
/// Maximum size of all cached bodies. Other responses are fetched by each requester.
const HELD_IN_MEMORY: u64 = 8 * 1024 * 1024;
const HELD_IN_FILES: u64 = 512 * 1024 * 1024;
/// Maximum number of request keys; unused ones are dropped beyond it.
const KNOWN: usize = 20_000;
/// Concurrent requests for one key, which differ by their validators.
const AT_ONCE: usize = 4;

/// Shared responses; a handle, cheap to clone.
#[derive(Clone, Default)]
pub(super) struct DownloadCache(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    rounds: HashMap<Asked, Round>,
    held: HeldBytes,
}

#[derive(Default)]
struct HeldBytes {
    in_memory: u64,
    in_files: u64,
}

impl HeldBytes {
    fn take(&mut self, result: &Result) -> bool {
        let (in_memory, in_files) = Self::of(result);
        let has_room = self.in_memory + in_memory <= HELD_IN_MEMORY && self.in_files + in_files <= HELD_IN_FILES;
        if has_room {
            self.in_memory += in_memory;
            self.in_files += in_files;
        }
        has_room
    }

    fn give_back(&mut self, request: &UnderWay) {
        if let Answered::Held(result) = &request.answer {
            let (in_memory, in_files) = Self::of(result);
            self.in_memory = self.in_memory.saturating_sub(in_memory);
            self.in_files = self.in_files.saturating_sub(in_files);
        }
    }

    fn of(result: &Result) -> (u64, u64) {
        match &result.fetched {
            Ok(Fetched::Body(body)) if body.is_in_memory() => (body.bytes, 0),
            Ok(Fetched::Body(body)) => (0, body.bytes),
            Ok(Fetched::NotModified) | Err(_) => (0, 0),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Asked {
    url: String,
    by: Requester,
    limits: Limits,
}

#[derive(Default)]
struct Round {
    /// At most two of the requesters. Responses for a single requester are not cached.
    askers: HashSet<NamespacedName>,
    requests: Vec<UnderWay>,
}

type Result = Arc<Shareable>;

pub(super) struct Shareable {
    pub(super) fetched: std::result::Result<Fetched, FetchError>,
    pub(super) cuts: SharedSplit,
}

type Fetch = BoxFuture<'static, Result>;

struct UnderWay {
    begun: Timestamp,
    validators: Option<Validators>,
    answer: Answered,
}

enum Answered {
    /// Driven by the requesters that wait for it; canceled with the last one.
    NotYet(WeakShared<Fetch>),
    Held(Result),
}

pub(super) struct Wanted<'w> {
    pub(super) asker: &'w NamespacedName,
    pub(super) session: &'w Fetcher,
    pub(super) url: &'w url::Url,
    pub(super) validators: Option<Validators>,
    pub(super) limits: Limits,
    pub(super) since: Timestamp,
}

/// A response; `is_initiator` is true for the requester that sent the request.
pub(super) struct Answer {
    pub(super) result: Result,
    pub(super) is_own: bool,
}

enum Source {
    Held(Result),
    Joined(Shared<Fetch>, Timestamp),
    Own(Shared<Fetch>, Timestamp),
}

impl DownloadCache {
    /// Fetches, or returns a fresh response of an identical request.
    pub(super) async fn get(&self, mut wanted: Wanted<'_>) -> Answer {
        let asked = Asked {
            url: wanted.url.to_string(),
            by: wanted.session.requester(),
            limits: wanted.limits,
        };
        let answer = self.answer(&asked, &wanted).await;
        let is_out_of_time = matches!(
            answer.result.fetched,
            Err(FetchError::Timeout { .. } | FetchError::Stalled { .. })
        );
        if answer.is_own || !is_out_of_time {
            return answer;
        }
        // The time limit belonged to another requester, so that little time may have been left.
        wanted.since = Timestamp::now();
        self.answer(&asked, &wanted).await
    }

    async fn answer(&self, asked: &Asked, wanted: &Wanted<'_>) -> Answer {
        let (fetch, begun, is_own) = match self.source(asked, wanted) {
            Source::Held(result) => return Answer { result, is_own: false },
            Source::Own(fetch, begun) => (fetch, begun, true),
            Source::Joined(fetch, begun) => (fetch, begun, false),
        };
        let result = fetch.await;
        self.keep(asked, begun, &result);
        Answer { result, is_own }
    }

    fn source(&self, asked: &Asked, wanted: &Wanted<'_>) -> Source {
        let mut inner = self.lock();
        let Inner { rounds, held } = &mut *inner;
        if rounds.len() >= KNOWN {
            rounds.retain(|_, round| !round.requests.is_empty());
        }
        let round = rounds.entry(asked.clone()).or_default();
        if round.askers.len() < 2 {
            round.askers.insert(wanted.asker.clone());
        }
        round.requests.retain(UnderWay::is_alive);
        if let Some(source) = round.requests.iter().rev().find_map(|request| request.serve(wanted)) {
            return source;
        }
        let (session, url) = (wanted.session.clone(), wanted.url.clone());
        let (validators, limits) = (wanted.validators.clone(), wanted.limits);
        let fetch = async move {
            Arc::new(Shareable {
                fetched: session.get(&url, validators.as_ref(), &limits).await,
                cuts: SharedSplit::default(),
            })
        };
        let fetch = fetch.boxed().shared();
        let begun = Timestamp::now();
        if round.requests.len() >= AT_ONCE {
            // Newer responses serve every request that the oldest could.
            held.give_back(&round.requests.remove(0));
        }
        if let Some(weak) = fetch.downgrade() {
            round.requests.push(UnderWay {
                begun,
                validators: wanted.validators.clone(),
                answer: Answered::NotYet(weak),
            });
        }
        Source::Own(fetch, begun)
    }

    /// Caches a response if several requesters use it. Errors are not cached.
    fn keep(&self, asked: &Asked, begun: Timestamp, result: &Result) {
        if result.fetched.is_err() {
            return self.drop_request(asked, begun);
        }
        let mut inner = self.lock();
        let Inner { rounds, held } = &mut *inner;
        let Some(round) = rounds.get_mut(asked) else { return };
        let is_for_many = round.askers.len() > 1;
        let Some(request) = round.requests.iter_mut().find(|request| request.begun == begun) else {
            return;
        };
        // Otherwise, waiting requesters get the response, and it is dropped with them.
        if matches!(request.answer, Answered::Held(_)) || !is_for_many || !held.take(result) {
            return;
        }
        request.answer = Answered::Held(Arc::clone(result));
        drop(inner);
        let (rounds, asked) = (self.clone(), asked.clone());
        tokio::spawn(async move {
            tokio::time::sleep(HELD).await;
            rounds.drop_request(&asked, begun);
        });
    }

    fn drop_request(&self, asked: &Asked, begun: Timestamp) {
        let mut inner = self.lock();
        let Inner { rounds, held } = &mut *inner;
        if let Some(round) = rounds.get_mut(asked)
            && let Some(at) = round.requests.iter().position(|request| request.begun == begun)
        {
            held.give_back(&round.requests.remove(at));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnderWay {
    fn is_alive(&self) -> bool {
        match &self.answer {
            Answered::Held(_) => true,
            Answered::NotYet(fetch) => fetch.upgrade().is_some(),
        }
    }

    /// Returns the response if it is fresh enough. A 304 only serves requests with the same validators, and so does a
    /// request in flight, which may end with one.
    fn serve(&self, wanted: &Wanted<'_>) -> Option<Source> {
        if self.begun < wanted.since {
            return None;
        }
        match &self.answer {
            Answered::Held(result) => {
                let serves = matches!(result.fetched, Ok(Fetched::Body(_))) || self.validators == wanted.validators;
                serves.then(|| Source::Held(Arc::clone(result)))
            }
            Answered::NotYet(fetch) if self.validators == wanted.validators => {
                fetch.upgrade().map(|fetch| Source::Joined(fetch, self.begun))
            }
            Answered::NotYet(_) => None,
        }
    }
}

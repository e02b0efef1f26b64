//! Repositories that are the same, in many namespaces: what one of them fetches serves all that want it in the same round.
//!
//! ```text
//!  09:10:00  the tick of all of them      wanted since 09:10:00
//!  09:10:02  team-a/bitnami ─► fetch ─► answer, begun 09:10:02 ─┬─► team-a
//!  09:10:02  team-b/bitnami ─► joins ───────────────────────────┼─► team-b
//!  09:10:41  team-c/bitnami ─► begun after 09:10:00, so it will do ─► team-c
//!  09:10:50  team-d, resync by hand ─► wanted since now: fetches for itself
//! ```
//! An answer is never older than what it is wanted for, so nobody sees less than if he had asked himself. It serves only who would
//! have sent the very same request: the same URL, credentials, TLS settings, proxies and limits.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;

use crate::catalog::RepositoryName;
use crate::source::fetch::{FetchError, Fetched, Fetcher, Limits, Requester, Validators};

/// How long an answer is held for others: repositories of one schedule come within a minute of each other.
const HELD: Duration = Duration::from_secs(90);
/// Requests that are known. More would be other URLs each time; then all is forgotten.
const KNOWN: usize = 20_000;

/// The answers of this round. Clones are handles of one.
#[derive(Clone, Default)]
pub(super) struct Rounds(Arc<Mutex<HashMap<Asked, Round>>>);

/// What a request is known by.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Asked {
    url: String,
    by: Requester,
    limits: Limits,
}

#[derive(Default)]
struct Round {
    /// Two of those who have asked. For one alone nothing is held.
    askers: HashSet<RepositoryName>,
    under_way: Option<UnderWay>,
}

/// A request that was sent, and its answer once it is there.
#[derive(Clone)]
struct UnderWay {
    begun: Timestamp,
    validators: Option<Validators>,
    answer: Shared<BoxFuture<'static, Arc<Result<Fetched, FetchError>>>>,
}

/// A request to be made.
pub(super) struct Wanted<'w> {
    pub(super) asker: &'w RepositoryName,
    pub(super) session: &'w Fetcher,
    pub(super) url: &'w url::Url,
    pub(super) validators: Option<Validators>,
    pub(super) limits: Limits,
    /// What the server said before is too old.
    pub(super) since: Timestamp,
}

/// An answer, and whether it was fetched for this asker.
pub(super) struct Answer {
    pub(super) result: Arc<Result<Fetched, FetchError>>,
    pub(super) is_own: bool,
}

impl Rounds {
    /// Fetches, unless an answer is there or on its way that will do.
    pub(super) async fn get(&self, wanted: Wanted<'_>) -> Answer {
        let asked = Asked {
            url: wanted.url.to_string(),
            by: wanted.session.requester(),
            limits: wanted.limits,
        };
        let (under_way, is_own) = self.join(&asked, &wanted);
        let result = under_way.answer.clone().await;
        // Who joins gets the same failure; who comes later tries again.
        if result.is_err() || !self.is_for_many(&asked) {
            self.forget(&asked, under_way.begun);
        } else if is_own {
            let (rounds, begun) = (self.clone(), under_way.begun);
            tokio::spawn(async move {
                tokio::time::sleep(HELD).await;
                rounds.forget(&asked, begun);
            });
        }
        Answer { result, is_own }
    }

    fn join(&self, asked: &Asked, wanted: &Wanted<'_>) -> (UnderWay, bool) {
        let mut rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rounds.len() >= KNOWN {
            rounds.clear();
        }
        let round = rounds.entry(asked.clone()).or_default();
        if round.askers.len() < 2 {
            round.askers.insert(wanted.asker.clone());
        }
        if let Some(under_way) = round.under_way.as_ref().filter(|under_way| under_way.serves(wanted)) {
            return (under_way.clone(), false);
        }
        let (session, url) = (wanted.session.clone(), wanted.url.clone());
        let (validators, limits) = (wanted.validators.clone(), wanted.limits);
        let fetch = async move { Arc::new(session.get(&url, validators.as_ref(), &limits).await) };
        let under_way = UnderWay {
            begun: Timestamp::now(),
            validators: wanted.validators.clone(),
            answer: fetch.boxed().shared(),
        };
        round.under_way = Some(under_way.clone());
        (under_way, true)
    }

    fn is_for_many(&self, asked: &Asked) -> bool {
        let rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.get(asked).is_some_and(|round| round.askers.len() > 1)
    }

    /// Holds no more what was begun then.
    fn forget(&self, asked: &Asked, begun: Timestamp) {
        let mut rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(round) = rounds.get_mut(asked)
            && round
                .under_way
                .as_ref()
                .is_some_and(|under_way| under_way.begun == begun)
        {
            round.under_way = None;
        }
    }
}

impl UnderWay {
    /// A whole body serves all; that there is nothing new, only who knows the same. Before there is an answer it may be either.
    fn serves(&self, wanted: &Wanted<'_>) -> bool {
        let is_body = matches!(self.answer.peek().map(|answer| &**answer), Some(Ok(Fetched::Body(_))));
        self.begun >= wanted.since && (is_body || self.validators == wanted.validators)
    }
}

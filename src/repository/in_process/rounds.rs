//! Repositories that are the same, in many namespaces: what one of them fetches serves all that want it in the same round.
//!
//! ```text
//!  09:10:00  the tick of all of them      wanted since 09:10:00
//!  09:10:02  team-a/bitnami ─► fetch ─► answer, begun 09:10:02 ─┬─► team-a
//!  09:10:02  team-b/bitnami ─► joins ───────────────────────────┼─► team-b
//!  09:10:41  team-c/bitnami ─► begun after 09:10:00, so it will do ─► team-c
//!  09:10:50  team-d, resync by hand ─► wanted since now: fetches for itself
//! ```
//! An answer was asked for after the time since when it is wanted: what has changed between that and the asker's own turn is seen in
//! the next round, as if his turn had come earlier. It serves only who would have sent the very same request: the same URL,
//! credentials, TLS settings, proxies and limits.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use jiff::Timestamp;

use crate::catalog::RepositoryName;
use crate::source::fetch::{FetchError, Fetched, Fetcher, Limits, Requester, Validators};

/// How long an answer is held for others: repositories of one schedule come within a minute of each other.
const HELD: Duration = Duration::from_secs(90);
/// Bytes of all bodies that are held, in memory and in files. Others are fetched by each who wants them.
const HELD_IN_MEMORY: u64 = 8 * 1024 * 1024;
const HELD_IN_FILES: u64 = 512 * 1024 * 1024;
/// Requests that are known. More would be other URLs each time; then those are forgotten that are of no use now.
const KNOWN: usize = 20_000;
/// Requests at a time for one URL, which differ by what each asker knows already.
const AT_ONCE: usize = 4;

/// The answers of this round. Clones are handles of one.
#[derive(Clone, Default)]
pub(super) struct Rounds(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    rounds: HashMap<Asked, Round>,
    in_memory: u64,
    in_files: u64,
}

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
    requests: Vec<UnderWay>,
}

type Result = Arc<std::result::Result<Fetched, FetchError>>;
type Fetch = BoxFuture<'static, Result>;

/// A request that was sent.
struct UnderWay {
    begun: Timestamp,
    validators: Option<Validators>,
    answer: Answered,
}

enum Answered {
    /// Who waits for it drives it. With the last of them it ends.
    NotYet(WeakShared<Fetch>),
    Held(Result),
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
    pub(super) result: Result,
    pub(super) is_own: bool,
}

/// Where an asker gets his answer from.
enum Source {
    Held(Result),
    Joined(Shared<Fetch>, Timestamp),
    Own(Shared<Fetch>, Timestamp),
}

impl Rounds {
    /// Fetches, unless an answer is there or on its way that will do.
    pub(super) async fn get(&self, mut wanted: Wanted<'_>) -> Answer {
        let asked = Asked {
            url: wanted.url.to_string(),
            by: wanted.session.requester(),
            limits: wanted.limits,
        };
        let (fetch, begun) = match self.source(&asked, &wanted) {
            Source::Held(result) => return Answer { result, is_own: false },
            Source::Own(fetch, begun) => {
                let result = fetch.await;
                self.keep(&asked, begun, &result);
                return Answer { result, is_own: true };
            }
            Source::Joined(fetch, begun) => (fetch, begun),
        };
        let result = fetch.await;
        self.keep(&asked, begun, &result);
        let is_out_of_time = matches!(&*result, Err(FetchError::Timeout { .. } | FetchError::Stalled { .. }));
        if !is_out_of_time {
            return Answer { result, is_own: false };
        }
        // Its time was another's, of which little may have been left.
        wanted.since = Timestamp::now();
        let result = match self.source(&asked, &wanted) {
            Source::Held(result) => result,
            Source::Own(fetch, begun) | Source::Joined(fetch, begun) => {
                let result = fetch.await;
                self.keep(&asked, begun, &result);
                result
            }
        };
        Answer { result, is_own: true }
    }

    fn source(&self, asked: &Asked, wanted: &Wanted<'_>) -> Source {
        let mut inner = self.lock();
        if inner.rounds.len() >= KNOWN {
            inner.rounds.retain(|_, round| !round.requests.is_empty());
        }
        let round = inner.rounds.entry(asked.clone()).or_default();
        if round.askers.len() < 2 {
            round.askers.insert(wanted.asker.clone());
        }
        round.requests.retain(UnderWay::is_alive);
        if let Some(source) = round.requests.iter().rev().find_map(|request| request.serve(wanted)) {
            return source;
        }
        let (session, url) = (wanted.session.clone(), wanted.url.clone());
        let (validators, limits) = (wanted.validators.clone(), wanted.limits);
        let fetch = async move { Arc::new(session.get(&url, validators.as_ref(), &limits).await) };
        let fetch = fetch.boxed().shared();
        let begun = Timestamp::now();
        if round.requests.len() < AT_ONCE
            && let Some(weak) = fetch.downgrade()
        {
            round.requests.push(UnderWay {
                begun,
                validators: wanted.validators.clone(),
                answer: Answered::NotYet(weak),
            });
        }
        Source::Own(fetch, begun)
    }

    /// Holds an answer for a while, where others may come for it; who fails later tries for himself.
    fn keep(&self, asked: &Asked, begun: Timestamp, result: &Result) {
        let (in_memory, in_files) = match &**result {
            Ok(Fetched::NotModified) => (0, 0),
            Ok(Fetched::Body(body)) if body.is_in_memory() => (body.bytes, 0),
            Ok(Fetched::Body(body)) => (0, body.bytes),
            Err(_) => return self.drop_request(asked, begun),
        };
        let mut inner = self.lock();
        let has_room = inner.in_memory + in_memory <= HELD_IN_MEMORY && inner.in_files + in_files <= HELD_IN_FILES;
        let Some(round) = inner.rounds.get_mut(asked) else {
            return;
        };
        let is_for_many = round.askers.len() > 1;
        let Some(request) = round.requests.iter_mut().find(|request| request.begun == begun) else {
            return;
        };
        match request.answer {
            Answered::NotYet(_) if has_room && is_for_many => request.answer = Answered::Held(Arc::clone(result)),
            // Who waits for it has it, and it ends with them.
            Answered::NotYet(_) | Answered::Held(_) => return,
        }
        inner.in_memory += in_memory;
        inner.in_files += in_files;
        drop(inner);
        let (rounds, asked) = (self.clone(), asked.clone());
        tokio::spawn(async move {
            tokio::time::sleep(HELD).await;
            rounds.drop_request(&asked, begun);
            let mut inner = rounds.lock();
            inner.in_memory -= in_memory;
            inner.in_files -= in_files;
        });
    }

    fn drop_request(&self, asked: &Asked, begun: Timestamp) {
        if let Some(round) = self.lock().rounds.get_mut(asked) {
            round.requests.retain(|request| request.begun != begun);
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

    /// A whole body serves all; that there is nothing new, only who knows the same. Before there is an answer it may be either.
    fn serve(&self, wanted: &Wanted<'_>) -> Option<Source> {
        if self.begun < wanted.since {
            return None;
        }
        match &self.answer {
            Answered::Held(result) => {
                let serves = matches!(&**result, Ok(Fetched::Body(_))) || self.validators == wanted.validators;
                serves.then(|| Source::Held(Arc::clone(result)))
            }
            Answered::NotYet(fetch) if self.validators == wanted.validators => {
                fetch.upgrade().map(|fetch| Source::Joined(fetch, self.begun))
            }
            Answered::NotYet(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Notify;

    use super::*;
    use crate::source::fetch::{Access, Settings};
    use crate::source::secret::Secret;

    const DEADLINE: Duration = Duration::from_secs(30);

    /// A server that counts requests, and answers each as soon as it may.
    struct Server {
        url: url::Url,
        asked: Arc<AtomicUsize>,
        has_been_asked: Arc<Notify>,
        may_answer: Arc<tokio::sync::Semaphore>,
    }

    impl Server {
        async fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = Self {
                url: format!("http://{}/index.yaml", listener.local_addr().unwrap())
                    .parse()
                    .unwrap(),
                asked: Arc::default(),
                has_been_asked: Arc::default(),
                may_answer: Arc::new(tokio::sync::Semaphore::new(0)),
            };
            let (asked, told, may) = (
                Arc::clone(&server.asked),
                Arc::clone(&server.has_been_asked),
                Arc::clone(&server.may_answer),
            );
            tokio::spawn(async move {
                loop {
                    let (mut connection, _) = listener.accept().await.unwrap();
                    let (asked, told, may) = (Arc::clone(&asked), Arc::clone(&told), Arc::clone(&may));
                    tokio::spawn(async move {
                        let mut request = [0; 4096];
                        // What comes of a connection that the client gives up is nobody's business.
                        if connection.read(&mut request).await.unwrap_or(0) == 0 {
                            return;
                        }
                        let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
                        told.notify_one();
                        may.acquire().await.unwrap().forget();
                        let body = format!("answer {number}");
                        let head = format!(
                            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                            body.len()
                        );
                        let _ = connection.write_all((head + &body).as_bytes()).await;
                    });
                }
            });
            server
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::SeqCst)
        }

        async fn until_asked(&self) {
            tokio::time::timeout(DEADLINE, self.has_been_asked.notified())
                .await
                .unwrap();
        }

        fn answer(&self, times: usize) {
            self.may_answer.add_permits(times);
        }
    }

    /// Asks on a task of its own.
    fn ask(
        rounds: &Rounds,
        session: &Fetcher,
        server: &Server,
        asker: &str,
        since: Timestamp,
    ) -> tokio::task::JoinHandle<(Option<String>, bool)> {
        let (rounds, session, url) = (rounds.clone(), session.clone(), server.url.clone());
        let asker = RepositoryName::new(asker, "same");
        tokio::spawn(async move {
            let wanted = Wanted {
                asker: &asker,
                session: &session,
                url: &url,
                validators: None,
                limits: Limits::default(),
                since,
            };
            let Answer { result, is_own } = rounds.get(wanted).await;
            match &*result {
                Ok(Fetched::Body(body)) => (Some(body.sha256.clone()), is_own),
                _ => (None, is_own),
            }
        })
    }

    async fn end<T>(task: tokio::task::JoinHandle<T>) -> T {
        tokio::time::timeout(DEADLINE, task).await.unwrap().unwrap()
    }

    fn session(access: Access) -> Fetcher {
        Fetcher::new(Settings::default()).unwrap().with(access).unwrap()
    }

    #[tokio::test]
    async fn who_comes_for_the_same_joins_and_who_comes_later_is_served_from_what_is_held() {
        let (server, rounds, session) = (Server::start().await, Rounds::default(), session(Access::default()));
        let tick = Timestamp::now();
        let first = ask(&rounds, &session, &server, "a", tick);
        server.until_asked().await;
        let second = ask(&rounds, &session, &server, "b", tick);
        while rounds.lock().rounds.values().all(|round| round.askers.len() < 2) {
            tokio::task::yield_now().await;
        }
        server.answer(1);
        let ((first, is_own), (second, joined)) = (end(first).await, end(second).await);
        assert!(first.is_some() && is_own && !joined);
        assert_eq!(second, first);
        let (third, is_own) = end(ask(&rounds, &session, &server, "c", tick)).await;
        assert_eq!((third, is_own), (first, false));
        assert_eq!(server.asked(), 1);
        // What was said before he asked is not what he means.
        server.answer(1);
        let (fourth, is_own) = end(ask(&rounds, &session, &server, "d", Timestamp::now())).await;
        assert!(fourth.is_some() && is_own);
        assert_eq!(server.asked(), 2);
    }

    #[tokio::test]
    async fn for_one_alone_nothing_is_held() {
        let (server, rounds, session) = (Server::start().await, Rounds::default(), session(Access::default()));
        let tick = Timestamp::now();
        server.answer(2);
        for asked in [1, 2] {
            let (answer, is_own) = end(ask(&rounds, &session, &server, "a", tick)).await;
            assert!(answer.is_some() && is_own);
            assert_eq!(server.asked(), asked);
        }
        assert_eq!(rounds.lock().in_memory, 0);
    }

    #[tokio::test]
    async fn a_request_ends_with_the_last_who_waits_for_it_and_goes_on_with_any_other() {
        let (server, rounds, session) = (Server::start().await, Rounds::default(), session(Access::default()));
        let tick = Timestamp::now();
        let first = ask(&rounds, &session, &server, "a", tick);
        server.until_asked().await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        // Nothing is left of it to be joined.
        let second = ask(&rounds, &session, &server, "b", tick);
        server.until_asked().await;
        assert_eq!(server.asked(), 2);
        let third = ask(&rounds, &session, &server, "c", tick);
        while rounds
            .lock()
            .rounds
            .values()
            .flat_map(|round| &round.requests)
            .all(|request| match &request.answer {
                Answered::NotYet(fetch) => fetch.upgrade().is_none_or(|fetch| fetch.strong_count() != Some(3)),
                Answered::Held(_) => false,
            })
        {
            tokio::task::yield_now().await;
        }
        second.abort();
        server.answer(2);
        let (answer, is_own) = end(third).await;
        assert!(answer.is_some() && !is_own);
        assert_eq!(server.asked(), 2);
    }

    #[tokio::test]
    async fn who_would_have_asked_in_another_way_asks_for_himself() {
        let (server, rounds) = (Server::start().await, Rounds::default());
        let tick = Timestamp::now();
        let with = |header: &str| Access {
            authorization: Some(Secret::new(header.to_owned())),
            scope: Some(server.url.clone()),
            ..Access::default()
        };
        let ways = [
            Access::default(),
            with("Basic YQ=="),
            with("Basic Yg=="),
            Access {
                pass_credentials: true,
                ..with("Basic YQ==")
            },
            Access {
                insecure: true,
                ..Access::default()
            },
        ];
        server.answer(2 * ways.len());
        for (number, access) in ways.into_iter().enumerate() {
            let session = session(access);
            for asker in ["a", "b"] {
                // The answer of the first is not held, since he was alone; that of the second is.
                let (answer, is_own) = end(ask(&rounds, &session, &server, asker, tick)).await;
                assert!(answer.is_some() && is_own, "{number} {asker}");
            }
            let (_, is_own) = end(ask(&rounds, &session, &server, "c", tick)).await;
            assert!(!is_own);
            assert_eq!(server.asked(), 2 * (number + 1));
        }
    }
}

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::*;
use crate::http::secret::Secret;
use crate::http::{Access, Settings};

const DEADLINE: Duration = Duration::from_secs(30);

/// A server that counts requests, and responds when the test allows it.
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
                    // Ignores connections that the client closed.
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

/// Requests on a new task. Returns the digest of the body, and whether this requester sent the request.
fn ask(
    rounds: &DownloadCache,
    session: &Fetcher,
    server: &Server,
    asker: &str,
    since: Timestamp,
) -> tokio::task::JoinHandle<(Option<String>, bool)> {
    let (rounds, session, url) = (rounds.clone(), session.clone(), server.url.clone());
    let asker = NamespacedName::new(asker, "same");
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
        match &result.fetched {
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
    let (server, rounds, session) = (
        Server::start().await,
        DownloadCache::default(),
        session(Access::default()),
    );
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
    // A response from before the request is too stale.
    server.answer(1);
    let (fourth, is_own) = end(ask(&rounds, &session, &server, "d", Timestamp::now())).await;
    assert!(fourth.is_some() && is_own);
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn for_one_alone_nothing_is_held() {
    let (server, rounds, session) = (
        Server::start().await,
        DownloadCache::default(),
        session(Access::default()),
    );
    let tick = Timestamp::now();
    server.answer(2);
    for asked in [1, 2] {
        let (answer, is_own) = end(ask(&rounds, &session, &server, "a", tick)).await;
        assert!(answer.is_some() && is_own);
        assert_eq!(server.asked(), asked);
    }
    assert_eq!(rounds.lock().held.in_memory, 0);
}

#[tokio::test]
async fn round_after_round_is_shared_and_what_is_held_does_not_grow() {
    let (server, rounds, session) = (
        Server::start().await,
        DownloadCache::default(),
        session(Access::default()),
    );
    server.answer(20);
    for asker in ["a", "b"] {
        end(ask(&rounds, &session, &server, asker, Timestamp::now())).await;
    }
    for round in 0..10 {
        let tick = Timestamp::now();
        for asker in ["a", "b", "c"] {
            let (answer, is_own) = end(ask(&rounds, &session, &server, asker, tick)).await;
            assert!(answer.is_some() && is_own == (asker == "a"), "{round} {asker}");
        }
    }
    assert_eq!(server.asked(), 12);
    assert!(rounds.lock().held.in_memory <= 4 * "answer 10".len() as u64);
}

#[tokio::test]
async fn a_request_ends_with_the_last_who_waits_for_it_and_goes_on_with_any_other() {
    let (server, rounds, session) = (
        Server::start().await,
        DownloadCache::default(),
        session(Access::default()),
    );
    let tick = Timestamp::now();
    let first = ask(&rounds, &session, &server, "a", tick);
    server.until_asked().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    // A canceled request can't be joined.
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
    let (server, rounds) = (Server::start().await, DownloadCache::default());
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
            // The first response is not cached, since there is one requester; the second is.
            let (answer, is_own) = end(ask(&rounds, &session, &server, asker, tick)).await;
            assert!(answer.is_some() && is_own, "{number} {asker}");
        }
        let (_, is_own) = end(ask(&rounds, &session, &server, "c", tick)).await;
        assert!(!is_own);
        assert_eq!(server.asked(), 2 * (number + 1));
    }
}

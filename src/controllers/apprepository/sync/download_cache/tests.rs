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
    requests: Arc<AtomicUsize>,
    request_arrived: Arc<Notify>,
    permits: Arc<tokio::sync::Semaphore>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            url: format!("http://{}/index.yaml", listener.local_addr().unwrap())
                .parse()
                .unwrap(),
            requests: Arc::default(),
            request_arrived: Arc::default(),
            permits: Arc::new(tokio::sync::Semaphore::new(0)),
        };
        let (requests, arrived, permits) = (
            Arc::clone(&server.requests),
            Arc::clone(&server.request_arrived),
            Arc::clone(&server.permits),
        );
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let (requests, arrived, permits) = (Arc::clone(&requests), Arc::clone(&arrived), Arc::clone(&permits));
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    // Ignores connections that the client closed.
                    if connection.read(&mut request).await.unwrap_or(0) == 0 {
                        return;
                    }
                    let number = requests.fetch_add(1, Ordering::SeqCst) + 1;
                    arrived.notify_one();
                    permits.acquire().await.unwrap().forget();
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

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    async fn until_requested(&self) {
        tokio::time::timeout(DEADLINE, self.request_arrived.notified())
            .await
            .unwrap();
    }

    fn answer(&self, times: usize) {
        self.permits.add_permits(times);
    }
}

/// Requests on a new task. Returns the digest of the body, and whether this requester sent the request.
fn get(
    downloads: &DownloadCache,
    session: &Fetcher,
    server: &Server,
    requester: &str,
    fresh_since: Timestamp,
) -> tokio::task::JoinHandle<(Option<String>, bool)> {
    let (downloads, session, url) = (downloads.clone(), session.clone(), server.url.clone());
    let requester = NamespacedName::new(requester, "same");
    tokio::spawn(async move {
        let request = DownloadRequest {
            requester: &requester,
            session: &session,
            url: &url,
            validators: None,
            limits: FetchLimits::default(),
            fresh_since,
        };
        let Download { result, is_initiator } = downloads.get(request).await;
        match &result.fetched {
            Ok(Fetched::Body(body)) => (Some(body.sha256.clone()), is_initiator),
            _ => (None, is_initiator),
        }
    })
}

async fn end<T>(task: tokio::task::JoinHandle<T>) -> T {
    tokio::time::timeout(DEADLINE, task).await.unwrap().unwrap()
}

async fn start() -> (Server, DownloadCache, Fetcher) {
    let session = session(Access::default());
    (Server::start().await, DownloadCache::default(), session)
}

fn session(access: Access) -> Fetcher {
    Fetcher::new(Settings::default()).unwrap().with(access).unwrap()
}

#[tokio::test]
async fn identical_requests_join_and_later_ones_use_the_cache() {
    let (server, downloads, session) = start().await;
    let tick = Timestamp::now();
    let first = get(&downloads, &session, &server, "a", tick);
    server.until_requested().await;
    let second = get(&downloads, &session, &server, "b", tick);
    while downloads
        .0
        .lock()
        .entries
        .values()
        .all(|entry| entry.requesters.len() < 2)
    {
        tokio::task::yield_now().await;
    }
    server.answer(1);
    let ((first, is_initiator), (second, joined)) = (end(first).await, end(second).await);
    assert!(first.is_some() && is_initiator && !joined);
    assert_eq!(second, first);
    let (third, is_initiator) = end(get(&downloads, &session, &server, "c", tick)).await;
    assert_eq!((third, is_initiator), (first, false));
    assert_eq!(server.requests(), 1);
    // A response from before the request is too stale.
    server.answer(1);
    let (fourth, is_initiator) = end(get(&downloads, &session, &server, "d", Timestamp::now())).await;
    assert!(fourth.is_some() && is_initiator);
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn responses_for_a_single_requester_are_not_cached() {
    let (server, downloads, session) = start().await;
    let tick = Timestamp::now();
    server.answer(2);
    for requests in [1, 2] {
        let (answer, is_initiator) = end(get(&downloads, &session, &server, "a", tick)).await;
        assert!(answer.is_some() && is_initiator);
        assert_eq!(server.requests(), requests);
    }
    assert_eq!(downloads.0.lock().cached.in_memory, 0);
}

#[tokio::test]
async fn responses_of_each_tick_are_shared_and_the_cache_does_not_grow() {
    let (server, downloads, session) = start().await;
    server.answer(20);
    for requester in ["a", "b"] {
        end(get(&downloads, &session, &server, requester, Timestamp::now())).await;
    }
    for tick_number in 0..10 {
        let tick = Timestamp::now();
        for requester in ["a", "b", "c"] {
            let (answer, is_initiator) = end(get(&downloads, &session, &server, requester, tick)).await;
            assert!(
                answer.is_some() && is_initiator == (requester == "a"),
                "{tick_number} {requester}"
            );
        }
    }
    assert_eq!(server.requests(), 12);
    assert!(downloads.0.lock().cached.in_memory <= 4 * "answer 10".len() as u64);
}

#[tokio::test]
async fn a_request_is_canceled_with_its_last_requester() {
    let (server, downloads, session) = start().await;
    let tick = Timestamp::now();
    let first = get(&downloads, &session, &server, "a", tick);
    server.until_requested().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    // A canceled request can't be joined.
    let second = get(&downloads, &session, &server, "b", tick);
    server.until_requested().await;
    assert_eq!(server.requests(), 2);
    let third = get(&downloads, &session, &server, "c", tick);
    while downloads
        .0
        .lock()
        .entries
        .values()
        .flat_map(|entry| &entry.requests)
        .all(|request| match &request.state {
            ResponseState::InFlight(fetch) => fetch.upgrade().is_none_or(|fetch| fetch.strong_count() != Some(3)),
            ResponseState::Cached(_) => false,
        })
    {
        tokio::task::yield_now().await;
    }
    second.abort();
    server.answer(2);
    let (answer, is_initiator) = end(third).await;
    assert!(answer.is_some() && !is_initiator);
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn requests_with_different_settings_are_not_shared() {
    let (server, downloads) = (Server::start().await, DownloadCache::default());
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
        for requester in ["a", "b"] {
            // The first response is not cached, since there is one requester; the second is.
            let (answer, is_initiator) = end(get(&downloads, &session, &server, requester, tick)).await;
            assert!(answer.is_some() && is_initiator, "{number} {requester}");
        }
        let (_, is_initiator) = end(get(&downloads, &session, &server, "c", tick)).await;
        assert!(!is_initiator);
        assert_eq!(server.requests(), 2 * (number + 1));
    }
}

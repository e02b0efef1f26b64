mod signatures;

use std::collections::{BTreeMap, HashMap};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use futures::FutureExt;
use futures::future::join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tower::ServiceExt;

use super::*;
use crate::budget::Metrics;

/// The example of GitHub's documentation.
const TOKEN: &str = "It's a Secret to Everybody";
const BODY: &str = "Hello, World!";

fn name(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName::new(namespace, name)
}

fn receiver(name: &NamespacedName, type_: &str, token: &str) -> Result<Receiver, ReceiverError> {
    let data = [("type", type_), ("token", token)];
    let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.into())));
    let secret = Secret {
        data: Some(BTreeMap::from(data)),
        ..Secret::default()
    };
    Receiver::of(name, &secret)
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let parse = |(name, value): &(&str, &str)| {
        (
            name.parse::<HeaderName>().unwrap(),
            value.parse::<HeaderValue>().unwrap(),
        )
    };
    pairs.iter().map(parse).collect()
}

#[derive(Default)]
struct Fake {
    receivers: Mutex<HashMap<NamespacedName, (&'static str, &'static str)>>,
    lookups: Mutex<Vec<NamespacedName>>,
    polls: Mutex<Vec<Instant>>,
    error: Mutex<Option<ApiError>>,
}

impl Objects for Fake {
    fn receiver<'a>(&'a self, name: &'a NamespacedName) -> BoxFuture<'a, Result<Option<Receiver>, ApiError>> {
        self.lookups.lock().push(name.clone());
        let found = self.receivers.lock().get(name).copied();
        let found = found.map(|(type_, token)| receiver(name, type_, token).unwrap());
        let result = self.error.lock().clone().map_or(Ok(found), Err);
        async move { result }.boxed()
    }

    fn poll<'a>(&'a self, _: &'a NamespacedName, _: Timestamp) -> BoxFuture<'a, Result<(), ApiError>> {
        self.polls.lock().push(Instant::now());
        let result = self.error.lock().clone().map_or(Ok(()), Err);
        async move { result }.boxed()
    }
}

struct Site {
    fake: Arc<Fake>,
    routes: Router,
    registry: Registry,
}

impl Site {
    fn new(receivers: &[(&str, &str, &'static str)]) -> Self {
        let fake = Arc::new(Fake::default());
        let declared = receivers
            .iter()
            .map(|(namespace, repository, type_)| (name(namespace, repository), (*type_, TOKEN)));
        fake.receivers.lock().extend(declared);
        let mut registry = Registry::default();
        let hooks = Hooks::new(HookOptions {
            objects: Arc::clone(&fake) as Arc<dyn Objects>,
            namespaces: vec!["team-a".to_owned(), "team-b".to_owned()],
            trusted_proxies: TrustedProxies::default(),
            bodies: Metrics::default().of("receiver_bodies", MAX_BODIES as u64),
            metrics: HookMetrics::register(&mut registry),
        });
        Self {
            fake,
            routes: hooks.routes(),
            registry,
        }
    }

    async fn post(&self, path: &str, peer: u8) -> Response {
        self.send(path, peer, &[], Body::from(BODY)).await
    }

    async fn send(&self, path: &str, peer: u8, sent: &[(&str, &str)], body: Body) -> Response {
        let mut request = axum::http::Request::post(path).body(body).unwrap();
        *request.headers_mut() = headers(sent);
        request.extensions_mut().insert(Peer(IpAddr::from([10, 0, 0, peer])));
        self.routes.clone().oneshot(request).await.unwrap()
    }

    async fn status(&self, path: &str, peer: u8) -> u16 {
        self.post(path, peer).await.status().as_u16()
    }

    fn lookups(&self) -> usize {
        self.fake.lookups.lock().len()
    }

    fn count(&self, result: &str) -> u64 {
        let mut metrics = String::new();
        text::encode(&mut metrics, &self.registry).unwrap();
        let sample = format!("portolan_receiver_requests_total{{result=\"{result}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&sample));
        line.map_or(0, |count| count.parse().unwrap())
    }
}

fn path(namespace: &str, repository: &str) -> String {
    let name = name(namespace, repository);
    receiver(&name, "generic", TOKEN).unwrap().path(&name)
}

fn guess(namespace: &str, repository: &str) -> String {
    format!("/hooks/{namespace}/{repository}/{}", "0".repeat(64))
}

#[tokio::test(start_paused = true)]
async fn unknown_wrong_and_foreign_addresses_answer_alike() {
    let site = Site::new(&[("team-a", "stable", "generic"), ("team-a", "signed", "github")]);
    let other_key = path("team-b", "stable").replace("team-b", "team-a");
    let cases = [
        guess("team-a", "stable"),
        guess("team-a", "absent"),
        guess("team-c", "stable"),
        other_key,
        path("team-a", "stable") + "0",
        path("team-a", "signed"),
    ];
    let mut answers = Vec::new();
    for path in cases {
        let started = Instant::now();
        let response = site.post(&path, 1).await;
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 1024).await.unwrap();
        answers.push((parts.status, parts.headers, body, started.elapsed()));
    }
    assert_eq!(answers[0].0, StatusCode::NOT_FOUND);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(site.count("refused"), 6);
    assert!(site.fake.polls.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_right_key_is_looked_up_once_a_minute() {
    let site = Site::new(&[("team-a", "stable", "generic")]);
    let path = path("team-a", "stable");
    for lookups in 1..=2 {
        assert_eq!([site.status(&path, 1).await, site.status(&path, 1).await], [202, 202]);
        assert_eq!(site.lookups(), lookups);
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    site.fake.receivers.lock().clear();
    assert_eq!(site.status(&path, 1).await, 404);
    assert_eq!(site.count("accepted"), 4);
}

#[tokio::test(start_paused = true)]
async fn requests_within_a_second_share_the_patch_at_its_end() {
    let site = Site::new(&[("team-a", "stable", "generic")]);
    let path = path("team-a", "stable");
    assert_eq!(site.status(&path, 1).await, 202);
    let arrived = Instant::now();
    let statuses = join_all((0..20).map(|_| site.status(&path, 1))).await;
    assert!(statuses.iter().all(|status| *status == 202), "{statuses:?}");
    let polls = site.fake.polls.lock().clone();
    assert_eq!(polls.len(), 2);
    assert!(polls[1] > arrived && polls[1] - polls[0] >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_failed_patch_is_reported_to_all_who_wait_for_it_and_the_next_one_may_succeed() {
    let site = Site::new(&[("team-a", "stable", "generic")]);
    let path = path("team-a", "stable");
    assert_eq!(site.status(&path, 1).await, 202);
    *site.fake.error.lock() = Some(ApiError::unavailable("no response".to_owned()));
    let statuses = join_all((0..3).map(|_| site.status(&path, 1))).await;
    assert_eq!(statuses, [503; 3]);
    assert_eq!(site.fake.polls.lock().len(), 2);
    *site.fake.error.lock() = None;
    assert_eq!(site.status(&path, 1).await, 202);
    assert_eq!(site.count("failed"), 3);
}

#[tokio::test(start_paused = true)]
async fn guesses_are_limited_and_keep_no_known_sender_out() {
    let site = Site::new(&[("team-a", "stable", "generic"), ("team-b", "stable", "generic")]);
    let path = path("team-a", "stable");
    assert_eq!(site.status(&path, 1).await, 202);
    tokio::time::advance(Duration::from_secs(61)).await;
    for number in 0..10_000 {
        let peer = u8::try_from(number % 250).unwrap();
        let guess = guess("team-a", &format!("guess-{number}"));
        let pending = site.post(&guess, peer).now_or_never();
        assert!(pending.is_none_or(|response| response.status() == StatusCode::NOT_FOUND));
    }
    assert!(site.lookups() <= 1 + 32, "{}", site.lookups());
    assert_eq!(site.status(&path, 1).await, 202, "a known sender");
    let other = super::tests::path("team-b", "stable");
    assert_eq!(site.status(&other, 1).await, 202, "a new sender of another namespace");
    assert!(site.count("limited") > 9_900);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_guesses_is_limited_before_others_are() {
    let site = Site::new(&[("team-a", "stable", "generic")]);
    for number in 0..1000 {
        let _ = site
            .post(&guess("team-c", &format!("guess-{number}")), 1)
            .now_or_never();
    }
    let path = path("team-a", "stable");
    assert_eq!(site.status(&path, 1).await, 404);
    assert_eq!(site.status(&path, 2).await, 202);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_has_a_rate_of_its_own() {
    let site = Site::new(&[("team-a", "stable", "generic"), ("team-b", "stable", "generic")]);
    let path = path("team-a", "stable");
    assert_eq!(site.status(&path, 1).await, 202);
    let statuses = join_all((0..200).map(|_| site.status(&path, 1))).await;
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 100);
    assert_eq!(site.status(&super::tests::path("team-b", "stable"), 1).await, 202);
}

#[tokio::test(start_paused = true)]
async fn a_large_body_is_refused_whether_its_size_is_declared_or_not() {
    let site = Site::new(&[("team-a", "stable", "generic")]);
    let path = path("team-a", "stable");
    let declared = [("content-length", "1073741824")];
    let endless = || Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let response = site.send(&path, 1, &declared, endless()).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let chunks = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![0_u8; 64 * 1024]));
    let response = site.send(&path, 1, &[], Body::from_stream(chunks)).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let response = site.send(&path, 1, &[], endless()).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(site.fake.polls.lock().is_empty());
    let largest = Body::from(vec![0_u8; MAX_BODY]);
    assert_eq!(site.send(&path, 1, &[], largest).await.status(), StatusCode::ACCEPTED);
}

#[tokio::test(start_paused = true)]
async fn slow_bodies_of_a_namespace_leave_permits_to_others() {
    let site = Site::new(&[("team-a", "stable", "generic"), ("team-b", "stable", "generic")]);
    let path = path("team-a", "stable");
    let endless = || Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let mut slow = Box::pin(join_all((0..50).map(|_| site.send(&path, 1, &[], endless()))));
    assert!(slow.as_mut().now_or_never().is_none());
    assert_eq!(site.status(&super::tests::path("team-b", "stable"), 1).await, 202);
    assert!(
        slow.await
            .iter()
            .all(|response| response.status() == StatusCode::SERVICE_UNAVAILABLE)
    );
}

//! Scripted watches on paused time.

mod policy;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::Status;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::runtime::watch::discovery::Resource;
use crate::runtime::watch::{Object, ObjectEvents, Scope, events};

type Pods = Store<Arc<Object<u32>>>;
type Step = Result<Event<Arc<Object<u32>>>, watcher::Error>;

const POLL: ErrorPolicy = ErrorPolicy::PollWhenForbidden {
    interval: Duration::from_secs(120),
};

/// A watch with a script for each start; each script, and the watch after the last one, ends without events.
struct Scripted {
    store: Pods,
    steps: Arc<AtomicUsize>,
    notifications: Arc<Mutex<Vec<String>>>,
    starts: Arc<Mutex<Vec<Instant>>>,
    task: JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn scripted(scripts: Vec<Vec<Step>>) -> Scripted {
    scripted_with(POLL, scripts)
}

fn scripted_with(policy: ErrorPolicy, scripts: Vec<Vec<Step>>) -> Scripted {
    relisting(policy, None, scripts)
}

fn relisting(policy: ErrorPolicy, relist_period: Option<Duration>, scripts: Vec<Vec<Step>>) -> Scripted {
    let scripts = Mutex::new(VecDeque::from(scripts));
    let store = Store::default();
    let notifications: Arc<Mutex<Vec<String>>> = Arc::default();
    let starts: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (recorder, starter) = (Arc::clone(&notifications), Arc::clone(&starts));
    let steps: Arc<AtomicUsize> = Arc::default();
    let counter = Arc::clone(&steps);
    let watch = Watch {
        description: "pods".to_owned(),
        open: Box::new(move || {
            starter.lock().push(Instant::now());
            let script = scripts.lock().pop_front().unwrap_or_default();
            let counter = Arc::clone(&counter);
            let count = move |_: &Step| {
                counter.fetch_add(1, Ordering::Relaxed);
            };
            stream::iter(script).inspect(count).chain(stream::pending()).boxed()
        }),
        store: store.clone(),
        policy,
        relist_period,
        notify: Box::new(move |notification| {
            recorder.lock().push(match notification {
                Notification::Change(Change::Applied { .. }) => "object true".to_owned(),
                Notification::Change(Change::Deleted(_) | Change::MissingFromList(_)) => "object false".to_owned(),
                Notification::Change(Change::Synced { is_first }) => format!("listed {is_first}"),
                Notification::Health => "health".to_owned(),
                Notification::NotServed => "not served".to_owned(),
            });
        }),
    };
    let task = tokio::spawn(watch.run_despite_panics());
    Scripted {
        store,
        steps,
        notifications,
        starts,
        task,
    }
}

/// A watch that discards notifications.
fn unobserved(open: impl Fn() -> ObjectEvents<u32> + Send + Sync + 'static) -> (Watch<Arc<Object<u32>>>, Pods) {
    let store = Store::default();
    let watch = Watch {
        description: "pods".to_owned(),
        open: Box::new(open),
        store: store.clone(),
        policy: POLL,
        relist_period: None,
        notify: Box::new(|_| {}),
    };
    (watch, store)
}

impl Scripted {
    fn notifications(&self) -> Vec<String> {
        self.notifications.lock().clone()
    }

    /// Number of events and errors that the watch has received.
    fn steps(&self) -> usize {
        self.steps.load(Ordering::Relaxed)
    }

    /// Seconds from the first start to each start.
    fn starts(&self) -> Vec<u64> {
        let starts = self.starts.lock();
        starts.iter().map(|time| (*time - starts[0]).as_secs()).collect()
    }
}

fn failed(store: &Pods) -> Option<String> {
    match store.health() {
        WatchHealth::Failed { message, .. } => Some(message),
        WatchHealth::Healthy | WatchHealth::Polled { .. } => None,
    }
}

fn polled(store: &Pods) -> Option<String> {
    match store.health() {
        WatchHealth::Polled { reason, .. } => Some(reason),
        WatchHealth::Healthy | WatchHealth::Failed { .. } => None,
    }
}

fn object(name: &str) -> Arc<Object<u32>> {
    let meta = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    Object::new(meta, 0).into()
}

fn list(names: &[&str]) -> Vec<Step> {
    let objects = names.iter().map(|name| Ok(Event::InitApply(object(name))));
    [Ok(Event::Init)]
        .into_iter()
        .chain(objects)
        .chain([Ok(Event::InitDone)])
        .collect()
}

fn status(code: u16) -> kube::Error {
    kube::Error::Api(Box::new(Status {
        code,
        message: format!("status {code}"),
        ..Status::default()
    }))
}

fn list_fails(code: u16) -> Vec<Step> {
    vec![Ok(Event::Init), Err(watcher::Error::InitialListFailed(status(code)))]
}

fn watch_fails(code: u16) -> Step {
    Err(watcher::Error::WatchStartFailed(status(code)))
}

async fn advance(seconds: u64) {
    // Paused time advances only when all tasks are idle.
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_and_the_events_after_it_are_reported() {
    let mut script = list(&["a"]);
    script.push(Ok(Event::Apply(object("b"))));
    script.push(Ok(Event::Delete(object("a"))));
    let watch = scripted(vec![script]);
    advance(1).await;
    assert_eq!(watch.notifications(), ["listed true", "object true", "object false"]);
    assert_eq!((watch.store.len(), watch.store.health()), (1, WatchHealth::default()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_first_list_is_reported_immediately_until_one_succeeds() {
    for code in [400, 429, 500] {
        let mut script = list_fails(code);
        script.extend(list(&["a"]));
        let watch = scripted(vec![script]);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(
            failed(&watch.store).unwrap(),
            format!("failed to list pods: status {code}")
        );
        assert!(watch.store.is_settled() && !watch.store.is_synced());
        advance(5).await;
        assert_eq!(watch.notifications(), ["health", "health", "listed true"]);
        assert_eq!(watch.store.health(), WatchHealth::default());
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_state_is_kept_for_the_stale_limit_after_lists_fail() {
    let mut script = list(&["a"]);
    for _ in 0..12 {
        script.extend(list_fails(500));
    }
    let watch = scripted(vec![script]);
    advance(10).await;
    assert_eq!(watch.store.health(), WatchHealth::default());
    advance(180).await;
    assert!(failed(&watch.store).is_some());
    assert_eq!(watch.store.len(), 1, "nothing is dropped");
}

#[tokio::test(start_paused = true)]
async fn a_denied_list_is_retried_every_sync_period() {
    for code in [401, 403, 405] {
        let watch = scripted(vec![list_fails(code), list_fails(code), list(&["a"])]);
        advance(1).await;
        assert!(failed(&watch.store).is_some(), "{code}");
        advance(300).await;
        assert_eq!(watch.starts(), [0, 120, 240], "{code}");
        assert_eq!(watch.store.health(), WatchHealth::default());
        assert_eq!(watch.notifications(), ["health", "health", "listed true"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_watched_is_polled() {
    let forbidden = |names: &[&str]| {
        let mut script = list(names);
        script.push(watch_fails(403));
        script
    };
    let watch = scripted(vec![forbidden(&["a"]), forbidden(&["a", "b"]), list(&["b"])]);
    advance(1).await;
    let reason = polled(&watch.store).unwrap();
    assert_eq!(reason, "failed to watch pods: status 403; polling every 120s instead");
    advance(120).await;
    assert_eq!(
        (watch.store.len(), watch.notifications().len()),
        (2, 4),
        "{:?}",
        watch.notifications()
    );
    // The third watch is allowed; it counts as healthy after the probation.
    advance(121).await;
    assert!(polled(&watch.store).is_some());
    advance(10).await;
    assert_eq!(watch.store.health(), WatchHealth::default());
    assert_eq!(watch.starts(), [0, 120, 240]);
    let expected = [
        "listed true",
        "health",
        "object true",
        "listed false",
        "object false",
        "listed false",
        "health",
    ];
    assert_eq!(watch.notifications(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_second_page_always_fails_becomes_stale() {
    // Each attempt delivers the first page.
    let interrupted = || {
        let mut script = list(&["a", "b"]);
        script.truncate(2);
        script.extend(list_fails(410));
        script
    };
    let mut scripts = vec![list(&["a"])];
    scripts[0].push(watch_fails(410));
    scripts.extend(std::iter::repeat_with(interrupted).take(50));
    let watch = scripted(scripts);
    advance(120).await;
    assert!(failed(&watch.store).is_some(), "{:?}", watch.starts());
    assert!(watch.starts().len() < 30, "the delay grows: {:?}", watch.starts());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_no_longer_served_is_reported() {
    let mut script = list(&[]);
    script.push(watch_fails(404));
    let watch = scripted(vec![script, list_fails(404)]);
    advance(5).await;
    assert!(
        watch
            .notifications()
            .starts_with(&["listed true".to_owned(), "not served".to_owned()]),
        "{:?}",
        watch.notifications()
    );
    assert_eq!(watch.store.health(), WatchHealth::default());
}

#[tokio::test(start_paused = true)]
async fn an_expired_resource_version_causes_a_relist() {
    let mut script = list(&["a"]);
    script.push(Err(watcher::Error::WatchError(Box::new(Status {
        code: 410,
        ..Status::default()
    }))));
    let watch = scripted(vec![script, list(&["b"])]);
    advance(5).await;
    assert_eq!(
        watch.notifications(),
        ["listed true", "object true", "object false", "listed false"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_missed_a_change_finds_it_at_the_next_list() {
    let period = Some(Duration::from_secs(3600));
    let watch = relisting(POLL, period, vec![list(&["a"]), list(&["b"]), list(&["b"])]);
    advance(3599).await;
    assert_eq!(watch.notifications(), ["listed true"]);
    advance(3602).await;
    assert_eq!(watch.starts(), [0, 3600, 7200]);
    assert_eq!(watch.notifications()[1..3], ["object true", "object false"]);
    assert_eq!(watch.store.health(), WatchHealth::default());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_keeps_failing_is_reported_and_its_objects_stay() {
    let mut script = list(&["a"]);
    script.extend((0..8).map(|_| watch_fails(500)));
    let watch = scripted(vec![script]);
    advance(10).await;
    assert_eq!(watch.store.health(), WatchHealth::default());
    advance(240).await;
    // It recovers after eight failures, and counts as healthy after the probation.
    assert_eq!(watch.notifications(), ["listed true", "health", "health"]);
    assert_eq!((watch.starts().len(), watch.store.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_response_times_out_and_is_retried() {
    // Twice, since a single backoff may be shorter than the test can observe.
    let unanswered = || vec![Ok(Event::Init)];
    let watch = scripted(vec![unanswered(), unanswered(), list(&["a"])]);
    advance(29).await;
    assert!(!watch.store.is_settled());
    advance(10).await;
    assert_eq!(
        failed(&watch.store).unwrap(),
        "failed to list pods: no response within 30s"
    );
    advance(40).await;
    assert!(watch.store.is_synced());
    assert_eq!(watch.starts().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_served_kind_without_a_working_list_is_reported_after_the_stale_limit() {
    let watch = scripted((0..20).map(|_| list_fails(404)).collect());
    advance(10).await;
    assert!(!watch.store.is_settled(), "its definition may be new");
    advance(120).await;
    assert_eq!(failed(&watch.store).as_deref(), Some("failed to list pods: status 404"));
}

#[tokio::test(start_paused = true)]
async fn briefly_missing_permissions_keep_the_last_state() {
    let expired = || {
        let mut script = list(&["a"]);
        script.push(watch_fails(410));
        script
    };
    for code in [401, 403] {
        let watch = scripted(vec![expired(), list_fails(code), list(&["a"])]);
        advance(60).await;
        assert_eq!(watch.notifications(), ["listed true", "listed false"], "{code}");
        let mut scripts = vec![expired()];
        scripts.extend((0..40).map(|_| list_fails(code)));
        let watch = scripted(scripts);
        advance(10).await;
        assert_eq!(watch.store.health(), WatchHealth::default(), "{code}");
        advance(120).await;
        assert!(failed(&watch.store).is_some(), "{code}");
        let before = watch.starts().len();
        advance(600).await;
        assert_eq!(watch.starts().len() - before, 5, "then every sync period");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_survives_a_panic() {
    let panicked = Mutex::new(true);
    let (watch, store) = unobserved(move || {
        assert!(!std::mem::take(&mut *panicked.lock()), "an unexpected object");
        stream::iter(list(&["a"])).chain(stream::pending()).boxed()
    });
    let task = tokio::spawn(watch.run_despite_panics());
    advance(1).await;
    assert!(failed(&store).unwrap().contains("internal error"));
    advance(60).await;
    assert_eq!((store.len(), store.health()), (1, WatchHealth::default()));
    task.abort();
}

/// An aggregated API server that generates its objects, such as the metrics server.
#[tokio::test(start_paused = true)]
async fn a_list_without_a_resource_version_is_polled() {
    let requests = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&requests);
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        *counter.lock() += 1;
        let list = r#"{"metadata": {}, "items": [{"metadata": {"name": "a"}}]}"#;
        let body = kube::client::Body::from(list.as_bytes().to_vec());
        async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
    });
    let client = Client::new(service, "default");
    let resource = Resource::of::<k8s_openapi::api::core::v1::Pod>(true);
    let (watch, store) = unobserved(move || events::<(), u32>(client.clone(), &resource, &Scope::All, |()| 0));
    let task = tokio::spawn(watch.run_despite_panics());
    advance(1).await;
    assert_eq!(store.len(), 1);
    let reason = "failed to watch pods: list response has no resourceVersion; polling every 120s instead";
    assert_eq!(polled(&store).as_deref(), Some(reason));
    let before = *requests.lock();
    advance(120).await;
    assert_eq!(*requests.lock(), 2 * before);
    assert!(polled(&store).is_some());
    task.abort();
}

//! Watches by scripts, on paused time.

use std::collections::VecDeque;
use std::sync::Mutex;

use futures::stream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Status;
use tokio::task::JoinHandle;

use super::*;

type Step = Result<Event<Object<u32>>, watcher::Error>;

const SYNC_PERIOD: Duration = Duration::from_secs(120);

/// A watch that goes by scripts, one for each time that it is begun; after the last, and after each, nothing comes.
struct Scripted {
    store: Arc<Store<u32>>,
    told: Arc<Mutex<Vec<String>>>,
    begun: Arc<Mutex<Vec<Instant>>>,
    task: JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn scripted(scripts: Vec<Vec<Step>>) -> Scripted {
    let scripts = Mutex::new(VecDeque::from(scripts));
    let store = Arc::new(Store::default());
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let begun: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (tell, begin) = (Arc::clone(&told), Arc::clone(&begun));
    let watch = Watch {
        what: "pods".to_owned(),
        open: Box::new(move || {
            begin.lock().unwrap().push(Instant::now());
            let script = scripts.lock().unwrap().pop_front().unwrap_or_default();
            stream::iter(script).chain(stream::pending()).boxed()
        }),
        store: Arc::clone(&store),
        sync_period: SYNC_PERIOD,
        told: Box::new(move |news| {
            tell.lock().unwrap().push(match news {
                News::Change(Change::Object { new, .. }) => format!("object {}", new.is_some()),
                News::Change(Change::Listed { first }) => format!("listed {first}"),
                News::Trouble => "trouble".to_owned(),
                News::NotServed => "not served".to_owned(),
            });
        }),
    };
    let task = tokio::spawn(watch.run());
    Scripted {
        store,
        told,
        begun,
        task,
    }
}

/// A watch that tells nobody.
fn unscripted(open: impl Fn() -> Events<u32> + Send + Sync + 'static) -> (Watch<u32>, Arc<Store<u32>>) {
    let store = Arc::new(Store::default());
    let watch = Watch {
        what: "pods".to_owned(),
        open: Box::new(open),
        store: Arc::clone(&store),
        sync_period: SYNC_PERIOD,
        told: Box::new(|_| {}),
    };
    (watch, store)
}

impl Scripted {
    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }

    /// Seconds after the start at which the watch was begun.
    fn begun(&self) -> Vec<u64> {
        let begun = self.begun.lock().unwrap();
        begun.iter().map(|time| (*time - begun[0]).as_secs()).collect()
    }
}

fn object(name: &str) -> Object<u32> {
    let meta = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    Object::new(meta, 0)
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

async fn after(seconds: u64) {
    // Paused time goes on only when nothing else can.
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_is_told_and_events_after_it() {
    let mut script = list(&["a"]);
    script.push(Ok(Event::Apply(object("b"))));
    script.push(Ok(Event::Delete(object("a"))));
    let watch = scripted(vec![script]);
    after(1).await;
    assert_eq!(watch.told(), ["listed true", "object true", "object false"]);
    assert_eq!((watch.store.len(), watch.store.trouble()), (1, Trouble::default()));
}

#[tokio::test(start_paused = true)]
async fn a_first_list_that_fails_is_known_at_once_and_forgotten_when_one_succeeds() {
    for code in [400, 429, 500] {
        let mut script = list_fails(code);
        script.extend(list(&["a"]));
        let watch = scripted(vec![script]);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(
            watch.store.trouble().failed.unwrap(),
            format!("can't list pods: status {code}")
        );
        assert!(watch.store.is_settled() && !watch.store.is_complete());
        after(5).await;
        assert_eq!(watch.told(), ["trouble", "trouble", "listed true"]);
        assert_eq!(watch.store.trouble(), Trouble::default());
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_is_believed_for_a_while_after_lists_fail() {
    let mut script = list(&["a"]);
    for _ in 0..12 {
        script.extend(list_fails(500));
    }
    let watch = scripted(vec![script]);
    after(10).await;
    assert_eq!(watch.store.trouble(), Trouble::default());
    after(180).await;
    assert!(watch.store.trouble().failed.is_some());
    assert_eq!(watch.store.len(), 1, "nothing is dropped");
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_listed_is_tried_again_each_sync_period() {
    for code in [401, 403, 405] {
        let watch = scripted(vec![list_fails(code), list_fails(code), list(&["a"])]);
        after(1).await;
        assert!(watch.store.trouble().failed.is_some(), "{code}");
        after(300).await;
        assert_eq!(watch.begun(), [0, 120, 240], "{code}");
        assert_eq!(watch.store.trouble(), Trouble::default());
        assert_eq!(watch.told(), ["trouble", "trouble", "listed true"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_be_listed_and_not_watched_is_listed_each_sync_period() {
    let forbidden = |names: &[&str]| {
        let mut script = list(names);
        script.push(watch_fails(403));
        script
    };
    let watch = scripted(vec![forbidden(&["a"]), forbidden(&["a", "b"]), list(&["b"])]);
    after(1).await;
    let polled = watch.store.trouble().polled.unwrap();
    assert_eq!(
        polled,
        "can't watch pods: status 403; they are listed every 120 s instead"
    );
    after(120).await;
    assert_eq!((watch.store.len(), watch.told().len()), (2, 4), "{:?}", watch.told());
    // The third watch is not refused any more: after a while that is believed.
    after(121).await;
    assert!(watch.store.trouble().polled.is_some());
    after(10).await;
    assert_eq!(watch.store.trouble(), Trouble::default());
    assert_eq!(watch.begun(), [0, 120, 240]);
    let told = [
        "listed true",
        "trouble",
        "object true",
        "listed false",
        "object false",
        "listed false",
        "trouble",
    ];
    assert_eq!(watch.told(), told);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_any_more_is_told() {
    let mut script = list(&[]);
    script.push(watch_fails(404));
    let watch = scripted(vec![script, list_fails(404)]);
    after(5).await;
    assert!(
        watch
            .told()
            .starts_with(&["listed true".to_owned(), "not served".to_owned()]),
        "{:?}",
        watch.told()
    );
    assert_eq!(watch.store.trouble(), Trouble::default());
}

#[tokio::test(start_paused = true)]
async fn a_version_that_has_expired_begins_with_a_list() {
    let mut script = list(&["a"]);
    script.push(Err(watcher::Error::WatchError(Box::new(Status {
        code: 410,
        ..Status::default()
    }))));
    let watch = scripted(vec![script, list(&["b"])]);
    after(5).await;
    assert_eq!(
        watch.told(),
        ["listed true", "object true", "object false", "listed false"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_for_long_is_told_and_its_objects_stay() {
    let mut script = list(&["a"]);
    script.extend((0..8).map(|_| watch_fails(500)));
    let watch = scripted(vec![script]);
    after(10).await;
    assert_eq!(watch.store.trouble(), Trouble::default());
    after(240).await;
    // Eight failures later it runs again, which is believed after a while.
    assert_eq!(watch.told(), ["listed true", "trouble", "trouble"]);
    assert_eq!((watch.begun().len(), watch.store.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_never_answered_is_given_up_and_begun_anew() {
    // Two in a row, since the wait between them may be over before anybody looks.
    let unanswered = || vec![Ok(Event::Init)];
    let watch = scripted(vec![unanswered(), unanswered(), list(&["a"])]);
    after(29).await;
    assert!(!watch.store.is_settled());
    after(10).await;
    assert_eq!(
        watch.store.trouble().failed.unwrap(),
        "can't list pods: no answer within 30 s"
    );
    after(40).await;
    assert!(watch.store.is_complete());
    assert_eq!(watch.begun().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_served_and_whose_objects_are_not_found_is_told_after_a_while() {
    let watch = scripted((0..20).map(|_| list_fails(404)).collect());
    after(10).await;
    assert!(!watch.store.is_settled(), "its definition may be new");
    after(120).await;
    assert_eq!(
        watch.store.trouble().failed.as_deref(),
        Some("can't list pods: status 404")
    );
}

#[tokio::test(start_paused = true)]
async fn rights_that_are_away_for_a_moment_make_nothing_unknown() {
    let cut = || {
        let mut script = list(&["a"]);
        script.push(watch_fails(410));
        script
    };
    for code in [401, 403] {
        let watch = scripted(vec![cut(), list_fails(code), list(&["a"])]);
        after(60).await;
        assert_eq!(watch.told(), ["listed true", "listed false"], "{code}");
        let mut scripts = vec![cut()];
        scripts.extend((0..40).map(|_| list_fails(code)));
        let watch = scripted(scripts);
        after(10).await;
        assert_eq!(watch.store.trouble(), Trouble::default(), "{code}");
        after(120).await;
        assert!(watch.store.trouble().failed.is_some(), "{code}");
        let begun = watch.begun().len();
        after(600).await;
        assert_eq!(watch.begun().len() - begun, 5, "from then on each sync period");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_no_watch() {
    let panicked = Mutex::new(true);
    let (watch, store) = unscripted(move || {
        assert!(!std::mem::take(&mut *panicked.lock().unwrap()), "an odd object");
        stream::iter(list(&["a"])).chain(stream::pending()).boxed()
    });
    let task = tokio::spawn(watch.run());
    after(1).await;
    assert!(store.trouble().failed.unwrap().contains("its log says where"));
    after(60).await;
    assert_eq!((store.len(), store.trouble()), (1, Trouble::default()));
    task.abort();
}

/// A server that makes up its objects when it is asked, as that of metrics does.
#[tokio::test(start_paused = true)]
async fn a_list_without_a_version_is_taken_each_sync_period() {
    #[derive(Clone, Debug)]
    struct Nothing;

    impl Project for Nothing {
        const READS: crate::runtime::watch::Reads = crate::runtime::watch::Reads::Metadata;

        fn keep(_: i64, _: Option<&serde_json::value::RawValue>, _: Option<&serde_json::value::RawValue>) -> Self {
            Self
        }
    }

    let asked = Arc::new(Mutex::new(0));
    let asking = Arc::clone(&asked);
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        *asking.lock().unwrap() += 1;
        let list = r#"{"metadata": {}, "items": [{"metadata": {"name": "a"}}]}"#;
        let body = kube::client::Body::from(list.as_bytes().to_vec());
        async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
    });
    let client = Client::new(service, "default");
    let resource = Resource {
        api: kube::core::ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()),
        is_namespaced: true,
        can_list: true,
    };
    let (watch, store) = unscripted(move || events::<Nothing, u32>(client.clone(), &resource, &Scope::All, |_| 0));
    let task = tokio::spawn(watch.run());
    after(1).await;
    assert_eq!(store.len(), 1);
    let polled = "can't watch pods: the API server gives the list no version; they are listed every 120 s instead";
    assert_eq!(store.trouble().polled.as_deref(), Some(polled));
    let before = *asked.lock().unwrap();
    after(120).await;
    assert_eq!(*asked.lock().unwrap(), 2 * before);
    assert!(store.trouble().polled.is_some());
    task.abort();
}

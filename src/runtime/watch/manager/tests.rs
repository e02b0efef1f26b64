//! Transitions between a cluster-wide watch and one watch per namespace.

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;
use kube::core::Status;
use kube::runtime::watcher::{self, Event};

use super::*;
use crate::runtime::watch::MAX_WATCHES;

type Step = Result<Event<Arc<Object<u32>>>, watcher::Error>;
type Senders = Arc<Mutex<BTreeMap<Scope, UnboundedSender<Step>>>>;

/// Watches of Pods whose events are sent by the test.
struct Fixture {
    watches: WatchManager<usize, u32>,
    senders: Senders,
    /// Number of `KindEvent::Kind` notifications.
    kind_events: Arc<Mutex<usize>>,
}

fn pods() -> GroupKind {
    GroupKind::new("", "Pod")
}

fn team(number: usize) -> String {
    format!("team-{number:02}")
}

/// Lets the watches process all sent events.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

impl Fixture {
    fn new() -> Self {
        Self::with(KindFilter {
            has_all_namespaced: true,
            ..KindFilter::default()
        })
    }

    fn with(kinds: KindFilter) -> Self {
        Self::lingering(Duration::ZERO, kinds)
    }

    fn lingering(linger: Duration, kinds: KindFilter) -> Self {
        let senders = Senders::default();
        let kind_events: Arc<Mutex<usize>> = Arc::default();
        let (opened, counter) = (Arc::clone(&senders), Arc::clone(&kind_events));
        let no_server = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
        });
        let watches = WatchManager::new(
            Client::new(no_server, "default"),
            WatchSettings {
                sync_period: Duration::from_secs(120),
                kinds,
                relist_period: None,
                linger,
                prefers_cluster_wide: false,
                max_watches: MAX_WATCHES,
            },
            move |_, _, _, scope| {
                let (sender, events) = unbounded();
                opened.lock().insert(scope.clone(), sender);
                events.boxed()
            },
            move |_, event| {
                if matches!(event, KindEvent::Kind) {
                    *counter.lock() += 1;
                }
            },
        );
        let resource = Resource::of::<Pod>(true);
        let mut served = Served::default();
        served.add(resource);
        watches.shared.kinds.write().served = ServedKinds::Known(served);
        Self {
            watches,
            senders,
            kind_events,
        }
    }

    /// Subscribes to Pods in the first `count` namespaces.
    async fn subscribe(&self, count: usize) {
        for number in 0..40 {
            if number < count {
                self.watches.subscribe(number, &team(number), BTreeSet::from([pods()]));
            } else {
                self.watches.unsubscribe(&number);
            }
        }
        self.update_watches().await;
    }

    async fn update_watches(&self) {
        let subscribed = self.watches.shared.subscriptions.lock().namespaces();
        self.watches.update_watches(&subscribed);
        settle().await;
    }

    async fn send(&self, scope: &Scope, steps: impl IntoIterator<Item = Step>) {
        for step in steps {
            let senders = self.senders.lock();
            senders[scope].unbounded_send(step).unwrap();
        }
        settle().await;
        self.update_watches().await;
    }

    /// Sends a complete list with one Pod per namespace.
    async fn list(&self, scope: &Scope) {
        let namespaces = match scope {
            Scope::All => (0..40).map(team).collect(),
            Scope::Namespace(namespace) => vec![namespace.clone()],
        };
        let pod = |namespace: String| {
            let meta = ObjectMeta {
                name: Some("pod".to_owned()),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            };
            Ok(Event::InitApply(Object::new(meta, 0).into()))
        };
        let list = [Ok(Event::Init)].into_iter().chain(namespaces.into_iter().map(pod));
        self.send(scope, list.chain([Ok(Event::InitDone)])).await;
    }

    async fn fail(&self, scope: &Scope, code: u16) {
        let status = kube::Error::Api(Box::new(Status {
            code,
            ..Status::default()
        }));
        self.send(scope, [Err(watcher::Error::InitialListFailed(status))]).await;
    }

    fn assert_complete(&self, count: usize) {
        for number in 0..count {
            let state = self.watches.state(&pods(), &team(number));
            assert!(
                matches!(&state, KindState::Objects(view) if view.objects.len() == 1),
                "{number}: {state:?}"
            );
        }
    }

    fn count(&self) -> usize {
        self.watches.size().0
    }
}

#[tokio::test(start_paused = true)]
async fn watches_stay_until_their_cluster_wide_replacement_is_complete() {
    // Denials are retried every sync period, other failures with backoff.
    for (code, retry) in [(403, 121), (429, 5), (500, 5)] {
        let fixture = Fixture::new();
        fixture.subscribe(20).await;
        for number in 0..20 {
            fixture.list(&Scope::Namespace(team(number))).await;
        }
        fixture.assert_complete(20);
        fixture.subscribe(21).await;
        assert_eq!(fixture.count(), 21, "the cluster-wide watch is being listed");
        fixture.fail(&Scope::All, code).await;
        fixture.assert_complete(20);
        let is_denied = code == 403;
        assert_eq!(fixture.count(), if is_denied { 22 } else { 21 }, "{code}");
        if is_denied {
            fixture.list(&Scope::Namespace(team(20))).await;
            fixture.assert_complete(21);
        }
        // The list succeeds at last.
        sleep(Duration::from_secs(retry)).await;
        let before = *fixture.kind_events.lock();
        fixture.list(&Scope::All).await;
        assert_eq!(fixture.count(), 1, "{code}");
        fixture.assert_complete(21);
        // Its first list, its recovered health, and the stopped watches.
        assert_eq!(*fixture.kind_events.lock() - before, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_wide_watch_stays_until_its_replacements_are_complete() {
    let fixture = Fixture::new();
    fixture.subscribe(21).await;
    fixture.list(&Scope::All).await;
    assert_eq!(fixture.count(), 1);
    fixture.subscribe(2).await;
    fixture.list(&Scope::Namespace(team(0))).await;
    fixture.fail(&Scope::Namespace(team(1)), 500).await;
    assert_eq!(fixture.count(), 3);
    fixture.assert_complete(2);
    sleep(Duration::from_secs(5)).await;
    let before = *fixture.kind_events.lock();
    fixture.list(&Scope::Namespace(team(1))).await;
    assert_eq!(fixture.count(), 2);
    assert!(*fixture.kind_events.lock() > before);
    fixture.assert_complete(2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_stops_ten_minutes_after_its_last_user() {
    let minute = Duration::from_mins(1);
    let fixture = Fixture::lingering(10 * minute, KindFilter::all());
    let running = tokio::spawn(fixture.watches.clone().run());
    let is_open = || !fixture.senders.lock()[&Scope::Namespace(team(0))].is_closed();
    fixture.watches.subscribe(0, &team(0), BTreeSet::from([pods()]));
    sleep(Duration::from_secs(1)).await;
    fixture.list(&Scope::Namespace(team(0))).await;
    fixture.watches.unsubscribe(&0);
    sleep(9 * minute).await;
    assert!(is_open());
    fixture.watches.subscribe(1, &team(0), BTreeSet::from([pods()]));
    sleep(20 * minute).await;
    fixture.watches.unsubscribe(&1);
    sleep(9 * minute).await;
    assert!(is_open());
    sleep(2 * minute).await;
    assert!(!is_open());
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn excluded_kinds_are_neither_subscribed_nor_watched() {
    let (node, other) = (GroupKind::new("", "Node"), GroupKind::new("example.com", "Widget"));
    let of = async |named: &[GroupKind], has_all_namespaced| {
        let fixture = Fixture::with(KindFilter {
            named: named.iter().cloned().collect(),
            has_all_namespaced,
            ..KindFilter::default()
        });
        if let ServedKinds::Known(served) = &mut fixture.watches.shared.kinds.write().served {
            served.add(Resource::of::<k8s_openapi::api::core::v1::Node>(false));
        }
        let all = BTreeSet::from([pods(), node.clone(), other.clone()]);
        fixture.watches.subscribe(1, "team", all);
        fixture.update_watches().await;
        let subscribed = fixture.watches.shared.subscriptions.lock().namespaces().len();
        let excluded = [&pods(), &node, &other].map(|kind| {
            let state = fixture.watches.state(kind, "team");
            matches!(state, KindState::Excluded)
        });
        (subscribed, fixture.count(), excluded)
    };
    assert_eq!(of(&[pods()], false).await, (1, 1, [false, true, true]));
    assert_eq!(
        of(&[node.clone(), other.clone()], false).await,
        (2, 1, [true, false, false])
    );
    // The scope of a kind is known after discovery.
    assert_eq!(of(&[], true).await, (3, 1, [false, true, false]));
}

#[tokio::test(start_paused = true)]
async fn scopes_beyond_the_limit_are_reported_and_watched_when_possible() {
    let fixture = Fixture::new();
    fixture.subscribe(2).await;
    fixture.list(&Scope::Namespace(team(0))).await;
    let omit = |omitted: BTreeSet<Scope>| {
        let mut kinds = fixture.watches.shared.kinds.write();
        let running = kinds.running.get_mut(&pods()).unwrap();
        running.watches.retain(|scope, _| !omitted.contains(scope));
        running.omitted = omitted;
    };
    omit(BTreeSet::from([Scope::Namespace(team(1))]));
    assert_eq!(fixture.watches.unwatched_kinds(), (1, 0));
    let KindState::Failed(message) = fixture.watches.state(&pods(), &team(1)) else {
        panic!("expected a failure")
    };
    assert!(
        message.contains("pods are not watched in this namespace: limit of 500 watches reached"),
        "{message}"
    );
    let before = *fixture.kind_events.lock();
    fixture.update_watches().await;
    assert_eq!(*fixture.kind_events.lock() - before, 1);
    assert!(matches!(fixture.watches.state(&pods(), &team(1)), KindState::Pending));
    fixture.list(&Scope::Namespace(team(1))).await;
    fixture.assert_complete(2);
}

#[tokio::test(start_paused = true)]
async fn an_assumed_write_is_visible_immediately_even_in_a_watch_whose_list_began_before_it() {
    let pod = |version: &str, owner: Option<&str>| {
        let owners: Vec<_> = owner
            .iter()
            .map(|uid| serde_json::json!({ "apiVersion": "v1", "kind": "X", "name": "x", "uid": uid }))
            .collect();
        let meta = serde_json::json!({
            "name": "pod", "namespace": team(0), "resourceVersion": version, "ownerReferences": owners,
        });
        serde_json::from_value::<ObjectMeta>(meta).unwrap()
    };
    let fixture = Fixture::new();
    let is_owned = || match fixture.watches.state(&pods(), &team(0)) {
        KindState::Objects(view) => view.objects[0].owner_references.has("u"),
        state => panic!("{state:?}"),
    };
    let wide = Scope::All;
    fixture.subscribe(21).await;
    fixture.list(&wide).await;
    fixture
        .send(&wide, [Ok(Event::Apply(Object::new(pod("5", None), 1).into()))])
        .await;
    fixture.subscribe(2).await;
    let narrow = Scope::Namespace(team(0));
    fixture.send(&narrow, [Ok(Event::Init)]).await;
    fixture.watches.assume(&pods(), pod("7", Some("u")));
    assert!(is_owned());
    let stale = Arc::new(Object::new(pod("5", None), 1));
    fixture
        .send(&narrow, [Ok(Event::InitApply(stale)), Ok(Event::InitDone)])
        .await;
    fixture.list(&Scope::Namespace(team(1))).await;
    assert_eq!(fixture.count(), 2, "the cluster-wide watch has stopped");
    assert!(is_owned());
    fixture
        .send(&narrow, [Ok(Event::Apply(Object::new(pod("8", None), 1).into()))])
        .await;
    assert!(!is_owned(), "other writers may remove it again");
}

#[tokio::test(start_paused = true)]
async fn an_object_is_found_only_in_a_watch_of_its_version_that_is_complete_and_current() {
    let fixture = Fixture::new();
    let find = |version: &str, name: &str| match fixture.watches.object(&pods(), version, &team(0), name) {
        ObjectState::Found(_) => "found",
        ObjectState::Absent => "absent",
        ObjectState::Unknown => "unknown",
    };
    assert_eq!(find("v1", "pod"), "unknown");
    fixture.subscribe(1).await;
    assert_eq!(find("v1", "pod"), "unknown");
    assert!(!fixture.watches.is_settled(&pods()));
    let scope = Scope::Namespace(team(0));
    fixture.list(&scope).await;
    assert!(fixture.watches.is_settled(&pods()));
    assert_eq!(
        [find("v1", "pod"), find("v1", "other"), find("v2", "pod")],
        ["found", "absent", "unknown"]
    );
    fixture.fail(&scope, 403).await;
    sleep(Duration::from_secs(60)).await;
    fixture.fail(&scope, 403).await;
    assert_eq!(find("v1", "pod"), "unknown");
    assert_eq!(fixture.watches.unwatched_kinds(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_assumed_object_replaces_the_projection_and_a_created_one_is_added_once() {
    let pod = |name: &str, version: &str, projection| {
        let meta = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(team(0)),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        Object::new(meta, projection)
    };
    let fixture = Fixture::new();
    fixture.subscribe(1).await;
    let scope = Scope::Namespace(team(0));
    fixture.list(&scope).await;
    fixture
        .send(&scope, [Ok(Event::Apply(pod("pod", "5", 1).into()))])
        .await;
    let find = |name: &str| match fixture.watches.object(&pods(), "v1", &team(0), name) {
        ObjectState::Found(object) => Some(object.projection),
        _ => None,
    };
    let assume =
        |version: &str, object, is_created| fixture.watches.assume_object(&pods(), version, object, is_created);
    assume("v1", pod("pod", "6", 2), false);
    assert_eq!(find("pod"), Some(2));
    assume("v2", pod("pod", "7", 3), false);
    assert_eq!(find("pod"), Some(2), "another version of the API has other fields");
    assume("v1", pod("new", "8", 1), false);
    assert_eq!(find("new"), None, "it has been deleted since");
    assume("v1", pod("new", "8", 1), true);
    assert_eq!(find("new"), Some(1));
}

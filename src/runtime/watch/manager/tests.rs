//! The change between one watch of the whole cluster and one for each namespace, by scripts.

use futures::channel::mpsc::{UnboundedSender, unbounded};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;
use kube::core::Status;
use kube::runtime::watcher::{self, Event};

use super::*;

type Step = Result<Event<Object<u32>>, watcher::Error>;
type Senders = Arc<Mutex<BTreeMap<Scope, UnboundedSender<Step>>>>;

/// Watches of Pods whose events the test sends.
struct Sent {
    watches: WatchManager<usize, u32>,
    senders: Senders,
    /// How often somebody was told to look at the kind again.
    told: Arc<Mutex<usize>>,
}

fn pods() -> GroupKind {
    GroupKind::new("", "Pod")
}

fn team(number: usize) -> String {
    format!("team-{number:02}")
}

/// Lets the watches take in what was sent.
async fn settled() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

impl Sent {
    fn new() -> Self {
        let senders = Senders::default();
        let told: Arc<Mutex<usize>> = Arc::default();
        let (opened, tell) = (Arc::clone(&senders), Arc::clone(&told));
        let nobody = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
        });
        let watches = WatchManager::new(
            Client::new(nobody, "default"),
            Settings {
                sync_period: Duration::from_secs(120),
            },
            move |_, _, _, scope| {
                let (sender, events) = unbounded();
                opened.lock().unwrap().insert(scope.clone(), sender);
                events.boxed()
            },
            move |_, told| {
                if matches!(told, KindEvent::Kind) {
                    *tell.lock().unwrap() += 1;
                }
            },
        );
        let resource = Resource {
            api: ApiResource::erase::<Pod>(&()),
            is_namespaced: true,
            can_list: true,
        };
        watches.shared.kinds_write().served = Served::Kinds(HashMap::from([(pods(), resource)]));
        Self { watches, senders, told }
    }

    /// Pods are needed in the first so many namespaces.
    async fn need(&self, count: usize) {
        for number in 0..40 {
            if number < count {
                self.watches.need(number, &team(number), BTreeSet::from([pods()]));
            } else {
                self.watches.release(&number);
            }
        }
        self.arrange().await;
    }

    async fn arrange(&self) {
        let needed = self.watches.shared.needs().namespaces();
        self.watches.arrange(&needed);
        settled().await;
    }

    async fn send(&self, scope: &Scope, steps: impl IntoIterator<Item = Step>) {
        for step in steps {
            let senders = self.senders.lock().unwrap();
            senders[scope].unbounded_send(step).unwrap();
        }
        settled().await;
        self.arrange().await;
    }

    /// The watch of a scope gives its list: a Pod in each namespace.
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
            Ok(Event::InitApply(Object::new(meta, 0)))
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

    fn assert_known(&self, count: usize) {
        for number in 0..count {
            let look = self.watches.look(&pods(), &team(number));
            assert!(
                matches!(&look, KindState::Objects(view) if view.objects.len() == 1),
                "{number}: {look:?}"
            );
        }
    }

    fn count(&self) -> usize {
        self.watches.size().0
    }
}

#[tokio::test(start_paused = true)]
async fn watches_stay_until_the_one_that_takes_their_place_holds_what_there_is() {
    // After a refusal it is tried again each sync period, after another failure soon.
    for (code, again) in [(403, 121), (429, 5), (500, 5)] {
        let sent = Sent::new();
        sent.need(20).await;
        for number in 0..20 {
            sent.list(&Scope::Namespace(team(number))).await;
        }
        sent.assert_known(20);
        sent.need(21).await;
        assert_eq!(sent.count(), 21, "the wide one is being listed");
        sent.fail(&Scope::All, code).await;
        sent.assert_known(20);
        sent.list(&Scope::Namespace(team(20))).await;
        sent.assert_known(21);
        // Once it may be listed after all.
        sleep(Duration::from_secs(again)).await;
        let told = *sent.told.lock().unwrap();
        sent.list(&Scope::All).await;
        assert_eq!(sent.count(), 1, "{code}");
        sent.assert_known(21);
        // Its own list, its trouble that is over, and the watches that are stopped.
        assert_eq!(*sent.told.lock().unwrap() - told, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wide_watch_stays_until_those_that_take_its_place_hold_what_there_is() {
    let sent = Sent::new();
    sent.need(21).await;
    sent.list(&Scope::All).await;
    assert_eq!(sent.count(), 1);
    sent.need(2).await;
    sent.list(&Scope::Namespace(team(0))).await;
    sent.fail(&Scope::Namespace(team(1)), 500).await;
    assert_eq!(sent.count(), 3);
    sent.assert_known(2);
    sleep(Duration::from_secs(5)).await;
    let told = *sent.told.lock().unwrap();
    sent.list(&Scope::Namespace(team(1))).await;
    assert_eq!(sent.count(), 2);
    assert!(*sent.told.lock().unwrap() > told);
    sent.assert_known(2);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_watched_for_want_of_room_is_told_and_watched_as_soon_as_there_is_some() {
    let sent = Sent::new();
    sent.need(2).await;
    sent.list(&Scope::Namespace(team(0))).await;
    let leave_out = |left_out: BTreeSet<Scope>| {
        let mut kinds = sent.watches.shared.kinds_write();
        let running = kinds.running.get_mut(&pods()).unwrap();
        running.watches.retain(|scope, _| !left_out.contains(scope));
        running.left_out = left_out;
    };
    leave_out(BTreeSet::from([Scope::Namespace(team(1))]));
    let KindState::Failed(why) = sent.watches.look(&pods(), &team(1)) else {
        panic!("it is known")
    };
    assert!(why.contains("pods are not watched here: 500 watches"), "{why}");
    let told = *sent.told.lock().unwrap();
    sent.arrange().await;
    assert_eq!(*sent.told.lock().unwrap() - told, 1);
    assert!(matches!(sent.watches.look(&pods(), &team(1)), KindState::Pending));
    sent.list(&Scope::Namespace(team(1))).await;
    sent.assert_known(2);
}

#[tokio::test(start_paused = true)]
async fn an_assumed_write_is_shown_at_once_and_by_a_watch_whose_list_began_before_it() {
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
    let sent = Sent::new();
    let is_owned = || match sent.watches.look(&pods(), &team(0)) {
        KindState::Objects(view) => view.objects[0].owner_references.has("u"),
        look => panic!("{look:?}"),
    };
    let wide = Scope::All;
    sent.need(21).await;
    sent.list(&wide).await;
    sent.send(&wide, [Ok(Event::Apply(Object::new(pod("5", None), 1)))])
        .await;
    sent.need(2).await;
    let narrow = Scope::Namespace(team(0));
    sent.send(&narrow, [Ok(Event::Init)]).await;
    sent.watches.assume(&pods(), pod("7", Some("u")));
    assert!(is_owned());
    let listed = Object::new(pod("5", None), 1);
    sent.send(&narrow, [Ok(Event::InitApply(listed)), Ok(Event::InitDone)])
        .await;
    sent.list(&Scope::Namespace(team(1))).await;
    assert_eq!(sent.count(), 2, "the wide one has stopped");
    assert!(is_owned());
    sent.send(&narrow, [Ok(Event::Apply(Object::new(pod("8", None), 1)))])
        .await;
    assert!(!is_owned(), "others may take it off again");
}

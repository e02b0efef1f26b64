use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::*;

const LIST: &str = "/apis/cluster.open-cluster-management.io/v1/managedclusters";
const DEADLINE: Duration = Duration::from_secs(600);

/// An API server, with or without the kind.
#[derive(Default)]
struct Server {
    is_served: AtomicBool,
    objects: Mutex<Vec<Value>>,
    /// Watches that ended because the kind is not served.
    ended: AtomicUsize,
}

impl Server {
    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let is_list = request.uri().path() == LIST;
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        while is_watch && self.is_served.load(Ordering::SeqCst) {
            sleep(Duration::from_secs(1)).await;
        }
        let (code, object) = if !self.is_served.load(Ordering::SeqCst) {
            self.ended.fetch_add(usize::from(is_watch), Ordering::SeqCst);
            (
                404,
                json!({ "code": 404, "reason": "NotFound", "message": "not found" }),
            )
        } else if is_list {
            let items = self.objects.lock().clone();
            (200, json!({ "metadata": { "resourceVersion": "5" }, "items": items }))
        } else {
            let resource = json!({
                "name": "managedclusters", "singularName": "", "namespaced": false, "kind": "ManagedCluster", "verbs": [],
            });
            (200, json!({ "groupVersion": API_VERSION, "resources": [resource] }))
        };
        let response = Response::builder().status(code);
        Ok(response.body(Body::from(object.to_string().into_bytes())).unwrap())
    }

    fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request| Arc::clone(&server).answer(request));
        Client::new(service, "default")
    }

    fn serve(&self, objects: Vec<Value>) {
        *self.objects.lock() = objects;
        self.is_served.store(true, Ordering::SeqCst);
    }
}

fn cluster(name: &str, urls: &[&str]) -> Value {
    let configs: Vec<Value> = urls.iter().map(|url| json!({ "url": url, "caBundle": "" })).collect();
    json!({
        "metadata": { "name": name, "uid": name, "resourceVersion": "1", "labels": { "region": "eu" } },
        "spec": { "hubAcceptsClient": true, "managedClusterClientConfigs": configs },
    })
}

async fn next(events: &mut UnboundedReceiver<MetadataEvent>) -> String {
    let event = timeout(DEADLINE, events.recv()).await.unwrap().unwrap();
    match event {
        MetadataEvent::Applied(meta) => format!("applied {}", meta.name.as_deref().unwrap()),
        MetadataEvent::Deleted(meta) => format!("deleted {}", meta.name.as_deref().unwrap()),
        event => format!("{event:?}"),
    }
}

async fn until(events: &mut UnboundedReceiver<MetadataEvent>, expected: &str) -> Vec<String> {
    let mut before = Vec::new();
    loop {
        match next(events).await {
            event if event == expected => return before,
            event => before.push(event),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn managed_clusters_are_watched_as_long_as_their_kind_is_served() {
    let server = Arc::new(Server::default());
    let (sender, mut events) = unbounded_channel();
    let watching = tokio::spawn(watch(server.client(), move |event| {
        let _ = sender.send(event);
    }));
    assert_eq!(next(&mut events).await, "NotServed");
    server.serve(vec![cluster("a", &["https://a"]), cluster("unreachable", &[])]);
    assert_eq!(until(&mut events, "Listed").await, ["applied a"]);

    // An API server that starts does not know the kind for a moment.
    server.is_served.store(false, Ordering::SeqCst);
    let ended = async {
        while server.ended.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(DEADLINE, ended).await.unwrap();
    server.serve(vec![cluster("b", &["https://b"])]);
    let reported = until(&mut events, "deleted a").await;
    assert!(!reported.contains(&"NotServed".to_owned()), "{reported:?}");

    server.is_served.store(false, Ordering::SeqCst);
    until(&mut events, "NotServed").await;
    watching.abort();
}

#[tokio::test]
async fn commands_find_the_managed_clusters_with_an_endpoint() {
    let server = Arc::new(Server::default());
    let client = server.client();
    assert!(managed_clusters(&client).await.unwrap().is_empty());
    server.serve(vec![cluster("a", &["https://a"]), cluster("unreachable", &[])]);
    let found = managed_clusters(&client).await.unwrap();
    let secrets: Vec<Secret> = found.into_iter().map(ManagedCluster::into_secret).collect();
    assert_eq!(secrets.len(), 1);
    assert_eq!(secrets[0].labels()[CREDENTIAL_TYPE], "ManagedCluster");
    assert_eq!(secrets[0].labels()["region"], "eu");
}

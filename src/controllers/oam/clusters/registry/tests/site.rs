//! A registry between two API servers in memory.

use std::collections::BTreeMap;
use std::future::pending;

use axum::body::Body as ResponseBody;
use axum::http::{Request, Response, Uri};
use k8s_openapi::ByteString;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;
use tower::BoxError;
use tower::util::BoxCloneSyncService;

use super::super::*;
use crate::http::{FetchError, Settings};

const NAMESPACE: &str = "vela-system";
const SECRETS: &str = "/api/v1/namespaces/vela-system/secrets";
const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const GATEWAY: &str = "/apis/cluster.core.oam.dev/v1alpha1/clustergateways/";
const POD: &str = "/api/v1/namespaces/sea/pods/a";
pub(super) const DEADLINE: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Default)]
pub(super) enum Mode {
    #[default]
    Up,
    Refusing,
    Hanging,
    /// Only requests for the Pod get no response.
    HangingPods,
    /// The requests of a new connection and probes get a response, others none.
    ProbesOnly,
    /// Reviews fail.
    WithoutReviews,
    /// The credential may not impersonate.
    WithoutImpersonation,
    /// The credential may impersonate ServiceAccounts only.
    ImpersonatingAccounts,
    /// Only the version has a response for anyone.
    Unauthorized,
    /// The task that sends the request panics.
    Panicking,
}

/// The API servers: the controller's own, which has the Secrets, and the one of all joined clusters.
#[derive(Default)]
pub(super) struct Servers {
    pub(super) secrets: Mutex<BTreeMap<String, Secret>>,
    pub(super) may_list: AtomicBool,
    /// The UID of the own cluster may not be read.
    pub(super) hides_uid: AtomicBool,
    pub(super) lists: Mutex<Vec<String>>,
    pub(super) mode: Mutex<Mode>,
    pub(super) remote_uid: Mutex<String>,
    pub(super) has_panicked: AtomicBool,
    /// The path and the time of requests to joined clusters.
    pub(super) requests: Mutex<Vec<(String, Instant)>>,
}

impl Servers {
    pub(super) async fn own(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if let Some(path) = request.uri().path().strip_prefix(GATEWAY) {
            let (_, path) = path.split_once("/proxy").unwrap();
            let request = Request::builder().method(request.method()).uri(path);
            let response = self.remote(request.body(Body::empty())?).await?;
            let (head, body) = response.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await?;
            return Ok(Response::from_parts(head, Body::from(body.to_vec())));
        }
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let (code, object) = match uri.path() {
            SYSTEM if self.hides_uid.load(Ordering::SeqCst) => {
                (403, json!({ "code": 403, "message": "namespaces is forbidden" }))
            }
            SYSTEM => (200, json!({ "metadata": { "name": "kube-system", "uid": "own" } })),
            SECRETS if query.contains("watch=true") => pending().await,
            SECRETS if self.may_list.load(Ordering::SeqCst) => {
                let accept = request.headers().get("accept").unwrap().to_str().unwrap();
                self.lists.lock().push(format!("{query} {accept}"));
                let secrets = self.secrets.lock();
                let items: Vec<Value> = secrets
                    .values()
                    .map(|secret| json!({ "metadata": secret.metadata }))
                    .collect();
                (200, json!({ "metadata": { "resourceVersion": "5" }, "items": items }))
            }
            SECRETS => (403, json!({ "code": 403, "message": "secrets is forbidden" })),
            path => match self
                .secrets
                .lock()
                .get(path.trim_start_matches(SECRETS).trim_matches('/'))
            {
                Some(secret) => (200, json!(secret)),
                None => (
                    404,
                    json!({ "code": 404, "reason": "NotFound", "message": "no Secret" }),
                ),
            },
        };
        let response = Response::builder().status(code);
        Ok(response.body(Body::from(object.to_string().into_bytes()))?)
    }

    pub(super) async fn remote(self: Arc<Self>, request: Request<Body>) -> Result<Response<ResponseBody>, BoxError> {
        let path = request.uri().path().to_owned();
        self.requests.lock().push((path.clone(), Instant::now()));
        let mode = *self.mode.lock();
        let object = match (mode, path.as_str()) {
            (Mode::Panicking, _) => {
                self.has_panicked.store(true, Ordering::SeqCst);
                panic!("a request that panics");
            }
            (Mode::Hanging, _) | (Mode::HangingPods, POD) => pending().await,
            (Mode::Refusing, _) | (Mode::ProbesOnly, POD) => {
                let (host, detail) = ("prod:6443".to_owned(), "connection refused".to_owned());
                return Err(FetchError::Connect { host, detail }.into());
            }
            (_, "/version") => json!({ "gitVersion": "v1.35.0" }),
            (Mode::Unauthorized, _) => {
                let response = Response::builder().status(401);
                return Ok(response.body(ResponseBody::empty())?);
            }
            (_, SYSTEM) => json!({ "metadata": { "uid": *self.remote_uid.lock() } }),
            (_, POD) => json!({ "metadata": { "name": "a" } }),
            (Mode::WithoutReviews, _) => {
                let response = Response::builder().status(500);
                return Ok(response.body(ResponseBody::empty())?);
            }
            (Mode::WithoutImpersonation, _) => json!({ "status": { "allowed": false } }),
            (Mode::ImpersonatingAccounts, REVIEWS) => {
                let review = request.into_body().collect_bytes().await?;
                let review: Value = serde_json::from_slice(&review)?;
                let is_allowed = review["spec"]["resourceAttributes"]["resource"] == "serviceaccounts";
                json!({ "status": { "allowed": is_allowed } })
            }
            _ => json!({ "status": { "allowed": true } }),
        };
        Ok(Response::new(ResponseBody::from(object.to_string())))
    }
}

pub(super) struct Site {
    pub(super) clusters: JoinedClusters,
    pub(super) servers: Arc<Servers>,
    pub(super) changes: UnboundedReceiver<String>,
}

impl Site {
    pub(super) fn new() -> Self {
        let servers = Arc::new(Servers::default());
        let own = Arc::clone(&servers);
        let client = Client::new(
            tower::service_fn(move |request| Arc::clone(&own).own(request)),
            NAMESPACE,
        );
        let remote = Arc::clone(&servers);
        let connector: Connector = Box::new(move |_| {
            let remote = Arc::clone(&remote);
            let server = tower::service_fn(move |request| Arc::clone(&remote).remote(request));
            let url = Uri::from_static("https://prod:6443");
            async move { Ok((BoxCloneSyncService::new(server), url)) }.boxed()
        });
        let settings = ClusterSettings {
            gateway: client.clone(),
            client,
            namespace: NAMESPACE.to_owned(),
            fetcher: Fetcher::new(Settings::default()).unwrap(),
            allow_insecure: false,
            requests: RequestMetrics::default(),
            write_fence: None,
        };
        let clusters = JoinedClusters::with_connector(settings, connector);
        let (sender, changes) = unbounded_channel();
        clusters.on_change(move |name| {
            let _ = sender.send(name.to_owned());
        });
        Self {
            clusters,
            servers,
            changes,
        }
    }

    pub(super) fn listed() -> Self {
        let site = Self::new();
        site.clusters.0.apply(ClusterSource::Secret, MetadataEvent::Listed);
        site.clusters
            .0
            .apply(ClusterSource::ManagedCluster, MetadataEvent::NotServed);
        site
    }

    /// With the cluster `prod`.
    pub(super) fn joined() -> Self {
        let site = Self::listed();
        site.store(secret("prod", "hunter2", "1"));
        site
    }

    pub(super) fn set(&self, mode: Mode) {
        *self.servers.mode.lock() = mode;
    }

    /// Stores a Secret, and reports it as its watch would.
    pub(super) fn store(&self, secret: Secret) {
        let meta = Arc::new(secret.metadata.clone());
        let name = meta.name.clone().unwrap();
        self.servers.secrets.lock().insert(name, secret);
        let applied = MetadataEvent::Applied(meta);
        self.clusters.0.apply(ClusterSource::Secret, applied);
    }

    pub(super) fn remove(&self, name: &str) {
        let secret = self.servers.secrets.lock().remove(name).unwrap();
        let deleted = MetadataEvent::Deleted(Arc::new(secret.metadata));
        self.clusters.0.apply(ClusterSource::Secret, deleted);
    }

    /// Reports a ManagedCluster as its watch would.
    pub(super) fn manage(&self, name: &str, event: fn(Arc<ObjectMeta>) -> MetadataEvent) {
        let meta = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([("region".to_owned(), "us".to_owned())].into()),
            ..ObjectMeta::default()
        };
        self.clusters
            .0
            .apply(ClusterSource::ManagedCluster, event(Arc::new(meta)));
    }

    pub(super) fn error(&self, name: &str) -> ClusterError {
        self.clusters.connection(name).err().unwrap()
    }

    pub(super) async fn tried(&self, name: &str) {
        self.clusters.wait_until_tried(&[name.to_owned()].into()).await;
    }

    pub(super) async fn up(&mut self, name: &str) -> Arc<Connection> {
        let up = async {
            loop {
                match self.clusters.connection(name) {
                    Ok(connection) => return connection,
                    Err(_) => self.changes.recv().await.unwrap(),
                };
            }
        };
        timeout(DEADLINE, up).await.unwrap()
    }

    pub(super) fn changes(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.changes.try_recv().ok()).collect()
    }

    pub(super) fn probes_since(&self, start: Instant) -> Vec<Duration> {
        let requests = self.servers.requests.lock();
        let probes = requests
            .iter()
            .filter(|(path, time)| path == "/version" && *time > start);
        probes.map(|(_, time)| *time - start).collect()
    }
}

pub(super) fn secret(name: &str, token: &str, version: &str) -> Secret {
    let values = [
        ("endpoint", "https://10.0.0.1:6443"),
        ("ca.crt", "PEM"),
        ("token", token),
    ];
    let data = values.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
    let labels = [(CREDENTIAL_TYPE, "ServiceAccountToken"), ("region", "eu")];
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: Some(version.to_owned()),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        data: Some(data.into()),
        ..Secret::default()
    }
}

pub(super) fn typed(name: &str, type_: &str) -> Secret {
    let mut secret = secret(name, "hunter2", "1");
    let labels = secret.metadata.labels.get_or_insert_default();
    labels.insert(CREDENTIAL_TYPE.to_owned(), type_.to_owned());
    secret
}

pub(super) async fn get_pod(connection: &Connection) -> Result<Value, kube::Error> {
    let request = Request::get(POD).body(Vec::new()).unwrap();
    connection.client.request(request).await
}

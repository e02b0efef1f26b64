//! Clusters behind cluster-gateway. A proxy of the API server takes the part of its aggregated API.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Response, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::fleet::{Fleet, PATIENT, TOKEN, assert_kept, has, placed, placed_by};
use crate::oam_apps::accounts;
use crate::oam_apps::apps::config;
use crate::oam_apps::{APPLICATION, CONFIG_MAP};
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::support::eventually::SOON;
use crate::support::forward::Upstream;
use crate::support::portolan::Portolan;

const API: &str = "/apis/cluster.core.oam.dev/v1alpha1";
const OCM: &str = "/apis/cluster.open-cluster-management.io/v1";
const USER: &str = "impersonate-user";

/// The own API server with cluster-gateway, which reaches one cluster as an administrator.
struct Gateway {
    own: Upstream,
    cluster: Upstream,
    is_served: AtomicBool,
    /// The objects of Open Cluster Management, which is not installed without any.
    managed: Vec<Value>,
    /// The users who wrote through it.
    writers: Mutex<Vec<String>>,
}

impl Gateway {
    /// Returns a kubeconfig for the own API server.
    async fn start(fleet: &Fleet, managed: Vec<Value>) -> (Arc<Self>, PathBuf) {
        let upstream = |control_plane: &ControlPlane| Upstream::new(&control_plane.url(), Some(control_plane.ca_pem()));
        let own = fleet.site.control_plane;
        let gateway = Arc::new(Self {
            own: upstream(own),
            cluster: upstream(fleet.east.control_plane),
            is_served: AtomicBool::new(true),
            managed,
            writers: Mutex::default(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = Router::new().fallback(answer).with_state(Arc::clone(&gateway));
        tokio::spawn(async move { axum::serve(listener, service).await });
        (gateway, own.kubeconfig_for(&url, ADMIN_TOKEN))
    }

    /// Sends a request to the cluster with the rights of an administrator.
    async fn proxy(&self, path: &str, mut request: Request) -> Response<Body> {
        let user = request.headers_mut().remove(USER);
        let user = user.map_or_else(String::new, |user| user.to_str().unwrap().to_owned());
        if request.method() != Method::GET && path.contains("/configmaps") {
            self.writers.lock().unwrap().push(user);
        }
        let query = request
            .uri()
            .query()
            .map_or_else(String::new, |query| format!("?{query}"));
        *request.uri_mut() = format!("{path}{query}").parse().unwrap();
        let token = HeaderValue::from_str(&format!("Bearer {ADMIN_TOKEN}")).unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, token);
        self.cluster.answer(request).await.unwrap_or_else(|| text(502))
    }

    async fn managed(&self, path: &str, is_watch: bool) -> Response<Body> {
        match path {
            _ if self.managed.is_empty() => text(404),
            "" => api(OCM, "managedclusters", "ManagedCluster"),
            "/managedclusters" if is_watch => std::future::pending().await,
            "/managedclusters" => object(&json!({ "metadata": { "resourceVersion": "1" }, "items": self.managed })),
            _ => text(404),
        }
    }
}

async fn answer(State(gateway): State<Arc<Gateway>>, request: Request) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let of_gateway = path.strip_prefix(API);
    if of_gateway.is_some() && !gateway.is_served.load(Ordering::SeqCst) {
        return text(404);
    }
    match of_gateway.and_then(|path| path.strip_prefix("/clustergateways/east/proxy")) {
        Some(path) => return gateway.proxy(path, request).await,
        None if of_gateway.is_some() => return api(API, "clustergateways", "ClusterGateway"),
        None => {}
    }
    match path.strip_prefix(OCM) {
        Some(path) => {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            gateway.managed(path, is_watch).await
        }
        None => gateway.own.answer(request).await.unwrap_or_else(|| text(502)),
    }
}

fn api(path: &str, plural: &str, kind: &str) -> Response<Body> {
    let version = path.strip_prefix("/apis/").unwrap();
    let resource = json!({ "name": plural, "singularName": "", "namespaced": false, "kind": kind, "verbs": ["get"] });
    object(&json!({ "kind": "APIResourceList", "groupVersion": version, "resources": [resource] }))
}

fn object(object: &Value) -> Response<Body> {
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response.body(Body::from(object.to_string())).unwrap()
}

/// An answer of an API server that does not have the path.
fn text(code: u16) -> Response<Body> {
    let response = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "text/plain");
    response.body(Body::from("404 page not found\n")).unwrap()
}

impl Fleet {
    async fn portolan_of(&self, kubeconfig: &std::path::Path) -> Portolan {
        let portolan = self.site.start(kubeconfig, &self.flags(&[PATIENT]));
        portolan.ready(SOON).await;
        portolan
    }

    async fn join_gateway(&self) {
        let labels = json!({ "cluster.core.oam.dev/cluster-endpoint-type": "ClusterProxy" });
        self.join_with("east", TOKEN, labels, json!({})).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_is_deployed_and_deleted_through_the_gateway_and_survives_its_absence() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let (gateway, kubeconfig) = Gateway::start(&fleet, Vec::new()).await;
    fleet.join_gateway().await;
    let _portolan = fleet.portolan_of(&kubeconfig).await;
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    site.until_running("shop").await;
    assert_kept(east, "settings", "one").await;

    gateway.is_served.store(false, Ordering::SeqCst);
    site.declare("other", placed(&[config("other", "one")], &["east"]))
        .await;
    site.until_said("other", "install cluster-gateway").await;
    // What is not found without the gateway is not gone.
    site.delete(APPLICATION, "shop").await;
    fleet.until_waiting("shop", "east").await;
    assert_eq!(fleet.records("shop", "east").await.len(), 1);
    assert!(east.get(CONFIG_MAP, "settings").await.is_some());

    gateway.is_served.store(true, Ordering::SeqCst);
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
    site.until_running("other").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_managed_cluster_is_selected_by_its_labels() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let managed = |name: &str, configs: Value| {
        json!({
            "metadata": { "name": name, "uid": name, "resourceVersion": "1", "labels": { "region": "far" } },
            "spec": { "managedClusterClientConfigs": configs },
        })
    };
    let all = vec![
        managed("east", json!([{ "url": "https://east.example" }])),
        managed("unreachable", json!([])),
    ];
    let (_gateway, kubeconfig) = Gateway::start(&fleet, all).await;
    let _portolan = fleet.portolan_of(&kubeconfig).await;
    let far = json!({ "clusterLabelSelector": { "region": "far" } });
    site.declare("shop", placed_by(&[config("settings", "one")], far)).await;
    site.until_running("shop").await;
    assert!(has("one")(&east.get(CONFIG_MAP, "settings").await.unwrap()));
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_own_api_server_gets_the_identity_of_requests_through_the_gateway() {
    let fleet = Fleet::without_clusters().await;
    let site = &fleet.site;
    let (gateway, kubeconfig) = Gateway::start(&fleet, Vec::new()).await;
    fleet.join_gateway().await;
    let _portolan = fleet.portolan_of(&kubeconfig).await;
    accounts::declare(site, "shop", placed(&[config("settings", "one")], &["east"])).await;
    site.until_running("shop").await;
    let writers = gateway.writers.lock().unwrap().clone();
    let user = format!("system:serviceaccount:{}:deployer", site.namespace);
    assert!(
        !writers.is_empty() && writers.iter().all(|writer| *writer == user),
        "{writers:?}"
    );
}

//! `portolan vela logs`, against a server that answers like an API server with a kubelet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use super::{Output, execute};

/// An API server with one Application, whose pods write a line per read.
struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

fn application() -> Value {
    json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
        "metadata": { "name": "shop", "namespace": "default", "uid": "u", "resourceVersion": "1" },
        "spec": { "components": [] },
        "status": { "workflow": {
            "contextBackend": { "name": "workflow-shop-context" },
            "steps": [{ "id": "s1", "name": "build" }, { "id": "s2", "name": "note" }, { "id": "s3", "name": "plain" }],
        } },
    })
}

fn context() -> Value {
    let resources = json!([
        { "labelSelector": { "job": "build" } }, { "name": "gone" }, { "name": "../../secrets/x" }, { "cluster": "edge", "labelSelector": { "job": "build" } },
        {},
    ]);
    let logs = json!({
        "build": { "source": { "resources": resources } },
        "note": { "data": true, "source": { "url": "https://logs.example/note" } },
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "workflow-shop-context", "namespace": "default", "ownerReferences": [
            { "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "name": "shop", "uid": "u" },
        ] },
        "data": { "logConfig": logs.to_string() },
    })
}

fn pod(name: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [{ "name": "main" }] }, "status": { "phase": phase },
    })
}

/// Returns the log of a pod: `reads` lines with the times of consecutive seconds.
fn log(query: &str, reads: usize) -> String {
    let lines = (1..=reads).map(|line| match query.contains("timestamps=true") {
        true => format!("2026-01-02T03:04:{line:02}.5Z line {line}\u{1b}[31m\n"),
        false => format!("line {line}\u{1b}[31m\n"),
    });
    lines.collect()
}

/// The Secret of cluster edge, which is reached without TLS.
fn joined(address: SocketAddr) -> Value {
    let data = [
        ("endpoint", format!("http://{address}")),
        ("token", "hunter2".to_owned()),
    ];
    let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())));
    let mut secret = serde_json::to_value(Secret {
        data: Some(data.into()),
        ..Secret::default()
    })
    .unwrap();
    let labels = json!({ "cluster.core.oam.dev/cluster-credential-type": "ServiceAccountToken" });
    secret["metadata"] = json!({ "name": "edge", "namespace": "vela-system", "labels": labels });
    secret
}

fn answer(uri: &Uri, requests: &AtomicUsize, edge: Option<SocketAddr>) -> Response {
    let query = uri.query().unwrap_or_default();
    let reads = requests.load(Ordering::SeqCst);
    // The pods end after some reads.
    let phase = if reads > 5 { "Succeeded" } else { "Running" };
    match uri.path() {
        "/apis/core.oam.dev/v1beta1/namespaces/default/applications/shop" => application().to_string().into_response(),
        "/api/v1/namespaces/default/configmaps/workflow-shop-context" => context().to_string().into_response(),
        "/api/v1/namespaces/default/pods" => {
            assert!(
                query.contains("labelSelector=job%3Dbuild") && query.contains("limit=20"),
                "{query}"
            );
            let items = [pod("build-1", phase), pod("build-2", phase)];
            json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items })
                .to_string()
                .into_response()
        }
        "/api/v1/namespaces/default/pods/build-1/log" => {
            assert!(query.contains("limitBytes="), "{query}");
            log(query, requests.fetch_add(1, Ordering::SeqCst) + 1).into_response()
        }
        "/api/v1/namespaces/default/pods/build-2/log" => {
            let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 400,
                "reason": "BadRequest", "message": "container \"main\" is waiting to start" });
            (StatusCode::BAD_REQUEST, status.to_string()).into_response()
        }
        "/api/v1/namespaces/default/pods/gone" => not_found("pods \"gone\" not found"),
        "/api/v1/namespaces/vela-system/secrets/edge" => match edge {
            Some(address) => joined(address).to_string().into_response(),
            None => not_found("secrets \"edge\" not found"),
        },
        "/apis/cluster.open-cluster-management.io/v1" => not_found("the server could not find the requested resource"),
        "/version" => json!({ "major": "1", "minor": "35", "gitVersion": "v1.35.0" })
            .to_string()
            .into_response(),
        path => panic!("unexpected request: {path}"),
    }
}

fn not_found(message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": message,
    });
    (StatusCode::NOT_FOUND, status.to_string()).into_response()
}

impl Server {
    async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts a server to which cluster edge is joined.
    async fn start_with(edge: Option<SocketAddr>) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let service = Router::new().fallback(move |uri: Uri| {
            let counter = Arc::clone(&counter);
            async move { answer(&uri, &counter, edge) }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self { address, requests }
    }

    async fn logs(&self, arguments: &[&str]) -> Output {
        let apiserver = format!("http://{}", self.address);
        let cluster = ["vela", "logs", "shop", "-n", "default", "--apiserver", &apiserver];
        execute(&[&cluster, arguments].concat()).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_the_pods_of_a_step_are_printed() {
    let server = Server::start().await;
    let output = server.logs(&["--step", "build"]).await;
    assert_eq!(output.code, Some(1));
    assert!(output.stdout.contains("build-1/main: line 1 [31m\n"), "{output:?}");
    let note = "pods in cluster edge are not shown: no such cluster in namespace vela-system";
    assert!(output.stdout.contains(note), "{output:?}");
    let error = "error: build-2/main: container \"main\" is waiting to start";
    assert!(output.stderr.contains(error), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_in_joined_clusters_are_shown_with_their_cluster() {
    let edge = Server::start().await;
    let server = Server::start_with(Some(edge.address)).await;
    let joined = ["--step", "build", "--allow-insecure-clusters"];
    let output = server.logs(&joined).await;
    assert!(output.stdout.contains("build-1/main: line 1 "), "{output:?}");
    assert!(
        output.stdout.contains("build-1/main in cluster edge: line 1 "),
        "{output:?}"
    );
    let only = server.logs(&[&joined[..], &["--cluster", "edge"]].concat()).await;
    assert!(
        only.stdout.contains("build-1/main in cluster edge: line 2 "),
        "{only:?}"
    );
    assert!(!only.stdout.contains("build-1/main: "), "{only:?}");
    let refused = server.logs(&["--step", "build"]).await;
    let note = "pods in cluster edge are not shown: endpoint is not https";
    assert!(refused.stdout.contains(note), "{refused:?}");
    assert!(!format!("{output:?}{only:?}{refused:?}").contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_lines_are_printed_once_until_the_pods_have_ended() {
    let server = Server::start().await;
    let output = server
        .logs(&["--step", "build", "--follow", "--timeout", "60s"])
        .await
        .ok();
    let reads = server.requests.load(Ordering::SeqCst);
    assert!(reads > 5, "{output}");
    let lines: Vec<_> = output
        .lines()
        .filter(|line| line.starts_with("build-1/main: "))
        .collect();
    let expected: Vec<_> = (1..=reads)
        .map(|line| format!("build-1/main: line {line} [31m"))
        .collect();
    assert_eq!(lines, expected);
    assert_eq!(output.matches("is waiting to start").count(), 1, "{output}");
    assert_eq!(
        output.matches("pods in cluster edge are not shown").count(),
        1,
        "{output}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_are_elsewhere_are_named() {
    let server = Server::start().await;
    let output = server.logs(&["--step", "note"]).await.ok();
    assert!(
        output.contains("log of the controller, which is not shown; look there for stepSessionID s2"),
        "{output}"
    );
    assert!(
        output.contains("logs of step note: https://logs.example/note\n"),
        "{output}"
    );
    let error = server.logs(&[]).await.failed(2);
    assert!(error.contains("choose a step with --step: build, note"), "{error}");
    let error = server.logs(&["--step", "plain"]).await.failed(1);
    assert!(
        error.contains("step plain has no logs; these steps have: build, note"),
        "{error}"
    );
    let error = server.logs(&["--step", "other"]).await.failed(1);
    assert!(error.contains("the workflow has run no step other"), "{error}");
}

//! A workflow ends the same wherever its process is killed, and whichever of its writes fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::Method;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::apps::{config, web};
use super::site::Site;
use super::{APPLICATION, CONFIG_MAP, DEPLOYMENT, REVISION};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiFault, ApiRequest};

const LEASE: &str = "coordination.k8s.io/v1 Lease";
/// Runs at the same time.
const CONCURRENCY: usize = 4;
/// Fewer writes than a run has: revision, finalizer, trackers, values, objects and status.
const FEWEST_WRITES: usize = 12;

/// A fault of the process or of the API server at a write.
#[derive(Clone, Copy, Debug)]
enum Interruption {
    /// The process is killed before it.
    Killed,
    /// It fails, and the process continues.
    Refused,
    /// The process does not learn that it succeeds.
    ResponseLost,
}

/// Steps of all kinds: a component with an output, an applied object with an output, a suspension, and a group whose steps
/// take the values.
fn spec(namespace: &str) -> Value {
    let output = |name: &str, path: &str| json!([{ "name": name, "valueFrom": path }]);
    let input = |name: &str| json!([{ "from": name, "parameterKey": "objects[0].data.key" }]);
    let applied =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "applied", "namespace": namespace } });
    let mut first = step("first", "apply-component", json!({ "component": "first" }));
    first["outputs"] = output("region", "output.data.key");
    let mut object = step("object", "apply-object", json!({ "value": applied }));
    object["outputs"] = output("uid", "apply.$returns.value.metadata.uid");
    let mut second = step("second", "apply-component", json!({ "component": "second" }));
    second["inputs"] = input("region");
    let mut third = step("third", "apply-component", json!({ "component": "third" }));
    third["inputs"] = input("uid");
    let group = json!({ "name": "both", "type": "step-group", "subSteps": [second, third] });
    let pause = step("pause", "suspend", json!({ "duration": "1s" }));
    json!({
        "components": [config("first", "eu"), config("second", "none"), config("third", "none")],
        "workflow": { "steps": [first, object, pause, group] },
    })
}

fn step(name: &str, type_: &str, properties: Value) -> Value {
    json!({ "name": name, "type": type_, "properties": properties })
}

/// Returns the end of a run, without times and generated names, and the number of its writes.
async fn run(interruption: Option<(Interruption, usize)>) -> (Value, usize) {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let writes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&writes);
    let (kind, at) = interruption.unwrap_or((Interruption::Refused, usize::MAX));
    let fault = match kind {
        Interruption::Killed | Interruption::Refused => ApiFault::Refused,
        Interruption::ResponseLost => ApiFault::ResponseLost,
    };
    proxy.inject(usize::MAX, fault, move |request| {
        let write = is_write(request).then(|| counter.fetch_add(1, Ordering::SeqCst));
        match kind {
            Interruption::Killed => write.is_some_and(|write| write >= at),
            _ => write == Some(at),
        }
    });
    let mut portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;
    site.declare("shop", spec(&site.namespace)).await;
    if matches!(interruption, Some((Interruption::Killed, _))) {
        eventually(SOON, "the write", async || {
            let written = writes.load(Ordering::SeqCst);
            let app = site.get(APPLICATION, "shop").await.unwrap_or_default();
            // Timing may save a write.
            let is_over = written > at || app["status"]["status"] == "running";
            if is_over { Ok(()) } else { Err(written) }
        })
        .await;
        portolan.signal("KILL");
        portolan.exit(SOON).await;
        proxy.clear_faults();
        // It would expire.
        let (all, leases) = (ListParams::default(), site.api(LEASE));
        leases.delete_collection(&DeleteParams::default(), &all).await.unwrap();
        portolan = site.start(&kubeconfig, &[]);
        portolan.ready(SOON).await;
    }
    let app = site.until_running("shop").await;
    assert_paused(&app);
    let end = end_of(&site, &app).await;
    (end, writes.load(Ordering::SeqCst))
}

/// Returns true for a write of the workflow. Events and renewals of the Lease come at any time.
fn is_write(request: &ApiRequest) -> bool {
    let is_other = ["/leases", "/events"].iter().any(|part| request.path.contains(part));
    request.method != Method::GET && !is_other
}

/// Asserts that the suspension has lasted.
fn assert_paused(app: &Value) {
    let pause = &app["status"]["workflow"]["steps"][2];
    let time = |field: &str| pause[field].as_str().unwrap().parse::<Timestamp>().unwrap();
    let paused = time("lastExecuteTime").duration_since(time("firstExecuteTime"));
    assert!(paused.as_secs() >= 1, "{pause:#}");
}

async fn end_of(site: &Site, app: &Value) -> Value {
    let objects = ["first", "second", "third", "applied"].map(async |name| {
        let object = site.get(CONFIG_MAP, name).await.unwrap();
        (
            name.to_owned(),
            json!([
                object["data"],
                object["metadata"]["labels"],
                object["metadata"]["annotations"]
            ]),
        )
    });
    let objects: BTreeMap<String, Value> = futures::future::join_all(objects).await.into_iter().collect();
    let mut trackers: Vec<Value> = Vec::new();
    for tracker in site.trackers("shop").await {
        let mut entries = tracker["spec"]["managedResources"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        entries.sort_by_key(ToString::to_string);
        trackers.push(json!([tracker["metadata"]["name"], tracker["spec"]["type"], entries]));
    }
    trackers.sort_by_key(ToString::to_string);
    let revision = site.get(REVISION, "shop-v1").await.unwrap();
    let contexts = site.list(CONFIG_MAP, "").await.into_iter();
    let contexts = contexts.filter(|map| map["metadata"]["name"].as_str().unwrap().starts_with("workflow-"));
    let contexts: Vec<Value> = contexts
        .map(|map| json!([map["metadata"]["name"], map["data"]]))
        .collect();
    let end = json!({
        "status": app["status"], "objects": objects, "trackers": trackers, "contexts": contexts,
        "revisions": site.revisions("shop").await, "revision": revision["status"],
    });
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let applied = site.get(CONFIG_MAP, "applied").await.unwrap();
    let text = end
        .to_string()
        .replace(&site.namespace, "NAMESPACE")
        .replace(&uid(&applied), "UID");
    let mut end: Value = serde_json::from_str(&text.replace(&uid(app), "APP")).unwrap();
    remove_incidental(&mut end);
    // Their order is that of their first appearance, which a failure changes.
    for list in ["conditions", "services", "appliedResources"] {
        let entries = end["status"][list].as_array_mut().unwrap();
        entries.sort_by_key(ToString::to_string);
    }
    end
}

/// Removes times, random ids, versions, and hashes, which depend on the namespace.
fn remove_incidental(value: &mut Value) {
    let is_incidental = |name: &str| {
        let endings = ["Time", "Hash", "-hash"];
        endings.iter().any(|ending| name.ends_with(ending)) || ["id", "resourceVersion", "uid"].contains(&name)
    };
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !is_incidental(name));
            fields.values_mut().for_each(remove_incidental);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_incidental),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_ends_the_same_after_any_interruption() {
    let (expected, writes) = run(None).await;
    assert!(writes >= FEWEST_WRITES, "{writes} writes");
    assert_eq!(expected["objects"]["second"][0]["key"], "eu");
    assert_eq!(expected["objects"]["third"][0]["key"], "UID");
    let values = json!({ "vars": "region: \"eu\"\nuid: \"UID\"\n" });
    assert_eq!(expected["contexts"][0][1], values);
    let interruptions = (0..writes).flat_map(|at| {
        let kinds = [Interruption::Killed, Interruption::Refused, Interruption::ResponseLost];
        kinds.map(|kind| (kind, at))
    });
    let mut runs = stream::iter(interruptions)
        .map(async |interruption| (interruption, run(Some(interruption)).await.0))
        .buffer_unordered(CONCURRENCY);
    let mut others = Vec::new();
    while let Some((interruption, end)) = runs.next().await {
        if end != expected {
            others.push(format!("{interruption:?}: {end:#}"));
        }
    }
    assert!(others.is_empty(), "{expected:#}\n{}", others.join("\n"));
}

/// Starts a server that counts its requests. Returns its address.
async fn counting_server() -> (String, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let service = Router::new().fallback(async move || {
        counter.fetch_add(1, Ordering::SeqCst);
        "{}"
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, service).await });
    (address, requests)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_not_sent_again_when_a_later_step_of_its_turn_fails() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let (address, requests) = counting_server().await;
    for status in [409, 500] {
        proxy.inject(3, ApiFault::Status(status), |request| {
            request.method == Method::PUT && request.path.contains("/resourcetrackers/")
        });
    }
    let portolan = site.start(&kubeconfig, &["--allow-private-http"]);
    portolan.ready(SOON).await;
    let steps = [
        step("first", "apply-component", json!({ "component": "first" })),
        step("call", "request", json!({ "url": address })),
        step("web", "apply-component", json!({ "component": "web" })),
    ];
    let spec = json!({ "components": [config("first", "one"), web("web", 1)], "workflow": { "steps": steps } });
    site.declare("shop", spec).await;
    site.until_running("shop").await;
    assert!(site.get(DEPLOYMENT, "web").await.is_some());
    let refused = proxy
        .requests()
        .into_iter()
        .filter(|request| request.method == Method::PUT && request.path.contains("/resourcetrackers/"));
    assert!(refused.count() > 6, "all faults were met");
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_not_sent_again_when_the_response_to_the_status_is_lost_and_the_cache_is_behind() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let (address, requests) = counting_server().await;
    let call = step("call", "request", json!({ "url": address }));
    let spec = json!({ "components": [config("first", "one")], "workflow": { "steps": [call] } });
    site.declare("shop", spec).await;
    proxy.inject(usize::MAX, ApiFault::Stalled, |request| {
        request.is_watch() && request.path.contains("core.oam.dev") && request.path.ends_with("/applications")
    });
    let is_status = |request: &ApiRequest| request.method == Method::PATCH && request.path.ends_with("/shop/status");
    proxy.inject(1, ApiFault::ResponseLost, is_status);
    let portolan = site.start(&kubeconfig, &["--allow-private-http", "--allow-loopback"]);
    portolan.ready(SOON).await;
    site.until_running("shop").await;
    let lost = proxy.requests().into_iter().filter(is_status).count();
    assert!(lost >= 1, "the fault was met");
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_a_missing_component_is_named_as_kubevela_does() {
    const MESSAGE: &str = "convert step: convert [apply-component]: component test not found";
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let steps = [step("apply", "apply-component", json!({ "component": "test" }))];
    let spec = json!({ "components": [config("first", "one")], "workflow": { "steps": steps } });
    site.declare("shop", spec.clone()).await;
    let app = site.until_said("shop", MESSAGE).await;
    for name in ["Workflow", "Ready"] {
        assert_eq!(super::site::condition(&app, name)["message"], MESSAGE, "{name}");
    }
    assert_eq!(app["status"]["status"], "workflowFailed");
    let workflow = json!({
        "appRevision": "shop-v1", "finished": false, "mode": "", "suspend": false, "terminated": false,
    });
    assert_eq!(app["status"]["workflow"], workflow);

    let mut mended = spec;
    mended["workflow"]["steps"][0]["properties"]["component"] = "first".into();
    site.declare("shop", mended).await;
    let app = site.until_running("shop").await;
    assert_eq!(app["status"]["workflow"]["mode"], "StepByStep-DAG");
}

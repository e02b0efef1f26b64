//! Components and traits whose templates call functions.

use serde_json::{Value, json};

use super::accounts::{ALL, allow, declare, forbidden};
use super::apps::{config, spec};
use super::receiver::Receiver;
use super::site::Site;
use super::{APPLICATION, CONFIG_MAP, DEFINITION, REVISION};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;

const TRAIT: &str = "core.oam.dev/v1beta1 TraitDefinition";
/// Steps that fail are tried again until the cause is gone.
const PATIENT: &str = "--max-workflow-step-error-retry-times=100000";

/// A ConfigMap with the data of an object.
const READER: &str = r#"
    import "vela/base64"
    import "vela/kube"
    read: kube.#Get & {$params: resource: {
        apiVersion: "v1"
        kind:       parameter.kind
        metadata: name: parameter.name
        if parameter.namespace != _|_ {
            metadata: namespace: parameter.namespace
        }
    }}
    encode: base64.#Encode & {$params: read.$returns.data.key}
    output: {
        apiVersion: "v1"
        kind:       "ConfigMap"
        data: {key: read.$returns.data.key, encoded: encode.$returns}
    }
    parameter: {kind: *"ConfigMap" | string, name: string, namespace?: string}
"#;
/// Counts the ConfigMaps with a label.
const COUNTER: &str = r#"
    import "vela/kube"
    list: kube.#List & {$params: {
        resource: {apiVersion: "v1", kind: "ConfigMap"}
        filter: {namespace: context.namespace, matchingLabels: tier: "web"}
    }}
    patch: data: count: "\(len(list.$returns.items)) of \(context.output.data.key)"
"#;
const ASKER: &str = r#"
    import "encoding/json"
    import "vela/http"
    ask: http.#Do & {$params: {method: parameter.method, url: parameter.url, request: timeout: "30s"}}
    output: {
        apiVersion: "v1"
        kind:       "ConfigMap"
        data: color: json.Unmarshal(ask.$returns.body).color
    }
    parameter: {method: *"GET" | string, url: string}
"#;

async fn define(site: &Site, kind: &str, name: &str, template: &str) {
    let mut spec = json!({ "schematic": { "cue": { "template": template } } });
    if kind == DEFINITION {
        spec["workload"] = json!({ "definition": { "apiVersion": "v1", "kind": "ConfigMap" } });
    }
    site.apply(kind, name, json!({ "spec": spec })).await;
}

fn reader(name: &str, properties: Value) -> Value {
    json!({ "name": name, "type": "reader", "properties": properties })
}

async fn put(site: &Site, name: &str, value: &str) {
    let labels = json!({ "tier": "web" });
    let object = json!({ "metadata": { "labels": labels }, "data": { "key": value } });
    site.apply(CONFIG_MAP, name, object).await;
}

async fn annotate(site: &Site, annotations: Value) {
    site.edit(
        APPLICATION,
        "shop",
        json!({ "metadata": { "annotations": annotations } }),
    )
    .await;
}

fn count(proxy: &FaultProxy, path: &str) -> usize {
    let requests = proxy.requests();
    requests.iter().filter(|request| request.path == path).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_hold_until_the_workflow_runs_again() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let _portolan = site.start(&kubeconfig, &["--application-re-sync-period=1s"]);
    define(&site, DEFINITION, "reader", READER).await;
    define(&site, TRAIT, "counter", COUNTER).await;
    put(&site, "original", "one").await;
    let mut component = reader("copy", json!({ "name": "original" }));
    component["traits"] = json!([{ "type": "counter" }]);
    site.declare("shop", spec(&[component])).await;
    site.until_running("shop").await;
    let copy = site.get(CONFIG_MAP, "copy").await.unwrap();
    let expected = json!({ "key": "one", "encoded": "b25l", "count": "1 of one" });
    assert_eq!(copy["data"], expected);

    let original = format!("/api/v1/namespaces/{}/configmaps/original", site.namespace);
    let before = count(&proxy, &original);
    assert!(before > 0);
    put(&site, "original", "two").await;
    // With the second change, the pass over the first one has ended.
    for touched in ["once", "twice"] {
        annotate(&site, json!({ "touched": touched })).await;
        site.until(REVISION, "shop-v1", "the annotation", |revision| {
            revision["metadata"]["annotations"]["touched"] == touched
        })
        .await;
    }
    assert_eq!(site.get(CONFIG_MAP, "copy").await.unwrap()["data"], expected);
    assert_eq!(count(&proxy, &original), before);

    annotate(&site, json!({ "app.oam.dev/restart-workflow": "true" })).await;
    site.until(CONFIG_MAP, "copy", "that of the original", |copy| {
        copy["data"] == json!({ "key": "two", "encoded": "dHdv", "count": "1 of two" })
    })
    .await;
    site.until_running("shop").await;
    assert_eq!(site.revisions("shop").await, ["shop-v1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_missing_is_named_and_read_again() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    define(&site, DEFINITION, "reader", READER).await;
    site.declare("shop", spec(&[reader("copy", json!({ "name": "original" }))]))
        .await;
    let words = "component copy: read: ConfigMap \"original\" not found";
    site.until_said("shop", words).await;
    assert_eq!(site.get(CONFIG_MAP, "copy").await, None);
    put(&site, "original", "one").await;
    site.until_running("shop").await;
    assert_eq!(site.get(CONFIG_MAP, "copy").await.unwrap()["data"]["key"], "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_reads_with_the_rights_of_its_application_only() {
    let site = Site::new().await;
    let other = site.control_plane.namespace().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    define(&site, DEFINITION, "reader", READER).await;
    let secret = json!({ "kind": "Secret", "name": "token" });
    site.apply("v1 Secret", "token", json!({ "stringData": { "key": "confidential" } }))
        .await;

    // A ServiceAccount without the right.
    allow(&site, "configmaps", &ALL).await;
    declare(&site, "named", spec(&[reader("named", secret.clone())])).await;
    site.until_said("named", &forbidden(&site, "get", "secrets")).await;
    assert_eq!(site.get(CONFIG_MAP, "named").await, None);
    allow(&site, "secrets", &["get"]).await;
    site.until_running("named").await;
    // Base64 of base64 of `confidential`.
    let copy = site.get(CONFIG_MAP, "named").await.unwrap();
    assert_eq!(copy["data"]["encoded"], "WTI5dVptbGtaVzUwYVdGcw==");

    // Without an identity, the Secrets of other tenants are closed.
    let mut foreign = secret;
    foreign["namespace"] = other.as_str().into();
    site.declare("thief", spec(&[reader("loot", foreign)])).await;
    let words = format!("Secrets of namespace {other:?} can't be used with the rights of this controller");
    site.until_said("thief", &words).await;
    assert_eq!(site.get(CONFIG_MAP, "loot").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_asks_a_server_and_sends_it_nothing() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--allow-private-http"]).await;
    let receiver = Receiver::start().await;
    define(&site, DEFINITION, "asker", ASKER).await;
    let asker = |name: &str, properties: Value| json!({ "name": name, "type": "asker", "properties": properties });
    site.declare(
        "shop",
        spec(&[asker("paint", json!({ "url": receiver.url("/color") }))]),
    )
    .await;
    site.until_running("shop").await;
    assert_eq!(site.get(CONFIG_MAP, "paint").await.unwrap()["data"]["color"], "blue");
    assert_eq!(receiver.received("/color")[0].line, "GET /color");

    let send = json!({ "url": receiver.url("/send"), "method": "POST" });
    site.declare("sender", spec(&[asker("sender", send)])).await;
    site.until_said("sender", "ask: $params.method is not supported").await;
    assert_eq!(receiver.received("/send").len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_change_something_are_refused_by_name() {
    const HELM: &str = "import \"vela/helm\"\noutput: (helm.#Render & {$params: {}}).$returns";
    const PATCH: &str = r#"
        import "vela/kube"
        change: kube.#Patch & {$params: {
            resource: {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "original", namespace: context.namespace}}
            patch: {type: "merge", data: data: key: "changed"}
        }}
        output: {apiVersion: "v1", kind: "ConfigMap"}
    "#;
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    put(&site, "original", "one").await;
    define(&site, DEFINITION, "chart", HELM).await;
    define(&site, DEFINITION, "changer", PATCH).await;
    let component = |type_: &str| spec(&[json!({ "name": type_, "type": type_ })]);
    site.declare("chart", component("chart")).await;
    site.until_said("chart", "component chart with an import of vela/helm")
        .await;
    site.declare("changer", component("changer")).await;
    site.until_said("changer", "component changer with a call of vela/kube.#Patch")
        .await;
    let original = site.get(CONFIG_MAP, "original").await.unwrap();
    assert_eq!(original["data"]["key"], "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_kept_while_a_call_waits_for_requests_of_others() {
    // Two workers for the namespace, and one permit.
    const OPTIONS: [&str; 2] = ["--allow-private-http", "--concurrent-reconciles=4"];
    let site = Site::new().await;
    let portolan = site.portolan(&OPTIONS).await;
    let receiver = Receiver::start().await;
    define(&site, DEFINITION, "asker", ASKER).await;
    let asker = |path: &str| {
        let properties = json!({ "url": receiver.url(path) });
        json!({ "name": "paint", "type": "asker", "properties": properties })
    };
    site.declare("shop", spec(&[asker("/color"), config("plain", "one")]))
        .await;
    site.until_running("shop").await;
    let pause = |value: Value| json!({ "metadata": { "labels": { "controller.core.oam.dev/pause": value } } });
    site.edit(APPLICATION, "shop", pause("true".into())).await;
    drop(portolan);

    // Another Application has the only permit. Without the renderings of the former process, a pass calls again.
    let _portolan = site.portolan(&OPTIONS).await;
    let mut slow = asker("/hang");
    slow["name"] = "slow".into();
    site.declare("slow", spec(&[slow])).await;
    eventually(SOON, "a request without a response", async || {
        receiver.received("/hang").into_iter().next()
    })
    .await;
    site.delete(CONFIG_MAP, "plain").await;
    site.edit(APPLICATION, "shop", pause(Value::Null)).await;
    let plain = site
        .until(CONFIG_MAP, "plain", "its data", |plain| plain["data"]["key"] == "one")
        .await;
    assert_eq!(plain["metadata"]["deletionTimestamp"], Value::Null);
    let colors = receiver.received("/color").len();
    assert_eq!(colors, 1, "the call waits");
    let app = site.get(APPLICATION, "shop").await.unwrap();
    let services = app["status"]["services"].as_array().unwrap();
    let paint = services.iter().find(|service| service["name"] == "paint").unwrap();
    assert_eq!(paint["healthy"], true, "{app:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_templates_do_not_show_what_was_read() {
    const LOOSE: &str = r#"
        import "vela/kube"
        read: kube.#Get & {$params: resource: {apiVersion: "v1", kind: "Secret", metadata: name: "token"}}
        output: {
            apiVersion: "v1"
            kind:       "ConfigMap"
            data: key: read.$returns.data.key & "other"
        }
    "#;
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    define(&site, DEFINITION, "loose", LOOSE).await;
    site.apply("v1 Secret", "token", json!({ "stringData": { "key": "confidential" } }))
        .await;
    site.declare("shop", spec(&[json!({ "name": "loose", "type": "loose" })]))
        .await;
    let app = site.until_said("shop", "conflicting values").await;
    // Base64 of `confidential`.
    assert!(!app.to_string().contains("Y29uZmlkZW50aWFs"), "{app:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trait_of_the_last_stage_sees_another_status_without_another_call() {
    const PLAIN: &str = "output: {apiVersion: \"v1\", kind: \"ConfigMap\", data: key: \"one\"}";
    const LATE: &str = r#"
        import "encoding/json"
        import "vela/http"
        ask: http.#Do & {$params: {method: "GET", url: parameter.url}}
        outputs: note: {
            apiVersion: "v1"
            kind:       "ConfigMap"
            metadata: name: context.name + "-note"
            data: {
                color: json.Unmarshal(ask.$returns.body).color
                if context.output.metadata.annotations.note != _|_ {
                    note: context.output.metadata.annotations.note
                }
            }
        }
        parameter: {url: string}
    "#;
    let site = Site::new().await;
    let options = ["--allow-private-http", "--application-re-sync-period=1s"];
    let _portolan = site.portolan(&options).await;
    let receiver = Receiver::start().await;
    define(&site, DEFINITION, "plain", PLAIN).await;
    let late = json!({ "spec": { "stage": "PostDispatch", "schematic": { "cue": { "template": LATE } } } });
    site.apply(TRAIT, "late", late).await;
    let traits = json!([{ "type": "late", "properties": { "url": receiver.url("/color") } }]);
    site.declare(
        "shop",
        spec(&[json!({ "name": "web", "type": "plain", "traits": traits })]),
    )
    .await;
    site.until(CONFIG_MAP, "web-note", "the answer", |note| {
        note["data"]["color"] == "blue"
    })
    .await;
    site.until_running("shop").await;
    let change = json!({ "metadata": { "annotations": { "note": "seen" } } });
    site.edit(CONFIG_MAP, "web", change).await;
    site.until(CONFIG_MAP, "web-note", "the note", |note| {
        note["data"]["note"] == "seen"
    })
    .await;
    assert_eq!(receiver.received("/color").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_with_which_a_template_fails_is_asked_for_again() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    define(&site, DEFINITION, "reader", READER).await;
    site.apply(CONFIG_MAP, "original", json!({ "data": { "other": "one" } }))
        .await;
    site.declare("shop", spec(&[reader("copy", json!({ "name": "original" }))]))
        .await;
    site.until_said("shop", "component copy: ").await;
    put(&site, "original", "one").await;
    site.until_running("shop").await;
    assert_eq!(site.get(CONFIG_MAP, "copy").await.unwrap()["data"]["key"], "one");
}

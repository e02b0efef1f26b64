//! Operations on running workflows. The controller notices them by the event of the status: no resync takes place, and no
//! step is due again before the tests end.

use std::time::Duration;

use serde_json::{Value, json};

use super::apps::config;
use super::operators::{BOTH, By, apply, gated, step, with_steps};
use super::site::Site;
use super::stories_rest::{requests, until_quiet};
use super::{APPLICATION, CONFIG_MAP, REVISION};
use crate::support::eventually::SOON;

/// Flags that keep the controller from looking at anything without an event.
const NO_TIMERS: [&str; 2] = [
    "--application-re-sync-period=1h",
    "--max-workflow-wait-backoff-time=3600",
];
/// Time without any request.
const WINDOW: Duration = Duration::from_secs(10);

/// Reads a ConfigMap, and fails while its key is `bad`.
const CHECK: &str = r#"
import (
    "vela/kube"
    "vela/builtin"
)
read: kube.#Read & {$params: value: {
    apiVersion: "v1", kind: "ConfigMap", metadata: {name: parameter.name, namespace: context.namespace}
}}
if read.$returns.value.data.key == "bad" {
    fail: builtin.#Fail & {$params: message: "the key is bad"}
}
parameter: {name: string, seen?: string}
"#;
/// Writes two values to a ConfigMap.
const NOTE: &str = r#"
import "vela/kube"
apply: kube.#Apply & {$params: value: {
    apiVersion: "v1", kind: "ConfigMap", metadata: {name: "note", namespace: context.namespace}
    data: {seen: parameter.seen, made: parameter.made}
}}
parameter: {seen: string, made: string}
"#;

/// Two components, the first of which waits until its gate is open.
fn two_steps() -> Value {
    let components = [gated("gate"), config("after", "one")];
    with_steps(&components, &[apply("gate"), apply("after")])
}

async fn started(site: &Site) -> Value {
    site.define_gate().await;
    site.declare("shop", two_steps()).await;
    site.until_step("shop", "gate", "running", "wait healthy").await
}

async fn is_suspended_and_resumed(by: By) {
    let site = Site::new().await;
    let _portolan = site.portolan(&NO_TIMERS).await;
    let before = started(&site).await;
    site.suspend(by, "shop").await;
    let app = site.until_phase("shop", "workflowSuspending").await;
    assert_eq!(step(&app, "gate").unwrap()["phase"], "suspending");
    assert_eq!(app["status"]["workflow"]["status"], "suspending");
    site.open_gate("gate").await;
    site.resume(by, "shop").await;
    let app = site.until_running("shop").await;
    let gate = step(&app, "gate").unwrap();
    assert_eq!((&gate["id"], &gate["phase"]), (&before["id"], &json!("succeeded")));
    assert_eq!(step(&app, "after").unwrap()["phase"], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_suspended_and_resumed_by_portolan() {
    is_suspended_and_resumed(By::Portolan).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_suspended_and_resumed_by_vela() {
    is_suspended_and_resumed(By::Vela).await;
}

async fn is_terminated_and_restarted(by: By) {
    let site = Site::new().await;
    let _portolan = site.portolan(&NO_TIMERS).await;
    let before = started(&site).await;
    site.terminate(by, "shop").await;
    let app = site.until_phase("shop", "workflowTerminated").await;
    let gate = step(&app, "gate").unwrap();
    assert_eq!(
        (&gate["phase"], &gate["reason"]),
        (&json!("failed"), &json!("Terminate"))
    );
    assert_eq!(app["status"]["workflow"]["finished"], true);
    assert!(step(&app, "after").is_none_or(|after| after["phase"] == "skipped"));
    assert!(site.get(CONFIG_MAP, "gate").await.is_some());

    site.restart(by, "shop").await;
    let gate = site.until_step("shop", "gate", "running", "wait healthy").await;
    assert_ne!(gate["id"], before["id"]);
    site.open_gate("gate").await;
    site.until_running("shop").await;
    // One that has succeeded runs again too.
    site.restart(by, "shop").await;
    let is_next_run = |app: &Value| {
        let is_new = step(app, "gate").is_some_and(|step| step["id"] != gate["id"]);
        is_new && app["status"]["status"] == "running" && app["status"]["workflow"]["finished"] == true
    };
    site.until(APPLICATION, "shop", "run again", is_next_run).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_terminated_and_restarted_by_portolan() {
    is_terminated_and_restarted(By::Portolan).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_terminated_and_restarted_by_vela() {
    is_terminated_and_restarted(By::Vela).await;
}

async fn set_key(site: &Site, name: &str, value: &str) {
    site.apply(CONFIG_MAP, name, json!({ "data": { "key": value } })).await;
}

async fn is_restarted_from_a_step(by: By) {
    let site = Site::new().await;
    let _portolan = site.portolan(&NO_TIMERS).await;
    site.define_step("check", CHECK).await;
    site.define_step("note", NOTE).await;
    set_key(&site, "first", "one").await;
    set_key(&site, "second", "bad").await;
    let value = "read.$returns.value.data.key";
    let steps = [
        json!({ "name": "one", "type": "check", "properties": { "name": "first" },
            "outputs": [{ "name": "seen", "valueFrom": value }] }),
        json!({ "name": "two", "type": "check", "properties": { "name": "second" },
            "inputs": [{ "from": "seen", "parameterKey": "seen" }],
            "outputs": [{ "name": "made", "valueFrom": value }] }),
        json!({ "name": "three", "type": "note", "inputs": [
            { "from": "seen", "parameterKey": "seen" }, { "from": "made", "parameterKey": "made" },
        ] }),
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = site.until_phase("shop", "workflowFailed").await;
    let first = step(&app, "one").unwrap().clone();
    let two = step(&app, "two").unwrap();
    assert_eq!(
        (&two["reason"], &two["message"]),
        (&json!("Action"), &json!("the key is bad"))
    );
    assert_eq!(step(&app, "three").unwrap()["phase"], "skipped");

    // The same failure has the same values, which were removed meanwhile.
    let second = two["id"].clone();
    site.restart_from(by, "shop", &["two", "three"], &["made"]).await;
    let has_failed_again = |app: &Value| {
        let is_other = step(app, "two").is_some_and(|step| step["id"] != second);
        is_other && app["status"]["status"] == "workflowFailed" && app["status"]["workflow"]["finished"] == true
    };
    site.until(APPLICATION, "shop", "failed again", has_failed_again).await;
    let values = site.get(CONFIG_MAP, "workflow-shop-context").await.unwrap();
    assert_eq!(values["data"]["vars"], "made: null\nseen: \"one\"\n");

    set_key(&site, "first", "changed").await;
    set_key(&site, "second", "good").await;
    site.restart_from(by, "shop", &["two", "three"], &["made"]).await;
    let app = site.until_running("shop").await;
    assert_eq!(step(&app, "one").unwrap(), &first);
    assert_eq!(step(&app, "three").unwrap()["message"].as_str().unwrap_or_default(), "");
    let note = site.get(CONFIG_MAP, "note").await.unwrap();
    assert_eq!(note["data"], json!({ "seen": "one", "made": "good" }));
    let values = site.get(CONFIG_MAP, "workflow-shop-context").await.unwrap();
    assert_eq!(values["data"]["vars"], "made: \"good\"\nseen: \"one\"\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_restarted_from_a_step_by_portolan() {
    is_restarted_from_a_step(By::Portolan).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_restarted_from_a_step_by_vela() {
    is_restarted_from_a_step(By::Vela).await;
}

/// Deploys one version, and another that fails.
async fn deploy_two_versions(site: &Site, has_versions: bool) -> Value {
    let version = |version: &str| {
        if has_versions {
            json!({ "annotations": { "app.oam.dev/publishVersion": version } })
        } else {
            json!({})
        }
    };
    site.define_step("check", CHECK).await;
    set_key(site, "second", "bad").await;
    let good = with_steps(&[config("settings", "one")], &[apply("settings")]);
    let object = json!({ "metadata": version("release-one"), "spec": good });
    site.apply(APPLICATION, "shop", object).await;
    let first = site.until_running("shop").await;
    let check = json!({ "name": "check", "type": "check", "properties": { "name": "second" } });
    let bad = with_steps(&[config("settings", "two")], &[check, apply("settings")]);
    let object = json!({ "metadata": version("release-two"), "spec": bad });
    site.apply(APPLICATION, "shop", object).await;
    site.until_phase("shop", "workflowFailed").await;
    assert_eq!(site.revisions("shop").await, ["shop-v1", "shop-v2"]);
    first
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_version_becomes_current_again_without_a_run() {
    for by in BOTH {
        let site = Site::new().await;
        let _portolan = site.portolan(&NO_TIMERS).await;
        let first = deploy_two_versions(&site, true).await;
        site.roll_back(by, "shop", "shop-v1", "release-one").await;
        site.until_gone(REVISION, "shop-v2").await;
        let app = site.until_running("shop").await;
        assert_eq!(
            app["metadata"]["annotations"]["app.oam.dev/publishVersion"],
            "release-one"
        );
        assert_eq!(app["status"]["latestRevision"]["name"], "shop-v1", "{by:?}");
        let run = |app: &Value| step(app, "settings").unwrap()["id"].clone();
        assert_eq!(run(&app), run(&first), "{by:?}");
        assert_eq!(app["status"]["services"][0]["healthy"], true, "{by:?}");
        assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"]["key"], "one");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_spec_of_a_revision_that_has_succeeded_is_deployed_again() {
    let site = Site::new().await;
    let _portolan = site.portolan(&NO_TIMERS).await;
    deploy_two_versions(&site, false).await;
    site.app(&["rollback", "shop", "--yes"]).await;
    let app = site.until_running("shop").await;
    assert_eq!(
        app["spec"]["components"][0]["properties"]["objects"][0]["data"]["key"],
        "one"
    );
    assert!(step(&app, "check").is_none(), "{:#}", app["status"]["workflow"]);
    assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"]["key"], "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_workflows_make_no_request() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    // The resync must cost nothing either, therefore it happens within the window.
    let portolan = site.start(&kubeconfig, &["--application-re-sync-period=5s"]);
    portolan.ready(SOON).await;
    started(&site).await;
    site.suspend(By::Vela, "shop").await;
    let approve = json!({ "name": "approve", "type": "suspend" });
    let asking = with_steps(&[config("first", "one")], &[apply("first"), approve]);
    site.declare("asking", asking).await;
    for app in ["shop", "asking"] {
        site.until_phase(app, "workflowSuspending").await;
    }
    site.open_gate("gate").await;
    until_quiet(&proxy).await;
    let before = requests(&proxy).len();
    // The test asserts that nothing happens, so there is no condition to wait for.
    tokio::time::sleep(WINDOW).await;
    let after = requests(&proxy);
    assert!(after.len() == before, "{:#?}", &after[before..]);
    let app = site.get(APPLICATION, "shop").await.unwrap();
    assert!(step(&app, "after").is_none());
    assert!(site.get(CONFIG_MAP, "after").await.is_none());
    for app in ["shop", "asking"] {
        site.resume(By::Vela, app).await;
        site.until_running(app).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_say_where_their_logs_are() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let new = r#"
        import "vela/util"
        log: util.#Log & {$params: {
            data: "deploys"
            source: resources: [{labelSelector: "app.oam.dev/component": parameter.component}]
        }}
        parameter: component: string
    "#;
    let old = "import \"vela/op\"\nlog: op.#Log & {source: url: \"https://logs.example.com/web\"}\nparameter: {}";
    site.define_step("log", new).await;
    site.define_step("old-log", old).await;
    let steps = [
        json!({ "name": "pods", "type": "log", "properties": { "component": "web" } }),
        json!({ "name": "address", "type": "old-log", "properties": {} }),
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = site.until_running("shop").await;
    let context = app["status"]["workflow"]["contextBackend"]["name"].as_str().unwrap();
    let values = site.get(CONFIG_MAP, context).await.unwrap();
    let logs: Value = serde_json::from_str(values["data"]["logConfig"].as_str().unwrap()).unwrap();
    let expected = json!({
        "pods": { "data": true, "source": { "resources": [
            { "labelSelector": { "app.oam.dev/component": "web" } },
        ] } },
        "address": { "source": { "url": "https://logs.example.com/web" } },
    });
    assert_eq!(logs, expected);
    let text = site.app(&["logs", "shop", "--step", "address"]).await;
    assert!(text.contains("https://logs.example.com/web"), "{text}");
}

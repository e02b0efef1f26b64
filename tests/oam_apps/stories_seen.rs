//! Users see what a running workflow does: in the tree of steps, in changes, events and metrics.

use std::process::Stdio;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::apps::config;
use super::operators::{By, apply, gated, with_steps};
use super::site::Site;
use crate::support::portolan::command;

/// Fails with the reason Execute, which is tried again.
const NAMELESS: &str = r#"
import "vela/kube"
apply: kube.#Apply & {$params: value: {apiVersion: "v1", kind: "ConfigMap"}}
parameter: {}
"#;

/// Steps in all phases at once.
fn many_phases() -> Value {
    let components = [config("first", "one"), gated("gate"), config("last", "one")];
    let group = json!({ "name": "build", "type": "step-group", "subSteps": [apply("first"), apply("gate")] });
    let broken = |name: &str| json!({ "name": name, "type": "nameless", "properties": {} });
    let mut never = broken("never");
    never["if"] = "false".into();
    let mut last = apply("last");
    last["dependsOn"] = json!(["build"]);
    let approve = json!({ "name": "approve", "type": "suspend", "properties": { "message": "Deploy to all?" } });
    let steps = [group, last, broken("broken"), never, approve];
    let mut spec = with_steps(&components, &steps);
    spec["workflow"]["mode"] = json!({ "steps": "DAG", "subSteps": "DAG" });
    spec
}

/// Returns name, type, phase, reason and message of each row of the tree; the times differ from run to run.
fn rows(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.starts_with("STEP"));
    let rows = lines.skip(1).take_while(|line| !line.is_empty());
    let shown = rows.map(|line| {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "ago").collect();
        let indent = if line.starts_with(' ') { "  " } else { "" };
        let (what, rest) = (words.get(..3).unwrap_or_default(), words.get(5..).unwrap_or_default());
        format!("{indent}{} | {}", what.join(" "), rest.join(" "))
    });
    shown.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tree_shows_what_each_step_waits_for() {
    let site = Site::new().await;
    let retries = "--max-workflow-step-error-retry-times=1000";
    let _portolan = site.portolan(&[retries]).await;
    site.define_gate().await;
    site.define_step("nameless", NAMELESS).await;
    site.declare("shop", many_phases()).await;
    site.until_step("shop", "approve", "suspending", "").await;
    site.until_step("shop", "gate", "running", "wait healthy").await;
    site.until_step("shop", "broken", "failed", "needs apiVersion").await;
    site.until_step("shop", "last", "pending", "build").await;
    let text = site.app(&["status", "shop"]).await;
    let rows = rows(&text);
    for expected in [
        "build step-group running | -",
        "  first apply-component succeeded | -",
        "  gate apply-component running | Wait wait healthy",
        "broken nameless failed | Execute apply: the object needs apiVersion, kind and metadata.name",
        "never nameless skipped | Skip",
        "approve suspend suspending | Suspend Deploy to all?",
        "last apply-component pending | - Pending on DependsOn: build",
    ] {
        assert!(
            rows.iter().any(|row| row.trim_end() == expected),
            "{expected}: {rows:#?}\n{text}"
        );
    }
    assert!(text.contains("`portolan vela resume shop -n "), "{text}");
    follow(&site).await;
}

/// Follows the changes while a user resumes the workflow.
async fn follow(site: &Site) {
    let kubeconfig = site.control_plane.kubeconfig();
    let watch = [
        "vela",
        "status",
        "shop",
        "--watch",
        "--timeout=60s",
        "-n",
        &site.namespace,
    ];
    let cluster = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut process = tokio::process::Command::from(command([&watch[..], &cluster].concat()))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut expected = vec![
        "step last: succeeded",
        "step build/gate: succeeded",
        "step build: succeeded",
    ];
    let mut output = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains("`portolan vela resume shop") {
            site.resume(By::Vela, "shop").await;
            site.open_gate("gate").await;
        }
        expected.retain(|change| !line.ends_with(change));
        output += &(line + "\n");
        if expected.is_empty() {
            return;
        }
    }
    panic!("{expected:?} are missing:\n{output}");
}

/// Returns type, reason and note of the events of an Application, with the number of times that each was published.
async fn events(site: &Site) -> Vec<(String, String, String, i32)> {
    let events: Api<Event> = Api::namespaced(site.control_plane.client().await, &site.namespace);
    let list = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let of_apps = list.filter(|event| {
        let object = event.regarding.as_ref().and_then(|object| object.kind.as_deref());
        object == Some("Application")
    });
    let told = of_apps.map(|event| {
        let text = |text: Option<String>| text.unwrap_or_default();
        let times = event.series.map_or(1, |series| series.count);
        (text(event.type_), text(event.reason), text(event.note), times)
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_fails_ten_times_is_no_news_each_time() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    site.define_step("nameless", NAMELESS).await;
    let broken = json!({ "name": "broken", "type": "nameless", "properties": {} });
    site.declare(
        "shop",
        with_steps(&[config("settings", "one")], &[apply("settings"), broken]),
    )
    .await;
    let app = site.until_phase("shop", "workflowFailed").await;
    let failed = super::operators::step(&app, "broken").unwrap();
    assert_eq!(failed["reason"], "FailedAfterRetries");

    let events = events(&site).await;
    assert!(events.iter().all(|(.., times)| *times == 1), "{events:#?}");
    let warnings = events.iter().filter(|(type_, ..)| type_ == "Warning").count();
    assert!(warnings <= 1, "{events:#?}");
    let normal: Vec<&str> = events
        .iter()
        .filter_map(|(type_, reason, ..)| (type_ == "Normal").then_some(reason.as_str()))
        .collect();
    assert_eq!(normal, ["Parsed", "PolicyGenerated", "Rendered", "Revisioned"]);

    let metrics = portolan.metrics().await;
    let steps = |type_: &str, phase: &str, reason: &str| {
        let labels = [("type", type_), ("phase", phase), ("reason", reason)];
        metrics.sum("portolan_oam_workflow_steps_total", &labels)
    };
    assert_eq!(steps("apply-component", "succeeded", ""), Some(1.0));
    assert_eq!(steps("custom", "failed", "Execute"), Some(1.0));
    assert_eq!(steps("custom", "failed", "FailedAfterRetries"), Some(1.0));
    let seconds = metrics.sum("portolan_oam_workflow_step_seconds_sum", &[("type", "custom")]);
    assert!(seconds.is_some_and(|seconds| seconds >= 5.0), "{seconds:?}");
}

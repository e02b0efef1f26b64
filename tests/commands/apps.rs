//! `portolan apps` with a real API server.

use futures::future::join_all;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::{CommandOutput, execute};
use crate::applications::kinds::play_kubelet;
use crate::applications::{Site, condition, deployment, shop};
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::support::portolan::command;

/// Clears a terminal, sets a color with 8-bit controls, and forges a line.
const HOSTILE: &str = "x\u{1b}[2J\u{9b}31m\u{7f}\nforged: all is well\r";

/// Runs `portolan apps` as an administrator in the namespace.
async fn run_apps(site: &Site<'_>, more: &[&str]) -> CommandOutput {
    run_apps_as(site, ADMIN_TOKEN, &[&["-n", &site.namespace], more].concat()).await
}

async fn run_apps_as(site: &Site<'_>, token: &str, arguments: &[&str]) -> CommandOutput {
    let server = site.control_plane;
    let mut command = command([&["apps"], arguments].concat());
    command
        .arg("--kubeconfig")
        .arg(server.kubeconfig_for(&server.url(), token));
    execute(command).await
}

fn split_words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Asserts that the error for a missing CRD names the command that installs it. Needs a server of its own.
pub async fn assert_missing_crd_is_reported(server: &ControlPlane) {
    for arguments in [
        &["apps"][..],
        &["apps", "web"],
        &["apps", "-n", "default", "-o", "json"],
    ] {
        let mut command = command(arguments);
        command.arg("--kubeconfig").arg(server.kubeconfig());
        let error = execute(command).await.failed(1);
        assert!(
            error.contains("CRD applications.app.k8s.io is not installed")
                && error.contains("`portolan crds applications --apply`"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apps_shows_ready_and_unready_applications() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let labels = json!({ "app": "shop" });
    site.apply("apps/v1 Deployment", "web", deployment(&labels)).await;
    site.apply("v1 ConfigMap", "settings", json!({ "metadata": { "labels": labels } }))
        .await;
    let kinds = [("apps", "Deployment"), ("", "ConfigMap"), ("example.com", "Barge")];
    let mut declared = shop(&kinds, false);
    declared["descriptor"] = json!({ "type": "web shop", "version": "1.2.3" });
    site.declare("shop", declared).await;
    site.declare("idle", shop(&[("", "Pod")], false)).await;
    site.until_components("shop", "1/2").await;
    site.until_components("idle", "0/0").await;

    let table = run_apps(&site, &[]).await.ok();
    let lines: Vec<_> = table.lines().map(split_words).collect();
    assert_eq!(table.lines().count(), 5, "{table}");
    assert_eq!(
        lines[0].join(" "),
        "NAMESPACE NAME TYPE VERSION READY STATUS NOT READY AGE"
    );
    assert_eq!(lines[1][..7], [&site.namespace, "idle", "-", "-", "0/0", "Ready", "-"]);
    assert_eq!(
        lines[2][..8],
        [
            &site.namespace,
            "shop",
            "web",
            "shop",
            "1.2.3",
            "1/2",
            "NotReady,Error",
            "Deployment/web"
        ]
    );
    let error = format!("{}/shop: kind Barge.example.com not found", site.namespace);
    assert!(table.lines().nth(4).unwrap().starts_with(&error), "{table}");

    let detailed = run_apps(&site, &["shop"]).await.ok();
    let lines: Vec<String> = detailed.lines().map(|line| split_words(line).join(" ")).collect();
    assert!(!detailed.contains("idle"), "{detailed}");
    assert_eq!(lines[3], format!("{}/shop", site.namespace));
    for (begin, end) in [
        ("CONDITION STATUS SINCE REASON", "MESSAGE"),
        (
            "Ready False ",
            "ComponentsNotReady 1 components not ready: Deployment/web",
        ),
        ("Error True ", "(the group of Pods and Services is empty)"),
        ("KIND GROUP COMPONENT", "STATUS"),
        ("Deployment apps web", "InProgress"),
        ("ConfigMap - settings", "Ready"),
    ] {
        let is_it = |line: &String| line.starts_with(begin) && line.ends_with(end);
        assert!(lines.iter().any(is_it), "{begin} … {end}: {detailed}");
    }

    play_kubelet(&site, "pod=web", 2, "Running").await;
    site.until_components("shop", "2/2").await;
    let table = run_apps(&site, &["shop"]).await.ok();
    let row = split_words(table.lines().nth(1).unwrap());
    assert_eq!(row[5..8], ["2/2", "Ready,Error", "-"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_output_has_the_documented_form() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let labels = json!({ "app": "shop" });
    site.apply("apps/v1 Deployment", "web", deployment(&labels)).await;
    site.apply("v1 ConfigMap", "settings", json!({ "metadata": { "labels": labels } }))
        .await;
    site.declare("shop", shop(&[("apps", "Deployment"), ("", "ConfigMap")], false))
        .await;
    let application = site.until_components("shop", "1/2").await;
    drop(portolan);

    let json = run_apps(&site, &["-o", "json"]).await.json();
    assert_eq!(run_apps(&site, &["shop", "-o", "json"]).await.json(), json);
    let status = serde_json::to_value(application.status.as_ref().unwrap()).unwrap();
    let expected = json!([{
        "namespace": site.namespace, "name": "shop", "type": "", "version": "",
        "created": application.metadata.creation_timestamp,
        "deleting": false, "upToDate": true,
        "ready": false, "reason": "ComponentsNotReady", "message": condition(&application, "Ready").2,
        "error": null, "readyComponents": 1, "totalComponents": 2,
        "conditions": status["conditions"],
        "components": [
            { "kind": "Deployment", "group": "apps", "name": "web", "status": "InProgress" },
            { "kind": "ConfigMap", "name": "settings", "status": "Ready" },
        ],
    }]);
    assert_eq!(json, expected);
    let page = std::fs::read_to_string(crate::support::project("docs/reference/applications.md")).unwrap();
    let documented: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .collect();
    for member in expected[0].as_object().unwrap().keys() {
        let is_in = |(cell, _): &(&str, &str)| cell.contains(&format!("`{member}`"));
        assert!(
            documented.iter().any(is_in),
            "{member} is not in docs/reference/applications.md"
        );
    }

    // The controller does not run, so the status belongs to the previous spec.
    site.declare("shop", shop(&[("", "ConfigMap")], false)).await;
    let json = run_apps(&site, &["-o", "json"]).await.json();
    assert_eq!((&json[0]["ready"], &json[0]["upToDate"]), (&Value::Null, &json!(false)));
    assert_eq!(
        split_words(run_apps(&site, &[]).await.ok().lines().nth(1).unwrap())[5],
        "Unknown"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_applications_are_reported() {
    let site = Site::new().await;
    let output = format!("no Applications found in namespace {}\n", site.namespace);
    assert_eq!(run_apps(&site, &[]).await.ok(), output);
    assert_eq!(run_apps(&site, &["-o", "json"]).await.json(), json!([]));
    let error = run_apps(&site, &["web"]).await.failed(1);
    let expected = format!("Application web not found in namespace {}", site.namespace);
    assert!(error.contains(&expected), "{error}");
    // A name cannot extend the field selector.
    site.declare("other", shop(&[], false)).await;
    let error = run_apps(&site, &["web,metadata.name!=x"]).await.failed(1);
    assert!(error.contains("Application web,metadata.name!=x not found"), "{error}");
    assert_eq!(run_apps(&site, &["-o", "xml"]).await.code, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_pages_of_applications_are_shown() {
    let site = Site::new().await;
    let names: Vec<_> = (0..210).map(|number| format!("app-{number:03}")).collect();
    join_all(names.iter().map(|name| site.declare(name, shop(&[], false)))).await;
    let json = run_apps(&site, &["-o", "json"]).await.json();
    let shown: Vec<_> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(shown, names);
    // The status is unknown before the first reconcile.
    let table = run_apps(&site, &["app-007"]).await.ok();
    let row = split_words(table.lines().nth(1).unwrap());
    assert_eq!(row[2..7], ["-", "-", "-", "Unknown", "-"]);
    assert!(table.contains("status is out of date"), "{table}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_characters_in_objects_never_reach_the_terminal() {
    let site = Site::new().await;
    let mut declared = shop(&[], false);
    declared["descriptor"] = json!({ "type": HOSTILE, "version": HOSTILE });
    // Apply sends YAML, which cannot contain control characters.
    let hostile = json!({
        "apiVersion": "app.k8s.io/v1beta1", "kind": "Application", "metadata": { "name": "shop" }, "spec": declared
    });
    let hostile = serde_json::from_value(hostile).unwrap();
    site.applications()
        .create(&PostParams::default(), &hostile)
        .await
        .unwrap();
    let condition =
        |type_: &str| json!({ "type": type_, "status": "True", "reason": HOSTILE, "message": HOSTILE.repeat(1000) });
    let status = json!({
        "observedGeneration": 1, "componentsReady": HOSTILE,
        "conditions": [condition("Ready"), condition("Error"), condition(HOSTILE)],
        "components": [{ "kind": HOSTILE, "group": HOSTILE, "name": HOSTILE, "status": HOSTILE }],
    });
    site.status("app.k8s.io/v1beta1 Application", "shop", status).await;
    let mut all = vec![run_apps(&site, &[HOSTILE]).await];
    assert_eq!(all[0].code, Some(1));
    for arguments in [&[][..], &["shop"], &["-o", "json"], &["shop", "-o", "json"]] {
        let shown = run_apps(&site, arguments).await;
        assert_eq!(shown.code, Some(0), "{shown:#?}");
        all.push(shown);
    }
    for CommandOutput { stdout, stderr, .. } in &all {
        for text in [stdout, stderr] {
            let control = text.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(control, None, "{text:?}");
            assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
        }
    }
    assert!(all[1].stdout.contains("Ready,Error"), "{}", all[1].stdout);
    assert!(all[1].stdout.len() < 8192, "messages are truncated");
    // JSON contains the original values.
    let json = run_apps(&site, &["-o", "json"]).await.json();
    assert_eq!(json[0]["type"], HOSTILE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_to_one_namespace_is_enough_to_list_it() {
    let site = Site::new().await;
    site.declare("shop", shop(&[], false)).await;
    let token = site.control_plane.token_for(&site.namespace, "reader").await;
    let error = run_apps_as(&site, &token, &[]).await.failed(1);
    assert!(
        error.contains("failed to list Applications")
            && error.contains("forbidden")
            && error.contains("use -n NAMESPACE"),
        "{error}"
    );
    let role = json!({ "rules": [{ "apiGroups": ["app.k8s.io"], "resources": ["applications"], "verbs": ["list"] }] });
    site.apply("rbac.authorization.k8s.io/v1 Role", "reader", role).await;
    let binding = json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
        "subjects": [{ "kind": "ServiceAccount", "name": "reader", "namespace": site.namespace }],
    });
    site.apply("rbac.authorization.k8s.io/v1 RoleBinding", "reader", binding)
        .await;
    let shown = crate::support::eventually::eventually(super::SOON, "the role binding to take effect", async || {
        let shown = run_apps_as(&site, &token, &["-n", &site.namespace]).await;
        (shown.code == Some(0)).then_some(shown.stdout)
    })
    .await;
    assert!(shown.contains("shop"), "{shown}");
}

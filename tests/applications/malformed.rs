//! Malformed custom resources: the condition is correct and nothing panics.

use serde_json::{Value, json};

use super::{Site, assert_error, assert_ready, components, selecting, shop};

/// Malformed statuses, with the expected component state and error.
fn statuses() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let ready = |condition: Value| json!({ "conditions": [condition] });
    vec![
        ("no-status", Value::Null, "Ready", ""),
        ("empty", json!({}), "Ready", ""),
        ("null-conditions", json!({ "conditions": null }), "Ready", ""),
        ("empty-conditions", json!({ "conditions": [] }), "Ready", ""),
        (
            "malformed-elements",
            json!({ "conditions": [null, "Ready", 3, [], {}, { "status": "False" }] }),
            "Ready",
            "",
        ),
        (
            "missing-type",
            ready(json!({ "status": "False", "reason": "x" })),
            "Ready",
            "",
        ),
        (
            "no-reason",
            ready(json!({ "type": "Ready", "status": "True" })),
            "Ready",
            "",
        ),
        (
            "malformed-reason",
            ready(json!({ "type": "Ready", "status": "False", "reason": { "a": [1] } })),
            "InProgress",
            "",
        ),
        (
            "malformed-type",
            ready(json!({ "type": ["Ready"], "status": "False" })),
            "Ready",
            "",
        ),
        (
            "ready",
            ready(json!({ "type": "Ready", "status": "True", "reason": "x" })),
            "Ready",
            "",
        ),
        (
            "ready-unknown",
            ready(json!({ "type": "Ready", "status": "Unknown" })),
            "Ready",
            "",
        ),
        (
            "not-ready",
            ready(json!({ "type": "Ready", "status": "False", "reason": "x" })),
            "InProgress",
            "",
        ),
        (
            "in-progress",
            ready(json!({ "type": "InProgress", "status": "True" })),
            "InProgress",
            "",
        ),
        (
            "text-conditions",
            json!({ "conditions": "Ready" }),
            "Unknown",
            "Ready is of the type string, expected []interface{}",
        ),
        (
            "map-conditions",
            json!({ "conditions": { "Ready": "True" } }),
            "Unknown",
            "expected []interface{}",
        ),
        (
            "text-status",
            json!("Ready"),
            "Unknown",
            "Ready is of the type string, expected map[string]interface{}",
        ),
        ("number-status", json!(3), "Unknown", "3 is of the type int64"),
        (
            "list-status",
            json!([{ "conditions": [] }]),
            "Unknown",
            "expected map[string]interface{}",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_conditions_affect_only_their_component() {
    let site = Site::new().await;
    let group = site.group();
    let kind = site.define("Widget", "Namespaced").await;
    let portolan = site.portolan(&[]).await.with_probes();
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("bystander", shop(&[("", "ConfigMap")], false)).await;
    for (name, status, ..) in statuses() {
        let mut object = json!({ "metadata": { "labels": { "of": name } } });
        if !status.is_null() {
            object["status"] = status;
        }
        site.apply(&kind, name, object).await;
        site.declare(
            name,
            selecting(&[(&group, "Widget")], json!({ "matchLabels": { "of": name } })),
        )
        .await;
    }
    for (name, _, word, words) in statuses() {
        let ready = if word == "Ready" { "1/1" } else { "0/1" };
        let application = site.until_components(name, ready).await;
        assert_eq!(components(&application), [format!("Widget/{name} {word}")]);
        let not_ready = format!("1 components not ready: Widget/{name}");
        let error = if words.is_empty() {
            ("False", "NoError")
        } else {
            ("True", "ErrorSeen")
        };
        assert_error(&application, error, words);
        assert_ready(
            &application,
            match word {
                "Ready" => ("True", "ComponentsReady", "all components ready"),
                "InProgress" => ("False", "ComponentsNotReady", &not_ready),
                _ => (
                    "Unknown",
                    "ComponentsReadyUnknown",
                    "failed to aggregate all components' statuses, check the Error condition for details",
                ),
            },
        );
    }
    // With all of them, the valid components are counted, and the Application recovers.
    site.declare("all", selecting(&[(&group, "Widget")], json!({}))).await;
    let total = statuses().len();
    let ready = statuses().iter().filter(|status| status.2 == "Ready").count();
    site.until_components("all", &format!("{ready}/{total}")).await;
    for (name, _, word, _) in statuses() {
        if word != "Ready" {
            site.delete(&kind, name).await;
        }
    }
    let application = site.until_components("all", &format!("{ready}/{ready}")).await;
    assert_error(&application, ("False", "NoError"), "No error seen");
    site.until_components("bystander", "1/1").await;
    super::assert_no_panic(&portolan);
    site.undefine(&kind).await;
}

/// Any client may write the status; malformed parts are replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_changed_by_another_writer_is_restored() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await.with_probes();
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], false)).await;
    site.until_components("shop", "1/1").await;
    let foreign = json!({
        "componentsReady": "7/7", "components": null, "observedGeneration": 99,
        "conditions": [{ "type": "Qualified", "status": "True" }]
    });
    site.status(super::APPLICATION, "shop", foreign).await;
    let application = site.until_components("shop", "1/1").await;
    assert_eq!(components(&application), ["ConfigMap/web Ready"]);
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    // Conditions of other writers are kept.
    assert_eq!(super::condition(&application, "Qualified").0, "True");
    super::assert_no_panic(&portolan);
}

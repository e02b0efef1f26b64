//! Templates that misbehave are stopped and named, and harm no other namespace.

use std::time::Duration;

use serde_json::{Value, json};

use super::apps::{config, spec};
use super::estate::estate;
use super::site::{Site, condition, says};
use super::{APPLICATION, CONFIG_MAP, DEFINITION};
use crate::support::eventually::{SOON, eventually};

/// Counts to 10^15 without memory.
const ENDLESS: &str = r#"
    import "list"
    let r = list.Range(0, 1000, 1)
    output: {
        apiVersion: "v1"
        kind: "ConfigMap"
        data: count: "\(len([for a in r for b in r for c in r for d in r for e in r if a+b+c+d+e < 0 {a}]))"
    }
    parameter: {}
"#;
/// Number of Applications with an endless template, more than evaluator processes.
const HOSTILE: usize = 6;

/// Defines a type of components in the namespace.
pub async fn define(site: &Site, name: &str, template: &str) {
    let definition = json!({
        "spec": {
            "workload": { "type": "autodetects.core.oam.dev" },
            "schematic": { "cue": { "template": template } },
        }
    });
    site.apply(DEFINITION, name, definition).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_templates_are_stopped_and_delay_no_other_namespace() {
    let estate = estate().await;
    let namespaces = [
        estate.control_plane.namespace().await,
        estate.control_plane.namespace().await,
    ];
    let [hostile, friendly] = namespaces.map(|namespace| Site::of(&estate.control_plane, namespace));
    let (hostile, friendly) = (hostile.await, friendly.await);
    define(&hostile, "endless", ENDLESS).await;
    let component = json!({ "name": "endless", "type": "endless", "properties": {} });
    for number in 0..HOSTILE {
        hostile
            .declare(&format!("app-{number}"), spec(std::slice::from_ref(&component)))
            .await;
    }
    friendly.declare("shop", spec(&[config("settings", "one")])).await;
    // At most one timeout of ten seconds, however many templates wait.
    friendly.until_running("shop").await;
    assert!(friendly.get(CONFIG_MAP, "settings").await.is_some());

    let stopped = "was stopped: more than 10s";
    eventually(4 * SOON, "an endless template to be named", async || {
        let mut statuses = Vec::new();
        for number in 0..HOSTILE {
            let app = hostile
                .get(APPLICATION, &format!("app-{number}"))
                .await
                .unwrap_or_default();
            if says(&app, stopped) {
                return Ok(());
            }
            statuses.push(app["status"].to_string());
        }
        Err(statuses.join("\n"))
    })
    .await;
    assert_eq!(hostile.managed_objects().await, Vec::<Value>::new());
    // The evaluator still works.
    friendly.declare("shop", spec(&[config("settings", "two")])).await;
    friendly
        .until(CONFIG_MAP, "settings", "changed", |object| {
            object["data"]["key"] == "two"
        })
        .await;
    for number in 0..HOSTILE {
        hostile.delete(APPLICATION, &format!("app-{number}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_template_is_named_and_leaves_what_was_applied() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let template = |value: &str| {
        let value = format!("data: key: {value}");
        format!("output: {{apiVersion: \"v1\", kind: \"ConfigMap\", {value}}}\nparameter: {{}}\n")
    };
    define(&site, "special", &template("\"one\"")).await;
    let declare = async |number: usize| {
        // A new spec makes a new revision, with the definition of now.
        let component = json!({ "name": "settings", "type": "special", "properties": { "number": number } });
        site.declare("shop", spec(&[component])).await;
    };
    declare(1).await;
    site.until_running("shop").await;
    define(&site, "special", &template("1 & 2")).await;
    declare(2).await;
    let app = site.until_said("shop", "conflicting values").await;
    assert_ne!(app["status"]["status"], "running");
    assert_eq!(condition(&app, "Parsed")["status"], "True");
    let settings = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(
        settings["data"]["key"], "one",
        "an error of the evaluator deletes nothing"
    );

    define(&site, "special", &template("\"three\"")).await;
    declare(3).await;
    site.until_running("shop").await;
    eventually(Duration::from_secs(10), "the new value", async || {
        let settings = site.get(CONFIG_MAP, "settings").await?;
        (settings["data"]["key"] == "three").then_some(())
    })
    .await;
}

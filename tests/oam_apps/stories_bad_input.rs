//! Faults of an Application or of its objects are named, harm nothing, and heal.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::apps::{config, objects, spec, web};
use super::site::{Site, condition, version};
use super::{APPLICATION, CONFIG_MAP, DEFINITION, DEPLOYMENT, TRACKER, setup};
use crate::support::eventually::{SOON, eventually};

/// Steps that fail are tried again until the cause is gone.
const PATIENT: &str = "--max-workflow-step-error-retry-times=100000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_is_not_installed_is_named_until_its_definition_appears() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await.with_probes();
    let version = format!("{}/v1", site.group());
    let widget = json!({ "apiVersion": version, "kind": "Widget", "metadata": { "name": "one" }, "size": 1 });
    site.declare("shop", spec(&[objects("widget", &[widget])])).await;
    let app = site
        .until_said(
            "shop",
            &format!("no matches for kind \"Widget\" in version \"{version}\""),
        )
        .await;
    assert_eq!(app["status"]["workflow"]["steps"][0]["phase"], "failed");
    assert_eq!(site.trackers("shop").await, Vec::<Value>::new(), "nothing was recorded");

    site.define("Widget").await;
    site.until_running("shop").await;
    let widget = site.get(&format!("{version} Widget"), "one").await.unwrap();
    assert_eq!(widget["size"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_somebody_else_is_refused_and_not_changed() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await.with_probes();
    let foreign = site
        .apply(CONFIG_MAP, "settings", json!({ "data": { "key": "foreign" } }))
        .await;
    site.declare("shop", spec(&[config("settings", "ours")])).await;
    site.until_said("shop", "exists but not managed by any application now")
        .await;
    let after = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(version(&after), version(&foreign));

    site.delete(CONFIG_MAP, "settings").await;
    site.until_running("shop").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"]["key"], "ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_another_application_is_refused_and_survives_the_refused_one() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await.with_probes();
    site.declare("first", spec(&[config("settings", "first")])).await;
    site.until_running("first").await;
    site.declare("second", spec(&[config("settings", "second")])).await;
    let owner = format!("is managed by other application {}/first", site.namespace);
    site.until_said("second", &owner).await;
    site.delete(APPLICATION, "second").await;
    site.until_gone(APPLICATION, "second").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"]["key"], "first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tracker_that_cannot_be_decoded_stops_collection_until_it_is_repaired() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await.with_probes();
    site.declare("shop", spec(&[web("front", 0), config("settings", "one")]))
        .await;
    site.until_running("shop").await;
    let tracker = site.trackers("shop").await.remove(0);
    let name = setup::name(&tracker).to_owned();
    let broken = json!({ "type": "zstd", "data": "bm90IHpzdGQ=" });
    let change = json!({ "spec": { "managedResources": null, "compression": broken } });
    site.edit(TRACKER, &name, change).await;

    site.delete(APPLICATION, "shop").await;
    let app = site
        .until(APPLICATION, "shop", "an error that names the tracker", |app| {
            let ready = condition(app, "Ready");
            ready["status"] == "False" && ready["message"].as_str().is_some_and(|message| message.contains(&name))
        })
        .await;
    assert!(app["metadata"]["finalizers"].is_array());
    assert!(site.get(DEPLOYMENT, "front").await.is_some());
    assert!(site.get(CONFIG_MAP, "settings").await.is_some());

    let entries = &tracker["spec"]["managedResources"];
    let change = json!({ "spec": { "managedResources": entries, "compression": null } });
    site.edit(TRACKER, &name, change).await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.managed_objects().await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_is_missing_is_named_until_it_appears() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await.with_probes();
    let component = json!({ "name": "settings", "type": "special", "properties": { "value": "one" } });
    site.declare("shop", spec(&[component])).await;
    let app = site.until_said("shop", "special").await;
    assert_eq!(condition(&app, "Parsed")["status"], "False");
    let template = r#"
        output: {apiVersion: "v1", kind: "ConfigMap", data: key: parameter.value}
        parameter: value: string
    "#;
    super::stories_hostile::define(&site, "special", template).await;
    // Definitions are no events of Applications, but an edit is.
    let component = json!({ "name": "settings", "type": "special", "properties": { "value": "two" } });
    site.declare("shop", spec(&[component])).await;
    site.until_running("shop").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"]["key"], "two");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_is_kept_without_its_definition_and_a_change_waits_for_it() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await.with_probes();
    let template = r#"
        output: {apiVersion: "v1", kind: "ConfigMap", data: key: parameter.value}
        parameter: value: string
    "#;
    super::stories_hostile::define(&site, "special", template).await;
    let declare = async |app: &str, value: &str| {
        let component = json!({ "name": app, "type": "special", "properties": { "value": value } });
        site.declare(app, spec(&[component])).await;
    };
    declare("shop", "one").await;
    site.until_running("shop").await;
    site.delete(DEFINITION, "special").await;
    let missing = format!("ComponentDefinition special not found in namespace {}", site.namespace);
    // Its refusal shows that the deletion was seen.
    declare("late", "one").await;
    site.until_said("late", &missing).await;

    let drift_is_undone = async || {
        site.edit(CONFIG_MAP, "shop", json!({ "data": { "key": "edited" } }))
            .await;
        site.until(CONFIG_MAP, "shop", "restored", |object| object["data"]["key"] == "one")
            .await;
        let app = site.until_running("shop").await;
        assert_eq!(condition(&app, "Parsed")["status"], "True");
        assert_eq!(app["status"]["services"][0]["healthy"], true);
    };
    drift_is_undone().await;
    drop(portolan);
    let _portolan = site.portolan(&[]).await.with_probes();
    drift_is_undone().await;
    assert_eq!(site.revisions("shop").await, ["shop-v1"]);

    let before = site.get(CONFIG_MAP, "shop").await.unwrap();
    declare("shop", "two").await;
    let app = site.until_said("shop", &missing).await;
    assert_eq!(condition(&app, "Parsed")["status"], "False");
    assert_eq!(version(&site.get(CONFIG_MAP, "shop").await.unwrap()), version(&before));
    super::stories_hostile::define(&site, "special", template).await;
    site.until_running("shop").await;
    assert_eq!(site.get(CONFIG_MAP, "shop").await.unwrap()["data"]["key"], "two");
    site.until_running("late").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_the_api_server_refuses_is_named_and_nothing_is_applied() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await.with_probes();
    let invalid = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "front" }, "spec": {} });
    let settings = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" } });
    site.declare("shop", spec(&[objects("both", &[settings.clone(), invalid])]))
        .await;
    site.until_said("shop", "Service \"front\" is invalid: spec.ports: Required value")
        .await;
    assert_eq!(site.managed_objects().await, Vec::<Value>::new());
    site.declare("shop", spec(&[objects("both", &[settings])])).await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_is_not_supported_is_reported_once_and_left_as_it_is() {
    const WORDS: &str = "not supported by this controller: policy old of type env-binding";
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await.with_probes();
    let mut remote = spec(&[config("settings", "one")]);
    remote["policies"] = json!([{ "name": "old", "type": "env-binding", "properties": { "envs": [] } }]);
    site.declare("shop", remote).await;
    site.until_said("shop", WORDS).await;
    // Another pass, and a later one over another Application.
    site.edit(
        APPLICATION,
        "shop",
        json!({ "metadata": { "labels": { "touched": "once" } } }),
    )
    .await;
    site.declare("other", spec(&[config("other", "one")])).await;
    site.until_running("other").await;

    let app = site.get(APPLICATION, "shop").await.unwrap();
    assert_eq!(app["status"]["conditions"].as_array().unwrap().len(), 2, "{app:#}");
    assert_eq!(condition(&app, "Parsed")["status"], "False");
    assert_eq!(condition(&app, "Ready")["status"], "False");
    // Without a phase, `vela up --wait` would not end.
    assert_eq!(app["status"]["status"], "rendering");
    assert_eq!(app["status"]["observedGeneration"], app["metadata"]["generation"]);
    assert_eq!(app["status"].as_object().unwrap().len(), 3, "{app:#}");
    assert_eq!(app["metadata"]["finalizers"], Value::Null);
    assert_eq!(site.revisions("shop").await, Vec::<String>::new());
    assert_eq!(site.trackers("shop").await, Vec::<Value>::new());
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
    let events: Api<Event> = Api::namespaced(site.control_plane.client().await, &site.namespace);
    eventually(SOON, "one event", async || {
        let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        let reports: Vec<_> = events.filter(|event| event.note.as_deref() == Some(WORDS)).collect();
        if reports.len() == 1 {
            Ok(())
        } else {
            Err(format!("{reports:?}"))
        }
    })
    .await;

    let mut changed = spec(&[config("other", "two")]);
    changed["policies"] = json!([{ "name": "old", "type": "env-binding", "properties": { "envs": [] } }]);
    site.declare("other", changed).await;
    let app = site.until_said("other", WORDS).await;
    assert_eq!(app["status"]["status"], "rendering");
    assert_eq!(condition(&app, "Ready")["status"], "False");
    assert_eq!(site.get(CONFIG_MAP, "other").await.unwrap()["data"]["key"], "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_without_effect_are_named_by_one_event() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await.with_probes();
    for value in ["one", "two", "three"] {
        let mut shop = spec(&[config("settings", value)]);
        shop["policies"] = json!(["one", "two"].map(|name| json!({ "name": name, "type": "debug" })));
        site.declare("shop", shop).await;
        site.until_running("shop").await;
    }
    let events: Api<Event> = Api::namespaced(site.control_plane.client().await, &site.namespace);
    let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let notes = events.filter(|event| event.reason.as_deref() == Some("PolicySkipped"));
    let notes: Vec<_> = notes.filter_map(|event| event.note).collect();
    let note = "policy one has no effect: values of debug are not kept; \
                policy two has no effect: values of debug are not kept";
    assert_eq!(notes, [note]);
}

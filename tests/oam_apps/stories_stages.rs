//! Stages of traits, and what status templates see.

use serde_json::{Value, json};

use super::apps::{spec, web};
use super::site::{Site, condition};
use super::stories_hostile::define;
use super::workflows::{outcome, step, with_steps};
use super::{APPLICATION, CONFIG_MAP};

const TRAIT: &str = "core.oam.dev/v1beta1 TraitDefinition";
const DEFINITION_REVISION: &str = "core.oam.dev/v1beta1 DefinitionRevision";

const RECORD: &str = r#"
output: {
	apiVersion: "v1"
	kind:       "ConfigMap"
	data: {value: parameter.value, revision: context.revision}
}
parameter: value: string
"#;

/// A trait with a ConfigMap named after the component and the trait.
fn publish(name: &str, data: &str) -> String {
    format!(
        r#"
outputs: own: {{
	apiVersion: "v1"
	kind:       "ConfigMap"
	metadata: name: context.name + "-{name}"
	data: {data}
}}
parameter: {{}}
"#
    )
}

async fn define_trait(site: &Site, name: &str, stage: &str, template: &str, status: Value) {
    let definition = json!({
        "spec": { "stage": stage, "schematic": { "cue": { "template": template } }, "status": status }
    });
    site.apply(TRAIT, name, definition).await;
}

/// A trait before the workload that is healthy once its ConfigMap says so.
async fn define_prepare(site: &Site) {
    let policy = r#"isHealth: *(context.outputs.own.metadata.annotations.ready == "yes") | false"#;
    let template = publish("prepare", "{key: \"one\"}");
    let status = json!({ "healthPolicy": policy });
    define_trait(site, "prepare", "PreDispatch", &template, status).await;
}

/// Makes the trait of the component `web` healthy.
async fn set_prepared(site: &Site) {
    let ready = json!({ "metadata": { "annotations": { "ready": "yes" } } });
    site.edit(CONFIG_MAP, "web-prepare", ready).await;
}

fn record(name: &str, value: &str, traits: &[&str]) -> Value {
    let traits: Vec<_> = traits
        .iter()
        .map(|type_| json!({ "type": type_, "properties": {} }))
        .collect();
    json!({ "name": name, "type": "record", "properties": { "value": value }, "traits": traits })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_stage_waits_until_the_objects_of_the_stage_before_are_healthy() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    define(&site, "record", RECORD).await;
    define_prepare(&site).await;
    site.until(DEFINITION_REVISION, "prepare-v1", "recorded", |_| true)
        .await;
    site.declare("shop", spec(&[record("web", "one", &["prepare@v1"])]))
        .await;
    let service = |app: &Value| app["status"]["services"][0].clone();
    let app = site
        .until(APPLICATION, "shop", "waits for the stage before", |app| {
            service(app)["message"] == "waiting for previous stage healthy"
        })
        .await;
    assert_eq!(service(&app)["healthy"], false);
    assert_eq!(service(&app)["traits"][0]["type"], "prepare-v1");
    assert_eq!(site.get(CONFIG_MAP, "web").await, None);

    set_prepared(&site).await;
    let app = site.until_running("shop").await;
    assert_eq!(service(&app)["healthy"], true);
    assert_eq!(service(&app)["message"], Value::Null, "{app:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_waits_for_no_health_waits_until_the_default_stage_is_applied() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    define(&site, "record", RECORD).await;
    define_prepare(&site).await;
    let steps = [step("all", "apply-application-in-parallel", json!({}))];
    site.declare("shop", with_steps(&[record("web", "one", &["prepare"])], &steps))
        .await;
    site.until(APPLICATION, "shop", "a wait", |app| {
        outcome(app, "all") == ["running", "Wait", "wait healthy"]
    })
    .await;
    assert_eq!(site.get(CONFIG_MAP, "web").await, None);

    set_prepared(&site).await;
    let app = site.until_running("shop").await;
    assert_eq!(outcome(&app, "all")[0], "succeeded");
    assert!(site.get(CONFIG_MAP, "web").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traits_of_the_default_stage_see_the_status_of_the_live_workload() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let observe = r#"
outputs: own: {
	apiVersion: "v1"
	kind:       "ConfigMap"
	metadata: name: context.name + "-observe"
	data: {
		kind: context.output.kind
		if context.output.status.readyReplicas != _|_ {
			ready: "\(context.output.status.readyReplicas)"
		}
	}
}
parameter: {}
"#;
    define_trait(&site, "observe", "", observe, json!({})).await;
    let mut component = web("front", 1);
    component["traits"] = json!([{ "type": "observe", "properties": {} }]);
    site.declare("shop", spec(&[component])).await;
    site.until_running("shop").await;
    let observed = site.get(CONFIG_MAP, "front-observe").await.unwrap();
    assert_eq!(observed["data"], json!({ "kind": "Deployment", "ready": "1" }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_takes_the_output_of_a_trait_of_the_last_stage_in_a_deploy_step() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    define(&site, "record", RECORD).await;
    let token = "{token: context.output.data.value + \"-token\"}";
    define_trait(&site, "publish", "PostDispatch", &publish("publish", token), json!({})).await;
    let mut source = record("source", "one", &["publish"]);
    source["outputs"] = json!([{ "name": "token", "valueFrom": "outputs.own.data.token" }]);
    let mut sink = record("sink", "unset", &[]);
    sink["inputs"] = json!([{ "from": "token", "parameterKey": "value" }]);
    let steps = json!([{ "name": "deploy", "type": "deploy", "properties": { "policies": [] } }]);
    let spec = json!({ "components": [source, sink], "workflow": { "steps": steps } });
    site.declare("shop", spec).await;
    let app = site.until_running("shop").await;
    assert!(!app.to_string().contains("_vela"), "{app:#}");
    let sink = site.get(CONFIG_MAP, "sink").await.unwrap();
    assert_eq!(sink["data"]["value"], "one-token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_templates_see_parameters_and_traits_their_own_objects_which_must_exist() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let message = |expression: &str| json!({ "customStatus": format!("message: \"\\({expression})\"") });
    let definition = json!({
        "spec": {
            "workload": { "type": "autodetects.core.oam.dev" },
            "schematic": { "cue": { "template": RECORD } },
            "status": message("context.parameter.value"),
        }
    });
    site.apply(super::DEFINITION, "record", definition).await;
    for name in ["first", "second"] {
        let template = publish(name, &format!("{{text: \"of {name}\"}}"));
        define_trait(&site, name, "", &template, message("context.outputs.own.data.text")).await;
    }
    let once = json!([{ "name": "once", "type": "apply-once", "properties": { "enable": true } }]);
    let extra =
        format!("{RECORD}outputs: extra: {{apiVersion: \"v1\", kind: \"ConfigMap\", metadata: name: \"extra\"}}");
    define(&site, "pair", &extra).await;
    let mut pair = record("pair", "one", &[]);
    pair["type"] = "pair".into();
    let components = [
        record("web", "one", &["first", "second"]),
        record("plain", "one", &[]),
        pair,
    ];
    site.declare("shop", json!({ "components": components, "policies": once }))
        .await;
    let app = site.until_running("shop").await;
    let web = |app: &Value| app["status"]["services"][0].clone();
    assert_eq!(web(&app)["message"], "one", "{app:#}");
    let messages = |app: &Value| -> Vec<Value> {
        let traits = web(app)["traits"].as_array().cloned().unwrap_or_default();
        traits.iter().map(|one| one["message"].clone()).collect()
    };
    assert_eq!(messages(&app), ["of first", "of second"]);
    // Computed by KubeVela's library for this component.
    let plain = site.get(CONFIG_MAP, "plain").await.unwrap();
    assert_eq!(plain["data"]["revision"], "ebd04297c2ff591c");

    site.delete(CONFIG_MAP, "web-second").await;
    let app = site
        .until(APPLICATION, "shop", "unhealthy", |app| {
            app["status"]["status"] == "unhealthy"
        })
        .await;
    assert_eq!(web(&app)["traits"][0]["healthy"], true);
    assert_eq!(web(&app)["traits"][1]["healthy"], false);
    assert_eq!(messages(&app), ["of first", "ConfigMap web-second not found"]);

    site.delete(CONFIG_MAP, "extra").await;
    site.until(APPLICATION, "shop", "without an object of a component", |app| {
        let services = app["status"]["services"].as_array().unwrap().iter();
        let mut pairs = services.filter(|service| service["name"] == "pair");
        pairs.any(|pair| pair["healthy"] == false && pair["message"] == "ConfigMap extra not found")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_that_waits_in_a_running_application_is_shown_in_ready() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    define(&site, "record", RECORD).await;
    site.declare("shop", spec(&[record("web", "one", &[]), record("old", "one", &[])]))
        .await;
    site.until_running("shop").await;
    let held = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    site.edit(CONFIG_MAP, "old", held(json!(["example.com/hold"]))).await;
    site.declare("shop", spec(&[record("web", "one", &[])])).await;
    let app = site
        .until(APPLICATION, "shop", "waits for the collection", |app| {
            condition(app, "Ready")["reason"] == "Deleting"
        })
        .await;
    let ready = condition(&app, "Ready");
    assert_eq!(ready["status"], "False");
    let message = ready["message"].as_str().unwrap();
    let is_waiting = message.starts_with("Waiting for ConfigMap old")
        && message.ends_with("to delete. (At least 1 resources are deleting.)");
    assert!(is_waiting, "{message}");
    assert_eq!(app["status"]["status"], "running");
    site.edit(CONFIG_MAP, "old", held(json!([]))).await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_for_an_older_version_of_cue_is_deployed_and_logged_once() {
    const OLDER: &str = r#"
import "strings"

output: {
	apiVersion: "v1"
	kind:       "ConfigMap"
	data: value: strings.Join(["first"] + parameter.values, ",")
}
parameter: values: [...string]
"#;
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    define(&site, "older", OLDER).await;
    for name in ["one", "two"] {
        let component = json!({ "name": name, "type": "older", "properties": { "values": ["second"] } });
        site.declare(name, spec(&[component])).await;
        site.until_running(name).await;
        let value = &site.get(CONFIG_MAP, name).await.unwrap()["data"]["value"];
        assert_eq!(value, "first,second");
    }
    let lines = portolan.lines();
    let logged: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("template is for an older version of CUE"))
        .collect();
    assert!(
        matches!(logged.as_slice(), [line] if line.contains("definition=\"older\"")),
        "{logged:?}"
    );
}

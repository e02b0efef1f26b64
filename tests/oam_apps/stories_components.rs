//! Steps whose templates deploy components.

use serde_json::{Value, json};

use super::apps::config;
use super::operators::gated;
use super::site::Site;
use super::workflows::{outcome, step, until_ended, with, with_steps};
use super::{APPLICATION, CONFIG_MAP};

/// A step that applies a component of the spec.
const APPLY_ONE: &str = r#"
    import "vela/oam"
    load: oam.#LoadComponets
    web: oam.#ApplyComponent & {$params: value: load.$returns.value[parameter.name]}
    parameter: name: string
"#;

async fn open(site: &Site, name: &str) {
    site.edit(CONFIG_MAP, name, json!({ "data": { "open": "yes" } })).await;
}

fn services(app: &Value) -> Vec<&str> {
    let services = app["status"]["services"].as_array().into_iter().flatten();
    services.filter_map(|service| service["name"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_other_steps_leave_is_deployed_kept_and_collected_as_all_components() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let steps = [
        step("first", "apply-component", json!({ "component": "first" })),
        step("rest", "apply-remaining", json!({ "exceptions": ["first", "later"] })),
    ];
    let components = ["first", "second", "third", "later"].map(|name| config(name, "one"));
    site.declare("shop", with_steps(&components, &steps)).await;
    let app = site.until_running("shop").await;
    assert_eq!(services(&app), ["first", "second", "third"]);
    assert_eq!(outcome(&app, "rest")[0], "succeeded");
    assert_eq!(site.get(CONFIG_MAP, "later").await, None);

    site.edit(CONFIG_MAP, "second", json!({ "data": { "key": "changed" } }))
        .await;
    site.until(CONFIG_MAP, "second", "restored", |map| map["data"]["key"] == "one")
        .await;
    site.declare("shop", with_steps(&components[..2], &steps)).await;
    site.until_gone(CONFIG_MAP, "third").await;
    let app = site.until_running("shop").await;
    assert_eq!(services(&app), ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_components_are_deployed_in_the_order_of_their_dependencies() {
    let site = Site::new().await;
    site.define_gate().await;
    let _portolan = site.portolan(&[]).await;
    let components = [with(gated("front"), json!({ "dependsOn": ["back"] })), gated("back")];
    let steps = [step("all", "apply-application", json!({}))];
    site.declare("shop", with_steps(&components, &steps)).await;
    let app = site
        .until(APPLICATION, "shop", "a wait", |app| {
            outcome(app, "all")[2] == "wait healthy"
        })
        .await;
    assert_eq!(outcome(&app, "all")[..2], ["running", "Wait"]);
    assert_eq!(site.get(CONFIG_MAP, "front").await, None);
    open(&site, "back").await;
    site.until(CONFIG_MAP, "front", "deployed", |_| true).await;
    open(&site, "front").await;
    let app = site.until_running("shop").await;
    assert_eq!(outcome(&app, "all")[0], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_parallel_a_step_waits_only_for_what_others_depend_on() {
    let site = Site::new().await;
    site.define_gate().await;
    let _portolan = site.portolan(&[]).await;
    let components = [
        gated("alone"),
        with(gated("front"), json!({ "dependsOn": ["back"] })),
        gated("back"),
    ];
    let steps = [step("all", "apply-application-in-parallel", json!({}))];
    site.declare("shop", with_steps(&components, &steps)).await;
    site.until(APPLICATION, "shop", "a wait", |app| {
        outcome(app, "all")[2] == "wait healthy"
    })
    .await;
    open(&site, "back").await;
    let app = until_ended(&site, "shop").await;
    assert_eq!(outcome(&app, "all")[0], "succeeded");
    let app = site
        .until(APPLICATION, "shop", "unhealthy", |app| {
            app["status"]["status"] == "unhealthy"
        })
        .await;
    assert_eq!(services(&app).len(), 3);
    assert!(site.get(CONFIG_MAP, "alone").await.is_some());
    assert!(site.get(CONFIG_MAP, "front").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_that_a_template_applies_are_shown_also_after_a_restart() {
    let site = Site::new().await;
    site.define_step("one", APPLY_ONE).await;
    let portolan = site.portolan(&["--max-workflow-step-error-retry-times=0"]).await;
    let steps = ["web", "lost"].map(|name| step(name, "one", json!({ "name": name })));
    let components = [config("web", "one"), config("other", "two")];
    site.declare("shop", with_steps(&components, &steps)).await;
    let app = until_ended(&site, "shop").await;
    assert_eq!(outcome(&app, "web")[0], "succeeded");
    assert_eq!(outcome(&app, "lost")[..2], ["failed", "FailedAfterRetries"]);
    assert_eq!(services(&app), ["web"]);

    site.declare("shop", with_steps(&components, &steps[..1])).await;
    site.until_running("shop").await;
    drop(portolan);
    let _portolan = site.portolan(&[]).await;
    site.edit(CONFIG_MAP, "web", json!({ "data": { "key": "changed" } }))
        .await;
    site.until(CONFIG_MAP, "web", "restored", |map| map["data"]["key"] == "one")
        .await;
    let app = site.until_running("shop").await;
    assert_eq!(services(&app), ["web"]);
    assert_eq!(site.get(CONFIG_MAP, "other").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_that_a_template_applies_under_the_name_of_another_is_not_taken_for_it() {
    let site = Site::new().await;
    let template = r#"
        import "vela/oam"
        web: oam.#ApplyComponent & {$params: value: {
            name: "web"
            type: "k8s-objects"
            properties: objects: [{apiVersion: "v1", kind: "ConfigMap", metadata: name: "instead"}]
        }}
        parameter: {}
    "#;
    site.define_step("instead", template).await;
    let _portolan = site.portolan(&[]).await;
    let steps = [step("web", "instead", json!({}))];
    site.declare("shop", with_steps(&[config("web", "one")], &steps)).await;
    let app = site.until_running("shop").await;
    assert_eq!(services(&app), [""; 0]);
    assert!(site.get(CONFIG_MAP, "instead").await.is_some());
    assert_eq!(site.get(CONFIG_MAP, "web").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_run_the_objects_of_components_that_a_template_applies_stay() {
    let site = Site::new().await;
    site.define_step("one", APPLY_ONE).await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=0"]).await;
    let [web, lost] = ["web", "lost"].map(|name| step(name, "one", json!({ "name": name })));
    let collect = json!({ "name": "collect", "type": "garbage-collect", "properties": { "continueOnFailure": true } });
    let with_collection = |steps: &[Value]| {
        let spec = with_steps(&[config("web", "one")], steps);
        with(spec, json!({ "policies": [collect] }))
    };
    site.declare("shop", with_collection(std::slice::from_ref(&web))).await;
    site.until_running("shop").await;
    site.declare("shop", with_collection(&[lost, web])).await;
    // The status of the first run stays until the second begins.
    let has_failed = |app: &Value| app["status"]["status"] == "workflowFailed";
    let app = site.until(APPLICATION, "shop", "a failed workflow", has_failed).await;
    assert_eq!(outcome(&app, "web")[0], "skipped");
    assert!(site.get(CONFIG_MAP, "web").await.is_some());
}

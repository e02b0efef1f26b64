//! Applications that the webhooks change, refuse, or let pass with a warning.

use serde_json::{Value, json};

use super::site::{Reviewed, Written, application, definition, template};
use crate::oam_apps::APPLICATION;
use crate::oam_apps::apps::{config, spec};
use crate::support::eventually::{SOON, eventually};

fn with_steps(steps: Value) -> Value {
    json!({ "components": [config("a", "one")], "workflow": { "steps": steps } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_without_a_name_get_one_and_run() {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed.portolan(&[]).await;
    let steps = json!([
        { "type": "apply-component", "properties": { "component": "a" } },
        { "type": "step-group", "name": "group", "subSteps": [{ "type": "suspend", "properties": { "duration": "1s" } }] },
    ]);
    let created = reviewed
        .create("applications", &application("app", with_steps(steps)))
        .await;
    assert_eq!(created.code, 201, "{created:?}");
    let steps = &created.body["spec"]["workflow"]["steps"];
    assert_eq!(steps[0]["name"], "step-0");
    assert_eq!(steps[1]["subSteps"][0]["name"], "step-1-0");
    reviewed.site.until_running("app").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_with_several_errors_is_refused_with_all_of_them() {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed.portolan(&[]).await;
    let steps = json!([
        { "type": "suspend", "name": "same", "timeout": "1d" },
        { "type": "suspend", "name": "same" },
    ]);
    let mut app = application("app", with_steps(steps));
    app["metadata"]["annotations"] = json!({ "app.oam.dev/autoUpdate": "true", "app.oam.dev/publishVersion": "v1" });
    let refused = reviewed.create("applications", &app).await;
    assert_eq!(refused.code, 400, "{refused:?}");
    for expected in [
        "1) \"metadata.annotations\": Application has both autoUpdate and publishVersion annotations. Only one can be present.",
        "2) \"spec.workflow.steps.timeout\": invalid timeout, please use the format of timeout like 1s, 1m, 1h or 1d.",
        "3) \"spec.workflow.steps\": duplicated step name.",
        "(requestUID=",
    ] {
        assert!(
            refused.message().contains(expected),
            "{expected}: {}",
            refused.message()
        );
    }
    assert_eq!(reviewed.site.get(APPLICATION, "app").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_that_cannot_be_rendered_is_refused_at_create_and_update() {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed.portolan(&[]).await;
    let web = |image: Value| json!({ "name": "web", "type": "webservice", "properties": { "image": image } });
    let refused = reviewed
        .create("applications", &application("app", spec(&[web(json!(1))])))
        .await;
    assert_eq!(refused.code, 400, "{refused:?}");
    assert!(refused.message().contains("\"schematic\": "), "{}", refused.message());
    assert!(refused.message().contains("image"), "{}", refused.message());

    let unknown = spec(&[json!({ "name": "web", "type": "nothing" })]);
    let refused = reviewed.create("applications", &application("app", unknown)).await;
    assert!(refused.message().contains("\"spec\": "), "{}", refused.message());
    assert!(refused.message().contains("nothing"), "{}", refused.message());

    // A dry run is reviewed, and stores nothing.
    let valid = application("app", spec(&[web(json!("example.com/web:1"))]));
    assert_eq!(reviewed.create_dry("applications", &valid).await.code, 201);
    assert_eq!(reviewed.site.get(APPLICATION, "app").await, None);
    assert_eq!(reviewed.create("applications", &valid).await.code, 201);
    let refused = reviewed
        .change("applications", "app", &json!({ "spec": spec(&[web(json!([]))]) }))
        .await;
    assert_eq!(refused.code, 400, "{refused:?}");
    // Portolan itself goes on.
    reviewed
        .site
        .until(APPLICATION, "app", "applied", |app| app["status"]["status"].is_string())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_that_takes_too_long_passes_with_a_warning() {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed.portolan(&["--cue-timeout=20s"]).await;
    let slow = "import \"list\"\nparameter: {}\n\
                output: {apiVersion: \"v1\", kind: \"ConfigMap\", data: n: \
                \"\\(len([for a in list.Range(0, 9000, 1) for b in list.Range(0, 9000, 1) if a == b {a}]))\"}\n";
    let slow = definition(
        "ComponentDefinition",
        "slow",
        json!({ "workload": { "type": "autodetects.core.oam.dev" }, "schematic": template(slow) }),
    );
    reviewed.site.create(&in_namespace(&slow, &reviewed)).await;
    let start = std::time::Instant::now();
    let app = application("app", spec(&[json!({ "name": "slow", "type": "slow" })]));
    let created = create_of_new_type(&reviewed, &app).await;
    assert_eq!(created.code, 201, "{created:?}");
    assert!(start.elapsed().as_secs() < 8, "{:?}", start.elapsed());
    let expected = "component slow: template of ComponentDefinition slow was stopped: more than 2s, so the component was not checked";
    assert!(
        created.warnings.iter().any(|warning| warning.contains(expected)),
        "{:?}",
        created.warnings
    );
}

/// Creates an Application once the webhook knows its definition, which its caches learn by a watch.
async fn create_of_new_type(reviewed: &Reviewed, app: &Value) -> Written {
    eventually(SOON, "the definition to be known", async || {
        let created = reviewed.create("applications", app).await;
        let is_unknown = created.code == 400 && created.message().contains("not found in namespace");
        (!is_unknown).then_some(created)
    })
    .await
}

fn in_namespace(definition: &Value, reviewed: &Reviewed) -> Value {
    let mut definition = definition.clone();
    definition["metadata"]["namespace"] = reviewed.site.namespace.as_str().into();
    definition
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_immutable_parameter_keeps_its_value() {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed.portolan(&[]).await;
    let text = "output: {apiVersion: \"v1\", kind: \"ConfigMap\", data: {class: parameter.class, size: parameter.size}}\n\
                parameter: {\n\t// +immutable\n\tclass: string\n\tsize: string\n}\n";
    let disk = definition(
        "ComponentDefinition",
        "disk",
        json!({ "workload": { "type": "autodetects.core.oam.dev" }, "schematic": template(text) }),
    );
    reviewed.site.create(&in_namespace(&disk, &reviewed)).await;
    let disk = |class: &str, size: &str| {
        spec(&[json!({ "name": "disk", "type": "disk", "properties": { "class": class, "size": size } })])
    };
    let created = create_of_new_type(&reviewed, &application("app", disk("fast", "1"))).await;
    assert_eq!(created.code, 201, "{created:?}");
    let larger = reviewed
        .change("applications", "app", &json!({ "spec": disk("fast", "2") }))
        .await;
    assert_eq!(larger.code, 200, "{larger:?}");
    let refused = reviewed
        .change("applications", "app", &json!({ "spec": disk("slow", "2") }))
        .await;
    assert_eq!(refused.code, 400, "{refused:?}");
    let expected = "\"spec.components[0].properties[class]\": immutable field cannot be changed (current: \"fast\", new: \"slow\").";
    assert!(refused.message().contains(expected), "{}", refused.message());
    let forced = json!({
        "metadata": { "annotations": { "app.oam.dev/force-param-mutations": "true" } }, "spec": disk("slow", "2"),
    });
    assert_eq!(reviewed.change("applications", "app", &forced).await.code, 200);
}

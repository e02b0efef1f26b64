//! Labels, annotations and finalizers that decide who acts on an Application, and what its end leaves.

use rstest::rstest;
use serde_json::{Value, json};

use super::apps::{config, spec};
use super::site::Site;
use super::{APPLICATION, CONFIG_MAP};

const REQUIRED: &str = "app.oam.dev/controller-version-require";

/// A trait whose ConfigMap replaces the workload.
const MANAGER: &str = r#"
outputs: own: {
	apiVersion: "v1"
	kind:       "ConfigMap"
	metadata: name: context.name + "-own"
	data: context.output.data
}
parameter: {}
"#;

#[rstest]
#[case::paused(&[][..], "labels", "controller.core.oam.dev/pause", json!("true"), Value::Null)]
#[case::of_another_version(&[][..], "annotations", REQUIRED, json!("v0.1.0"), Value::Null)]
#[case::without_a_version(
    &["--ignore-app-without-controller-version", "--compat-version=v1.2.3"][..],
    "annotations",
    REQUIRED,
    Value::Null,
    json!("v1.2.3")
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_for_another_controller_is_left_alone(
    #[case] flags: &[&str],
    #[case] field: &str,
    #[case] key: &str,
    #[case] of_another: Value,
    #[case] ours: Value,
) {
    let site = Site::new().await;
    let _portolan = site.portolan(flags).await;
    let app = |name: &str, mark: &Value| {
        let mut app = json!({ "spec": spec(&[config(name, "one")]) });
        if !mark.is_null() {
            app["metadata"][field][key] = mark.clone();
        }
        app
    };
    site.apply(APPLICATION, "shop", app("settings", &of_another)).await;
    site.apply(APPLICATION, "other", app("others", &ours)).await;
    site.until_running("other").await;
    // The second change arrives after the first.
    site.edit(
        APPLICATION,
        "shop",
        json!({ "metadata": { "labels": { "note": "new" } } }),
    )
    .await;
    site.edit(
        APPLICATION,
        "other",
        json!({ "spec": spec(&[config("others", "two")]) }),
    )
    .await;
    site.until_running("other").await;
    let shop = site.get(APPLICATION, "shop").await.unwrap();
    assert!(
        shop["status"].is_null() && shop["metadata"]["finalizers"].is_null(),
        "{shop:#}"
    );
    site.edit(APPLICATION, "shop", json!({ "metadata": { field: { key: ours } } }))
        .await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trait_that_manages_the_workload_takes_its_place() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let definition = json!({ "spec": { "manageWorkload": true, "schematic": { "cue": { "template": MANAGER } } } });
    site.apply("core.oam.dev/v1beta1 TraitDefinition", "manager", definition)
        .await;
    let mut component = config("settings", "one");
    component["traits"] = json!([{ "type": "manager", "properties": {} }]);
    site.declare("shop", spec(&[component])).await;
    let app = site
        .until(APPLICATION, "shop", "applied", |app| {
            app["status"]["appliedResources"]
                .as_array()
                .is_some_and(|applied| !applied.is_empty())
        })
        .await;
    let applied = app["status"]["appliedResources"].as_array().unwrap();
    let names: Vec<&Value> = applied.iter().map(|object| &object["name"]).collect();
    assert_eq!(names, ["settings-own"]);
    let object = site.get(CONFIG_MAP, "settings-own").await.unwrap();
    assert_eq!(object["metadata"]["labels"]["trait.oam.dev/manage-workload"], "true");
    assert_eq!(object["data"]["key"], "one");
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_with_the_orphan_finalizer_leaves_its_objects() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let app = json!({
        "metadata": { "finalizers": ["app.oam.dev/orphan-resource"] }, "spec": spec(&[config("settings", "one")]),
    });
    site.apply(APPLICATION, "shop", app).await;
    site.until_running("shop").await;
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    let object = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert!(object["metadata"]["deletionTimestamp"].is_null(), "{object:#}");
    assert!(object["metadata"]["labels"]["app.oam.dev/name"].is_null(), "{object:#}");
}

//! Policies about single objects: shared, read-only, taken over, recreated and replaced.

use serde_json::{Value, json};

use super::apps::{config, objects, selecting, spec, with_policies};
use super::site::{Site, version};
use super::{APPLICATION, CONFIG_MAP, DEPLOYMENT};

const SECRET: &str = "v1 Secret";
/// Steps that fail are tried again until the cause is gone.
const PATIENT: &str = "--max-workflow-step-error-retry-times=100000";

const OWNER: &str = "app.oam.dev/name";
const SHARED_BY: &str = "app.oam.dev/shared-by";

fn shared(name: &str, value: &str) -> Value {
    with_policies(&[config(name, value)], &[("shared-resource", selecting("ConfigMap"))])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_object_lives_as_long_as_the_last_application_that_shares_it() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let namespace = &site.namespace;
    site.declare("first", shared("settings", "first")).await;
    site.until_running("first").await;
    site.declare("second", shared("settings", "second")).await;
    site.until_running("second").await;
    let settings = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(settings["data"]["key"], "first", "that of the owner");
    assert_eq!(settings["metadata"]["labels"][OWNER], "first");
    let sharers = &settings["metadata"]["annotations"][SHARED_BY];
    assert_eq!(*sharers, format!("{namespace}/first,{namespace}/second"));

    site.delete(APPLICATION, "first").await;
    site.until_gone(APPLICATION, "first").await;
    let handed_over = site
        .until(CONFIG_MAP, "settings", "as the new owner declares it", |object| {
            object["data"]["key"] == "second"
        })
        .await;
    assert_eq!(handed_over["metadata"]["uid"], settings["metadata"]["uid"]);
    assert_eq!(handed_over["metadata"]["labels"][OWNER], "second");
    assert_eq!(
        handed_over["metadata"]["annotations"][SHARED_BY],
        format!("{namespace}/second")
    );

    site.delete(APPLICATION, "second").await;
    site.until_gone(APPLICATION, "second").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_shared_only_if_its_owner_shares_it_too() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    site.declare("first", spec(&[config("settings", "first")])).await;
    site.until_running("first").await;
    site.declare("second", shared("settings", "second")).await;
    let refusal = format!(
        "application is controlled by {}/first but is not sharable",
        site.namespace
    );
    site.until_said("second", &refusal).await;

    site.declare("first", shared("settings", "first")).await;
    site.until_running("second").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"]["key"], "first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_object_is_neither_changed_nor_deleted() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    let declare = async |value: &str| {
        let policy = json!({ "rules": [{ "selector": { "componentNames": ["settings"] } }] });
        let components = [config("settings", "ours"), config("own", value)];
        site.declare("shop", with_policies(&components, &[("read-only", policy)]))
            .await;
    };
    declare("one").await;
    let missing = "ConfigMap (settings) is marked as read-only but does not exist. You should check the existence of the \
                   resource or remove the read-only policy";
    site.until_said("shop", missing).await;
    site.apply(CONFIG_MAP, "settings", json!({ "data": { "key": "foreign" } }))
        .await;
    site.until_running("shop").await;

    site.edit(CONFIG_MAP, "settings", json!({ "data": { "key": "edited" } }))
        .await;
    let edited = site.get(CONFIG_MAP, "settings").await.unwrap();
    // Both are looked at in the same passes.
    site.edit(CONFIG_MAP, "own", json!({ "data": { "key": "edited" } }))
        .await;
    let is = |value: &'static str| move |object: &Value| object["data"]["key"] == value;
    site.until(CONFIG_MAP, "own", "restored", is("one")).await;
    declare("two").await;
    site.until(CONFIG_MAP, "own", "updated", is("two")).await;
    site.until_running("shop").await;
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.get(CONFIG_MAP, "own").await, None);
    let after = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(version(&after), version(&edited));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_without_an_owner_is_taken_over_by_policy() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    let foreign = json!({ "data": { "key": "foreign", "more": "kept" } });
    let foreign = site.apply(CONFIG_MAP, "settings", foreign).await;
    site.declare("shop", spec(&[config("settings", "ours")])).await;
    let name = format!("ConfigMap {}/settings", site.namespace);
    site.until_said("shop", &format!("{name} exists but not managed by any application now"))
        .await;

    let components = [config("settings", "ours")];
    let policies = [("take-over", selecting("ConfigMap"))];
    site.declare("shop", with_policies(&components, &policies)).await;
    site.until_running("shop").await;
    let taken = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(taken["metadata"]["uid"], foreign["metadata"]["uid"]);
    assert_eq!(taken["data"], json!({ "key": "ours", "more": "kept" }));
    assert_eq!(taken["metadata"]["labels"][OWNER], "shop");
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partial_manifest_takes_over_an_object_that_exists() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    let (labels, container) = (
        json!({ "app": "web" }),
        json!({ "name": "web", "image": "example.com/web:1" }),
    );
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
    let whole = json!({ "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": template } });
    let foreign = site.apply(DEPLOYMENT, "web", whole).await;
    // The API server would not create it.
    let partial = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" }, "spec": { "replicas": 0 }
    });
    let components = [objects("web", &[partial])];
    site.declare("shop", spec(&components)).await;
    let name = format!("Deployment {}/web", site.namespace);
    site.until_said("shop", &format!("{name} exists but not managed by any application now"))
        .await;

    let policies = [("take-over", selecting("Deployment"))];
    site.declare("shop", with_policies(&components, &policies)).await;
    site.until_running("shop").await;
    let taken = site.get(DEPLOYMENT, "web").await.unwrap();
    assert_eq!(taken["metadata"]["uid"], foreign["metadata"]["uid"]);
    assert_eq!(taken["metadata"]["labels"][OWNER], "shop");
    assert_eq!(taken["spec"]["replicas"], 0);
    assert_eq!(
        taken["spec"]["template"]["spec"]["containers"][0]["image"],
        "example.com/web:1"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_recreated_to_change_an_immutable_field() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    let secret = |type_: &str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "credentials" }, "type": type_,
            "stringData": { "user": "me" },
        });
        [objects("credentials", &[secret])]
    };
    site.declare("shop", spec(&secret("example.com/first"))).await;
    site.until_running("shop").await;
    let first = site.get(SECRET, "credentials").await.unwrap();
    site.declare("shop", spec(&secret("example.com/second"))).await;
    site.until_said("shop", "Secret \"credentials\" is invalid: type: Invalid value")
        .await;
    let refused = site.get(SECRET, "credentials").await.unwrap();
    assert_eq!(refused["metadata"]["uid"], first["metadata"]["uid"]);

    let mut policy = selecting("Secret");
    policy["rules"][0]["strategy"] = json!({ "recreateFields": ["type"] });
    let recreated = with_policies(&secret("example.com/second"), &[("resource-update", policy)]);
    site.declare("shop", recreated).await;
    site.until_running("shop").await;
    let second = site.get(SECRET, "credentials").await.unwrap();
    assert_ne!(second["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(second["type"], "example.com/second");
    assert_eq!(second["data"], first["data"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_replaced_without_fields_of_others() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let declare = async |value: &str| {
        let mut policy = selecting("ConfigMap");
        policy["rules"][0]["selector"]["resourceNames"] = json!(["replaced"]);
        policy["rules"][0]["strategy"] = json!({ "op": "replace" });
        let components = [config("replaced", value), config("patched", value)];
        site.declare("shop", with_policies(&components, &[("resource-update", policy)]))
            .await;
    };
    declare("one").await;
    site.until_running("shop").await;
    for name in ["replaced", "patched"] {
        site.edit(CONFIG_MAP, name, json!({ "data": { "foreign": "x" } })).await;
    }
    declare("two").await;
    site.until_running("shop").await;
    let data = async |name: &str| site.get(CONFIG_MAP, name).await.unwrap()["data"].clone();
    assert_eq!(data("replaced").await, json!({ "key": "two" }));
    assert_eq!(data("patched").await, json!({ "key": "two", "foreign": "x" }));
}

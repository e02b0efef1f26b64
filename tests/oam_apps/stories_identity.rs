//! Applications without an identity: they act for themselves, and on nothing of others.

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::accounts::{ALL, allow, forbidden};
use super::apps::{config, objects, selecting, spec, with_policies};
use super::site::{Site, condition};
use super::workflows::{outcome, status, step, with_steps};
use super::{APPLICATION, CONFIG_MAP, REVISION};
use crate::applications::resource;
use crate::support::eventually::{SOON, eventually};

const STEP_DEFINITION: &str = "core.oam.dev/v1beta1 WorkflowStepDefinition";
const POLICY_DEFINITION: &str = "core.oam.dev/v1beta1 PolicyDefinition";
const NAMESPACE: &str = "v1 Namespace";
const JOB: &str = "batch/v1 Job";
const SECRET: &str = "v1 Secret";

/// A step that changes a ConfigMap, and one that deletes it.
const PATCH: &str = r#"
    import "vela/kube"
    change: kube.#Patch & {$params: {
        value: {apiVersion: "v1", kind: "ConfigMap", metadata: {name: parameter.name, namespace: parameter.namespace}}
        patch: data: patched: "yes"
    }}
    parameter: {name: string, namespace: string}
"#;
const DELETE: &str = r#"
    import "vela/kube"
    remove: kube.#Delete & {$params: {
        value: {apiVersion: "v1", kind: "ConfigMap", metadata: {name: parameter.name, namespace: parameter.namespace}}
    }}
    parameter: {name: string, namespace: string}
"#;
const LIST: &str = r#"
    import "vela/kube"
    import "vela/builtin"
    found: kube.#List & {$params: {
        resource: {apiVersion: "v1", kind: "ConfigMap"}
        filter: namespace: context.namespace
    }}
    say: builtin.#Message & {$params: message: "\(len([for map in found.$returns.values.items if map.metadata.name == parameter.name {map}])) found"}
    parameter: name: string
"#;

async fn define_step(site: &Site, name: &str, template: &str) {
    let definition = json!({ "spec": { "schematic": { "cue": { "template": template } } } });
    site.apply(STEP_DEFINITION, name, definition).await;
}

fn config_map(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": namespace }, "data": { "key": "one" },
    })
}

/// Objects of a kind in any namespace.
async fn api(site: &Site, kind: &str, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(site.control_plane.client().await, namespace, &resource(kind))
}

async fn get(site: &Site, kind: &str, namespace: &str, name: &str) -> Option<Value> {
    let found = api(site, kind, namespace).await.get_opt(name).await.unwrap();
    found.map(|object| json!(object))
}

async fn put(site: &Site, kind: &str, namespace: &str, name: &str, mut object: Value) {
    let (version, word) = kind.split_once(' ').unwrap();
    object["apiVersion"] = version.into();
    object["kind"] = word.into();
    object["metadata"]["name"] = name.into();
    let apply = PatchParams::apply("tests").force();
    let api = api(site, kind, namespace).await;
    api.patch(name, &apply, &Patch::Apply(object)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_without_an_identity_creates_no_application_in_another_namespace() {
    let site = Site::new().await;
    let other = site.control_plane.namespace().await;
    let nested = |name: &str, namespace: &str| {
        json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
            "metadata": { "name": name, "namespace": namespace }, "spec": { "components": [] },
        })
    };
    let privileged = site
        .portolan(&[&format!("--privileged-namespaces={}", site.namespace)])
        .await;
    let kept = objects("nested", &[nested("kept", &other)]);
    site.declare("parent", spec(std::slice::from_ref(&kept))).await;
    site.until_running("parent").await;
    assert!(get(&site, APPLICATION, &other, "kept").await.is_some());
    drop(privileged);

    let _portolan = site.portolan(&[]).await;
    let escape = spec(&[objects("nested", &[nested("escape", &other)])]);
    site.declare("attacker", escape).await;
    let words = format!("forbidden resource: Application {other}/escape is outside the namespace of application");
    site.until_said("attacker", &words).await;
    assert_eq!(get(&site, APPLICATION, &other, "escape").await, None);
    assert_eq!(
        site.trackers("attacker").await,
        Vec::<Value>::new(),
        "nothing was recorded"
    );
    // In its own namespace, it gets no privileges.
    site.declare(
        "attacker",
        spec(&[objects("nested", &[nested("own", &site.namespace)])]),
    )
    .await;
    site.until_running("attacker").await;
    // What is recorded already stays, and a new version of it is no escape.
    site.declare("parent", spec(&[kept.clone(), config("more", "one")]))
        .await;
    site.until_running("parent").await;
    assert!(get(&site, APPLICATION, &other, "kept").await.is_some());
    // Once it is gone, the record gives no right to create it.
    let gone = api(&site, APPLICATION, &other).await;
    gone.delete("kept", &DeleteParams::default()).await.unwrap();
    eventually(SOON, "the Application to be gone", async || {
        let live = get(&site, APPLICATION, &other, "kept").await;
        live.is_none().then_some(())
    })
    .await;
    site.declare("parent", spec(&[kept, config("more", "two")])).await;
    let words = format!("forbidden resource: Application {other}/kept is outside the namespace of application");
    site.until_said("parent", &words).await;
    assert_eq!(get(&site, APPLICATION, &other, "kept").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_steps_are_records_that_no_other_application_reads_references_or_changes() {
    const VALUES: &str = "workflow-victim-context";
    let site = Site::new().await;
    define_step(&site, "count", LIST).await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=1"]).await;
    site.declare("victim", spec(&[config("settings", "one")])).await;
    site.until_running("victim").await;
    let before = site.get(CONFIG_MAP, VALUES).await.unwrap();

    let said = format!(
        "ConfigMap {}/{VALUES} is a record of another application",
        site.namespace
    );
    let read = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": VALUES, "namespace": site.namespace });
    let steps = [
        step("own", "count", json!({ "name": "workflow-reader-context" })),
        step("count", "count", json!({ "name": VALUES })),
        step("read", "read-object", read),
    ];
    site.declare("reader", with_steps(&[], &steps)).await;
    let app = site.until_said("reader", &said).await;
    assert_eq!(
        [outcome(&app, "own")[2], outcome(&app, "count")[2]],
        ["1 found", "0 found"]
    );

    let reference = json!({ "objects": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": VALUES }] });
    let component = json!({ "name": "copy", "type": "ref-objects", "properties": reference });
    site.declare("copier", spec(&[component])).await;
    site.until_said("copier", &said).await;

    for (name, policy) in [("changer", "take-over"), ("looker", "read-only")] {
        let component = objects("values", &[config_map(VALUES, &site.namespace)]);
        site.declare(name, with_policies(&[component], &[(policy, selecting("ConfigMap"))]))
            .await;
        site.until_said(name, &format!("forbidden resource: {said}")).await;
    }
    let after = site.get(CONFIG_MAP, VALUES).await.unwrap();
    assert_eq!(
        after["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_patch_refuses_unmanaged_objects_and_records_and_keeps_those_of_the_application() {
    let site = Site::new().await;
    define_step(&site, "change", PATCH).await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=1"]).await;
    site.apply(CONFIG_MAP, "unmanaged", json!({ "data": { "key": "one" } }))
        .await;
    let change = |name: &str| step("change", "change", json!({ "name": name, "namespace": site.namespace }));
    site.declare("refused", with_steps(&[], &[change("unmanaged")])).await;
    let words = format!(
        "ConfigMap {}/unmanaged exists but not managed by any application now",
        site.namespace
    );
    site.until_said("refused", &words).await;
    assert_eq!(
        site.get(CONFIG_MAP, "unmanaged").await.unwrap()["data"],
        json!({ "key": "one" })
    );

    let steps = [
        step("deploy", "apply-component", json!({ "component": "settings" })),
        change("settings"),
    ];
    site.declare("shop", with_steps(&[config("settings", "one")], &steps))
        .await;
    site.until_running("shop").await;
    let both = json!({ "key": "one", "patched": "yes" });
    assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"], both);
    let tracker = site.trackers("shop").await.remove(0);
    let entries = tracker["spec"]["managedResources"].as_array().unwrap();
    assert_eq!((entries.len(), &entries[0]["raw"]["data"]), (1, &both), "{entries:#?}");
    site.edit(CONFIG_MAP, "settings", json!({ "data": { "patched": "drift" } }))
        .await;
    site.until(CONFIG_MAP, "settings", "kept", |object| {
        object["data"]["patched"] == "yes"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_delete_outside_their_namespace_only_what_their_application_has_applied() {
    let site = Site::new().await;
    let other = site.control_plane.namespace().await;
    define_step(&site, "remove", DELETE).await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=1"]).await;
    put(
        &site,
        CONFIG_MAP,
        &other,
        "foreign",
        json!({ "data": { "key": "one" } }),
    )
    .await;
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example.com/job:1" }] });
    let job =
        json!({ "metadata": { "labels": { "team": "x" } }, "spec": { "suspend": true, "template": { "spec": pod } } });
    put(&site, JOB, &other, "foreign", job).await;

    let remove = |name: &str| step("remove", "remove", json!({ "name": name, "namespace": other }));
    site.declare("refused", with_steps(&[], &[remove("foreign")])).await;
    let words = format!("ConfigMap {other}/foreign is outside the namespace of application, which has not applied it");
    site.until_said("refused", &words).await;
    let clean = step(
        "clean",
        "clean-jobs",
        json!({ "labelselector": { "team": "x" }, "namespace": other }),
    );
    site.declare("cleaner", with_steps(&[], &[clean])).await;
    site.until_said(
        "cleaner",
        &format!("Job {other}/foreign is outside the namespace of application"),
    )
    .await;
    assert!(get(&site, CONFIG_MAP, &other, "foreign").await.is_some());
    assert!(get(&site, JOB, &other, "foreign").await.is_some());

    // A read-only policy records an object, and does not make it that of the application.
    let component = objects("foreign", &[config_map("foreign", &other)]);
    let mut read_only = with_policies(&[component], &[("read-only", selecting("ConfigMap"))]);
    let deploy = step("deploy", "apply-component", json!({ "component": "foreign" }));
    read_only["workflow"] = json!({ "steps": [deploy, remove("foreign")] });
    site.declare("reader", read_only).await;
    site.until_said("reader", &words).await;
    assert!(get(&site, CONFIG_MAP, &other, "foreign").await.is_some());

    let deploy = step("deploy", "apply-component", json!({ "component": "own" }));
    let component = objects("own", &[config_map("own", &other)]);
    site.declare("shop", with_steps(&[component], &[deploy, remove("own")]))
        .await;
    // The phase becomes unhealthy soon: the component has no object.
    site.until(APPLICATION, "shop", "workflow to end", |app| {
        app["status"]["workflow"]["status"] == "succeeded"
    })
    .await;
    assert_eq!(get(&site, CONFIG_MAP, &other, "own").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_was_taken_over_is_released_unless_a_rule_names_it() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let collect = json!({ "rules": [{ "selector": { "resourceTypes": ["Namespace"] }, "strategy": "onAppDelete" }] });
    for (app, more) in [("released", None), ("deleted", Some(("garbage-collect", collect)))] {
        let namespace = site.control_plane.namespace().await;
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        let policies: Vec<_> = [("take-over", selecting("Namespace"))]
            .into_iter()
            .chain(more)
            .collect();
        let declare = async |value: &str| {
            let components = [objects("namespace", std::slice::from_ref(&object)), config(app, value)];
            site.declare(app, with_policies(&components, &policies)).await;
            site.until_running(app).await;
        };
        declare("one").await;
        // A later version has taken over nothing, and knows it from the one before.
        declare("two").await;
        let owner = |object: &Value| object["metadata"]["labels"]["app.oam.dev/name"].clone();
        assert_eq!(owner(&site.get(NAMESPACE, &namespace).await.unwrap()), app);
        let deletes_all = policies.len() > 1;
        site.delete(APPLICATION, app).await;
        if deletes_all {
            eventually(SOON, "the namespace to be deleted", async || {
                match site.get(NAMESPACE, &namespace).await {
                    Some(found) if found["metadata"]["deletionTimestamp"].is_null() => Err(format!("{found:#}")),
                    _ => Ok(()),
                }
            })
            .await;
            continue;
        }
        site.until_gone(APPLICATION, app).await;
        let left = site.get(NAMESPACE, &namespace).await.unwrap();
        assert!(
            left["metadata"]["deletionTimestamp"].is_null() && owner(&left).is_null(),
            "{left:#}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_without_an_identity_have_the_default_service_account_and_cannot_leave_it() {
    let site = Site::new().await;
    let _portolan = site
        .portolan(&[
            "--default-service-account=deployer",
            "--max-workflow-step-error-retry-times=100000",
        ])
        .await;
    site.declare("shop", spec(&[config("settings", "one")])).await;
    site.until_said("shop", &forbidden(&site, "get", "configmaps")).await;
    allow(&site, "configmaps", &ALL).await;
    site.until_running("shop").await;

    let annotations = json!({ "app.oam.dev/username": "admin" });
    let app = json!({ "metadata": { "annotations": annotations }, "spec": spec(&[config("of-admin", "one")]) });
    site.apply(APPLICATION, "attacker", app).await;
    site.until_said("attacker", "do not count with --default-service-account")
        .await;
    assert_eq!(site.get(CONFIG_MAP, "of-admin").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_that_is_required_and_missing_refuses_an_application_that_can_still_be_deleted() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--require-identity"]).await;
    site.declare("shop", spec(&[config("settings", "one")])).await;
    let app = site.until_said("shop", "the application names no identity").await;
    assert_eq!(condition(&app, "Parsed")["status"], "False");
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_without_effect_never_stop_an_application_and_gated_urls_are_refused() {
    let site = Site::new().await;
    let scoped = json!({ "spec": { "scope": "Application", "schematic": { "cue": { "template": "output: labels: a: \"b\"" } } } });
    site.apply(POLICY_DEFINITION, "labeler", scoped).await;
    let _portolan = site
        .portolan(&["--feature-gates=DisableReferObjectsFromURL=true,EnableApplicationScopedPolicies=true"])
        .await;
    let mut debugged = spec(&[config("settings", "one")]);
    // Neither needs properties.
    debugged["policies"] = json!([{ "name": "d", "type": "debug" }, { "name": "l", "type": "labeler" }]);
    site.declare("shop", debugged).await;
    let app = site.until_running("shop").await;
    assert!(status(&app, "settings")["phase"] == "succeeded" && app["status"]["appliedApplicationPolicies"].is_null());
    let revision = site.get(REVISION, "shop-v1").await.unwrap();
    assert!(
        revision["spec"]["policyDefinitions"]["labeler"].is_object(),
        "{revision:#}"
    );

    let properties = json!({ "urls": ["https://example.com/objects.yaml"] });
    let component = json!({ "name": "copy", "type": "ref-objects", "properties": properties });
    site.declare("downloader", spec(&[component])).await;
    let app = site
        .until_said("downloader", "referring objects from url is disabled")
        .await;
    assert_eq!(condition(&app, "Parsed")["status"], "False");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_secrets_is_left_out_of_revisions_that_are_deployed_by_reading_it_again() {
    // Base64 of `confidential`.
    const DATA: &str = "Y29uZmlkZW50aWFs";
    let site = Site::new().await;
    site.apply(SECRET, "token", json!({ "stringData": { "key": "confidential" } }))
        .await;
    let redacting = site.portolan(&["--redact-secrets-in-revisions"]).await;
    let target = site.control_plane.namespace().await;
    let reference = json!({ "objects": [{ "apiVersion": "v1", "kind": "Secret", "name": "token" }] });
    let component = json!({ "name": "copy", "type": "ref-objects", "properties": reference });
    let placed = json!({ "clusters": ["local"], "namespace": target });
    site.declare("shop", with_policies(&[component], &[("topology", placed)]))
        .await;
    site.until_running("shop").await;
    let copy = get(&site, SECRET, &target, "token").await.unwrap();
    assert_eq!(copy["data"]["key"], DATA);
    assert!(
        copy["metadata"]["annotations"]["portolan.dev/redacted-secrets"].is_null(),
        "{copy:#}"
    );
    let revision = site.get(REVISION, "shop-v1").await.unwrap();
    assert_eq!(
        revision["metadata"]["annotations"]["portolan.dev/redacted-secrets"],
        "true"
    );
    assert!(!revision["spec"].to_string().contains(DATA), "{revision:#}");

    // Another process deploys it from what it reads, and without the flag completes the record.
    drop(redacting);
    api(&site, SECRET, &target)
        .await
        .delete("token", &DeleteParams::default())
        .await
        .unwrap();
    let _portolan = site.portolan(&[]).await;
    let complete = site
        .until(REVISION, "shop-v1", "the data", |revision| {
            revision["spec"].to_string().contains(DATA)
        })
        .await;
    assert!(
        complete["metadata"]["annotations"]["portolan.dev/redacted-secrets"].is_null(),
        "{complete:#}"
    );
    eventually(SOON, "the copy to be restored", async || {
        get(&site, SECRET, &target, "token").await.ok_or("missing").map(drop)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_without_a_shard_is_that_of_the_master() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--enable-sharding"]).await;
    let labels = json!({ "controller.core.oam.dev/scheduled-shard-id": "shard-1" });
    let app = json!({ "metadata": { "labels": labels }, "spec": spec(&[config("of-another-shard", "one")]) });
    site.apply(APPLICATION, "other", app).await;
    site.declare("shop", spec(&[config("settings", "one")])).await;
    site.until_running("shop").await;
    let other = site.get(APPLICATION, "other").await.unwrap();
    assert!(
        other["status"].is_null() && other["metadata"]["finalizers"].is_null(),
        "{other:#}"
    );
}

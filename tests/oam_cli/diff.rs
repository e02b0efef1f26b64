use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use portolan::controllers::oam::trackers::encode;
use serde_json::{Value, json};

use super::{Site, application, assert_line};
use crate::applications::resource;
use crate::support::cue::executable;

/// Objects of definition `pair`: a ConfigMap, and a Secret.
const PAIR: &str = r#"output: {apiVersion: "v1", kind: "ConfigMap", data: text: parameter.text}
outputs: key: {apiVersion: "v1", kind: "Secret", metadata: name: "key", stringData: token: parameter.token}
parameter: {text: string, token: string}"#;
/// A ConfigMap.
pub const CONFIG: &str = r#"output: {apiVersion: "v1", kind: "ConfigMap", data: parameter}
parameter: [string]: string"#;

fn pair(text: &str, token: &str) -> Value {
    let properties = json!({ "text": text, "token": token });
    application(
        "shop",
        json!({ "components": [{ "name": "web", "type": "pair", "properties": properties }] }),
    )
}

pub fn config(name: &str, data: Value) -> Value {
    json!({ "name": name, "type": "config", "properties": data })
}

pub fn definition(name: &str, template: &str) -> Value {
    json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "ComponentDefinition", "metadata": { "name": name },
        "spec": { "workload": { "type": "x" }, "schematic": { "cue": { "template": template } } },
    })
}

/// A ConfigMap that an Application of the namespace owns.
pub fn owned(site: &Site, name: &str, owner: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": site.namespace, "labels": {
            "app.oam.dev/name": owner, "app.oam.dev/namespace": site.namespace,
        } },
        "data": data,
    })
}

impl Site {
    pub async fn diff(&self, document: Value) -> String {
        let file = self.file("diff.yaml", &[document]);
        let evaluator = executable();
        let arguments = ["diff", &file, "--cue-evaluator", evaluator.to_str().unwrap()];
        self.vela(&arguments).await.ok()
    }

    pub async fn define(&self, name: &str, template: &str) {
        self.apply_object(&definition(name, template)).await;
    }

    /// Applies an object of the group in the namespace.
    pub async fn apply_object(&self, object: &Value) {
        let kind = object["kind"].as_str().unwrap();
        let resource = resource(&format!("core.oam.dev/v1beta1 {kind}"));
        let objects: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let mut object = object.clone();
        object["metadata"]["namespace"] = self.namespace.as_str().into();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let parameters = PatchParams::apply("test").force();
        objects.patch(&name, &parameters, &Patch::Apply(object)).await.unwrap();
    }

    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn create_config_map(&self, object: &Value) {
        let object = serde_json::from_value(object.clone()).unwrap();
        self.config_maps()
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn diff_shows_what_deploying_a_file_would_do() {
    let site = Site::new().await;
    site.define("pair", PAIR).await;
    let namespace = &site.namespace;
    let new = site.diff(pair("one", "hush")).await;
    assert_line(&new, &format!("create ConfigMap {namespace}/web"));
    assert_line(&new, &format!("create Secret {namespace}/key"));

    // What the controller does with it.
    let file = site.file("shop.yaml", &[pair("one", "hush")]);
    let render = ["vela", "render", &file, "-n", namespace, "--definitions"];
    let directory = site.files.join("definitions");
    std::fs::create_dir(&directory).unwrap();
    let exported = serde_yaml::to_string(&definition("pair", PAIR)).unwrap();
    std::fs::write(directory.join("pair.yaml"), exported).unwrap();
    let evaluator = executable();
    let more = [
        directory.to_str().unwrap(),
        "--cue-evaluator",
        evaluator.to_str().unwrap(),
    ];
    let yaml = super::execute(&[&render[..], &more].concat())
        .await
        .ok()
        .replace("(hidden)", "hush");
    let path = site.files.write("objects.yaml", yaml);
    site.control_plane
        .kubectl(&["apply", "-f", path.to_str().unwrap()])
        .await;
    let spec = pair("one", "hush")["spec"].clone();
    let uid = site.create_application("shop", spec).await.uid().unwrap();
    let old = owned(&site, "old", "shop", json!({}));
    site.create_config_map(&old).await;
    site.create_tracker("shop", &uid, 1, encode(vec![site.entry(&old)], None).unwrap())
        .await;

    let same = site.diff(pair("one", "hush")).await;
    assert_line(&same, &format!("unchanged ConfigMap {namespace}/web"));
    assert_line(&same, &format!("unchanged Secret {namespace}/key"));
    assert!(!same.contains("remove"), "{same}");
    let changed = site.diff(pair("two", "quiet")).await;
    assert_line(&changed, &format!("change ConfigMap {namespace}/web"));
    assert_line(&changed, "- data.text: \"one\"");
    assert_line(&changed, "+ data.text: \"two\"");
    assert_line(&changed, &format!("change Secret {namespace}/key"));
    assert_line(&changed, "+ data.token");
    assert_line(&changed, &format!("remove ConfigMap old (Namespace: {namespace})"));
    for secret in ["hush", "quiet", "aHVzaA", "cXVpZXQ"] {
        assert!(!changed.contains(secret), "{changed}");
    }

    let unlabel = Patch::Merge(json!({ "metadata": { "labels": { "app.oam.dev/name": null } } }));
    let parameters = PatchParams::default();
    site.config_maps().patch("web", &parameters, &unlabel).await.unwrap();
    let blocked = site.diff(pair("two", "quiet")).await;
    let line = format!("ConfigMap {namespace}/web exists but not managed by any application now; a take-over policy");
    assert!(blocked.contains(&line), "{blocked}");
    assert_line(&blocked, "blocked component web: none of its objects is applied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn diff_respects_apply_once_shared_resource_and_read_only() {
    let site = Site::new().await;
    site.define("config", CONFIG).await;
    let namespace = &site.namespace;
    let live = json!({ "tuned": "live", "fixed": "live" });
    for (name, owner) in [("once", "shop"), ("seen", "shop"), ("foreign", "other")] {
        site.create_config_map(&owned(&site, name, owner, live.clone())).await;
    }
    let mut shared = owned(&site, "shared", "other", live.clone());
    let sharers = format!("{namespace}/other");
    shared["metadata"]["annotations"] = json!({ "app.oam.dev/shared-by": sharers });
    site.create_config_map(&shared).await;

    let data = json!({ "tuned": "declared", "fixed": "declared" });
    let names = ["once", "seen", "foreign", "shared", "missing"];
    let components: Vec<_> = names.iter().map(|name| config(name, data.clone())).collect();
    let selected = |name: &str, more: Value| {
        let mut rule = json!({ "selector": { "componentNames": [name] } });
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rule
    };
    let strategy = json!({ "strategy": { "path": ["data.tuned"] } });
    let read_only = [selected("seen", json!({})), selected("missing", json!({}))];
    let policies = json!([
        { "name": "a", "type": "apply-once", "properties": { "enable": true, "rules": [selected("once", strategy)] } },
        { "name": "b", "type": "read-only", "properties": { "rules": read_only } },
        { "name": "c", "type": "shared-resource", "properties": { "rules": [selected("shared", json!({}))] } },
    ]);
    let spec = json!({ "components": components, "policies": policies });
    let text = site.diff(application("shop", spec)).await;

    assert_line(&text, &format!("change ConfigMap {namespace}/once"));
    assert_line(&text, "+ data.fixed: \"declared\"");
    assert!(!text.contains("data.tuned"), "{text}");
    assert_line(&text, &format!("read-only ConfigMap {namespace}/seen"));
    let missing = "ConfigMap (missing) is marked as read-only but does not exist";
    assert!(text.contains(missing), "{text}");
    assert_line(&text, &format!("change ConfigMap {namespace}/shared"));
    let sharers = format!("+ metadata.annotations[\"app.oam.dev/shared-by\"]: \"{sharers},{namespace}/shop\"");
    assert_line(&text, &sharers);
    let foreign = format!("ConfigMap {namespace}/foreign is managed by other application {namespace}/other");
    assert!(text.contains(&foreign), "{text}");
}

/// Creates the Application `shop` of type `config`, whose workflow has ended with its revision. Returns its UID.
pub async fn create_finished(site: &Site, spec: Value) -> String {
    site.define("config", CONFIG).await;
    let uid = site.create_application("shop", spec.clone()).await.uid().unwrap();
    let recorded = json!({
        "application": application("shop", spec),
        "componentDefinitions": { "config": definition("config", CONFIG) },
    });
    site.create_revision("shop-v1", "shop", None, recorded).await;
    let workflow = json!({
        "appRevision": "shop-v1", "mode": "DAG-DAG", "suspend": false, "terminated": false, "finished": true,
    });
    let latest = json!({ "name": "shop-v1", "revision": 1 });
    site.set_status("shop", json!({ "latestRevision": latest, "workflow": workflow }))
        .await;
    uid
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_new_revision_diff_shows_the_state_that_is_kept() {
    let site = Site::new().await;
    let namespace = &site.namespace;
    let spec = |text: &str| json!({ "components": [config("web", json!({ "text": text }))] });
    let uid = create_finished(&site, spec("one")).await;
    let manifest = owned(&site, "web", "shop", json!({ "text": "one" }));
    site.create_tracker("shop", &uid, 1, encode(vec![site.entry(&manifest)], None).unwrap())
        .await;
    site.create_config_map(&owned(&site, "web", "shop", json!({ "text": "drifted" })))
        .await;

    // Another version of the definition, which a revision without auto-update does not use.
    site.define(
        "config",
        &CONFIG.replace("data: parameter", "data: {parameter, more: \"2\"}"),
    )
    .await;
    let drift = site.diff(application("shop", spec("one"))).await;
    assert_line(&drift, &format!("change ConfigMap {namespace}/web"));
    assert_line(&drift, "+ data.text: \"one\"");
    assert!(!drift.contains("data.more"), "{drift}");
    let changed = site.diff(application("shop", spec("two"))).await;
    assert_line(&changed, "+ data.text: \"two\"");
    assert_line(&changed, "+ data.more: \"2\"");
}

//! Components that deploy copies of existing objects.

use std::sync::{Arc, Mutex};

use axum::Router;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::accounts::{self, ALL, allow, forbidden};
use super::apps::{config, spec};
use super::site::{Site, condition, version};
use super::{APPLICATION, CONFIG_MAP, REVISION};
use crate::support::eventually::SOON;

const SECRET: &str = "v1 Secret";

/// A namespace with objects to refer to.
async fn source(site: &Site, objects: &[(&str, &str)]) -> Site {
    let source = Site::of(site.control_plane, site.control_plane.namespace().await).await;
    for (name, value) in objects {
        put(&source, name, value).await;
    }
    source
}

async fn put(source: &Site, name: &str, value: &str) {
    let object = json!({ "metadata": { "labels": { "tier": "web" } }, "data": { "key": value } });
    source.apply(CONFIG_MAP, name, object).await;
}

/// A spec that copies objects of another namespace into that of the Application.
fn copies(site: &Site, references: &[Value]) -> Value {
    let component = json!({ "name": "copies", "type": "ref-objects", "properties": { "objects": references } });
    let mut spec = spec(&[component]);
    let here = json!({ "clusters": ["local"], "namespace": site.namespace });
    spec["policies"] = json!([{ "name": "here", "type": "topology", "properties": here }]);
    spec
}

fn named(source: &Site, name: &str) -> Value {
    json!({ "resource": "configmap", "name": name, "namespace": source.namespace })
}

fn has(value: &'static str) -> impl Fn(&Value) -> bool {
    move |object| object["data"]["key"] == value
}

async fn annotate(site: &Site, name: &str, annotations: Value) {
    site.edit(APPLICATION, name, json!({ "metadata": { "annotations": annotations } }))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_recorded_and_follows_its_original_at_a_restart_of_the_workflow() {
    let site = Site::new().await;
    let source = source(&site, &[("settings", "one")]).await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;
    let original = format!("/api/v1/namespaces/{}/configmaps/settings", source.namespace);
    let reads = || {
        proxy
            .requests()
            .iter()
            .filter(|request| request.path == original)
            .count()
    };
    site.declare("shop", copies(&site, &[named(&source, "settings")])).await;
    let app = site.until_running("shop").await;
    assert_eq!(app["status"]["services"][0]["name"], "copies");
    let copy = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(copy["data"]["key"], "one");
    assert_eq!(copy["metadata"]["labels"]["tier"], "web");
    let revision = site.get(REVISION, "shop-v1").await.unwrap();
    let recorded = &revision["spec"]["referredObjects"];
    assert_eq!(recorded[0]["data"]["key"], "one");
    assert_eq!(recorded[0]["metadata"]["namespace"], source.namespace.as_str());
    assert_eq!(recorded[0]["metadata"]["uid"], Value::Null);

    // A change elsewhere deploys nothing, and no pass reads it.
    let before = reads();
    assert!(before > 0);
    put(&source, "settings", "two").await;
    annotate(&site, "shop", json!({ "touched": "once" })).await;
    site.until(REVISION, "shop-v1", "the annotation", |revision| {
        revision["metadata"]["annotations"]["touched"] == "once"
    })
    .await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"]["key"], "one");

    assert_eq!(reads(), before);
    annotate(&site, "shop", json!({ "app.oam.dev/restart-workflow": "true" })).await;
    site.until(CONFIG_MAP, "settings", "that of the original", has("two"))
        .await;
    let revision = site.get(REVISION, "shop-v1").await.unwrap();
    assert_eq!(revision["spec"]["referredObjects"][0]["data"]["key"], "two");
    site.until_running("shop").await;
    assert_eq!(site.revisions("shop").await, ["shop-v1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_version_keeps_the_objects_that_it_was_published_with() {
    let site = Site::new().await;
    let source = source(&site, &[("settings", "one")]).await;
    let _portolan = site.portolan(&[]).await;
    let publish = async |version: &str| {
        let annotations = json!({ "app.oam.dev/publishVersion": version });
        let spec = copies(&site, &[named(&source, "settings")]);
        let app = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        site.apply(APPLICATION, "shop", app).await;
    };
    publish("alpha").await;
    site.until_running("shop").await;
    source.delete(CONFIG_MAP, "settings").await;
    site.delete(CONFIG_MAP, "settings").await;
    site.until(CONFIG_MAP, "settings", "created again", has("one")).await;
    annotate(&site, "shop", json!({ "app.oam.dev/restart-workflow": "true" })).await;
    site.until(APPLICATION, "shop", "restarted", |app| {
        app["metadata"]["annotations"]["app.oam.dev/restart-workflow"].is_null()
    })
    .await;
    site.until_running("shop").await;

    put(&source, "settings", "two").await;
    publish("beta").await;
    site.until(CONFIG_MAP, "settings", "that of the new version", has("two"))
        .await;
    site.until_running("shop").await;
    assert_eq!(site.revisions("shop").await, ["shop-v1", "shop-v2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_select_objects_and_each_new_revision_selects_again() {
    let site = Site::new().await;
    let source = source(&site, &[("one", "1"), ("two", "2")]).await;
    let _portolan = site.portolan(&[]).await;
    let select = json!({ "resource": "configmaps", "labelSelector": { "tier": "web" }, "namespace": source.namespace });
    site.declare("shop", copies(&site, std::slice::from_ref(&select))).await;
    site.until_running("shop").await;
    for (name, value) in [("one", "1"), ("two", "2")] {
        assert_eq!(site.get(CONFIG_MAP, name).await.unwrap()["data"]["key"], value);
    }
    source.delete(CONFIG_MAP, "one").await;
    put(&source, "three", "3").await;
    let mut changed = copies(&site, &[select]);
    changed["components"].as_array_mut().unwrap().push(config("more", "4"));
    site.declare("shop", changed).await;
    site.until_gone(CONFIG_MAP, "one").await;
    site.until_running("shop").await;
    for (name, value) in [("two", "2"), ("three", "3"), ("more", "4")] {
        assert_eq!(site.get(CONFIG_MAP, name).await.unwrap()["data"]["key"], value);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_without_an_object_is_named_and_deployed_once_there_is_one() {
    let site = Site::new().await;
    let source = source(&site, &[]).await;
    let _portolan = site.portolan(&[]).await;
    let cases = [
        (
            named(&source, "settings"),
            format!("ConfigMap {}/settings: not found", source.namespace),
        ),
        (
            json!({ "resource": "gizmo", "name": "settings" }),
            "no kind found for resource gizmo in group \"\"".to_owned(),
        ),
        (
            json!({ "apiVersion": "example.com/v1", "kind": "Gizmo", "name": "settings" }),
            format!(
                "Gizmo {}/settings: no matches for kind \"Gizmo\" in version \"example.com/v1\"",
                site.namespace
            ),
        ),
        (
            json!({ "resource": "configmap", "labelSelector": { "tier": "none" } }),
            "component copies refers to no existing object".to_owned(),
        ),
    ];
    for (reference, words) in cases.iter().rev() {
        site.declare("shop", copies(&site, std::slice::from_ref(reference)))
            .await;
        let app = site.until_said("shop", words).await;
        let parsed = condition(&app, "Parsed");
        assert_eq!(parsed["status"], "False");
        let message = parsed["message"].as_str().unwrap();
        assert!(message.starts_with("failed to parseReferredObjects: "), "{message}");
    }
    assert_eq!(site.revisions("shop").await, Vec::<String>::new());
    put(&source, "settings", "one").await;
    site.until_running("shop").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"]["key"], "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_or_large_objects_are_refused_by_name() {
    let site = Site::new().await;
    let source = source(&site, &[]).await;
    // Above the number of objects that one list returns.
    let list = |number: usize| {
        let item = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("many-{number}"), "labels": { "tier": "many" } },
        });
        let source = &source;
        async move {
            source.create(&item).await;
        }
    };
    futures::stream::StreamExt::for_each_concurrent(futures::stream::iter(0..1_001), 32, list).await;
    let _portolan = site.portolan(&[]).await;
    let many = json!({ "resource": "configmap", "labelSelector": { "tier": "many" }, "namespace": source.namespace });
    site.declare("many", copies(&site, &[many])).await;
    site.until_said(
        "many",
        "there are more than 1000 objects of kind ConfigMap; select fewer",
    )
    .await;

    let text = "x".repeat(600 << 10);
    put(&source, "large", &text).await;
    put(&source, "larger", &text).await;
    site.declare(
        "large",
        copies(&site, &["large", "larger"].map(|name| named(&source, name))),
    )
    .await;
    site.until_said(
        "large",
        "the references find more than 1000 objects or 1 MiB; narrow them",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_read_with_the_rights_of_the_application() {
    let site = Site::new().await;
    let source = source(&site, &[]).await;
    source
        .apply(SECRET, "token", json!({ "stringData": { "key": "confidential" } }))
        .await;
    let _portolan = site.portolan(&[]).await;
    allow(&site, "configmaps", &ALL).await;
    allow(&site, "secrets", &ALL).await;
    let token = json!({ "resource": "secret", "name": "token", "namespace": source.namespace });
    // The controller could read it for everyone.
    site.declare("other", copies(&site, std::slice::from_ref(&token))).await;
    site.until_said(
        "other",
        &format!(
            "Secrets of namespace {:?} can't be used with the rights of this controller",
            source.namespace
        ),
    )
    .await;
    accounts::declare(&site, "shop", copies(&site, &[token])).await;
    let words = forbidden(&site, "get", "secrets");
    let namespace = format!("in the namespace \"{}\"", source.namespace);
    site.until_said("shop", &format!("{words} in API group \"\" {namespace}"))
        .await;
    assert_eq!(site.get(SECRET, "token").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_namespaces_are_closed_if_a_flag_says_so() {
    for flag in [
        "--allow-cross-namespace-resource=false",
        "--ref-objects-available-scope=namespace",
    ] {
        let site = Site::new().await;
        let source = source(&site, &[("settings", "one")]).await;
        let original = source.get(CONFIG_MAP, "settings").await.unwrap();
        let _portolan = site.portolan(&[flag]).await;
        site.declare("shop", copies(&site, &[named(&source, "settings")])).await;
        site.until_said("shop", "cannot refer to objects outside the application's namespace")
            .await;
        assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
        let after = source.get(CONFIG_MAP, "settings").await.unwrap();
        assert_eq!(version(&after), version(&original));
    }
}

/// Serves a manifest. Returns its URL.
async fn manifest_server(content: Arc<Mutex<String>>) -> String {
    let service = Router::new().fallback(async move || content.lock().unwrap().clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}/objects.yaml?token=confidential",
        listener.local_addr().unwrap()
    );
    tokio::spawn(async move { axum::serve(listener, service).await });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_a_url_are_deployed_recorded_and_loaded_again_at_a_restart() {
    let manifest = |value: &str| {
        let object = |name: &str| {
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{key: {value}}}\n")
        };
        format!("{}---\n{}", object("first"), object("second"))
    };
    let site = Site::new().await;
    let content = Arc::new(Mutex::new(manifest("one")));
    let url = manifest_server(Arc::clone(&content)).await;
    let spec = spec(&[json!({ "name": "loaded", "type": "ref-objects", "properties": { "urls": [url] } })]);
    let portolan = site.portolan(&[]).await;
    site.declare("shop", spec.clone()).await;
    let app = site
        .until_said("shop", "failed to load Kubernetes objects from url http://127.0.0.1")
        .await;
    assert!(!app["status"].to_string().contains("confidential"), "{app:#}");
    drop(portolan);

    let _portolan = site.portolan(&["--allow-private-http", "--allow-loopback"]).await;
    site.until_running("shop").await;
    for name in ["first", "second"] {
        let object = site.get(CONFIG_MAP, name).await.unwrap();
        assert_eq!(object["data"]["key"], "one");
        assert_eq!(
            object["metadata"]["annotations"]["app.oam.dev/resource-url"],
            Value::Null
        );
    }
    let revision = site.get(REVISION, "shop-v1").await.unwrap();
    let recorded = revision["spec"]["referredObjects"].as_array().unwrap();
    let source = |object: &Value| object["metadata"]["annotations"]["app.oam.dev/resource-url"].clone();
    assert_eq!(
        recorded.iter().map(source).collect::<Vec<_>>(),
        [url.as_str(), url.as_str()]
    );

    *content.lock().unwrap() = manifest("two");
    annotate(&site, "shop", json!({ "app.oam.dev/restart-workflow": "true" })).await;
    site.until(CONFIG_MAP, "second", "that of the changed manifest", has("two"))
        .await;
    assert_eq!(site.revisions("shop").await, ["shop-v1"]);
}

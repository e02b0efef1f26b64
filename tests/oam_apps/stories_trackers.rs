//! Trackers and revisions that others have left: compressed ones are read, and one that is being deleted is waited for.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::write::GzEncoder;
use kube::api::{DynamicObject, PostParams};
use rstest::rstest;
use serde_json::{Value, json};

use super::apps::{config, objects, spec, with_policies};
use super::golden::cases::Case;
use super::site::{Site, condition, says, version};
use super::stories_takeover::{Restored, is_write};
use super::{APPLICATION, CONFIG_MAP, DEPLOYMENT, REVISION, TRACKER, setup};
use crate::support::corpus;
use crate::support::eventually::SOON;

const COMPONENT: &str = "app.oam.dev/component";
const FINALIZER: &str = "resourcetracker.core.oam.dev/finalizer";
const HOLD: &str = "example.com/hold";
const RELEASE: &str = "sh.helm.release.v1.web.v1";

/// Compresses like KubeVela. Its encoder of zstd writes checksums.
fn compressed(type_: &str, contents: &Value) -> Value {
    let json = contents.to_string();
    let bytes = match type_ {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(json.as_bytes()).unwrap();
            encoder.finish().unwrap()
        }
        _ => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(json.as_bytes()).unwrap();
            encoder.finish().unwrap()
        }
    };
    json!({ "type": type_, "data": STANDARD.encode(bytes) })
}

/// Compresses all trackers and revisions of a restored case.
async fn compress_all(restored: &Restored, type_: &str) {
    let site = &restored.site;
    for tracker in site.trackers(restored.name()).await {
        let compression = compressed(type_, &tracker["spec"]["managedResources"]);
        let change = json!({ "spec": { "managedResources": null, "compression": compression } });
        site.edit(TRACKER, setup::name(&tracker), change).await;
    }
    for name in site.revisions(restored.name()).await {
        let mut revision = site.get(REVISION, &name).await.unwrap();
        let compression = compressed(type_, &revision["spec"]);
        // The schema demands components.
        let application = json!({ "metadata": {}, "spec": { "components": [] } });
        revision["spec"] = json!({ "application": application, "compression": compression });
        let revision: DynamicObject = serde_json::from_value(revision).unwrap();
        let (revisions, parameters) = (site.api(REVISION), PostParams::default());
        revisions.replace(&name, &parameters, &revision).await.unwrap();
    }
}

#[rstest]
#[case::gzip("gzip", "u-e2e-app-component-depends-on-success", "frontend")]
#[case::zstd("zstd", "u-e2e-app-component-depends-on-multiple", "backend")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_records_of_kubevela_are_kept_and_collected(
    #[case] type_: &str,
    #[case] name: &str,
    #[case] removed: &str,
) {
    let Some(goldens) = corpus::oam_goldens() else { return };
    let mut cases = Case::load_all(goldens).into_iter();
    let restored = Restored::new(cases.find(|case| case.name == name).unwrap()).await;
    let (site, app) = (&restored.site, restored.name());
    compress_all(&restored, type_).await;
    let records = async || {
        let mut versions = restored.versions(&Value::Null).await;
        versions.retain(|version| !version.starts_with(APPLICATION));
        (versions, site.revisions(app).await)
    };
    let before = records().await;
    let revision = site.get(REVISION, &before.1[0]).await.unwrap();
    let status = site.get(APPLICATION, app).await.unwrap()["status"].take();
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;

    // The change is undone from the manifest in the tracker.
    let drift = json!({ "metadata": { "labels": { COMPONENT: "other" } } });
    site.edit(DEPLOYMENT, "database", drift).await;
    site.until(DEPLOYMENT, "database", "the label of before", |live| {
        live["metadata"]["labels"][COMPONENT] == "database"
    })
    .await;
    // The API server counts changed annotations as a new generation, which the Deployment controller observes later.
    site.until(APPLICATION, app, "the status of before", |app| app["status"] == status)
        .await;
    let requests = proxy.requests();
    let writes: Vec<_> = requests.iter().filter(|request| is_write(request)).collect();
    let is_restore =
        |path: &str| path.ends_with("/deployments/database") || path.ends_with(&format!("/applications/{app}/status"));
    assert!(
        !writes.is_empty() && writes.iter().all(|write| is_restore(&write.path)),
        "{writes:#?}"
    );
    assert_eq!(records().await, before);
    let kept = site.get(REVISION, &before.1[0]).await.unwrap();
    assert_eq!(version(&kept), version(&revision));

    let kept = site.get(DEPLOYMENT, "database").await.unwrap();
    let trackers = site.trackers(app).await;
    let mut components = site.get(APPLICATION, app).await.unwrap()["spec"]["components"].take();
    let components = components.as_array_mut().unwrap();
    components.retain(|component| component["name"] != removed);
    site.edit(APPLICATION, app, json!({ "spec": { "components": components } }))
        .await;
    site.until_running(app).await;
    for tracker in &trackers {
        site.until_gone(TRACKER, setup::name(tracker)).await;
    }
    let is_of_removed = |object: &&Value| object["metadata"]["labels"][COMPONENT] == removed;
    let mut of_removed = restored.recorded_objects().filter(is_of_removed).peekable();
    assert!(of_removed.peek().is_some());
    for object in of_removed {
        site.until_gone(&setup::kind(object), setup::name(object)).await;
    }
    let after = site.get(DEPLOYMENT, "database").await.unwrap();
    assert_eq!(after["metadata"]["uid"], kept["metadata"]["uid"]);
}

/// Returns the creators of the objects in the status, by their names.
fn creators(app: &Value) -> Value {
    let applied = app["status"]["appliedResources"].as_array().into_iter().flatten();
    let creators = applied.map(|one| (one["name"].as_str().unwrap().to_owned(), one["creator"].clone()));
    creators.collect::<serde_json::Map<_, _>>().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tracker_with_creators_is_mended_in_place_and_the_status_has_them_in_every_phase() {
    let site = Site::new().await;
    let template = "output: {apiVersion: \"v1\", kind: \"ConfigMap\", metadata: name: \"notes\"}";
    let definition = json!({ "spec": { "schematic": { "cue": { "template": template } } } });
    site.apply("core.oam.dev/v1beta1 PolicyDefinition", "notes", definition)
        .await;
    let mut portolan = site.portolan(&[]).await;
    let deploy = json!({ "name": "deploy", "type": "apply-component", "properties": { "component": "settings" } });
    let mut app = with_policies(&[config("settings", "one")], &[("notes", json!({}))]);
    app["workflow"] = json!({ "steps": [deploy, { "name": "wait", "type": "suspend" }] });
    site.declare("shop", app).await;
    let expected = json!({ "settings": "workflow", "notes": "policy" });
    let suspended = site
        .until(APPLICATION, "shop", "suspended", |app| {
            app["status"]["status"] == "workflowSuspending"
        })
        .await;
    assert_eq!(creators(&suspended), expected);
    let entries = async || {
        let mut trackers = site.trackers("shop").await;
        assert_eq!(trackers.len(), 1);
        trackers[0]["spec"]["managedResources"].take()
    };
    let recorded = entries().await;
    assert!(
        recorded
            .as_array()
            .unwrap()
            .iter()
            .all(|entry| entry["creator"].is_null()),
        "{recorded:#}"
    );
    portolan.signal("KILL");
    portolan.exit(SOON).await;

    // As an earlier version wrote it, and as KubeVela added to it.
    let mut old = recorded.clone();
    for entry in old.as_array_mut().unwrap() {
        entry["creator"] = "workflow".into();
    }
    let again = recorded[0].clone();
    old.as_array_mut().unwrap().push(again);
    let tracker = setup::name(&site.trackers("shop").await[0]).to_owned();
    site.edit(TRACKER, &tracker, json!({ "spec": { "managedResources": old } }))
        .await;
    let without = json!({ "status": { "appliedResources": null } });
    site.edit_status(APPLICATION, "shop", without).await;
    let _portolan = site.portolan(&[]).await;
    site.until(TRACKER, &tracker, "as KubeVela writes it", |tracker| {
        tracker["spec"]["managedResources"] == recorded
    })
    .await;
    site.until(APPLICATION, "shop", "with creators", |app| creators(app) == expected)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_published_again_waits_until_its_old_tracker_is_gone() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let publish = async |version: &str, value: &str| {
        let annotations = json!({ "app.oam.dev/publishVersion": version });
        let app = json!({ "metadata": { "annotations": annotations }, "spec": spec(&[config("settings", value)]) });
        site.apply(APPLICATION, "shop", app).await;
    };
    let alpha = format!("shop-alpha-{}", site.namespace);
    publish("alpha", "one").await;
    site.until_running("shop").await;
    let held = json!({ "metadata": { "finalizers": [FINALIZER, HOLD] } });
    site.edit(TRACKER, &alpha, held).await;
    publish("beta", "two").await;
    site.until(TRACKER, &alpha, "held by the other finalizer only", |tracker| {
        let metadata = &tracker["metadata"];
        metadata["deletionTimestamp"].is_string() && metadata["finalizers"] == json!([HOLD])
    })
    .await;
    site.until_running("shop").await;

    publish("alpha", "three").await;
    let waiting = format!("resourcetracker {alpha} of this version is still being deleted");
    let app = site.until_said("shop", &waiting).await;
    for type_ in ["Synced", "Ready"] {
        assert_eq!(condition(&app, type_)["status"], "False", "{type_}");
    }
    let is = |value: &'static str| move |object: &Value| object["data"]["key"] == value;
    assert!(is("two")(&site.get(CONFIG_MAP, "settings").await.unwrap()));

    site.edit(TRACKER, &alpha, json!({ "metadata": { "finalizers": null } }))
        .await;
    let app = site.until_running("shop").await;
    assert!(condition(&app, "Synced").is_null(), "{:#}", app["status"]["conditions"]);
    assert!(is("three")(&site.get(CONFIG_MAP, "settings").await.unwrap()));
    let tracker = site.get(TRACKER, &alpha).await.unwrap();
    assert!(tracker["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(tracker["spec"]["managedResources"][0]["name"], "settings");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_with_a_release_that_kubevela_installed_is_left_as_a_whole() {
    let site = Site::new().await;
    let mut before = site.portolan(&[]).await;
    site.declare("shop", spec(&[config("settings", "one"), config("removed", "one")]))
        .await;
    site.until_running("shop").await;
    before.signal("KILL");
    before.exit(SOON).await;
    // As the component helmchart leaves it.
    let labels = json!({ "app.oam.dev/name": "shop", "app.oam.dev/namespace": site.namespace });
    let secret = json!({ "metadata": { "labels": labels }, "type": "helm.sh/release.v1" });
    site.apply("v1 Secret", RELEASE, secret).await;
    let mut tracker = site.trackers("shop").await.remove(0);
    let mut entries = tracker["spec"]["managedResources"].take();
    entries.as_array_mut().unwrap().push(json!({
        "apiVersion": "v1", "kind": "Secret", "namespace": site.namespace, "name": RELEASE, "component": "chart",
    }));
    let recorded = json!({ "spec": { "managedResources": entries } });
    site.edit(TRACKER, setup::name(&tracker), recorded).await;
    let objects = site.managed_objects().await;
    assert!(objects.iter().any(|object| setup::name(object) == RELEASE));

    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;
    let words = format!("Helm release web in resourcetracker shop-v1-{}", site.namespace);
    let until_refused = async || {
        site.until(APPLICATION, "shop", "refused", |app| {
            app["status"]["observedGeneration"] == app["metadata"]["generation"] && says(app, &words)
        })
        .await
    };
    until_refused().await;
    site.declare("shop", spec(&[config("settings", "two")])).await;
    until_refused().await;
    // A deletion is a new generation.
    site.delete(APPLICATION, "shop").await;
    let app = until_refused().await;
    assert!(app["metadata"]["deletionTimestamp"].is_string(), "{app:#}");
    assert_eq!(condition(&app, "Parsed")["status"], "False");
    assert_eq!(site.managed_objects().await, objects);
    let mut writes = proxy.requests().into_iter().filter(is_write);
    let other = writes.find(|write| !write.path.ends_with("/applications/shop/status"));
    assert_eq!(other, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_of_a_release_is_refused_before_it_is_recorded() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": RELEASE } });
    let components = [config("settings", "one"), objects("release", &[secret])];
    site.declare("shop", spec(&components)).await;
    let words = format!(
        "Secrets of Helm releases are not deployed: {}/{RELEASE}",
        site.namespace
    );
    site.until_said("shop", &words).await;
    assert!(site.get("v1 Secret", RELEASE).await.is_none());
    // A record of it would leave the Application.
    site.declare("shop", spec(&[config("settings", "two")])).await;
    site.until_running("shop").await;
}

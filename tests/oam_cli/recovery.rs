use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use portolan::api::oam::ManagedResource;
use portolan::api::oam::compression::Format;
use portolan::controllers::oam::trackers::{decode, encode};
use serde_json::{Value, json};

use super::{Site, worker};
use crate::support::eventually::{SOON, eventually};

const UID: &str = "app.oam.dev/uid";

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_lost_cluster_are_dropped_after_they_were_shown() {
    let site = Site::new().await;
    let uid = site.create_application("shop", worker("nginx:1")).await.uid().unwrap();
    let remote = ManagedResource {
        cluster: "edge".to_owned(),
        ..site.entry(&config_map("far"))
    };
    let entries = vec![site.entry(&config_map("near")), remote];
    let name = site
        .create_tracker("shop", &uid, 1, encode(entries, Some(Format::Zstd)).unwrap())
        .await;
    let names = async || -> Vec<String> {
        let tracker = site.trackers().get(&name).await.unwrap();
        assert_eq!(tracker.spec.compression.type_, "zstd");
        let entries = decode(&tracker.spec).unwrap();
        entries.into_iter().map(|entry| entry.name).collect()
    };

    let forget = ["delete", "shop", "--forget-cluster", "edge"];
    let text = site.vela(&forget).await.ok();
    let namespace = &site.namespace;
    assert!(
        text.contains(&format!(
            "{name}: ConfigMap far (Cluster: edge, Namespace: {namespace})"
        )),
        "{text}"
    );
    assert!(text.contains("add --yes"), "{text}");
    assert_eq!(names().await, ["near", "far"]);

    let text = site.vela(&[&forget[..], &["--yes"]].concat()).await.ok();
    assert!(text.contains("1 records of objects dropped"), "{text}");
    assert_eq!(names().await, ["near"]);
    assert!(site.application("shop").await.metadata.deletion_timestamp.is_none());
    let events: Api<Event> = Api::namespaced(site.client.clone(), namespace);
    eventually(SOON, "an event", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        let event = events
            .into_iter()
            .find(|event| event.reason.as_deref() == Some("ClusterForgotten"))?;
        event.note.filter(|note| note.contains("ConfigMap far"))
    })
    .await;

    let text = site.vela(&[&forget[..], &["--yes"]].concat()).await.ok();
    assert!(text.contains("has no objects in cluster edge"), "{text}");
    let error = site
        .vela(&["delete", "shop", "--forget-cluster", "local"])
        .await
        .failed(2);
    assert!(error.contains("objects of the local cluster"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_is_supported_once_the_records_of_its_releases_are_dropped() {
    let site = Site::new().await;
    let uid = site.create_application("shop", worker("nginx:1")).await.uid().unwrap();
    let secret = |name: &str| {
        let name = format!("sh.helm.release.v1.{name}");
        site.entry(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } }))
    };
    let mut entries = ["web.v1", "web.v2", "web.front.v1"].map(secret).to_vec();
    entries.push(site.entry(&config_map("web")));
    let name = site
        .create_tracker("shop", &uid, 1, encode(entries, Some(Format::Gzip)).unwrap())
        .await;
    let names = async || -> Vec<String> {
        let tracker = site.trackers().get(&name).await.unwrap();
        assert_eq!(tracker.spec.compression.type_, "gzip");
        let entries = decode(&tracker.spec).unwrap();
        entries.into_iter().map(|entry| entry.name).collect()
    };
    let before = names().await;
    let unsupported = async || site.vela(&["list", "--unsupported"]).await.ok();
    let advice = "drop its records with `portolan vela forget-release`";
    let text = unsupported().await;
    assert!(text.contains("Helm release web in ") && text.contains(advice), "{text}");

    let forget = ["forget-release", "shop", "web"];
    let text = site.vela(&forget).await.ok();
    assert!(text.contains("Secret sh.helm.release.v1.web.v2"), "{text}");
    assert!(text.contains("2 records would be dropped"), "{text}");
    assert!(!text.contains("web.front"), "{text}");
    assert_eq!(names().await, before);

    let text = site.vela(&[&forget[..], &["--yes"]].concat()).await.ok();
    assert!(text.ends_with("2 records dropped\n"), "{text}");
    assert_eq!(names().await, ["sh.helm.release.v1.web.front.v1", "web"]);
    let events: Api<Event> = Api::namespaced(site.client.clone(), &site.namespace);
    eventually(SOON, "an event", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut reasons = events.into_iter().filter_map(|event| event.reason);
        reasons.find(|reason| reason == "ReleaseForgotten")
    })
    .await;
    let text = unsupported().await;
    assert!(
        !text.contains("Helm release web in ") && text.contains("Helm release web.front in "),
        "{text}"
    );
    site.vela(&["forget-release", "shop", "web.front", "--yes"]).await.ok();
    let text = unsupported().await;
    assert!(text.starts_with("no unsupported Applications"), "{text}");
    let text = site.vela(&forget).await.ok();
    assert!(text.contains("has no records of Helm release web"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trackers_of_a_former_application_are_adopted() {
    let site = Site::new().await;
    let empty = || encode(Vec::new(), None).unwrap();
    let former = site.create_tracker("shop", "former-uid", 7, empty()).await;
    let uid = site.create_application("shop", worker("nginx:1")).await.uid().unwrap();
    let text = site.vela(&["adopt", "shop"]).await.ok();
    assert!(text.contains(&format!("ResourceTracker {former}: adopted")), "{text}");
    let adopted = site.trackers().get(&former).await.unwrap();
    assert_eq!(adopted.labels()[UID], uid);
    // Otherwise it would count as newer than the current one.
    assert_eq!(adopted.spec.application_generation, 0);
    let text = site.vela(&["adopt", "shop"]).await.ok();
    assert!(text.contains("has no trackers of another Application"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trackers_of_an_application_that_exists_are_not_adopted() {
    let site = Site::new().await;
    let other = site.create_application("other", worker("nginx:1")).await.uid().unwrap();
    site.create_application("shop", worker("nginx:1")).await;
    let tracker = site
        .create_tracker("shop", &other, 1, encode(Vec::new(), None).unwrap())
        .await;
    let error = site.vela(&["adopt", "shop"]).await.failed(1);
    assert!(
        error.contains(&format!("Application {}/other exists", site.namespace)),
        "{error}"
    );
    assert_eq!(site.trackers().get(&tracker).await.unwrap().labels()[UID], other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_is_confirmed_for_the_current_generation() {
    let site = Site::new().await;
    let uid = site.create_application("shop", worker("nginx:1")).await.uid().unwrap();
    let change = Patch::Merge(json!({ "spec": worker("nginx:2") }));
    let parameters = PatchParams::default();
    site.applications().patch("shop", &parameters, &change).await.unwrap();
    let old = encode(vec![site.entry(&config_map("old"))], None).unwrap();
    site.create_tracker("shop", &uid, 1, old).await;
    let confirmed = async || {
        let annotations = site.application("shop").await.annotations().clone();
        annotations.get("portolan.dev/confirm-collection").cloned()
    };

    let text = site.vela(&["gc", "shop"]).await.ok();
    assert!(
        text.contains("ConfigMap old") && text.contains("add --confirm"),
        "{text}"
    );
    assert_eq!(confirmed().await, None);
    site.vela(&["gc", "shop", "--confirm"]).await.ok();
    assert_eq!(confirmed().await.as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_is_waited_for() {
    let site = Site::new().await;
    let mut spec = worker("nginx:1");
    spec["policies"] = json!([]);
    site.create_application("shop", spec).await;
    let finalizer = |finalizers: Value| Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    let parameters = PatchParams::default();
    let held = finalizer(json!(["app.oam.dev/resource-tracker-finalizer"]));
    site.applications().patch("shop", &parameters, &held).await.unwrap();
    let error = site
        .vela(&["delete", "shop", "--wait", "--timeout", "1s"])
        .await
        .failed(1);
    assert!(
        error.contains("is not gone after 1s: waiting for the controller"),
        "{error}"
    );

    let controller = async {
        let released = finalizer(Value::Null);
        site.applications().patch("shop", &parameters, &released).await.unwrap();
    };
    let (output, ()) = tokio::join!(site.vela(&["delete", "shop", "--wait", "--timeout", "60s"]), controller);
    // The controller may be faster than the command.
    if output.code != Some(0) {
        assert!(output.stderr.contains("/shop not found"), "{output:?}");
    }
    assert!(site.applications().get_opt("shop").await.unwrap().is_none());
}

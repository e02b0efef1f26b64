use std::time::Duration;

use kube::ResourceExt;
use portolan::api::oam::ApplicationRevisionSpec;
use portolan::api::oam::compression::Format;
use portolan::controllers::oam::revisions::compress;
use serde_json::{Value, json};

use super::{Site, application, execute, worker};
use crate::support::eventually::{SOON, eventually};

const VERSION: &str = "app.oam.dev/publishVersion";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_created_changed_and_left_as_it_is() {
    let site = Site::new().await;
    let mut spec = worker("nginx:1");
    spec["policies"] = json!([{ "name": "keep", "type": "apply-once", "properties": { "enable": true } }]);
    let policy = json!({
        "apiVersion": "core.oam.dev/v1alpha1", "kind": "Policy", "metadata": { "name": "over" },
        "type": "override", "properties": { "components": [] },
    });
    let file = site.file("app.yaml", &[application("shop", spec), policy]);
    let text = site.vela(&["up", "-f", &file]).await.ok();
    let namespace = &site.namespace;
    assert_eq!(
        text,
        format!("Policy {namespace}/over: created\nApplication {namespace}/shop: created\n")
    );
    let before = site.application("shop").await.resource_version();
    let text = site.vela(&["up", "-f", &file]).await.ok();
    assert!(
        text.contains("shop: unchanged") && text.contains("over: unchanged"),
        "{text}"
    );
    assert_eq!(site.application("shop").await.resource_version(), before);

    let file = site.file("app.yaml", &[application("shop", worker("nginx:2"))]);
    let text = site.vela(&["up", "-f", &file, "--publish-version", "two"]).await.ok();
    assert!(text.contains("shop: changed"), "{text}");
    let changed = site.application("shop").await;
    assert!(changed.spec.policies.is_empty(), "{:?}", changed.spec);
    assert_eq!(
        changed.spec.components[0].properties,
        Some(json!({ "image": "nginx:2" }))
    );
    assert_eq!(changed.annotations()[VERSION], "two");

    // A version that stayed would keep its own release.
    site.vela(&["up", "-f", &file]).await.ok();
    assert!(!site.application("shop").await.annotations().contains_key(VERSION));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_is_published_anew_and_restored_from_a_compressed_revision() {
    let site = Site::new().await;
    site.create_application("shop", worker("nginx:2")).await;
    let text = site.vela(&["up", "shop", "--publish-version", "two"]).await.ok();
    assert!(text.contains("shop: published as two"), "{text}");
    assert_eq!(site.application("shop").await.annotations()[VERSION], "two");
    let error = site.vela(&["up", "shop", "--publish-version", "two"]).await.failed(1);
    assert!(error.contains("publishes version two already"), "{error}");
    site.vela(&["up", "shop"]).await.ok();
    let version = site.application("shop").await.annotations()[VERSION].clone();
    assert!(version.starts_with("up-20"), "{version}");

    let recorded = json!({ "application": application("shop", worker("nginx:1")) });
    let recorded: ApplicationRevisionSpec = serde_json::from_value(recorded).unwrap();
    let compressed = compress(recorded, Some(Format::Zstd)).unwrap();
    let compressed: Value = serde_json::to_value(compressed).unwrap();
    site.create_revision("shop-v1", "shop", None, compressed.clone()).await;
    site.create_revision("other-v1", "other", None, compressed).await;
    let text = site.vela(&["up", "--revision", "shop-v1"]).await.ok();
    assert!(text.contains("shop: deployed from revision shop-v1"), "{text}");
    let restored = site.application("shop").await;
    assert_eq!(
        restored.spec.components[0].properties,
        Some(json!({ "image": "nginx:1" }))
    );
    assert!(!restored.annotations().contains_key(VERSION));

    let error = site.vela(&["up", "shop", "--revision", "other-v1"]).await.failed(1);
    assert!(
        error.contains("other-v1 is a revision of Application other, not of shop"),
        "{error}"
    );
    let error = site.vela(&["up", "shop", "--revision", "shop-v9"]).await.failed(1);
    assert!(error.contains("shop-v9 not found; `portolan vela history"), "{error}");
    let error = site.vela(&["up", "nobody"]).await.failed(1);
    assert!(
        error.contains("/nobody not found") && error.contains("vela list -A"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_ends_when_the_new_generation_runs() {
    let site = Site::new().await;
    site.create_application("shop", worker("nginx:1")).await;
    site.set_status("shop", json!({ "observedGeneration": 1, "status": "running" }))
        .await;
    let file = site.file("app.yaml", &[application("shop", worker("nginx:2"))]);
    let arguments = ["up", "-f", &file, "--wait", "--timeout", "60s"];
    let controller = async {
        eventually(SOON, "the new generation", async || {
            (site.application("shop").await.metadata.generation == Some(2)).then_some(())
        })
        .await;
        site.set_status("shop", json!({ "observedGeneration": 2, "status": "running" }))
            .await;
    };
    let (output, ()) = tokio::join!(site.vela(&arguments), controller);
    assert!(output.ok().ends_with("shop: running\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_ends_with_the_failed_condition_or_the_timeout() {
    let site = Site::new().await;
    site.create_application("shop", worker("nginx:1")).await;
    let failed =
        json!([{ "type": "Parsed", "status": "False", "reason": "ReconcileError", "message": "no such type" }]);
    let file = site.file("app.yaml", &[application("shop", worker("nginx:1"))]);
    site.set_status(
        "shop",
        json!({ "observedGeneration": 9, "status": "rendering", "conditions": failed }),
    )
    .await;
    let error = site.vela(&["up", "-f", &file]).await;
    error.ok();
    let error = site
        .vela(&["up", "-f", &file, "--wait", "--timeout", "60s"])
        .await
        .failed(1);
    assert!(
        error.contains("shop: condition Parsed is False: no such type"),
        "{error}"
    );

    site.set_status("shop", json!({ "observedGeneration": 0, "conditions": [] }))
        .await;
    let started = std::time::Instant::now();
    let error = site
        .vela(&["up", "-f", &file, "--wait", "--timeout", "1s"])
        .await
        .failed(1);
    assert!(
        error.contains("is not running after 1s: waiting for the controller"),
        "{error}"
    );
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn invalid_usage_is_explained() {
    let error = execute(&["vela", "up"]).await.failed(2);
    assert!(error.contains("--file") && error.contains("--revision"), "{error}");
    let error = execute(&["vela", "up", "web", "--publish-version", "A/B"])
        .await
        .failed(2);
    assert!(error.contains("lower case letters"), "{error}");
}

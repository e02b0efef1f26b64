use axum::http::Method;
use serde_json::json;

use super::kubelet::Fate;
use super::{Site, stays};
use crate::cluster::{condition, index, message};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::ApiFault;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_never_starts_is_reported_until_it_does() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let world = &site.world;
    site.kubelet.decide(Fate::NoImage);
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    let object = world.until_ready_is("stable", "False", "ImagePullBackOff").await;
    assert_eq!(condition(&object, "Stalled"), Some(("True", "ImagePullBackOff")));
    assert!(message(&object).contains("--job-image"), "{}", message(&object));
    world.event("stable", "SyncStalled").await;

    site.kubelet.decide(Fate::Run);
    let object = world.until_ready("stable").await;
    assert_eq!(condition(&object, "Stalled"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_pod_is_reported_and_retried() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let world = &site.world;
    site.kubelet.decide(Fate::Evict);
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    let object = world.until_ready_is("stable", "False", "Evicted").await;
    assert_eq!(condition(&object, "Stalled"), None);
    assert_eq!(condition(&object, "Reconciling"), Some(("True", "Retrying")));

    // The Job controller starts another pod.
    site.kubelet.decide(Fate::Run);
    world.until_ready("stable").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_secret_is_named_and_the_repository_recovers() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--watch-secrets"]).await;
    let world = &site.world;
    site.declare_private("stable", &[("web", &["1.0.0"])]).await;
    let object = world
        .until("stable", "the missing Secret", |object| {
            condition(object, "Stalled").is_some()
        })
        .await;
    assert!(message(&object).contains("auth"), "{}", message(&object));
    assert!(site.jobs("stable").await.is_empty());
    world
        .write_secret(&world.namespace, "auth", json!({ "authorizationHeader": "Bearer x" }))
        .await;
    world.until_ready("stable").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_that_creates_no_job_is_retried() {
    let site = Site::new().await;
    let (proxy, _portolan) = site.portolan_behind_proxy(&[]).await;
    let world = &site.world;
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    // A late event of the first Job would start a reconcile.
    let requests = || proxy.requests().len();
    let mut before = requests();
    while !stays(async || requests() == before).await {
        before = requests();
    }
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    // As of two updates of a quota at the same time.
    proxy.inject(1, ApiFault::Status(409), |request| {
        request.method == Method::POST && request.path.ends_with("/jobs")
    });
    world.resync_and_wait("stable", "now").await;
    site.postgres.rows.until_charts(&["stable/web 2.0.0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_the_api_server_does_not_return_delays_only_its_repository() {
    let site = Site::new().await;
    let (proxy, _portolan) = site.portolan_behind_proxy(&["--sync-workers=2"]).await;
    proxy.inject(1, ApiFault::Stalled, |request| request.path.ends_with("/secrets/auth"));
    let world = &site.world;
    let login = json!({ "authorizationHeader": "Bearer x" });
    world.write_secret(&world.namespace, "auth", login).await;
    site.declare_private("private", &[("web", &["1.0.0"])]).await;
    eventually(SOON, "the request for the Secret", async || {
        let requests = proxy.requests();
        let mut requests = requests.iter();
        requests
            .any(|request| request.path.ends_with("/secrets/auth"))
            .then_some(())
    })
    .await;
    site.synced("public", &[("web", &["1.0.0"])]).await;
    let private = world.repositories.get("private").await.unwrap();
    assert_ne!(condition(&private, "Ready"), Some(("True", "Synced")));
    world.until_ready("private").await;
}

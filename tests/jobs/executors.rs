use axum::http::Method;
use kube::ResourceExt;
use serde_json::json;

use super::{Site, stays};
use crate::cluster::index;
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::fault_proxy::{ApiFault, FaultProxy};
use crate::support::portolan::{command, run};

const ANNOTATION: &str = "portolan.dev/executor";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_moves_to_jobs_and_back() {
    let site = Site::new().await;
    let _portolan = site.portolan_with(&["--allow-executor-annotation"], &[]).await;
    let (world, rows) = (&site.world, &site.postgres.rows);
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    assert!(site.jobs("stable").await.is_empty(), "this process syncs it");

    world.annotate("stable", ANNOTATION, "job").await;
    site.cron_job("stable").await;
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    world.resync_and_wait("stable", "by-job").await;
    rows.until_charts(&["stable/web 2.0.0"]).await;
    assert_eq!(site.jobs("stable").await.len(), 1);

    // Back, while a Job runs: it is ended first.
    site.hold("stable").await;
    world.annotate("stable", ANNOTATION, "in-process").await;
    world.serve("stable", index(&[("web", &["3.0.0"])]));
    world.resync_and_wait("stable", "in-process").await;
    rows.until_charts(&["stable/web 3.0.0"]).await;
    site.until_no_objects("stable").await;
    assert_eq!(
        rows.count("SELECT count(*) FROM portolan_repositories WHERE origin = 'one-shot'")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_annotation_is_ignored_unless_the_operator_allows_it() {
    let site = Site::new().await;
    let _portolan = site.portolan_with(&[], &[]).await;
    let world = &site.world;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let metadata = json!({ "annotations": { ANNOTATION: "job" } });
    world
        .declare_with(
            "stable",
            json!({ "metadata": metadata, "spec": { "type": "helm", "url": url } }),
        )
        .await;
    world.until_ready("stable").await;
    assert!(site.jobs("stable").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_selector_a_start_without_jobs_leaves_those_of_other_repositories() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    for name in ["ours", "theirs"] {
        site.synced(name, &[("web", &["1.0.0"])]).await;
        let labels = json!({ "metadata": { "labels": { "team": name } } });
        site.world.edit(name, labels).await;
        site.cron_job(name).await;
    }
    drop(portolan);
    let _portolan = site.portolan_with(&["--watch-label-selector=team=ours"], &[]).await;
    site.until_no_objects("ours").await;
    assert!(stays(async || !site.cron_job("theirs").await.name_any().is_empty()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_jobs_removes_those_that_are_left() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let world = &site.world;
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    assert!(!site.cron_job("stable").await.name_any().is_empty());
    drop(portolan);
    let _portolan = site.portolan_with(&[], &[]).await;
    site.until_no_objects("stable").await;
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    world.resync_and_wait("stable", "in-process").await;
    site.postgres.rows.until_charts(&["stable/web 2.0.0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_left_are_removed_although_a_request_fails() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    drop(portolan);
    let control_plane = control_plane().await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    proxy.inject(1, ApiFault::Status(500), |request| {
        request.method == Method::DELETE && request.path.contains("/cronjobs/")
    });
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let _portolan = site.portolan_as(&kubeconfig, &[]).await;
    site.until_no_objects("stable").await;
}

#[tokio::test]
async fn jobs_without_what_they_need_are_refused_in_words() {
    for (flags, words) in [
        (&["--database-url=sqlite://x.db", "--job-image=i"][..], "SQLite"),
        (&["--database-url=postgres://u@db/x"], "--job-image"),
        (
            &["--database-url=postgres://u:secret@db/x", "--job-image=i"],
            "--database-secret-name",
        ),
    ] {
        let mut start = command(["run", "--executor=job"]);
        start.args(flags);
        let output = run(start).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(words) && !errors.contains("secret@"), "{errors}");
    }
}

#[tokio::test]
async fn proxies_with_a_password_are_refused_for_jobs() {
    let mut start = command([
        "run",
        "--executor=job",
        "--database-url=postgres://u@db/x",
        "--job-image=i",
    ]);
    start.env("HTTPS_PROXY", "http://operator:hush@proxy:3128");
    let output = run(start).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("HTTPS_PROXY") && !errors.contains("hush"), "{errors}");
}

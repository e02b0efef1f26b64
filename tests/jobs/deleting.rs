use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use super::Site;
use super::kubelet::{Fate, run};
use crate::cluster::index;
use crate::support::eventually::{SOON, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pod_of_a_deleted_repository_commits_nothing() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let (world, rows) = (&site.world, &site.postgres.rows);
    let url = site.synced("stable", &[("web", &["1.0.0"])]).await;
    let tick = site.cron_job("stable").await;

    // A pod that starts late.
    site.kubelet.decide(Fate::Hold);
    world.resync("stable", "late").await;
    let late = eventually(SOON, "a pod that waits", async || {
        let pods = site.pods("stable").await;
        pods.into_iter()
            .find(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Pending"))
            .ok_or("none")
    })
    .await;
    site.kubelet.decide(Fate::Run);
    // The fate changes for pending pods too, so the Job may run meanwhile; it is deleted with the repository.
    world.delete("stable").await;
    world.gone("stable").await;
    rows.assert_empty().await;

    let output = run(&world.client, &late).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("was deleted"), "{output:?}");
    rows.assert_empty().await;

    // A repository of the same name is another one, and the CronJob of the first can't change its charts.
    world.serve("stable", index(&[("api", &["2.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    rows.until_charts(&["stable/api 2.0.0"]).await;
    assert_ne!(site.cron_job("stable").await.uid(), tick.uid());
    let output = run(&world.client, &late).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    rows.until_charts(&["stable/api 2.0.0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_ends_without_its_job() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let world = &site.world;
    site.synced("stable", &[("web", &["1.0.0"])]).await;

    // A quota refuses every further Job.
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "count/jobs.batch": "0" } } });
    let quotas: Api<k8s_openapi::api::core::v1::ResourceQuota> = Api::namespaced(world.client.clone(), &site.namespace);
    quotas
        .create(&PostParams::default(), &serde_json::from_value(quota).unwrap())
        .await
        .unwrap();
    eventually(SOON, "the quota to be in force", async || {
        quotas.get("none").await.unwrap().status.and_then(|status| status.hard)
    })
    .await;
    world.delete("stable").await;
    world.gone("stable").await;
    site.postgres.rows.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_cleanup_job_is_finished_by_the_controller() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let world = &site.world;
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    site.kubelet.decide(Fate::Hold);
    world.delete("stable").await;
    let job = eventually(SOON, "the cleanup Job", async || {
        let jobs = site.jobs("stable").await;
        jobs.into_iter()
            .find(|job| job.name_any().contains("-cleanup-"))
            .ok_or("none")
    })
    .await;
    // The pod never starts, so that the Job meets its deadline.
    let patch = Patch::Merge(json!({ "spec": { "activeDeadlineSeconds": 1 } }));
    let parameters = PatchParams::default();
    site.job_api()
        .patch(&job.name_any(), &parameters, &patch)
        .await
        .unwrap();
    world.gone("stable").await;
    site.postgres.rows.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_of_a_namespace_at_its_limit_take_no_slots_of_others() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--max-jobs-per-namespace=1"]).await;
    let world = &site.world;
    for name in ["busy", "brief"] {
        site.synced(name, &[("web", &["1.0.0"])]).await;
    }
    site.hold("busy").await;
    world.delete("brief").await;
    world.gone("brief").await;
    site.postgres.rows.until_charts(&["busy/web 1.0.0"]).await;
    let jobs = site.jobs("brief").await;
    let names: Vec<String> = jobs.iter().map(ResourceExt::name_any).collect();
    assert!(!names.iter().any(|name| name.contains("-cleanup-")), "{names:?}");
}

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use kube::ResourceExt;
use portolan::api::POLL_AT;
use serde_json::json;

use super::{Site, is_finished, stays};
use crate::cluster::{condition, index, message};
use crate::support::eventually::{SOON, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_lives_by_jobs_from_its_creation_to_its_deletion() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let (world, rows) = (&site.world, &site.postgres.rows);

    // Creation: a CronJob, and a Job that syncs at once.
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let declared = world.declare("stable", &url).await;
    let object = world.until_ready("stable").await;
    assert_eq!(message(&object), "1 version in 1 chart.");
    rows.until_charts(&["stable/web 1.0.0"]).await;
    let cron_job = site.cron_job("stable").await;
    assert_eq!(cron_job.name_any(), format!("apprepo-{}-sync-stable", world.namespace));
    assert_eq!(cron_job.spec.as_ref().unwrap().schedule, "0 0 1 1 *");
    assert_eq!(site.jobs("stable").await.len(), 1);
    world.event("stable", "SyncSucceeded").await;

    // The rows are those of the declared repository.
    let identity = rows
        .pairs("SELECT uid, CAST(generation AS TEXT) FROM portolan_repositories")
        .await
        .unwrap();
    assert_eq!(
        identity,
        [(
            declared.uid().unwrap(),
            declared.metadata.generation.unwrap().to_string()
        )]
    );
    assert_eq!(
        rows.count("SELECT count(*) FROM portolan_repositories WHERE origin = 'one-shot'")
            .await,
        0
    );

    // A tick of the schedule.
    world.serve("stable", index(&[("web", &["1.1.0", "1.0.0"])]));
    site.tick("stable", "tick").await;
    rows.until_charts(&["stable/web 1.1.0 1.0.0"]).await;

    // A request is one Job, also for a process that starts again.
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    world.resync_and_wait("stable", "now").await;
    rows.until_charts(&["stable/web 2.0.0"]).await;
    let before = site.jobs("stable").await.len();
    assert_eq!(before, 3);
    eventually(SOON, "a finished Job to be counted", async || {
        let labels = [("result", "success")];
        let finished = portolan.metrics().await.sum("portolan_jobs_finished_total", &labels);
        finished.filter(|finished| *finished >= 1.0).map(drop)
    })
    .await;
    drop(portolan);
    let _portolan = site.portolan(&[]).await;
    assert!(
        stays(async || site.jobs("stable").await.len() == before).await,
        "a request is handled once"
    );

    // A failure is the pod's own words, and is cleared.
    world.serve("stable", "<<<<<<< HEAD\n");
    world.edit("stable", json!({ "spec": { "resyncRequests": 1 } })).await;
    let object = world
        .until("stable", "the failure", |object| condition(object, "Stalled").is_some())
        .await;
    assert!(message(&object).contains("remain available"), "{}", message(&object));
    world.serve("stable", index(&[("web", &["2.1.0"])]));
    world.edit("stable", json!({ "spec": { "resyncRequests": 2 } })).await;
    let object = world.until_ready("stable").await;
    assert_eq!(condition(&object, "Stalled"), None);

    // Deletion: the cleanup Job removes the charts.
    world.delete("stable").await;
    world.gone("stable").await;
    rows.assert_empty().await;
    site.until_no_objects("stable").await;
    let ended = site.kubelet.ended();
    let cleanup = ended
        .iter()
        .find(|ended| ended.arguments[0] == "delete")
        .expect("a cleanup Job ran");
    assert!(cleanup.is_success && cleanup.output.contains("deleted"), "{cleanup:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_spec_is_synced_by_a_job_of_its_own() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let (world, rows) = (&site.world, &site.postgres.rows);
    site.synced("stable", &[("web", &["1.0.0"]), ("worker", &["1.0.0"])])
        .await;

    let filter = json!({ "spec": { "filterRule": { "jq": ".name == $v", "variables": { "$v": "web" } } } });
    world.edit("stable", filter).await;
    world.until_ready("stable").await;
    rows.until_charts(&["stable/web 1.0.0"]).await;

    let other = world.serve("other", index(&[("api", &["3.0.0"])]));
    world
        .edit(
            "stable",
            json!({ "spec": { "url": other, "filterRule": null, "interval": "2h" } }),
        )
        .await;
    world.until_ready("stable").await;
    rows.until_charts(&["stable/api 3.0.0"]).await;
    let cron_job = site.until_cron_job("stable", "the new schedule", |cron_job| {
        cron_job.spec.as_ref().unwrap().schedule == "0 */2 * * *"
    });
    let spec = cron_job.await.spec.unwrap();
    assert_eq!(spec.suspend, Some(false));
    let arguments = spec.job_template.spec.unwrap().template.spec.unwrap().containers[0]
        .args
        .clone()
        .unwrap();
    assert!(arguments.contains(&other), "{arguments:?}");

    // Due at the next tick of its schedule, and not at all while it is suspended.
    let due = async || {
        let labels = [("name", "stable")];
        portolan
            .metrics()
            .await
            .sum("portolan_repository_next_sync_timestamp_seconds", &labels)
    };
    let now = jiff::Timestamp::now().as_second() as f64;
    let next = due().await.expect("a time");
    assert!(next > now && next <= now + 2.0 * 3600.0 + 60.0, "{now} {next}");
    world.edit("stable", json!({ "spec": { "suspend": true } })).await;
    site.until_cron_job("stable", "the suspension", |cron_job| {
        cron_job.spec.as_ref().unwrap().suspend == Some(true)
    })
    .await;
    eventually(SOON, "no time of the next sync", async || {
        due().await.is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cronjob_that_was_edited_or_deleted_comes_back() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    let original = site.cron_job("stable").await;
    let name = original.name_any();
    let is_original = |cron_job: &k8s_openapi::api::batch::v1::CronJob| cron_job.spec == original.spec;

    // Values, and fields that Portolan does not set.
    let edits = [
        json!({ "spec": { "schedule": "* * * * *", "suspend": true } }),
        json!({ "spec": { "timeZone": "Europe/Rome" } }),
        json!({ "spec": { "jobTemplate": { "spec": { "template": { "spec": { "hostNetwork": true } } } } } }),
        json!({ "spec": { "jobTemplate": { "spec": { "template": { "spec": { "containers": [
            { "name": "evil", "image": "evil" },
            { "name": "sync", "image": "evil" },
        ] } } } } } }),
    ];
    for edit in edits {
        site.patch_cron_job(&name, edit.clone()).await;
        site.until_cron_job("stable", &format!("{edit} to be reverted"), is_original)
            .await;
    }

    // Labels and annotations of ours come back, those of others stay.
    let labels = json!({ "app.kubernetes.io/managed-by": "someone", "apprepositories.kubeapps.com/repo-namespace": null, "foreign": "x" });
    site.patch_cron_job(&name, json!({ "metadata": { "labels": labels, "annotations": { "portolan.dev/repository-uid": "x", "foreign": "y" } } }))
        .await;
    let cron_job = site
        .until_cron_job("stable", "the labels", |cron_job| {
            original
                .labels()
                .iter()
                .all(|(key, value)| cron_job.labels().get(key) == Some(value))
                && original
                    .annotations()
                    .iter()
                    .all(|(key, value)| cron_job.annotations().get(key) == Some(value))
        })
        .await;
    assert_eq!(cron_job.labels()["foreign"], "x");
    assert_eq!(cron_job.annotations()["foreign"], "y");

    site.cron_jobs().delete(&name, &Default::default()).await.unwrap();
    let again = site
        .until_cron_job("stable", "the CronJob to come back", |cron_job| {
            cron_job.uid() != original.uid()
        })
        .await;
    assert_eq!(again.spec, original.spec);

    // At rest, nothing is written.
    let version = again.resource_version();
    assert!(stays(async || site.cron_job("stable").await.resource_version() == version).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_copied_for_the_pods_and_follow_their_secret() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--watch-secrets"]).await;
    let world = &site.world;
    world.server.demand_basic("navigator", "fair-winds");
    let header = |password: &str| json!({ "authorizationHeader": format!("Basic {}", BASE64_STANDARD.encode(format!("navigator:{password}"))) });
    world.write_secret(&world.namespace, "auth", header("fair-winds")).await;
    site.declare_private("stable", &[("web", &["1.0.0"])]).await;
    world.until_ready("stable").await;
    assert_eq!(site.copies("stable").await, 1);

    // No object holds the value.
    let objects = serde_json::to_string(&(site.jobs("stable").await, site.cron_job("stable").await)).unwrap();
    assert!(!objects.contains("fair-winds") && !objects.contains("bmF2aWdhdG9y"));

    // A changed Secret is synced, and copied first.
    let jobs = site.jobs("stable").await.len();
    world.server.demand_basic("navigator", "new-course");
    world.write_secret(&world.namespace, "auth", header("new-course")).await;
    eventually(SOON, "a Job for the changed Secret", async || {
        let now = site.jobs("stable").await;
        if now.len() > jobs && now.iter().all(is_finished) {
            Ok(())
        } else {
            Err(now.len())
        }
    })
    .await;
    world.until_ready("stable").await;

    world.delete("stable").await;
    world.gone("stable").await;
    assert_eq!(site.copies("stable").await, 0, "the copy is deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_is_a_job_and_another_one_looks_again() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let (world, rows) = (&site.world, &site.postgres.rows);
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    let fetched = world.server.requests("/stable/index.yaml").len();
    world.annotate("stable", POLL_AT, &Timestamp::now().to_string()).await;
    eventually(SOON, "the Job of the poll to end", async || {
        let jobs = site.jobs("stable").await;
        let finished = jobs.iter().filter(|job| is_finished(job)).count();
        if finished >= 2 {
            Ok(())
        } else {
            Err(format!("{finished}"))
        }
    })
    .await;
    world.serve("stable", index(&[("web", &["1.1.0", "1.0.0"])]));
    // The look after 10 seconds, or on a busy machine that after a minute.
    rows.until_charts_within(2 * SOON, &["stable/web 1.1.0 1.0.0"]).await;
    let seen = world.server.requests("/stable/index.yaml");
    assert!(
        seen[fetched..].iter().all(|request| request.is_conditional()),
        "{seen:?}"
    );
}

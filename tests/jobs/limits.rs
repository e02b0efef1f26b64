use kube::ResourceExt;
use serde_json::json;

use super::kubelet::Fate;
use super::{Site, is_finished};
use crate::cluster::{World, condition, index};
use crate::support::control_plane::ControlPlane;
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::{Metrics, Portolan, command};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_beyond_the_limit_wait_and_then_run() {
    let site = Site::new().await;
    site.kubelet.decide(Fate::Hold);
    let portolan = site.portolan(&["--max-jobs-per-namespace=1"]).await;
    let world = &site.world;
    for name in ["one", "two", "three"] {
        let url = world.serve(name, index(&[("web", &["1.0.0"])]));
        world.declare(name, &url).await;
    }
    eventually(SOON, "one Job to run and two to wait", async || {
        let metrics = portolan.metrics().await;
        let count = |state| metrics.sum("portolan_jobs_unfinished", &[("state", state)]);
        let seen = (count("running"), count("waiting"));
        if seen == (Some(1.0), Some(2.0)) {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    })
    .await;
    eventually(SOON, "two repositories that report it", async || {
        let mut waiting = 0;
        for name in ["one", "two", "three"] {
            let object = world.repositories.get(name).await.unwrap();
            waiting += usize::from(condition(&object, "Reconciling") == Some(("True", "WaitingForJobs")));
        }
        if waiting == 2 { Ok(()) } else { Err(waiting) }
    })
    .await;
    site.kubelet.decide(Fate::Run);
    for name in ["one", "two", "three"] {
        world.until_ready(name).await;
    }
    let pods = site.kubelet.ended();
    assert_eq!(pods.len(), 3, "{pods:?}");
}

fn unfinished(metrics: &Metrics) -> (Option<f64>, Option<f64>) {
    let count = |state| metrics.sum("portolan_jobs_unfinished", &[("state", state)]);
    (count("running"), count("waiting"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_at_the_limit_does_not_delay_another_one() {
    // Of its own, since Portolan watches all namespaces.
    let control_plane = ControlPlane::start().await;
    for crd in portolan::api::crds() {
        control_plane.install_crd(&crd).await;
    }
    let few = World::on(&control_plane).await;
    let site = Site::of(World::on(&control_plane).await, &control_plane).await;
    site.kubelet.decide(Fate::Hold);
    let mut start = command(["run", "--database-url", &site.database_url()]);
    start.arg("--kubeconfig").arg(&site.world.kubeconfig);
    start.args(site.flags(&["--executor=job", "--max-jobs=2"]));
    let portolan = Portolan::start(start);
    portolan.ready(SOON).await;
    let until_unfinished = async |expected: (Option<f64>, Option<f64>)| {
        eventually(SOON, "the number of running and waiting Jobs", async || {
            let seen = unfinished(&portolan.metrics().await);
            if seen == expected {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await;
    };
    for name in ["one", "two", "three", "four"] {
        let url = site.world.serve(name, index(&[("web", &["1.0.0"])]));
        site.world.declare(name, &url).await;
    }
    until_unfinished((Some(2.0), Some(2.0))).await;
    let url = few.serve("other", index(&[("web", &["1.0.0"])]));
    few.declare("other", &url).await;
    until_unfinished((Some(2.0), Some(3.0))).await;

    site.kubelet.decide(Fate::Run);
    few.until_ready("other").await;
    let ended = site.until_ended(5).await;
    let flag = format!("--namespace={}", few.namespace);
    let at = ended.iter().position(|ended| ended.arguments.contains(&flag));
    assert!(
        at.is_some_and(|at| at < 4),
        "the other namespace waited for all Jobs of the first: {at:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_no_node_fits_holds_no_slot_that_another_job_waits_for() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--max-jobs=1"]).await;
    let world = &site.world;
    let url = world.serve("odd", index(&[("web", &["1.0.0"])]));
    let template = json!({ "spec": { "nodeSelector": { "disk": "none" } } });
    let spec = json!({ "type": "helm", "url": url, "syncJobPodTemplate": template });
    world.declare_with("odd", json!({ "spec": spec })).await;
    world.until_ready_is("odd", "False", "Unschedulable").await;

    site.synced("stable", &[("web", &["1.0.0"])]).await;
    let odd = site.jobs("odd").await.remove(0);
    let reason = &odd.annotations()["portolan.dev/not-started"];
    assert!(reason.contains("0/3 nodes are available"), "{reason}");

    // Its turn comes again, and the user can repair it.
    eventually(SOON, "the Job to be released again", async || {
        let job = site.jobs("odd").await.remove(0);
        (job.spec.as_ref().unwrap().suspend == Some(false)).then_some(())
    })
    .await;
    world.until_ready_is("odd", "False", "Unschedulable").await;
    world
        .edit("odd", json!({ "spec": { "syncJobPodTemplate": null } }))
        .await;
    world.until_ready("odd").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_repository_do_not_pile_up_while_they_wait() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--max-jobs=1", "--job-concurrency=allow"]).await;
    let world = &site.world;
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    site.kubelet.decide(Fate::Hold);
    world.resync("stable", "held").await;
    let until_unfinished = async |what: &str, count: usize| {
        eventually(SOON, what, async || {
            let mut jobs = site.jobs("stable").await;
            jobs.retain(|job| !is_finished(job));
            if jobs.len() == count {
                Ok(())
            } else {
                let names: Vec<_> = jobs.iter().map(ResourceExt::name_any).collect();
                Err(format!("{names:?}"))
            }
        })
        .await;
    };
    until_unfinished("a Job that holds the slot", 1).await;
    for tick in ["tick-1", "tick-2", "tick-3"] {
        site.tick("stable", tick).await;
    }
    until_unfinished("one Job of the CronJob that waits", 2).await;
    for token in ["one", "two", "three"] {
        world.resync("stable", token).await;
        eventually(SOON, "the Job of the request", async || {
            let jobs = site.jobs("stable").await;
            let is_of_request = |job: &&k8s_openapi::api::batch::v1::Job| {
                serde_json::to_string(job)
                    .unwrap()
                    .contains(&format!("--requested-at={token}"))
            };
            jobs.iter().any(|job| is_of_request(&job)).then_some(())
        })
        .await;
    }
    until_unfinished("the Job of the last request besides", 3).await;
    site.kubelet.decide(Fate::Run);
    world.resync_and_wait("stable", "four").await;
}

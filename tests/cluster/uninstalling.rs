//! `portolan uninstall`: removal of finalizers and objects, also from an API server that serves only a part.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, Patch, PatchParams, PostParams};
use portolan::api::jobs::{LEASE, MANAGED_BY, MANAGER, REPOSITORY, REPOSITORY_NAME, REPOSITORY_UID};
use portolan::api::{Application, FINALIZER};
use rstest::rstest;
use serde_json::json;

use super::garbage::{Finished, finished, names};
use super::{SOON, World, finalizers};
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::fault_proxy::{ApiFault, FaultProxy};
use crate::support::portolan::command;

impl World {
    async fn uninstall(&self, more: &[&str]) -> Finished {
        self.uninstall_with(&self.kubeconfig, more).await
    }

    async fn uninstall_with(&self, kubeconfig: &std::path::Path, more: &[&str]) -> Finished {
        let mut command = command(["uninstall", "--namespace", &self.namespace]);
        command.args([
            "--kubeapps-namespace",
            &self.namespace,
            "--portolan-namespace",
            &self.namespace,
        ]);
        command.arg("--kubeconfig").arg(kubeconfig).args(more);
        finished(command).await
    }

    /// Declares repositories with our finalizer and another one, and leaves objects.
    async fn installed(&self, repositories: usize) {
        for at in 0..repositories {
            let object = json!({
                "metadata": { "finalizers": [FINALIZER, "example.com/hold"] },
                "spec": { "type": "helm", "url": "https://charts.example.com" }
            });
            self.declare_with(&format!("r{at}"), object).await;
        }
        self.leave_objects("r0", "uid").await;
        self.create_objects("foreign", "Helm", "u").await;
        self.secret_of_another_release().await;
        self.lease("portolan", "", 15).await;
    }

    /// Creates a copy of a Secret for a repository in another namespace.
    async fn secret_of_another_release(&self) {
        let secret = json!({ "metadata": {
            "name": "other-release",
            "labels": { MANAGED_BY: MANAGER, REPOSITORY_NAME: "r0" },
            "annotations": { REPOSITORY: "elsewhere/r0", REPOSITORY_UID: "u" }
        } });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        self.api::<Secret>()
            .create(&PostParams::default(), &secret)
            .await
            .unwrap();
    }

    async fn lease(&self, name: &str, holder: &str, seconds: i32) {
        let lease = json!({
            "metadata": { "name": name, "labels": { MANAGED_BY: MANAGER } },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": MicroTime(jiff::Timestamp::now()) }
        });
        let lease: Lease = serde_json::from_value(lease).unwrap();
        self.api::<Lease>()
            .create(&PostParams::default(), &lease)
            .await
            .unwrap();
    }

    /// Creates a free Lease of a shard.
    async fn lease_of(&self, release: &str, name: &str) {
        let lease = json!({ "metadata": {
            "name": name,
            "labels": { MANAGED_BY: MANAGER, LEASE: release }
        } });
        let lease: Lease = serde_json::from_value(lease).unwrap();
        self.api::<Lease>()
            .create(&PostParams::default(), &lease)
            .await
            .unwrap();
    }

    async fn assert_uninstalled(&self, repositories: usize) {
        for at in 0..repositories {
            let object = self.repositories.get(&format!("r{at}")).await.unwrap();
            assert_eq!(finalizers(&object), ["example.com/hold"]);
        }
        assert_eq!(names::<CronJob>(self).await, ["foreign"]);
        assert_eq!(names::<Job>(self).await, ["foreign"]);
        assert_eq!(names::<Secret>(self).await, ["foreign", "other-release"]);
        assert!(names::<Lease>(self).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_of_ours_is_removed_and_nothing_of_others() {
    let world = World::new().await;
    world.installed(3).await;
    let preview = world.uninstall(&["--dry-run"]).await;
    assert_eq!(preview.code, Some(0), "{}", preview.stderr);
    for line in [
        "finalizer would be removed from 3 AppRepositories",
        "1 CronJobs would be deleted",
        "1 Leases would be deleted",
    ] {
        assert!(preview.stdout.contains(line), "{}, not {line}", preview.stdout);
    }
    assert_eq!(names::<CronJob>(&world).await.len(), 2);
    let removed = world.uninstall(&[]).await;
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    assert!(
        removed.stdout.contains("finalizer removed from 3 AppRepositories"),
        "{}",
        removed.stdout
    );
    world.assert_uninstalled(3).await;
    let again = world.uninstall(&[]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""), "{}", again.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubevelas_finalizers_are_removed_on_request_only() {
    const APPLICATION: &str = "app.oam.dev/resource-tracker-finalizer";
    const TRACKER: &str = "resourcetracker.core.oam.dev/finalizer";
    let control_plane = control_plane().await;
    let world = World::new().await;
    for crd in portolan::api::oam::crds() {
        control_plane.install_crd(&crd).await;
    }
    let applications: Api<portolan::api::oam::Application> = Api::namespaced(world.client.clone(), &world.namespace);
    let application = json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
        "metadata": { "name": "web", "finalizers": [APPLICATION] },
        "spec": { "components": [] }
    });
    let application = serde_json::from_value(application).unwrap();
    applications.create(&PostParams::default(), &application).await.unwrap();
    let trackers: Api<portolan::api::oam::ResourceTracker> = Api::all(world.client.clone());
    let elsewhere = format!("{}-elsewhere", world.namespace);
    for namespace in [&world.namespace, &elsewhere] {
        let tracker = json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "ResourceTracker",
            "metadata": {
                "name": format!("web-{namespace}"), "finalizers": [TRACKER],
                "labels": { "app.oam.dev/name": "web", "app.oam.dev/namespace": namespace }
            }
        });
        let tracker = serde_json::from_value(tracker).unwrap();
        trackers.create(&PostParams::default(), &tracker).await.unwrap();
    }
    let finalizers_of_tracker = async |namespace: &str| {
        let tracker = trackers.get(&format!("web-{namespace}")).await.unwrap();
        tracker.metadata.finalizers.unwrap_or_default()
    };
    let finalizers = async || {
        applications
            .get("web")
            .await
            .unwrap()
            .metadata
            .finalizers
            .unwrap_or_default()
    };
    assert_eq!(world.uninstall(&[]).await.code, Some(0));
    let of_another_release = ["--kubevela", "--watch-label-selector=team=a"];
    assert_eq!(world.uninstall(&of_another_release).await.code, Some(0));
    assert_eq!(finalizers().await, [APPLICATION]);
    assert_eq!(finalizers_of_tracker(&world.namespace).await, [TRACKER]);
    let removed = world.uninstall(&["--kubevela", "--watch-label-selector=team!=a"]).await;
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    assert!(
        removed.stdout.contains("removed from 1 Applications of KubeVela"),
        "{}",
        removed.stdout
    );
    assert!(finalizers().await.is_empty());
    assert!(finalizers_of_tracker(&world.namespace).await.is_empty());
    assert_eq!(finalizers_of_tracker(&elsewhere).await, [TRACKER]);
    let released = Patch::Merge(json!({ "metadata": { "finalizers": [] } }));
    let name = format!("web-{elsewhere}");
    trackers.patch(&name, &PatchParams::default(), &released).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_controller_is_refused_unless_forced() {
    let world = World::new().await;
    world.installed(1).await;
    world.lease("portolan-1", "replica-a", 3600).await;
    let renewals = {
        let leases = world.api::<Lease>();
        tokio::spawn(async move {
            loop {
                let renewed = json!({ "spec": { "renewTime": MicroTime(jiff::Timestamp::now()) } });
                let patched = leases
                    .patch("portolan-1", &PatchParams::default(), &Patch::Merge(renewed))
                    .await;
                if patched.is_err() {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        })
    };
    let refused = world.uninstall(&[]).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("replica-a holds the Lease") && refused.stderr.contains("--force"),
        "{}",
        refused.stderr
    );
    let object = world.repositories.get("r0").await.unwrap();
    assert_eq!(finalizers(&object).len(), 2);
    let forced = world.uninstall(&["--force"]).await;
    assert_eq!(forced.code, Some(0), "{}", forced.stderr);
    renewals.abort();
    world.assert_uninstalled(1).await;
}

/// Two releases that divide the objects of a namespace by hand: what belongs to the other one stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_belongs_to_the_selected_objects_and_the_lease_is_removed() {
    let world = World::new().await;
    for team in ["a", "b"] {
        let object = json!({
            "metadata": { "labels": { "team": team }, "finalizers": [FINALIZER] },
            "spec": { "type": "helm", "url": "https://charts.example.com" }
        });
        world.declare_with(team, object).await;
        world.leave_objects(team, team).await;
        let application = json!({
            "apiVersion": "app.k8s.io/v1beta1", "kind": "Application",
            "metadata": { "name": team, "labels": { "team": team }, "finalizers": ["portolan.dev/adoption"] },
            "spec": { "selector": {}, "componentKinds": [] }
        });
        let application = serde_json::from_value(application).unwrap();
        let applications: Api<Application> = world.api();
        applications.create(&PostParams::default(), &application).await.unwrap();
        world
            .lease_of(&format!("release-{team}"), &format!("release-{team}-0"))
            .await;
    }
    let before = names::<CronJob>(&world).await;
    let flags = ["--watch-label-selector=team=a", "--leader-election-name=release-a"];
    let removed = world.uninstall(&flags).await;
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    for line in [
        "1 CronJobs deleted",
        "finalizer removed from 1 AppRepositories",
        "finalizer removed from 1 Applications",
        "1 Leases deleted",
    ] {
        assert!(removed.stdout.contains(line), "{}, not {line}", removed.stdout);
    }
    let finalizers_of = async |name: &str| finalizers(&world.repositories.get(name).await.unwrap()).len();
    assert_eq!((finalizers_of("a").await, finalizers_of("b").await), (0, 1));
    let applications: Api<Application> = world.api();
    let other = applications.get("b").await.unwrap();
    assert!(
        other
            .metadata
            .finalizers
            .is_some_and(|finalizers| finalizers.len() == 1)
    );
    assert_eq!(names::<Lease>(&world).await, ["release-b-0"]);
    let left = names::<CronJob>(&world).await;
    assert_eq!((before.len(), left.len()), (2, 1), "{left:?}");
    assert!(left[0].contains('b'), "{left:?}");

    // The other release runs, and is no obstacle.
    world.lease_of("release-a", "release-a-0").await;
    world.lease("release-b-1", "replica", 3600).await;
    let again = world.uninstall(&flags).await;
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert_eq!(names::<Lease>(&world).await, ["release-b-0", "release-b-1"]);
}

#[rstest]
#[case::a_kind_that_is_refused("cronjobs", ApiFault::Status(403), "failed to list CronJobs")]
#[case::a_kind_that_fails("apprepositories", ApiFault::Status(500), "failed to list the kind AppRepository")]
#[case::a_connection_that_is_cut("secrets", ApiFault::Refused, "failed to list Secrets")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_api_server_refuses_is_said_and_the_rest_is_removed(
    #[case] plural: &'static str,
    #[case] fault: ApiFault,
    #[case] expected: &str,
) {
    let control_plane = control_plane().await;
    let world = World::new().await;
    world.installed(2).await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    proxy.inject(usize::MAX, fault, move |request| request.is_of(plural));
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let partly = world.uninstall_with(&kubeconfig, &[]).await;
    assert_eq!(partly.code, Some(1));
    assert_eq!(partly.stderr.matches(expected).count(), 1, "{}", partly.stderr);
    assert!(partly.stderr.contains("run the command again"), "{}", partly.stderr);
    assert!(names::<Lease>(&world).await.is_empty(), "later steps are done");
    proxy.clear_faults();
    let removed = world.uninstall_with(&kubeconfig, &[]).await;
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    world.assert_uninstalled(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_printed_when_it_happens() {
    let control_plane = control_plane().await;
    let world = World::new().await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    proxy.inject(usize::MAX, ApiFault::Status(403), |request| request.is_of("cronjobs"));
    // The next kind takes until the process is killed.
    proxy.inject(usize::MAX, ApiFault::Stalled, |request| request.is_of("jobs"));
    let mut command = command(["uninstall", "--kubeapps-namespace", &world.namespace]);
    command.args(["--portolan-namespace", &world.namespace, "--timeout", "1h"]);
    command.args(["--namespace", &world.namespace]).arg("--kubeconfig");
    command.arg(control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN));
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let errors = process.stderr.take().unwrap();
    let printed = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(errors).lines().map_while(Result::ok);
        lines.any(|line| line.contains("failed to list CronJobs"))
    });
    let printed = tokio::time::timeout(SOON, printed).await;
    process.kill().unwrap();
    let status = process.wait().unwrap();
    assert!(printed.expect("the failure in time").unwrap());
    assert_eq!(status.code(), None, "killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brief_faults_and_lost_responses_are_retried_and_missing_kinds_skipped() {
    let control_plane = control_plane().await;
    let world = World::new().await;
    world.installed(2).await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    proxy.inject(1, ApiFault::Status(500), |request| request.is_of("apprepositories"));
    proxy.inject(1, ApiFault::ResponseLost, |request| request.method == "PATCH");
    proxy.inject(1, ApiFault::Status(409), |request| request.method == "PATCH");
    proxy.inject(1, ApiFault::ResponseLost, |request| request.method == "DELETE");
    // A definition that was removed.
    proxy.inject(usize::MAX, ApiFault::Status(404), |request| {
        request.is_of("applications")
    });
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let removed = world.uninstall_with(&kubeconfig, &[]).await;
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    world.assert_uninstalled(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_scaled_to_zero_first() {
    let world = World::new().await;
    world.installed(1).await;
    let deployment = json!({
        "metadata": { "name": "portolan" },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": { "app": "portolan" } },
            "template": {
                "metadata": { "labels": { "app": "portolan" } },
                "spec": { "containers": [{ "name": "portolan", "image": "portolan" }] }
            }
        }
    });
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = world.api();
    let deployment = serde_json::from_value(deployment).unwrap();
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    // A pod that is shutting down holds it up.
    let pod = json!({
        "metadata": { "name": "portolan-0", "labels": { "app": "portolan" } },
        "spec": { "containers": [{ "name": "portolan", "image": "portolan" }] }
    });
    let pods: Api<k8s_openapi::api::core::v1::Pod> = world.api();
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
    let waiting = world
        .uninstall(&[
            "--scale-down",
            "portolan",
            "--scale-down-timeout",
            "2s",
            "--dry-run=false",
        ])
        .await;
    assert_eq!(waiting.code, Some(1));
    assert!(waiting.stderr.contains("pods are left"), "{}", waiting.stderr);
    pods.delete("portolan-0", &kube::api::DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    let removed = world.uninstall(&["--scale-down", "portolan"]).await;
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    assert!(
        removed.stdout.contains("Deployment portolan scaled to 0"),
        "{}",
        removed.stdout
    );
    let replicas = deployments.get("portolan").await.unwrap().spec.unwrap().replicas;
    assert_eq!(replicas, Some(0));
    world.assert_uninstalled(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_removed_if_the_deployment_to_scale_down_does_not_exist() {
    let world = World::new().await;
    world.installed(1).await;
    let failed = world.uninstall(&["--scale-down", "missing"]).await;
    assert_eq!(
        (failed.code, failed.stdout.as_str()),
        (Some(1), ""),
        "{}",
        failed.stderr
    );
    let expected = format!("the Deployment {}/missing does not exist", world.namespace);
    assert!(failed.stderr.contains(&expected), "{}", failed.stderr);
    let object = world.repositories.get("r0").await.unwrap();
    assert_eq!(finalizers(&object).len(), 2);
    assert_eq!(names::<CronJob>(&world).await.len(), 2);
}

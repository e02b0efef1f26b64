//! Garbage collection in a cluster: by the controller, and by `portolan gc`.

use axum::http::Method;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use portolan::api::jobs::{MANAGED_BY, MANAGER, REPOSITORY, REPOSITORY_NAME, REPOSITORY_NAMESPACE, REPOSITORY_UID};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::rows::Postgres;
use super::{SOON, World, index};
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, FaultProxy};
use crate::support::portolan::{command, run};
use crate::support::postgres::database;

pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub async fn finished(command: std::process::Command) -> Finished {
    let output = run(command).await;
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl World {
    fn gc(&self, database: &str, more: &[&str]) -> std::process::Command {
        let mut command = command([
            "gc",
            "--watch-namespace",
            &self.namespace,
            "--namespace",
            &self.namespace,
        ]);
        command
            .args(["--database-url", database])
            .arg("--kubeconfig")
            .arg(&self.kubeconfig);
        command.args(more);
        command
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates the objects that Jobs of a repository leave.
    pub async fn leave_objects(&self, repository: &str, uid: &str) {
        self.create_objects(repository, MANAGER, uid).await;
    }

    pub async fn create_objects(&self, name: &str, manager: &str, uid: &str) {
        let labels = json!({ MANAGED_BY: manager, REPOSITORY_NAME: name, REPOSITORY_NAMESPACE: self.namespace });
        let annotations = json!({ REPOSITORY: format!("{}/{name}", self.namespace), REPOSITORY_UID: uid });
        let meta = json!({ "name": name, "labels": labels, "annotations": annotations });
        let containers = json!([{ "name": "sync", "image": "portolan" }]);
        let job =
            json!({ "completions": 0, "template": { "spec": { "restartPolicy": "Never", "containers": containers } } });
        create::<CronJob>(
            self,
            json!({ "metadata": meta, "spec": { "schedule": "@daily", "jobTemplate": { "spec": job } } }),
        )
        .await;
        create::<Job>(self, json!({ "metadata": meta, "spec": job })).await;
        create::<Secret>(self, json!({ "metadata": meta })).await;
        self.until_finished(name).await;
    }

    /// Waits until the job controller has finished a Job without completions.
    async fn until_finished(&self, job: &str) {
        let jobs = self.api::<Job>();
        eventually(SOON, "the Job to be finished", async || {
            let status = jobs.get(job).await.unwrap().status.unwrap_or_default();
            let mut conditions = status.conditions.iter().flatten();
            conditions.any(|condition| condition.type_ == "Complete").then_some(())
        })
        .await;
    }
}

async fn create<K>(world: &World, object: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + serde::Serialize
        + Clone
        + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    world.api::<K>().create(&PostParams::default(), &object).await.unwrap();
}

pub async fn names<K>(world: &World) -> Vec<String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + std::fmt::Debug,
{
    let list = world.api::<K>().list(&ListParams::default()).await.unwrap();
    let live = list
        .items
        .iter()
        .filter(|object| object.meta().deletion_timestamp.is_none());
    live.map(ResourceExt::name_any)
        .filter(|name| name != "kube-root-ca.crt")
        .collect()
}

/// Declares repositories, syncs them, and removes the objects behind Portolan's back.
pub async fn orphaned(world: &World, postgres: &Postgres, kept: &[&str], orphans: &[&str]) {
    let mut portolan = world.portolan(postgres.url(), &[]).await;
    for name in kept.iter().chain(orphans) {
        let url = world.serve(name, index(&[("web", &["1.0.0"])]));
        world.declare(name, &url).await;
    }
    for name in kept.iter().chain(orphans) {
        world.until_ready(name).await;
    }
    portolan.signal("TERM");
    portolan.exit(SOON).await;
    for name in orphans {
        world.delete_without_finalizer(name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preview_creates_no_tables() {
    let (world, database) = (World::new().await, database().await);
    let preview = finished(world.gc(&database.url, &["--dry-run"])).await;
    assert_eq!(preview.code, Some(0), "{}", preview.stderr);
    assert_eq!(preview.stdout, "would remove nothing\n");
    let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'";
    let count: i64 = sqlx::query_scalar(tables).fetch_one(&pool).await.unwrap();
    assert_eq!(count, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_removes_rows_and_objects_of_deleted_repositories_and_previews_them() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    orphaned(&world, &postgres, &["kept"], &["gone"]).await;
    let kept = world.repositories.get("kept").await.unwrap().metadata.uid.unwrap();
    world.leave_objects("kept", &kept).await;
    world.leave_objects("gone", "an-old-uid").await;
    world.create_objects("foreign", "Helm", "u").await;

    let preview = finished(world.gc(postgres.url(), &["--dry-run"])).await;
    assert_eq!(preview.code, Some(0), "{}", preview.stderr);
    for line in [
        "would remove 1 repositories",
        "1 CronJobs",
        "1 finished Jobs",
        "1 copies of Secrets",
        "/gone\n",
    ] {
        assert!(preview.stdout.contains(line), "{}, not {line}", preview.stdout);
    }
    assert_eq!(postgres.rows.charts().await.unwrap().len(), 2);
    assert_eq!(names::<CronJob>(&world).await.len(), 3);

    let removed = finished(world.gc(postgres.url(), &[])).await;
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    assert!(
        removed.stdout.starts_with("removed 1 repositories"),
        "{}",
        removed.stdout
    );
    assert_eq!(postgres.rows.charts().await.unwrap(), ["kept/web 1.0.0"]);
    assert_eq!(names::<CronJob>(&world).await, ["foreign", "kept"]);
    assert_eq!(names::<Job>(&world).await, ["foreign", "kept"]);
    assert_eq!(names::<Secret>(&world).await, ["foreign", "kept"]);

    let again = finished(world.gc(postgres.url(), &[])).await;
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (Some(0), "removed nothing\n"),
        "{}",
        again.stderr
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_half_of_the_repositories_are_removed_only_if_confirmed() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let names: Vec<String> = (0..6).map(|at| format!("r{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    orphaned(&world, &postgres, &["kept"], &names).await;
    world.leave_objects("r0", "an-old-uid").await;
    let refused = finished(world.gc(postgres.url(), &[])).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("6 of 7"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--confirm-removals"), "{}", refused.stderr);
    assert_eq!(postgres.rows.charts().await.unwrap().len(), 7);
    assert_eq!(self::names::<CronJob>(&world).await.len(), 1, "objects stay too");
    let removed = finished(world.gc(postgres.url(), &["--confirm-removals"])).await;
    assert_eq!(removed.code, Some(0), "{}", removed.stderr);
    assert_eq!(postgres.rows.charts().await.unwrap(), ["kept/web 1.0.0"]);
    assert!(self::names::<CronJob>(&world).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_removed_after_a_list_that_failed() {
    let control_plane = control_plane().await;
    let (world, postgres) = (World::new().await, Postgres::new().await);
    orphaned(&world, &postgres, &[], &["gone"]).await;
    world.leave_objects("gone", "an-old-uid").await;
    for code in [403, 404, 500] {
        let proxy = FaultProxy::in_front_of(control_plane).await;
        proxy.inject(usize::MAX, ApiFault::Status(code), |request| {
            request.is_of("apprepositories")
        });
        let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), crate::support::control_plane::ADMIN_TOKEN);
        let mut command = world.gc(postgres.url(), &[]);
        command.arg("--kubeconfig").arg(kubeconfig);
        let refused = finished(command).await;
        assert_eq!(refused.code, Some(1), "{code}");
        assert!(refused.stderr.contains("nothing was removed"), "{}", refused.stderr);
    }
    assert_eq!(postgres.rows.charts().await.unwrap().len(), 1);
    assert_eq!(names::<CronJob>(&world).await, ["gone"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_failing_collector_does_not_stop_the_others() {
    let control_plane = control_plane().await;
    let (world, postgres) = (World::new().await, Postgres::new().await);
    orphaned(&world, &postgres, &["kept"], &["gone"]).await;
    world.leave_objects("gone", "an-old-uid").await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    proxy.inject(usize::MAX, ApiFault::Status(500), |request| request.is_of("cronjobs"));
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), crate::support::control_plane::ADMIN_TOKEN);
    let mut command = world.gc(postgres.url(), &[]);
    command.arg("--kubeconfig").arg(kubeconfig);
    let partly = finished(command).await;
    assert_eq!(partly.code, Some(1));
    assert!(
        partly.stderr.contains("failed to collect cronjobs"),
        "{}",
        partly.stderr
    );
    assert_eq!(names::<CronJob>(&world).await, ["gone"]);
    assert!(names::<Job>(&world).await.is_empty() && names::<Secret>(&world).await.is_empty());
    assert_eq!(postgres.rows.charts().await.unwrap(), ["kept/web 1.0.0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_stay_without_the_right_to_delete_them() {
    let control_plane = control_plane().await;
    let (world, postgres) = (World::new().await, Postgres::new().await);
    orphaned(&world, &postgres, &["kept"], &[]).await;
    let spec =
        json!({ "holderIdentity": "old", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" });
    let metadata = json!({ "name": "portolan-7", "labels": { MANAGED_BY: MANAGER } });
    create::<Lease>(&world, json!({ "metadata": metadata, "spec": spec })).await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    proxy.inject(usize::MAX, ApiFault::Status(403), |request| {
        request.method == Method::DELETE && request.path.contains("/leases/")
    });
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), crate::support::control_plane::ADMIN_TOKEN);
    let mut command = world.gc(postgres.url(), &[]);
    command.arg("--kubeconfig").arg(kubeconfig);
    let collected = finished(command).await;
    assert_eq!(collected.code, Some(0), "{}", collected.stderr);
    assert!(proxy.requests().iter().any(|request| request.method == Method::DELETE));
    assert_eq!(names::<Lease>(&world).await, ["portolan-7"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_collects_at_start_and_by_its_interval_with_metrics_and_an_event() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    orphaned(&world, &postgres, &["kept"], &["gone"]).await;
    world.leave_objects("gone", "an-old-uid").await;
    let lease = |name: &str, time: &str| {
        json!({ "metadata": { "name": name, "labels": { MANAGED_BY: MANAGER } },
            "spec": { "holderIdentity": "old", "leaseDurationSeconds": 15, "renewTime": time } })
    };
    create::<Lease>(&world, lease("portolan-7", "2026-01-01T00:00:00.000000Z")).await;
    create::<Lease>(&world, lease("portolan-8", "2199-01-01T00:00:00.000000Z")).await;
    let flags = ["--namespace", &world.namespace, "--gc-interval=1s"];
    let portolan = world.portolan(postgres.url(), &flags).await;
    postgres.rows.until_charts(&["kept/web 1.0.0"]).await;
    eventually(SOON, "the objects to be removed", async || {
        let left = [
            names::<CronJob>(&world).await,
            names::<Job>(&world).await,
            names::<Secret>(&world).await,
        ]
        .concat();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    eventually(SOON, "the expired lease to be removed", async || {
        let leases = names::<Lease>(&world).await;
        if leases == ["portolan-8"] {
            Ok(())
        } else {
            Err(format!("{leases:?}"))
        }
    })
    .await;
    let events: Api<Event> = world.api();
    let note = eventually(SOON, "the event", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut found = events
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("GarbageCollected"));
        found.next().and_then(|event| event.note).ok_or("no event")
    })
    .await;
    assert!(note.contains("1 finished Jobs of deleted repositories"), "{note}");

    // A file that another program left is found by the next collection.
    postgres
        .rows
        .execute(
            "INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
             SELECT chart_id, repo_name, repo_namespace, chart_id || '-0.0.1', '{}' FROM charts",
        )
        .await;
    eventually(SOON, "the file to be removed", async || {
        match postgres
            .rows
            .count("SELECT count(*) FROM files WHERE chart_files_id LIKE '%-0.0.1'")
            .await
        {
            0 => Ok(()),
            left => Err(left.to_string()),
        }
    })
    .await;
    eventually(SOON, "the metrics", async || {
        let metrics = portolan.metrics().await;
        let removed = |kind| {
            metrics
                .sum("portolan_gc_removed_total", &[("kind", kind)])
                .unwrap_or_default()
        };
        let counts = ["repositories", "jobs", "secrets", "leases", "files"].map(removed);
        if counts == [1.0; 5] {
            Ok(())
        } else {
            Err(format!("{counts:?}"))
        }
    })
    .await;
    assert!(
        portolan
            .metrics()
            .await
            .sum("portolan_gc_last_run_timestamp_seconds", &[])
            .unwrap()
            > 0.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_outage_is_counted_and_the_next_collection_succeeds() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &["--gc-interval=1s"]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    let failures = async || {
        portolan
            .metrics()
            .await
            .sum("portolan_gc_failures_total", &[("kind", "history")])
            .unwrap_or_default()
    };
    // Statements of this collector fail, and those of others do not.
    postgres
        .rows
        .execute("ALTER TABLE portolan_syncs RENAME COLUMN id TO hidden")
        .await;
    eventually(SOON, "a failure", async || {
        if failures().await > 0.0 { Ok(()) } else { Err("none") }
    })
    .await;
    postgres
        .rows
        .execute("ALTER TABLE portolan_syncs RENAME COLUMN hidden TO id")
        .await;
    let before = failures().await;
    let last_run = async || {
        portolan
            .metrics()
            .await
            .sum("portolan_gc_last_run_timestamp_seconds", &[])
            .unwrap_or_default()
    };
    let ended = last_run().await + 4.0;
    eventually(SOON, "further collections", async || {
        if last_run().await > ended { Ok(()) } else { Err("none") }
    })
    .await;
    assert!(failures().await <= before + 1.0);
    assert_eq!(postgres.rows.charts().await.unwrap(), ["stable/web 1.0.0"]);
}

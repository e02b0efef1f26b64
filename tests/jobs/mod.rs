//! Repositories that are synced by CronJobs and Jobs: a real API server with its Job controllers, real Postgres, and a
//! kubelet that runs the commands of pods.

mod deleting;
mod executors;
mod faults;
pub mod kubelet;
mod lifecycle;
mod limits;
mod restored;
mod rights;
mod secrets;
mod trust;

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::rows::Postgres;
use crate::cluster::{World, index};
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane, control_plane};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::Portolan;
use crate::support::postgres::PASSWORD;
use kubelet::{Fate, Kubelet};

/// A namespace of repositories, one of Jobs with a kubelet, and a database.
pub struct Site {
    pub world: World,
    pub postgres: Postgres,
    /// The namespace of Jobs.
    pub namespace: String,
    pub kubelet: Kubelet,
}

impl Site {
    pub async fn new() -> Self {
        Self::of(World::new().await, control_plane().await).await
    }

    /// Creates a namespace of Jobs for the repositories of a namespace.
    pub async fn of(world: World, control_plane: &ControlPlane) -> Self {
        let namespace = control_plane.namespace().await;
        Self::in_namespace(world, namespace).await
    }

    /// Uses an existing namespace for the Jobs.
    pub async fn in_namespace(world: World, namespace: String) -> Self {
        let postgres = Postgres::new().await;
        world
            .write_secret(&namespace, "db", json!({ "password": PASSWORD }))
            .await;
        Self {
            kubelet: Kubelet::start(world.client.clone(), &namespace),
            world,
            postgres,
            namespace,
        }
    }

    /// The URL of the database without its password.
    pub fn database_url(&self) -> String {
        self.postgres.url().replace(&format!(":{PASSWORD}@"), "@")
    }

    /// Starts Portolan with Jobs; the schedule never fires.
    pub async fn portolan(&self, more: &[&str]) -> Portolan {
        self.portolan_with(&["--executor=job"], more).await
    }

    pub async fn portolan_with(&self, executor: &[&str], more: &[&str]) -> Portolan {
        let flags = self.flags(&[executor, more].concat());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.world.portolan(&self.database_url(), &flags).await
    }

    /// Starts Portolan with the rights of a kubeconfig.
    pub async fn portolan_as(&self, kubeconfig: &Path, more: &[&str]) -> Portolan {
        let flags = self.flags(more);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.world.portolan_with(kubeconfig, &self.database_url(), &flags).await
    }

    /// Starts Portolan with Jobs behind a proxy of the API server.
    pub async fn portolan_behind_proxy(&self, more: &[&str]) -> (FaultProxy, Portolan) {
        let control_plane = control_plane().await;
        let proxy = FaultProxy::in_front_of(control_plane).await;
        let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
        let flags = [&["--executor=job"], more].concat();
        let portolan = self.portolan_as(&kubeconfig, &flags).await;
        (proxy, portolan)
    }

    pub fn flags(&self, more: &[&str]) -> Vec<String> {
        let namespace = format!("--namespace={}", self.namespace);
        let flags = [
            namespace.as_str(),
            "--controllers=apprepository",
            "--crontab=@yearly",
            "--job-image=portolan:test",
            "--database-secret-name=db",
            "--database-secret-key=password",
        ];
        flags.iter().chain(more).map(|flag| (*flag).to_owned()).collect()
    }

    pub fn cron_jobs(&self) -> Api<CronJob> {
        Api::namespaced(self.world.client.clone(), &self.namespace)
    }

    pub fn job_api(&self) -> Api<Job> {
        Api::namespaced(self.world.client.clone(), &self.namespace)
    }

    /// Returns the Jobs of a repository, oldest first.
    pub async fn jobs(&self, repository: &str) -> Vec<Job> {
        let selector = format!("apprepositories.kubeapps.com/repo-name={repository}");
        let mut jobs = self
            .job_api()
            .list(&ListParams::default().labels(&selector))
            .await
            .unwrap()
            .items;
        jobs.sort_by_key(|job| job.creation_timestamp().map(|time| time.0));
        jobs
    }

    pub async fn pods(&self, repository: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.world.client.clone(), &self.namespace);
        let selector = format!("apprepositories.kubeapps.com/repo-name={repository}");
        pods.list(&ListParams::default().labels(&selector)).await.unwrap().items
    }

    /// Returns the number of copies of Secrets for a repository.
    pub async fn copies(&self, repository: &str) -> usize {
        let secrets: Api<Secret> = Api::namespaced(self.world.client.clone(), &self.namespace);
        let selector = format!("apprepositories.kubeapps.com/repo-name={repository}");
        let found = secrets.list(&ListParams::default().labels(&selector)).await;
        found.unwrap().items.len()
    }

    /// Waits for the CronJob of a repository.
    pub async fn cron_job(&self, repository: &str) -> CronJob {
        eventually(SOON, "the CronJob", async || {
            let selector = format!("apprepositories.kubeapps.com/repo-name={repository}");
            let found = self
                .cron_jobs()
                .list(&ListParams::default().labels(&selector))
                .await
                .unwrap();
            found.items.into_iter().next().ok_or("none")
        })
        .await
    }

    /// Waits until a CronJob matches.
    pub async fn until_cron_job(&self, repository: &str, what: &str, fits: impl Fn(&CronJob) -> bool) -> CronJob {
        eventually(SOON, what, async || {
            let found = self.cron_job(repository).await;
            if fits(&found) {
                Ok(found)
            } else {
                Err(serde_json::to_string(&found).unwrap())
            }
        })
        .await
    }

    /// Waits until there are no CronJobs and no unfinished Jobs of a repository.
    pub async fn until_no_objects(&self, repository: &str) {
        eventually(SOON, "the objects to be deleted", async || {
            let selector = format!("apprepositories.kubeapps.com/repo-name={repository}");
            let cron_jobs = self
                .cron_jobs()
                .list(&ListParams::default().labels(&selector))
                .await
                .unwrap();
            let jobs: Vec<_> = self
                .jobs(repository)
                .await
                .into_iter()
                .filter(|job| !is_finished(job))
                .collect();
            let names: Vec<_> = jobs.iter().map(ResourceExt::name_any).collect();
            if cron_jobs.items.is_empty() && names.is_empty() {
                Ok(())
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await;
    }

    /// Declares a repository with these charts, waits until it is synced, and returns its URL.
    pub async fn synced(&self, repository: &str, charts: &[(&str, &[&str])]) -> String {
        let url = self.world.serve(repository, index(charts));
        self.world.declare(repository, &url).await;
        self.world.until_ready(repository).await;
        url
    }

    /// Declares a repository whose credentials are in the Secret `auth`.
    pub async fn declare_private(&self, repository: &str, charts: &[(&str, &[&str])]) {
        let url = self.world.serve(repository, index(charts));
        let auth = json!({ "header": { "secretKeyRef": { "name": "auth", "key": "authorizationHeader" } } });
        let spec = json!({ "type": "helm", "url": url, "auth": auth });
        self.world.declare_with(repository, json!({ "spec": spec })).await;
    }

    /// Requests a sync whose Job runs while its pod does not start.
    pub async fn hold(&self, repository: &str) {
        self.kubelet.decide(Fate::Hold);
        self.world.resync(repository, "held").await;
        eventually(SOON, "a pod that waits", async || {
            let pods = self.pods(repository).await;
            let phases = pods.iter().filter_map(|pod| pod.status.as_ref()?.phase.as_deref());
            phases.into_iter().any(|phase| phase == "Pending").then_some(())
        })
        .await;
    }

    /// Runs a tick of the schedule, as the CronJob controller does.
    pub async fn tick(&self, repository: &str, name: &str) {
        let cron_job = self.cron_job(repository).await.name_any();
        let from = format!("--from=cronjob/{cron_job}");
        control_plane()
            .await
            .kubectl(&["create", "job", name, &from, "-n", &self.namespace])
            .await;
    }

    pub async fn patch_cron_job(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.cron_jobs()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Waits until this many commands of pods have ended.
    pub async fn until_ended(&self, count: usize) -> Vec<kubelet::Ended> {
        eventually(SOON, &format!("{count} commands of pods to end"), async || {
            let ended = self.kubelet.ended();
            if ended.len() >= count {
                Ok(ended)
            } else {
                Err(format!("{ended:?}"))
            }
        })
        .await
    }
}

pub fn is_finished(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.status == "True")
        .any(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed"))
}

/// Returns true if nothing changes within a short time; for what must not happen.
pub async fn stays(mut holds: impl AsyncFnMut() -> bool) -> bool {
    let until = tokio::time::Instant::now() + Duration::from_secs(3);
    while tokio::time::Instant::now() < until {
        if !holds().await {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    true
}

//! Reports Deployments as rolled out, in place of their controller, and records when it did.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(300);
/// Concurrent requests to the API server.
const CONCURRENCY: usize = 8;

/// Times at which a watch has shown a Deployment.
#[derive(Clone, Copy)]
struct Seen {
    created: Instant,
    healthy: Option<Instant>,
}

/// Times by the name of the Deployment.
type Times = HashMap<String, Seen>;

/// Rolls out all Deployments whose names don't begin with a prefix, and those too once they are [released](Self::release).
pub struct Rollout {
    seen: watch::Receiver<Times>,
    is_released: Arc<AtomicBool>,
    client: Client,
    task: JoinHandle<()>,
}

impl Rollout {
    pub fn start(client: Client, held: &'static str) -> Self {
        let (sender, seen) = watch::channel(Times::new());
        let is_released = Arc::new(AtomicBool::new(false));
        let (all, patching, released) = (Api::all(client.clone()), client.clone(), Arc::clone(&is_released));
        let task = tokio::spawn(async move {
            let events = watcher(all, watcher::Config::default())
                .default_backoff()
                .applied_objects();
            let deployments = events.filter_map(async |deployment| deployment.ok());
            let waiting = deployments.filter_map(async |deployment: Deployment| {
                sender.send_modify(|seen| note(seen, &deployment));
                let is_free = released.load(Ordering::Relaxed) || !deployment.name_any().starts_with(held);
                (is_free && !is_healthy(&deployment)).then_some(deployment)
            });
            waiting
                .for_each_concurrent(CONCURRENCY, |deployment| roll_out(patching.clone(), deployment))
                .await;
        });
        Self {
            seen,
            is_released,
            client,
            task,
        }
    }

    /// Rolls out one Deployment.
    pub async fn roll_out(&self, namespace: &str, name: &str) {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let deployment = deployments.get(name).await;
        roll_out(self.client.clone(), deployment.expect("the Deployment exists")).await;
    }

    /// Rolls out all that is held, and all that follows at once.
    pub async fn release(&self, held: &str) {
        self.is_released.store(true, Ordering::Relaxed);
        let deployments: Api<Deployment> = Api::all(self.client.clone());
        let list = deployments.list(&ListParams::default()).await;
        let list = list.expect("the API server lists Deployments").items.into_iter();
        let waiting = list.filter(|one| one.name_any().starts_with(held) && !is_healthy(one));
        stream::iter(waiting)
            .for_each_concurrent(CONCURRENCY, |one| roll_out(self.client.clone(), one))
            .await;
    }

    /// Waits until as many Deployments have this prefix.
    pub async fn all(&self, prefix: &str, count: usize) {
        let has_all = |seen: &Times| {
            let found = seen.keys().filter(|name| name.starts_with(prefix)).count();
            (found >= count).then_some(())
        };
        self.until(has_all).await;
    }

    /// Waits until a Deployment exists.
    pub async fn created(&self, name: &str) -> Instant {
        self.until(|seen| seen.get(name).map(|seen| seen.created)).await
    }

    /// Waits until a Deployment is healthy.
    pub async fn healthy(&self, name: &str) -> Instant {
        self.until(|seen| seen.get(name)?.healthy).await
    }

    async fn until<T>(&self, found: impl Fn(&Times) -> Option<T>) -> T {
        let mut seen = self.seen.clone();
        let reached = tokio::time::timeout(PATIENCE, seen.wait_for(|seen| found(seen).is_some())).await;
        let reached = reached.unwrap_or_else(|_| panic!("Deployments appear within {PATIENCE:?}"));
        found(&reached.expect("the watch continues")).expect("it was found")
    }
}

impl Drop for Rollout {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn note(seen: &mut Times, deployment: &Deployment) {
    let now = Instant::now();
    let known = seen.entry(deployment.name_any()).or_insert(Seen {
        created: now,
        healthy: None,
    });
    if known.healthy.is_none() && is_healthy(deployment) {
        known.healthy = Some(now);
    }
}

fn is_healthy(deployment: &Deployment) -> bool {
    let status = deployment.status.as_ref();
    status.and_then(|status| status.observed_generation) == deployment.metadata.generation
}

async fn roll_out(client: Client, deployment: Deployment) {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let deployments: Api<Deployment> = Api::namespaced(client, &deployment.namespace().unwrap_or_default());
    let status = json!({ "status": {
        "observedGeneration": deployment.metadata.generation, "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
    } });
    let name = deployment.name_any();
    let patched = deployments
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
        .await;
    patched.expect("the API server accepts a status");
}

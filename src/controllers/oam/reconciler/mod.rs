//! Reconciles Applications.
//!
//! ```text
//!  observe ─► declare ─► follow shard ─► revise ─► apply policies ─► run the workflow ─► assess ─► keep ─► collect ─► status
//! ```
//!
//! A pass derives everything from the objects and from what was recorded in the cluster, so it may end after any step.

mod apply;
mod cluster;
mod collect;
mod conditions;
mod declare;
mod end;
mod env;
mod evaluations;
mod failure;
mod memory;
mod observed;
mod outcome;
mod pass;
mod policies;
mod references;
mod reschedule;
mod revise;
mod rollout;
mod run;
mod values;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Options;
use super::cache::{CachedApplication, Caches, DecodedApplication};
use super::collect::Collector;
use super::compression::CrdCheck;
use super::definitions::DefinitionCaches;
use super::dispatch::fights::Fights;
use super::functions::http::HttpRequests;
use super::functions::logs::StepLogs;
use super::metrics::OamMetrics;
use super::objects::{Autoscalers, Objects};
use super::render::release::{context_version, unknown_version};
use super::rights::AccessReviews;
use crate::api::oam::{Application, labels};
use crate::api::{NamespacedName, Raw};
use crate::budget::{Budgets, leave_runtime};
use crate::cue::Evaluator;
use crate::runtime::controller::{Action, Key, Reconcile, ReconcileError};
use crate::runtime::events::EventPublisher;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::ownership::OwnershipFilter;
use crate::runtime::watch::Cached;
use crate::runtime::workqueue::Priority;
use apply::FightKey;
pub use cluster::{ClusterPasses, Wake};
pub use collect::CONFIRMED;
use end::BACKOFF;
use env::{Env, SMALL_BYTES};
pub use failure::failure_reasons;
pub use memory::Memories;
use observed::Observed;
pub use observed::TRACKER_FINALIZER;

const CACHE_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for memory. Small Applications need the worker.
const MEMORY_WAIT: Duration = Duration::from_secs(2);
const MEMORY_RETRY: Duration = Duration::from_secs(5);

pub struct Reconciler {
    pub client: Client,
    pub budgets: Budgets,
    pub options: Options,
    pub ownership: OwnershipFilter,
    pub caches: Caches,
    pub definitions: DefinitionCaches,
    /// With the rights of the controller.
    pub objects: Objects,
    /// The reviews of other users, before they read from its cache.
    pub reviews: AccessReviews<Client>,
    pub collector: Collector,
    pub evaluator: Evaluator,
    pub events: EventPublisher,
    pub metrics: OamMetrics,
    pub autoscalers: Autoscalers,
    pub cluster_passes: ClusterPasses,
    pub http_requests: HttpRequests,
    pub step_logs: StepLogs,
    pub fights: Mutex<Fights<FightKey>>,
    pub wake: Wake,
    pub stopping: CancellationToken,
    pub memories: Memories,
    /// The version of the cluster, as templates see it.
    pub cluster_version: OnceCell<Value>,
    pub tracker_crd: CrdCheck,
    pub revision_crd: CrdCheck,
}

impl Reconcile for Reconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, _: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async {
            // Without a cache, objects that exist would seem to be missing.
            let synced = async {
                self.caches.wait_until_synced().await;
                self.definitions.wait_until_synced().await;
                self.objects.clusters().wait_until_known().await;
            };
            let waited = timeout(CACHE_WAIT, self.stopping.run_until_cancelled(synced)).await;
            if !matches!(waited, Ok(Some(()))) {
                return Ok(Action::requeue_after(CACHE_WAIT));
            }
            let Some(cached) = self.find_ours(&key.name) else {
                self.memories.forget(&key.name);
                self.cluster_passes.forget(&key.name);
                self.objects.unsubscribe(&key.name);
                return Ok(Action::Done);
            };
            let result = self.pass(&key.name, &cached).await;
            self.memories.reserve_results(&key.name);
            result
        }
        .boxed()
    }
}

impl Reconciler {
    /// Returns an Application that this controller reconciles. An invalid Application has been logged.
    fn find_ours(&self, name: &NamespacedName) -> Option<Arc<CachedApplication>> {
        let cached = self.caches.applications.get(name)?;
        cached.object().filter(|app| self.is_ours(&***app)).cloned()
    }

    /// Runs a pass, once there is memory for what it decodes.
    async fn pass(&self, name: &NamespacedName, cached: &CachedApplication) -> Result<Action, ReconcileError> {
        let trackers = self.caches.trackers_of(name);
        let trackers = trackers.iter().filter_map(Cached::object);
        let trackers: u64 = trackers.map(|tracker| tracker.decoded_bytes()).sum();
        let revisions = self.memories.decoded_bytes(name);
        let bytes = cached.decoded_bytes() + trackers + revisions.all();
        let mut memory = None;
        if bytes > SMALL_BYTES {
            let reserved = self.budgets.memory.reserve(&name.namespace, bytes, MEMORY_WAIT);
            match self.stopping.run_until_cancelled(reserved).await {
                Some(Ok(reserved)) => memory = Some(reserved),
                Some(Err(_)) => {
                    tracing::debug!(application = %name, bytes, "waiting for memory (--memory-budget)");
                    return Ok(Action::requeue_after(MEMORY_RETRY));
                }
                None => return Ok(Action::requeue_after(CACHE_WAIT)),
            }
            leave_runtime().await;
        }
        // It may have changed, or been paused, meanwhile.
        let Some(cached) = self.find_ours(name) else {
            return Ok(Action::requeue_after(Duration::ZERO));
        };
        let app = match self.unpack(name, &cached).await {
            Ok(Some(app)) => app,
            // The cache is behind.
            Ok(None) => return Ok(Action::requeue_after(CACHE_WAIT)),
            Err(error) => return Err(ReconcileError::transient(error.to_string(), BACKOFF)),
        };
        let env = Env::new(self, name, memory, revisions.missing);
        end::run(&env, Observed::of(app)).await
    }

    /// Returns an Application, read again if the cache left it out, or may lack its last status: steps that have ended
    /// would run again.
    async fn unpack(
        &self,
        name: &NamespacedName,
        cached: &CachedApplication,
    ) -> Result<Option<DecodedApplication>, ApiError> {
        let memory = self.memories.of(name);
        let is_status_unknown = memory.lock().is_status_unknown;
        if !is_status_unknown {
            let unpacked = cached
                .unpack()
                .map_err(|error| ApiError::unavailable(error.to_string()))?;
            if unpacked.is_some() {
                return Ok(unpacked);
            }
        }
        let live = self
            .read_application(name)
            .await?
            .filter(|live| self.is_ours(&live.app));
        if let Some(live) = live.as_ref().filter(|_| is_status_unknown) {
            self.caches.assume_application(live);
            memory.lock().is_status_unknown = false;
        }
        Ok(live)
    }

    async fn read_application(&self, name: &NamespacedName) -> Result<Option<DecodedApplication>, ApiError> {
        let api: Api<Raw<Application>> = Api::namespaced(self.client.clone(), &name.namespace);
        let read = call(api.get_opt(&name.name))
            .await?
            .map(DecodedApplication::of)
            .transpose();
        read.map_err(|invalid| ApiError::unavailable(invalid.error))
    }

    fn is_ours(&self, app: &impl ResourceExt) -> bool {
        if app.labels().get(labels::PAUSE).is_some_and(|value| value == "true") {
            return false;
        }
        let required = app.annotations().get(labels::VERSION_REQUIRED);
        let is_of_version = match required {
            Some(version) => *version == self.options.compat_version,
            None => !self.options.versions.are_required_of_applications,
        };
        is_of_version && self.ownership.owns(app.meta())
    }

    /// Returns the version of the cluster for templates, with empty fields if the API server does not tell.
    async fn cluster_version(&self) -> Value {
        let version = self.cluster_version.get_or_try_init(|| async {
            let version = call(self.client.apiserver_version()).await?;
            let version = serde_json::to_value(version).unwrap_or_default();
            Ok::<_, ApiError>(context_version(&version))
        });
        version.await.map_or_else(|_| unknown_version(), Value::clone)
    }
}

/// Returns a random id of a step: ten characters.
fn new_id() -> String {
    const CHARACTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = [0; 10];
    // Ids need not be secret, only distinct in one Application.
    if getrandom::fill(&mut bytes).is_err() {
        return jiff::Timestamp::now().as_nanosecond().to_string();
    }
    let character = |byte: u8| CHARACTERS.get(usize::from(byte) % CHARACTERS.len()).copied();
    bytes.into_iter().filter_map(character).map(char::from).collect()
}

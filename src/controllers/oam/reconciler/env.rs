use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::api::PostParams;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Reconciler;
use super::cluster::ClusterPass;
use super::evaluations::{EffectAnswers, PassEvaluator, RenderAnswers};
use super::failure::{Failure, Stop};
use super::memory::Memory;
use crate::api::NamespacedName;
use crate::budget::{Reservation, WorkError};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::clusters::JoinedCluster;
use crate::controllers::oam::definitions::{LoadError, Loaded, Missing};
use crate::controllers::oam::parse::Lookup;
use crate::controllers::oam::placement;
use crate::controllers::oam::render::release::ReleaseSettings;
use crate::controllers::oam::trackers::is_local;
use crate::controllers::oam::{Options, PASS_COPIES};
use crate::cue::turn::Turn;

/// Memory that a pass takes for decoding without a reservation.
pub(super) const SMALL_BYTES: u64 = 1 << 20;

pub(super) struct Env<'a> {
    pub(super) reconciler: &'a Reconciler,
    pub(super) name: &'a NamespacedName,
    /// The begin of the pass, in whole seconds as the API server stores it.
    pub(super) now: Timestamp,
    pub(super) memory: Arc<Mutex<Memory>>,
    pub(super) turn: Arc<Turn>,
    /// The answers to calls of steps that have not ended.
    pub(super) answers: Mutex<EffectAnswers>,
    pub(super) render_answers: Mutex<RenderAnswers>,
    /// The time from which calls of components and traits wait for the next pass, so that this one has an end.
    pub(super) calls_end: Instant,
    /// The joined clusters at the begin of the pass, or the reason why they are not known.
    joined: Result<Arc<[JoinedCluster]>, String>,
    cluster_pass: Mutex<ClusterPass>,
    loaded: Loaded,
    held: Mutex<Vec<Reservation>>,
    /// The part of the reserved memory that is left for revisions besides the latest.
    spare_bytes: u64,
}

impl<'a> Env<'a> {
    /// `reserved` is the memory of what the pass decodes, with `spare_bytes` for revisions besides the latest.
    pub(super) fn new(
        reconciler: &'a Reconciler,
        name: &'a NamespacedName,
        reserved: Option<Reservation>,
        spare_bytes: u64,
    ) -> Self {
        let now = Timestamp::now();
        let memory = reconciler.memories.of(name);
        let (answers, render_answers) = {
            let mut memory = memory.lock();
            (
                std::mem::take(&mut memory.answers),
                std::mem::take(&mut memory.render_answers),
            )
        };
        Self {
            reconciler,
            name,
            now: Timestamp::from_second(now.as_second()).unwrap_or(now),
            memory,
            turn: Arc::new(reconciler.turn(name)),
            answers: Mutex::new(answers),
            render_answers: Mutex::new(render_answers),
            calls_end: Instant::now() + reconciler.options.pass_timeout / 2,
            joined: reconciler.objects.clusters().list(),
            cluster_pass: Mutex::new(reconciler.cluster_passes.begin(name)),
            loaded: Loaded::default(),
            held: Mutex::new(reserved.into_iter().collect()),
            spare_bytes,
        }
    }

    pub(super) fn options(&self) -> &'a Options {
        &self.reconciler.options
    }

    pub(super) fn evaluator(&self) -> PassEvaluator<'a> {
        PassEvaluator {
            pool: &self.reconciler.evaluator,
            namespace: &self.name.namespace,
            turn: Arc::clone(&self.turn),
        }
    }

    pub(super) fn template_settings(&self) -> ReleaseSettings {
        let options = self.options();
        ReleaseSettings {
            is_strict: options.is_strict,
            has_stages: options.has_stages,
        }
    }

    pub(super) fn placement_settings(&self) -> placement::PlacementSettings<'_> {
        let options = self.options();
        placement::PlacementSettings {
            namespace: &self.name.namespace,
            allow_cross_namespace: options.admission.allow_cross_namespace,
            unanchored_overrides: options.unanchored_overrides,
            clusters: self.joined.as_deref().map_err(String::as_str),
            accepts_any_cluster: false,
        }
    }

    /// Prepares the use of clusters: waits for the first attempts to connect, and has the Application reported when one
    /// is joined or can be reached again. Others may use them up; it is then woken once they do not.
    pub(super) async fn use_clusters<'c>(&self, clusters: impl IntoIterator<Item = &'c str>) -> Result<(), Stop> {
        let joined = clusters.into_iter().filter(|cluster| !is_local(cluster));
        let joined: BTreeSet<String> = joined.map(str::to_owned).collect();
        if joined.is_empty() {
            return Ok(());
        }
        if !self.cluster_pass.lock().try_use(&joined) {
            return Err(Stop::NeedsCluster);
        }
        let objects = &self.reconciler.objects;
        for cluster in &joined {
            objects.expect(self.name, cluster);
        }
        objects.clusters().wait_until_tried(&joined).await;
        Ok(())
    }

    /// Returns the joined clusters that the pass has prepared to use.
    pub(super) fn used_clusters(&self) -> BTreeSet<String> {
        self.cluster_pass.lock().clusters().clone()
    }

    /// Runs futures, at most as many at the same time as objects may be written. Results have the order of the futures.
    pub(super) async fn concurrently<T>(&self, futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
        self.run_limited(futures, None).await
    }

    /// Runs futures, at most `limit` at the same time, and never more than objects may be written.
    pub(super) async fn run_limited<T>(&self, futures: Vec<BoxFuture<'_, T>>, limit: Option<usize>) -> Vec<T> {
        let writes = self.options().max_concurrent_writes;
        let limit = limit.map_or(writes, |limit| limit.min(writes)).max(1);
        stream::iter(futures).buffered(limit).collect().await
    }

    /// Reserves memory for a revision without waiting, unless the pass has reserved it before.
    pub(super) fn memory_for_revision(&self, unpacked_bytes: u64) -> Result<Option<Reservation>, Stop> {
        if unpacked_bytes <= SMALL_BYTES || unpacked_bytes <= self.spare_bytes {
            return Ok(None);
        }
        let memory = &self.reconciler.budgets.memory;
        let memory = memory.try_reserve_more(&self.name.namespace, unpacked_bytes);
        memory.ok_or(Stop::NeedsMemory(unpacked_bytes)).map(Some)
    }

    /// Holds memory until the pass ends.
    pub(super) fn hold(&self, memory: Option<Reservation>) {
        self.held.lock().extend(memory);
    }

    /// Resolves definitions. Loads definitions that are not kept decoded, and calls `resolve` again.
    pub(super) async fn with_definitions<T>(&self, resolve: impl Fn(&dyn Lookup) -> T) -> Result<T, Stop> {
        loop {
            let missing = {
                let lookup = self.reconciler.definitions.lookup(&self.loaded);
                let resolved = resolve(&lookup);
                let missing = lookup.into_missing();
                if missing.is_empty() {
                    return Ok(resolved);
                }
                missing
            };
            for definition in missing {
                self.load_definition(&*definition).await?;
            }
        }
    }

    async fn load_definition(&self, missing: &dyn Missing) -> Result<(), Stop> {
        let budgets = &self.reconciler.budgets;
        let bytes = PASS_COPIES * missing.decoded_bytes();
        let total = PASS_COPIES * self.loaded.bytes() + bytes;
        let memory = if total <= SMALL_BYTES || total <= self.spare_bytes {
            None
        } else {
            let memory = budgets.memory.try_reserve_more(&self.name.namespace, bytes);
            Some(memory.ok_or(Stop::NeedsMemory(total))?)
        };
        let loaded = self.loaded.load(missing, memory, &self.reconciler.client, budgets);
        loaded.await.map_err(|error| match error {
            LoadError::Work(WorkError::Exhausted(_)) => Stop::NeedsMemory(total),
            // The same text would panic again.
            LoadError::Work(WorkError::Panicked) | LoadError::Invalid { .. } | LoadError::Api { .. } => {
                Failure::parse(error.to_string()).into()
            }
        })
    }
}

pub(super) fn post_parameters() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

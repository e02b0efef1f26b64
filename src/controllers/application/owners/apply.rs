//! Leaves no wrong owner reference behind at a crash or race: kinds are recorded in an annotation before the first
//! owner reference of a kind is written, and stay watched until none of their objects is owned.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use tokio::time::Instant;

use super::finalizer::{Adoptions, finalizers, has_finalizer};
use super::plan::{OwnersPlan, PlannedChange};
use crate::api::NamespacedName;
use crate::controllers::FIELD_MANAGER;
use crate::controllers::application::cached::CachedApplication;
use crate::controllers::application::index::{Index, is_component};
use crate::controllers::application::metrics::ApplicationMetrics;
use crate::controllers::application::readiness::Readiness;
use crate::controllers::application::report;
use crate::controllers::application::spec::AppSpec;
use crate::controllers::application::status::Problem;
use crate::runtime::owner_refs::{self as owners, ChangeError, Changed};
use crate::runtime::watch::{GroupKind, Object, WatchManager};

/// Concurrent patches. The Application is read before each batch. Each patch needs a connection of about 50 KB.
pub(super) const CONCURRENCY: usize = 4;
/// Writes per reconcile; the next reconcile continues.
const MAX_WRITES: usize = 64;
/// Time after which no batch begins, so that slow writes do not hold a worker.
pub(super) const MAX_TIME: Duration = Duration::from_secs(10);
/// Refusals after which the kind is skipped: it is likely that the whole kind may not be changed.
const MAX_REFUSALS: usize = 16;
/// Refusals that are reported by name, for each kind.
const MAX_NAMED: usize = 3;
/// Other failures after which the reconcile stops: the API server is likely unhealthy.
const MAX_FAILURES: usize = 8;

pub struct Ownership {
    pub client: Client,
    pub index: Index,
    pub metrics: ApplicationMetrics,
    /// Updated with our own writes before their events arrive.
    pub watches: WatchManager<NamespacedName, Readiness>,
    pub adoptions: Adoptions,
}

#[derive(Debug, Default)]
pub struct ApplyResult {
    /// Set only after progress, so that the next reconcile may follow immediately.
    pub has_more: bool,
    pub refused: Vec<Problem>,
    pub failed: Option<String>,
    /// The Application has changed since it was planned; its event will follow.
    pub is_outdated: bool,
    /// The Application's metadata after the owned kinds were recorded; none if nothing was written.
    pub written: Option<ObjectMeta>,
    /// The time until the finalizer can be removed.
    pub wait: Option<Duration>,
}

impl Ownership {
    pub async fn apply(&self, spec: &Arc<AppSpec>, application: &CachedApplication, plan: &OwnersPlan) -> ApplyResult {
        let mut result = ApplyResult::default();
        let meta = &application.metadata;
        let record = plan.record(spec);
        if !plan.adopts() && has_finalizer(meta) {
            result.wait = self.adoptions.wait(&spec.uid);
        }
        let needs_finalizer = plan.adopts() || result.wait.is_some();
        if !record.iter().eq(&application.spec.recorded_kinds) || needs_finalizer != has_finalizer(meta) {
            let finalizers = finalizers(meta, needs_finalizer);
            match report::write_record(&self.client, &spec.name, meta, &record, &finalizers).await {
                Ok(written) => result.written = Some(written),
                Err(error) if error.is_not_found() || error.is_conflict() => {
                    result.is_outdated = true;
                    return result;
                }
                Err(error) => {
                    result.failed = Some(format!("failed to record owned kinds: {error}"));
                    return result;
                }
            }
        }
        let spec = &self.remember(spec, record);
        self.change(spec, &plan.changes, &mut result).await;
        if plan.adopts() {
            self.adoptions.record(&spec.uid);
        }
        result
    }

    /// Watches the recorded kinds. The annotation may lack some: `kubectl replace` removes it.
    fn remember(&self, spec: &Arc<AppSpec>, record: BTreeSet<GroupKind>) -> Arc<AppSpec> {
        if record.iter().eq(&spec.recorded_kinds) {
            return Arc::clone(spec);
        }
        let recorded = Arc::new(AppSpec {
            recorded_kinds: record.into_iter().collect(),
            ..AppSpec::clone(spec)
        });
        if self.index.replace(spec, &recorded) {
            let kinds = recorded.watched_kinds().cloned().collect();
            self.watches
                .subscribe(recorded.name.clone(), &recorded.name.namespace, kinds);
        }
        recorded
    }

    /// Writes in batches. A failing object does not block the others unless many fail.
    async fn change(&self, spec: &Arc<AppSpec>, changes: &[PlannedChange], result: &mut ApplyResult) {
        let mut counts = WriteCounts::default();
        let mut changes = changes.iter();
        let start = Instant::now();
        while start.elapsed() < MAX_TIME && counts.writes < MAX_WRITES && counts.failures < MAX_FAILURES {
            let batch: Vec<_> = changes
                .by_ref()
                .filter(|planned| counts.should_try(planned))
                .take(CONCURRENCY)
                .collect();
            if batch.is_empty() {
                return;
            }
            if batch.iter().any(|planned| planned.is_set()) {
                match self.is_unchanged(spec).await {
                    Ok(true) => {}
                    Ok(false) => return result.is_outdated = true,
                    Err(message) => return result.failed = Some(message),
                }
            }
            let work = batch.into_iter().map(|planned| async move {
                let confirm = |meta| self.confirms(spec, planned, meta);
                let (target, change) = (&planned.target, &planned.change);
                let outcome = owners::change(&self.client, FIELD_MANAGER, target, change, confirm).await;
                (planned, outcome)
            });
            let outcomes = join_all(work).await;
            for (planned, outcome) in outcomes {
                self.count(planned, outcome, &mut counts, result);
            }
        }
        let is_incomplete = changes.any(|planned| counts.should_try(planned));
        result.has_more = is_incomplete && counts.writes > 0;
    }

    fn count(
        &self,
        planned: &PlannedChange,
        outcome: Result<Changed, ChangeError>,
        counts: &mut WriteCounts,
        result: &mut ApplyResult,
    ) {
        let kind = planned.target.resource.name();
        let action = if planned.is_set() {
            "set owner reference on"
        } else {
            "remove owner reference from"
        };
        match outcome {
            Ok(Changed::Written(meta)) => {
                self.metrics.count_owner_change();
                counts.writes += 1;
                self.watches.assume(&planned.kind, meta);
            }
            Ok(Changed::Unchanged(meta)) => self.watches.assume(&planned.kind, meta),
            Ok(Changed::Gone) => {}
            Err(ChangeError::Refused(message)) => {
                let refusals = counts.refusals.entry(kind).or_default();
                *refusals += 1;
                if *refusals <= MAX_NAMED {
                    let text = format!(
                        "failed to {action} {}/{}: {message}",
                        planned.kind.kind, planned.target.name
                    );
                    result.refused.push(Problem::minor(text));
                }
            }
            Err(ChangeError::Contended) => {
                counts.failures += 1;
                let message = format!(
                    "failed to {action} {}/{}: it keeps changing",
                    planned.kind.kind, planned.target.name
                );
                result.refused.push(Problem::minor(message.clone()));
                result.failed = Some(message);
            }
            Err(ChangeError::Transient(message)) => {
                counts.failures += 1;
                result.failed = Some(format!("failed to {action} {kind} {}: {message}", planned.target.name));
            }
        }
    }

    /// Returns true if a change is still desired for an object that has changed since it was planned.
    async fn confirms(
        &self,
        spec: &Arc<AppSpec>,
        planned: &PlannedChange,
        meta: ObjectMeta,
    ) -> Result<bool, ChangeError> {
        if !planned.is_set() {
            return Ok(true);
        }
        let is_selected = is_component(spec, &planned.kind, &Object::new(meta, ()));
        Ok(is_selected && self.is_unchanged(spec).await.map_err(ChangeError::Transient)?)
    }

    /// Returns true if the Application still has the planned spec and our finalizer. The store may be stale, and the
    /// garbage collector deletes whatever a deleted Application has just adopted; Kubernetes' own controllers read
    /// again for the same reason.
    async fn is_unchanged(&self, spec: &Arc<AppSpec>) -> Result<bool, String> {
        let is_current = self.index.get(&spec.name).is_some_and(|now| {
            (&now.uid, now.generation, &now.kinds, now.add_owner_ref)
                == (&spec.uid, spec.generation, &spec.kinds, spec.add_owner_ref)
        });
        if !is_current {
            return Ok(false);
        }
        let live = report::read(&self.client, &spec.name)
            .await
            .map_err(|error| format!("failed to read Application before adoption: {error}"))?;
        Ok(live.is_some_and(|live| {
            live.uid.as_deref() == Some(spec.uid.as_str())
                && live.deletion_timestamp.is_none()
                && live.generation == spec.generation
                && has_finalizer(&live)
        }))
    }
}

#[derive(Default)]
struct WriteCounts {
    writes: usize,
    failures: usize,
    refusals: HashMap<String, usize>,
}

impl WriteCounts {
    fn should_try(&self, planned: &PlannedChange) -> bool {
        let refusals = self.refusals.get(&planned.target.resource.name());
        refusals.is_none_or(|count| *count < MAX_REFUSALS)
    }
}

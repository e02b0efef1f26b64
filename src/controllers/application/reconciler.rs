//! Reconciles Applications. All state is derived from the objects and the status, so a crash between any two steps is
//! safe.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::cached::{CachedApplication, StatusSnapshot};
use super::index::{Index, ObservedDeletion};
use super::kinds::{self, ComponentKinds, application_kind};
use super::metrics::ApplicationMetrics;
use super::owners::apply::Ownership;
use super::owners::finalizer::{Released, release, remove_finalizer};
use super::owners::plan::plan;
use super::readiness::Readiness;
use super::report;
use super::selector::LabelSelection;
use super::spec::AppSpec;
use super::status::{Assessment, Problem, READY, assess};
use crate::api::{Application, ApplicationCondition, NamespacedName};
use crate::budget::leave_runtime;
use crate::runtime::controller::{Action, Key, Reconcile, ReconcileError};
use crate::runtime::events::{Event, EventPublisher};
use crate::runtime::watch::{Cached, GroupKind, KindState, Store, WatchManager};
use crate::runtime::workqueue::{Backoff, Priority};

const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(5 * 60),
};
/// The backoff of status updates. A failed update leaves an old status on display.
const STATUS_BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(60),
};
/// Minimum time between status writes of one Application: a flapping component must not cause a write for each change.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(500);

/// Constant, as the event may arrive at any moment or look like our own write.
const STALE_RETRY: Duration = Duration::from_millis(500);
/// Pause until an API group is looked for again.
const GROUP_RETRY: Duration = Duration::from_secs(5);
/// So many comparisons with requirements of selectors, and the work on as many objects, take less than a millisecond.
const FEW_COMPARISONS: usize = 1_000;

pub struct ApplicationReconciler {
    pub store: Store<Cached<CachedApplication>>,
    pub index: Index,
    pub kinds: ComponentKinds,
    pub watches: WatchManager<NamespacedName, Readiness>,
    pub events: EventPublisher,
    pub ownership: Ownership,
    pub throttle: WriteThrottle,
    pub metrics: ApplicationMetrics,
    /// Namespaces in which the last write was denied.
    pub denied: Mutex<HashSet<String>>,
    /// Retry period for refused requests: no event reports a change of permissions.
    pub sync_period: Duration,
    pub stopping: CancellationToken,
}

#[derive(Debug, Default)]
pub struct WriteThrottle(Mutex<HashMap<NamespacedName, Instant>>);

impl WriteThrottle {
    /// Returns the time until the next write is allowed; none if it is allowed now.
    fn wait(&self, name: &NamespacedName) -> Option<Duration> {
        let age = self.0.lock().get(name)?.elapsed();
        MIN_WRITE_INTERVAL.checked_sub(age).filter(|wait| !wait.is_zero())
    }

    fn record(&self, name: &NamespacedName) {
        let mut writes = self.0.lock();
        writes.retain(|_, at| at.elapsed() < MIN_WRITE_INTERVAL);
        writes.insert(name.clone(), Instant::now());
    }
}

enum StatusUpdate {
    Done,
    Throttled(Duration),
    /// The store is stale; the event will follow.
    Conflict,
}

impl Reconcile for ApplicationReconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, _priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move { self.reconcile_application(&key.name).await }.boxed()
    }
}

impl ApplicationReconciler {
    async fn reconcile_application(&self, name: &NamespacedName) -> Result<Action, ReconcileError> {
        if self.stopping.is_cancelled() {
            return Ok(Action::Done);
        }
        let cached = self.store.get(name);
        let application = cached.as_ref().and_then(Cached::object);
        // Deleted, being deleted, or undecodable: all are left unchanged but for our finalizer.
        let Some(spec) = self.index.get(name) else {
            self.metrics.forget(name);
            return match (application, self.index.deletion(name)) {
                (Some(application), Some(deletion)) => self.end_deletion(application, &deletion).await,
                _ => Ok(Action::Done),
            };
        };
        let Some(application) = application else {
            return Ok(Action::Done);
        };
        let components = self.kind_states(&spec, spec.component_kinds().iter());
        if components.iter().any(|(_, state)| matches!(state, KindState::Pending)) {
            self.metrics.observe_reconcile("waiting");
            return Ok(Action::Done);
        }
        self.apply(name, application, &spec, components).await
    }

    /// Lets a deletion end. Called after the writes of an earlier reconcile, as a key has one at a time.
    async fn end_deletion(
        &self,
        application: &CachedApplication,
        deletion: &ObservedDeletion,
    ) -> Result<Action, ReconcileError> {
        if deletion.must_release {
            match release(&self.ownership.client, application).await {
                Ok(Released::Complete) => {
                    let note = "components are kept: they were to be orphaned, or the beginning of the deletion was not observed";
                    self.publish_release(application, Event::normal("Released", note)).await;
                }
                Ok(Released::Incomplete) => return Ok(Action::requeue_after(Duration::ZERO)),
                Ok(Released::GroupMissing) => return Ok(Action::requeue_after(GROUP_RETRY)),
                Err(error) => {
                    let message = format!("failed to release components before the deletion: {error}");
                    self.publish_release(application, Event::warning("ReleaseFailed", &message))
                        .await;
                    return Err(ReconcileError::transient(message, BACKOFF));
                }
            }
        }
        match remove_finalizer(&self.ownership.client, application).await {
            Ok(()) => Ok(Action::Done),
            Err(error) if error.is_conflict() => Ok(Action::requeue_after(STALE_RETRY)),
            Err(error) => {
                let message = format!("failed to remove finalizer: {error}");
                self.publish_release(application, Event::warning("ReleaseFailed", &message))
                    .await;
                Err(ReconcileError::transient(message, BACKOFF))
            }
        }
    }

    async fn publish_release(&self, application: &CachedApplication, event: Event) {
        let publishing = self
            .events
            .publish::<Application>(&application.metadata, "Release", event);
        publishing.await;
    }

    async fn apply(
        &self,
        name: &NamespacedName,
        application: &CachedApplication,
        spec: &Arc<AppSpec>,
        components: Vec<(GroupKind, KindState<Readiness>)>,
    ) -> Result<Action, ReconcileError> {
        let others = (spec.recorded_kinds.iter()).filter(|kind| !spec.component_kinds().contains(kind));
        let others = self.kind_states(spec, others);
        if comparisons(spec, components.iter().chain(&others)) > FEW_COMPARISONS {
            leave_runtime().await;
        }
        let mut assessment = assess(spec, &components, &self.index);
        assessment.problems.extend(unreleased(&others));
        let kinds: Vec<_> = components.into_iter().chain(others).collect();
        let plan = plan(spec, &kinds, &self.index, &self.kinds);
        let applied = self.ownership.apply(spec, application, &plan).await;
        assessment.problems.extend(plan.problems);
        let has_refusals = !applied.refused.is_empty();
        assessment.problems.extend(applied.refused);
        if applied.is_outdated {
            return Ok(Action::requeue_after(STALE_RETRY));
        }
        let written = applied.written.map(|meta| application.with_written(meta));
        let application = written.as_ref().unwrap_or(application);
        let wait = match self.update_status(name, application, &assessment).await? {
            StatusUpdate::Done => None,
            StatusUpdate::Throttled(wait) => Some(wait),
            StatusUpdate::Conflict => return Ok(Action::requeue_after(STALE_RETRY)),
        };
        let again = [wait, applied.wait, has_refusals.then_some(self.sync_period)];
        match applied.failed {
            Some(message) => Err(ReconcileError::transient(message, BACKOFF)),
            None if applied.has_more => Ok(Action::requeue_after(Duration::ZERO)),
            None => {
                let again = again.into_iter().flatten().min();
                Ok(again.map_or(Action::Done, Action::requeue_after))
            }
        }
    }

    fn kind_states<'a>(
        &self,
        spec: &AppSpec,
        kinds: impl Iterator<Item = &'a GroupKind>,
    ) -> Vec<(GroupKind, KindState<Readiness>)> {
        let state = |kind: &GroupKind| (kind.clone(), self.watches.state(kind, &spec.name.namespace));
        kinds.map(state).collect()
    }

    /// Logs a right that is missing in a namespace, once until a write succeeds there.
    fn report_missing_right(&self, namespace: &str, message: &str) -> ReconcileError {
        if self.denied.lock().insert(namespace.to_owned()) {
            tracing::warn!(
                error = message,
                "write denied, retrying; grant the right to Portolan's service account"
            );
        }
        ReconcileError::Terminal {
            message: message.to_owned(),
            retry_after: Some(self.sync_period.min(STATUS_BACKOFF.cap)),
        }
    }

    /// Writes the status if it has changed, and an event if the readiness has.
    async fn update_status(
        &self,
        name: &NamespacedName,
        application: &CachedApplication,
        assessment: &Assessment,
    ) -> Result<StatusUpdate, ReconcileError> {
        let before = application.status.as_ref();
        let conditions = before.map_or(&[][..], |before| &*before.conditions);
        let now = Timestamp::now();
        // The API server stores whole seconds.
        let now = now.round(Unit::Second).unwrap_or(now);
        let status = assessment.status(application.metadata.generation, application.size, conditions, now);
        let snapshot = StatusSnapshot::of(&status);
        let ready = readiness(&snapshot.conditions).unwrap_or_default().to_owned();
        self.metrics.observe_readiness(name, &ready);
        if before == Some(&snapshot) {
            self.metrics.observe_reconcile("unchanged");
            return Ok(StatusUpdate::Done);
        }
        if let Some(wait) = self.throttle.wait(name) {
            self.metrics.observe_reconcile("waiting");
            return Ok(StatusUpdate::Throttled(wait));
        }
        let (client, meta) = (&self.ownership.client, &application.metadata);
        let written = report::write_status(client, meta, &status).await;
        let version = match written {
            Ok(version) => version,
            // Its deletion event will follow.
            Err(error) if error.is_not_found() => return Ok(StatusUpdate::Done),
            Err(error) => {
                self.metrics.observe_reconcile("error");
                if error.is_conflict() {
                    tracing::debug!(%error, "status update conflicted, retrying");
                    return Ok(StatusUpdate::Conflict);
                }
                let message = format!("failed to update status: {error}");
                return Err(if error.is_forbidden() {
                    self.report_missing_right(&name.namespace, &message)
                } else {
                    ReconcileError::transient(message, STATUS_BACKOFF)
                });
            }
        };
        self.denied.lock().remove(&name.namespace);
        self.metrics.observe_reconcile("written");
        let event = report::readiness_event(readiness(conditions), &snapshot.conditions);
        self.throttle.record(name);
        let written = CachedApplication {
            metadata: ObjectMeta {
                resource_version: version,
                ..meta.clone()
            },
            spec: Arc::clone(&application.spec),
            status: Some(snapshot),
            size: application.size,
        };
        self.store.assume(Cached::Object(Arc::new(written)));
        if let Some(event) = event {
            self.events.publish::<Application>(meta, "Aggregate", event).await;
        }
        Ok(StatusUpdate::Done)
    }
}

/// Estimates the work on the objects of these kinds. An Application is compared with the selectors of all others too.
fn comparisons<'a>(spec: &AppSpec, kinds: impl Iterator<Item = &'a (GroupKind, KindState<Readiness>)>) -> usize {
    let requirements = spec.selection.as_ref().map_or(1, LabelSelection::requirements);
    let of_kind = |(kind, state): &(GroupKind, KindState<Readiness>)| match state {
        KindState::Objects(view) if *kind == application_kind() => {
            view.objects.len() * (requirements + view.objects.len())
        }
        KindState::Objects(view) => view.objects.len() * requirements,
        _ => 0,
    };
    kinds.map(of_kind).sum()
}

/// Returns a problem for each kind that may still be owned but is no longer watched.
fn unreleased(others: &[(GroupKind, KindState<Readiness>)]) -> impl Iterator<Item = Problem> {
    let excluded = others.iter().filter(|(_, state)| matches!(state, KindState::Excluded));
    excluded.map(|(kind, _)| {
        Problem::minor(format!(
            "{kind} objects may still be owned: to release them, {}",
            kinds::to_watch(kind)
        ))
    })
}

fn readiness(conditions: &[ApplicationCondition]) -> Option<&str> {
    let ready = conditions.iter().find(|condition| condition.type_ == READY)?;
    Some(&ready.status)
}

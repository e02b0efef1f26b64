//! The reconcile of an Application: look, assess, own, tell.
//!
//! ```text
//!  kinds not listed yet ──► nothing: it is told when they are
//!  else ──► assess ──► adopt, let go ──► status, if it says anything new ──► event, if readiness changed
//! ```
//! Each step may be the last before the process dies: all is derived anew from the objects and the status by the next reconcile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio_util::sync::CancellationToken;

use super::cached::{CachedApplication, StatusSnapshot};
use super::index::Index;
use super::metrics::{Ended, Metrics};
use super::owner_apply::Ownership;
use super::owner_plan as adopt;
use super::readiness::Readiness;
use super::report;
use super::spec::AppSpec;
use super::status::{Assessment, READY, assess};
use crate::api::NamespacedName;
use crate::api::{Application, ApplicationCondition};
use crate::runtime::controller::{Action, Key, Reconcile, ReconcileError};
use crate::runtime::events::EventPublisher;
use crate::runtime::informer::Store;
use crate::runtime::watch::{GroupKind, KindState, WatchManager};
use crate::runtime::workqueue::{Backoff, Priority};

/// How soon, and how late, what the API server has failed to do is tried again.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(5 * 60),
};
/// A status is written no sooner than this after the last: a component that flaps must not make a write of each of its changes.
const APART: Duration = Duration::from_millis(500);

/// How soon to look again where the store is behind. It does not grow: what was awaited may come at any moment, and may look like
/// our own write.
const OUTDATED: Duration = Duration::from_millis(500);

/// What reconciles work with.
pub struct Reconciler {
    /// The Applications.
    pub store: Store<CachedApplication>,
    /// The same, by what they select.
    pub index: Index,
    /// The watches of components.
    pub watches: WatchManager<NamespacedName, Readiness>,
    /// The publisher of events.
    pub events: EventPublisher,
    /// What changes owners.
    pub ownership: Ownership,
    /// When statuses were written last.
    pub throttle: WriteThrottle,
    /// The figures.
    pub metrics: Metrics,
    /// How often what was refused is tried again: nothing tells of rights that were given.
    pub sync_period: Duration,
    /// Cancelled when the process is to end: what is still queued is then left for the next start.
    pub stopping: CancellationToken,
}

/// Keeps the writes of an Application's status [`APART`].
#[derive(Debug, Default)]
pub struct WriteThrottle(Mutex<HashMap<NamespacedName, Instant>>);

impl WriteThrottle {
    /// The time until the status may be written; none if it may be now.
    fn wait(&self, name: &NamespacedName) -> Option<Duration> {
        let age = self.lock().get(name)?.elapsed();
        APART.checked_sub(age).filter(|wait| !wait.is_zero())
    }

    fn note(&self, name: &NamespacedName) {
        let mut writes = self.lock();
        writes.retain(|_, at| at.elapsed() < APART);
        writes.insert(name.clone(), Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NamespacedName, Instant>> {
        // The map is whole between any two statements, so a panic elsewhere leaves nothing to mend.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has come of telling.
enum Told {
    /// There is nothing more to tell.
    All,
    /// It was told only just before: the rest is to be told after this time.
    Later(Duration),
    /// What is known is not what is there: its event is on its way.
    Conflict,
}

impl Reconcile for Reconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, _priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move { self.look_at(&key.name).await }.boxed()
    }
}

impl Reconciler {
    async fn look_at(&self, name: &NamespacedName) -> Result<Action, ReconcileError> {
        if self.stopping.is_cancelled() {
            return Ok(Action::Done);
        }
        // What is not here is gone, being deleted, or can't be read: all of these are left alone.
        let Some(declared) = self.index.get(name) else {
            self.forget(name);
            return Ok(Action::Done);
        };
        let Some(seen) = self.store.get(name) else {
            return Ok(Action::Done);
        };
        let Some(application) = seen.object() else {
            return Ok(Action::Done);
        };
        let components = self.look(&declared, declared.components().iter());
        if components.iter().any(|(_, look)| matches!(look, KindState::Pending)) {
            self.metrics.ended(Ended::Waiting);
            return Ok(Action::Done);
        }
        self.bring(name, application, &declared, components).await
    }

    async fn bring(
        &self,
        name: &NamespacedName,
        application: &CachedApplication,
        declared: &Arc<AppSpec>,
        components: Vec<(GroupKind, KindState<Readiness>)>,
    ) -> Result<Action, ReconcileError> {
        let mut assessment = assess(declared, &components);
        let others = declared
            .recorded
            .iter()
            .filter(|kind| !declared.components().contains(kind));
        let kinds: Vec<_> = components.into_iter().chain(self.look(declared, others)).collect();
        let plan = adopt::plan(declared, &kinds, &self.index);
        let owned = self.ownership.bring(declared, &plan).await;
        assessment.problems.extend(plan.problems);
        let has_refusals = !owned.refused.is_empty();
        assessment.problems.extend(owned.refused);
        if owned.is_outdated {
            return Ok(Action::requeue_after(OUTDATED));
        }
        let wait = match self.tell(name, application, owned.version, &assessment).await? {
            Told::All => None,
            Told::Later(wait) => Some(wait),
            Told::Conflict => return Ok(Action::requeue_after(OUTDATED)),
        };
        let again = [wait, has_refusals.then_some(self.sync_period)];
        match owned.failed {
            Some(message) => Err(transient(message)),
            None if owned.is_more => Ok(Action::requeue_after(Duration::ZERO)),
            None => Ok(again
                .into_iter()
                .flatten()
                .min()
                .map_or(Action::Done, Action::requeue_after)),
        }
    }

    fn look<'a>(
        &self,
        declared: &AppSpec,
        kinds: impl Iterator<Item = &'a GroupKind>,
    ) -> Vec<(GroupKind, KindState<Readiness>)> {
        let look = |kind: &GroupKind| (kind.clone(), self.watches.look(kind, &declared.name.namespace));
        kinds.map(look).collect()
    }

    /// Takes away what is remembered of an Application that is gone. It is done here, after what was under way for it.
    fn forget(&self, name: &NamespacedName) {
        self.metrics.forget(name);
    }

    /// Writes the status, if it says anything that it did not say before, and an event if that is readiness.
    async fn tell(
        &self,
        name: &NamespacedName,
        application: &CachedApplication,
        version: Option<String>,
        assessment: &Assessment,
    ) -> Result<Told, ReconcileError> {
        let before = application.said.as_ref();
        let conditions = before.map_or(&[][..], |before| &*before.conditions);
        let now = Timestamp::now();
        // As the API server stores it.
        let now = now.round(Unit::Second).unwrap_or(now);
        let status = assessment.status(application.metadata.generation, conditions, now);
        let said = StatusSnapshot::of(&status);
        let ready = readiness(&said.conditions).unwrap_or_default().to_owned();
        self.metrics.observe(name, &ready);
        if before == Some(&said) {
            self.metrics.ended(Ended::Unchanged);
            return Ok(Told::All);
        }
        if let Some(wait) = self.throttle.wait(name) {
            self.metrics.ended(Ended::Waiting);
            return Ok(Told::Later(wait));
        }
        let (client, manager) = (&self.ownership.client, self.ownership.manager);
        let version = version.or_else(|| application.metadata.resource_version.clone());
        let written = report::write_status(client, manager, &application.metadata, version.as_deref(), &status).await;
        let version = match written {
            Ok(version) => version,
            // The event of its end is on its way.
            Err(error) if error.is_not_found() => return Ok(Told::All),
            Err(error) => {
                self.metrics.ended(Ended::Error);
                if error.is_conflict() {
                    tracing::debug!(application = %name, %error, "the status is written again");
                    return Ok(Told::Conflict);
                }
                return Err(transient(format!("can't write the status: {error}")));
            }
        };
        self.metrics.ended(Ended::Written);
        let news = report::news(readiness(conditions), &said.conditions);
        self.throttle.note(name);
        let written = CachedApplication {
            metadata: ObjectMeta {
                resource_version: version,
                ..application.metadata.clone()
            },
            declared: Arc::clone(&application.declared),
            said: Some(said),
        };
        self.store.assume(name, written);
        if let Some(news) = news {
            self.events
                .publish::<Application>(&application.metadata, "Aggregate", news)
                .await;
        }
        Ok(Told::All)
    }
}

/// What the condition Ready says.
fn readiness(conditions: &[ApplicationCondition]) -> Option<&str> {
    let ready = conditions.iter().find(|condition| condition.type_ == READY)?;
    Some(&ready.status)
}

fn transient(message: String) -> ReconcileError {
    ReconcileError::Transient {
        message,
        backoff: BACKOFF,
        at_least: Duration::ZERO,
        at_most: Duration::MAX,
    }
}

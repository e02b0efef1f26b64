//! The reconcile of an Application: look, assess, own, tell.
//!
//! ```text
//!  kinds not listed yet ──► nothing: it is told when they are
//!  what was left behind ──► let go, while the status still names it
//!  adopt, let go ─────────► assess ──► status, if it says anything new ──► event, if readiness changed
//! ```
//! Each step may be the last before the process dies: all is derived anew from the objects and the status by the next reconcile.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use jiff::{Timestamp, Unit};
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::adopt;
use super::assess::{Assessment, Problem, READY, assess};
use super::declared::Declared;
use super::index::Index;
use super::judge::Judgement;
use super::memory::Memory;
use super::metrics::{Ended, Metrics};
use super::report::{self, WriteError};
use crate::api::{Application, ApplicationStatus};
use crate::controller::{Failure, Key, Outcome, Reconcile};
use crate::informer::{ObjectName, Store};
use crate::objects::owners::{self, Change, ChangeError, Target};
use crate::objects::{GroupKind, Look, Watches};
use crate::queue::{Backoff, Priority};

/// Owners that are changed at once, and in one reconcile; the next goes on at once.
const AT_ONCE: usize = 8;
const AT_MOST: usize = 64;
/// After so many refusals the other objects of a kind are not tried any more: it is the kind that may not be changed.
const REFUSALS: usize = 16;
/// After so many other failures nothing is: it is the API server that is not well.
const FAILURES: usize = 8;
/// How long it may take to ask the API server for its kinds.
const ASKED: Duration = Duration::from_secs(1);
/// How soon, and how late, what the API server has failed to do is tried again.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(5 * 60),
};

/// What reconciles work with.
pub struct Reconciler {
    /// The Applications.
    pub store: Store<Application>,
    /// The same, by what they select.
    pub index: Index,
    /// The watches of components.
    pub watches: Watches<ObjectName, Judgement>,
    /// The API server.
    pub client: Client,
    /// The name under which we write.
    pub manager: &'static str,
    /// What was written last.
    pub memory: Memory,
    /// The figures.
    pub metrics: Metrics,
    /// How often what was refused is tried again: nothing tells of rights that were given.
    pub sync_period: Duration,
    /// Cancelled when the process is to end: what is still queued is then left for the next start.
    pub stopping: CancellationToken,
}

/// What came of changing owners.
#[derive(Default)]
struct Owned {
    /// Whether there is more to change.
    is_more: bool,
    /// What the API server refuses.
    refused: Vec<Problem>,
    /// What failed in a way that may pass.
    failed: Option<String>,
}

impl Reconcile for Reconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, _priority: Priority) -> BoxFuture<'a, Result<Outcome, Failure>> {
        let name = ObjectName {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        };
        async move { self.look_at(&name).await }.boxed()
    }
}

impl Reconciler {
    async fn look_at(&self, name: &ObjectName) -> Result<Outcome, Failure> {
        if self.stopping.is_cancelled() {
            return Ok(Outcome::Done);
        }
        // What is not here is gone, being deleted, or can't be read: all of these are left alone.
        let Some(declared) = self.index.get(name) else {
            return Ok(Outcome::Done);
        };
        let Some(seen) = self.store.get(name) else {
            return Ok(Outcome::Done);
        };
        let Some(application) = seen.object() else {
            return Ok(Outcome::Done);
        };
        let kinds = self.look(&declared);
        if kinds.iter().any(|(_, look)| matches!(look, Look::Pending)) {
            self.metrics.ended(Ended::Waiting);
            return Ok(Outcome::Done);
        }
        let before = self.memory.status_of(name, application);
        let Some(left) = self.let_go_of_what_is_left(&declared, before.as_ref()).await? else {
            self.metrics.ended(Ended::Waiting);
            return Ok(Outcome::RequeueAfter(ASKED));
        };
        let plan = adopt::plan(&declared, &kinds, &self.index);
        let owned = self.change_owners(plan.changes).await;
        let mut assessment = assess(&declared, &kinds);
        assessment.problems.extend(plan.problems);
        let has_refusals = !left.is_empty() || !owned.refused.is_empty();
        assessment.problems.extend(left.into_iter().chain(owned.refused));
        self.tell(name, application, before.as_ref(), &assessment).await?;
        match owned.failed {
            Some(message) => Err(transient(message)),
            None if owned.is_more => Ok(Outcome::RequeueAfter(Duration::ZERO)),
            None if has_refusals => Ok(Outcome::RequeueAfter(self.sync_period)),
            None => Ok(Outcome::Done),
        }
    }

    fn look(&self, declared: &Declared) -> Vec<(GroupKind, Look<Judgement>)> {
        if !declared.selects_anything() {
            return Vec::new();
        }
        let look = |kind: &GroupKind| (kind.clone(), self.watches.look(kind, &declared.name.namespace));
        declared.kinds.iter().map(look).collect()
    }

    /// Lets go of the components of kinds that are not looked at any more. That has to be done before the status is written, which
    /// is all that remembers them; so nothing is returned where it is not known yet how they are asked for.
    async fn let_go_of_what_is_left(
        &self,
        declared: &Declared,
        before: Option<&ApplicationStatus>,
    ) -> Result<Option<Vec<Problem>>, Failure> {
        let components = before.map_or(&[][..], |status| &status.components);
        let is_unknown = Cell::new(false);
        let mut changes = adopt::left_behind(declared, components, |kind| {
            self.watches.resource(kind).unwrap_or_else(|| {
                is_unknown.set(true);
                None
            })
        });
        if is_unknown.into_inner() {
            return Ok(None);
        }
        let mut refused = Vec::new();
        while !changes.is_empty() {
            let some = changes.split_off(changes.len().saturating_sub(AT_MOST));
            let owned = self.change_owners(some).await;
            if let Some(message) = owned.failed {
                return Err(transient(message));
            }
            refused.extend(owned.refused);
        }
        refused.dedup();
        Ok(Some(refused))
    }

    /// Changes owners, but not all at once. One object that can't be changed is in no other's way, unless they are many.
    async fn change_owners(&self, changes: Vec<(Target, Change)>) -> Owned {
        let mut owned = Owned::default();
        let (mut refusals, mut failures) = (HashMap::<String, usize>::new(), 0);
        let mut changes = changes.into_iter();
        let mut left = AT_MOST;
        while left > 0 && failures < FAILURES {
            let is_tried = |(target, _): &(Target, Change)| is_below_limit(&refusals, target);
            let some: Vec<_> = changes.by_ref().filter(is_tried).take(AT_ONCE.min(left)).collect();
            if some.is_empty() {
                return owned;
            }
            left -= some.len();
            let work = stream::iter(some).map(async |(target, change)| {
                let result = owners::change(&self.client, self.manager, &target, &change).await;
                (target, change, result)
            });
            let results: Vec<_> = work.buffer_unordered(AT_ONCE).collect().await;
            for (target, change, result) in results {
                let verb = match change {
                    Change::Set(_) => "adopt",
                    Change::Remove(_) => "let go of",
                };
                let kind = target.resource.name();
                match result {
                    Ok(was_written) => self.metrics.owner_changed(was_written),
                    Err(ChangeError::Refused(message)) => {
                        let refusals = refusals.entry(kind).or_default();
                        *refusals += 1;
                        if *refusals == 1 {
                            let text = format!("can't {verb} {}/{}: {message}", target.resource.api.kind, target.name);
                            owned.refused.push(Problem::aside(text));
                        }
                    }
                    Err(ChangeError::Passing(message)) => {
                        failures += 1;
                        owned.failed = Some(format!("can't {verb} {kind} {}: {message}", target.name));
                    }
                }
            }
        }
        owned.is_more = changes.any(|(target, _)| is_below_limit(&refusals, &target));
        owned
    }

    /// Writes the status, if it says anything that it did not say before, and an event if that is readiness.
    async fn tell(
        &self,
        name: &ObjectName,
        application: &Application,
        before: Option<&ApplicationStatus>,
        assessment: &Assessment,
    ) -> Result<(), Failure> {
        let now = Timestamp::now();
        // As the API server stores it.
        let now = now.round(Unit::Second).unwrap_or(now);
        let status = assessment.status(application.metadata.generation, before, now);
        let ready = readiness(Some(&status)).unwrap_or_default().to_owned();
        self.metrics.observe(name, &ready);
        if before == Some(&status) {
            self.metrics.ended(Ended::Unchanged);
            return Ok(());
        }
        match report::write_status(&self.client, self.manager, &application.metadata, &status).await {
            Ok(()) => {}
            // The event of its end is on its way.
            Err(WriteError::Gone) => return Ok(()),
            Err(WriteError::Conflict(message)) => {
                self.metrics.ended(Ended::Error);
                return Err(Failure::Transient {
                    message,
                    backoff: Backoff::CONFLICT,
                    at_least: Duration::ZERO,
                    at_most: Duration::MAX,
                });
            }
            Err(WriteError::Failed(message)) => {
                self.metrics.ended(Ended::Error);
                return Err(transient(message));
            }
        }
        self.metrics.ended(Ended::Written);
        let was_ready = readiness(before).map(str::to_owned);
        let news = report::news(was_ready.as_deref(), &status);
        self.memory.note(name.clone(), application, status);
        if let Some(news) = news {
            report::publish(&self.client, self.manager, &application.metadata, news).await;
        }
        Ok(())
    }
}

/// Whether objects of the target's kind are still tried after so many refusals of each kind.
fn is_below_limit(refusals: &HashMap<String, usize>, target: &Target) -> bool {
    refusals
        .get(&target.resource.name())
        .is_none_or(|count| *count < REFUSALS)
}

/// What the condition Ready says.
fn readiness(status: Option<&ApplicationStatus>) -> Option<&str> {
    let conditions = &status?.conditions;
    let ready = conditions.iter().find(|condition| condition.type_ == READY)?;
    Some(&ready.status)
}

fn transient(message: String) -> Failure {
    Failure::Transient {
        message,
        backoff: BACKOFF,
        at_least: Duration::ZERO,
        at_most: Duration::MAX,
    }
}

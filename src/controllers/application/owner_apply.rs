//! Having the API server own what the plan says, so that no crash and no race leaves an owner behind that should not be one.
//!
//! ```text
//!  plan ──► record, on the Application: kinds of which it owns something ──► patches, a few at a time, each time only if the
//!                                                                           Application is still as it was planned for
//! ```
//! The record is an annotation, and is written before the first owner of a kind. Its kinds are watched whether the Application
//! still names them or not, until nothing of them is owned any more: so what is to be let go is found after any crash.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::join_all;
use kube::Client;

use super::index::Index;
use super::metrics::Metrics;
use super::owner_plan::{Plan, Planned};
use super::readiness::Readiness;
use super::report;
use super::spec::AppSpec;
use super::status::Problem;
use crate::api::NamespacedName;
use crate::runtime::owner_refs::{self as owners, ChangeError, Changed};
use crate::runtime::watch::WatchManager;

/// Owners that are changed at once. Before each such lot the Application is read again, so none of it may wait for another. Each
/// takes a connection of its own, of some 50 KB.
const AT_ONCE: usize = 4;
/// Owners that are written in one reconcile; the next goes on at once.
const WRITES: usize = 64;
/// After so many refusals the other objects of a kind are not tried any more: it is the kind that may not be changed.
const REFUSALS: usize = 16;
/// After so many other failures nothing is: it is the API server that is not well.
const FAILURES: usize = 8;

/// What changes owners.
pub struct Ownership {
    /// The API server.
    pub client: Client,
    /// The name under which we write.
    pub manager: &'static str,
    /// The Applications, to see whether one is declared otherwise by now.
    pub index: Index,
    /// The figures.
    pub metrics: Metrics,
    /// The watches of components, which are to show our own writes at once.
    pub watches: WatchManager<NamespacedName, Readiness>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Owned {
    /// Whether there is more to change, and this has brought it nearer.
    pub is_more: bool,
    /// What the API server refuses.
    pub refused: Vec<Problem>,
    /// What failed in a way that may pass.
    pub failed: Option<String>,
    /// The Application is not what was planned for any more: its event is on its way.
    pub is_outdated: bool,
    /// The version of the Application after its record was written, if it was.
    pub version: Option<String>,
}

impl Ownership {
    /// Brings the owners nearer to the plan.
    pub(super) async fn bring(&self, declared: &Arc<AppSpec>, plan: &Plan) -> Owned {
        let mut owned = Owned::default();
        let record = plan.record(declared);
        if !record.iter().eq(&declared.recorded) {
            match report::write_record(&self.client, self.manager, declared, &record).await {
                Ok(version) => owned.version = version,
                Err(error) if error.is_not_found() || error.is_conflict() => {
                    owned.is_outdated = true;
                    return owned;
                }
                Err(error) => {
                    owned.failed = Some(format!("can't note what is owned: {error}"));
                    return owned;
                }
            }
        }
        self.change(declared, &plan.changes, &mut owned).await;
        owned
    }

    /// Changes owners, but not all at once. One object that can't be changed is in no other's way, unless they are many.
    async fn change(&self, declared: &Arc<AppSpec>, changes: &[Planned], owned: &mut Owned) {
        let mut tally = Tally::default();
        let mut changes = changes.iter();
        while tally.writes < WRITES && tally.failures < FAILURES {
            let lot: Vec<_> = changes
                .by_ref()
                .filter(|planned| tally.is_tried(planned))
                .take(AT_ONCE)
                .collect();
            if lot.is_empty() {
                return;
            }
            if lot.iter().any(|planned| planned.is_set()) {
                match self.is_still_declared(declared).await {
                    Ok(true) => {}
                    Ok(false) => {
                        owned.is_outdated = true;
                        return;
                    }
                    Err(message) => {
                        owned.failed = Some(message);
                        return;
                    }
                }
            }
            let work = lot.into_iter().map(|planned| async move {
                let result = owners::change(&self.client, self.manager, &planned.target, &planned.change).await;
                (planned, result)
            });
            let results = join_all(work).await;
            for (planned, result) in results {
                self.count(planned, result, &mut tally, owned);
            }
        }
        let is_left = changes.any(|planned| tally.is_tried(planned));
        owned.is_more = is_left && tally.writes > 0;
    }

    fn count(&self, planned: &Planned, result: Result<Changed, ChangeError>, tally: &mut Tally, owned: &mut Owned) {
        let kind = planned.target.resource.name();
        let verb = if planned.is_set() { "adopt" } else { "let go of" };
        match result {
            Ok(Changed::Written(meta)) => {
                self.metrics.owner_changed();
                tally.writes += 1;
                self.watches.assume(&planned.kind, meta);
            }
            Ok(Changed::Unchanged(meta)) => self.watches.assume(&planned.kind, meta),
            Ok(Changed::Gone) => {}
            Err(ChangeError::Refused(message)) => {
                let refusals = tally.refusals.entry(kind).or_default();
                *refusals += 1;
                if *refusals == 1 {
                    let text = format!("can't {verb} {}/{}: {message}", planned.kind.kind, planned.target.name);
                    owned.refused.push(Problem::aside(text));
                }
            }
            Err(ChangeError::Passing(message)) => {
                tally.failures += 1;
                owned.failed = Some(format!("can't {verb} {kind} {}: {message}", planned.target.name));
            }
        }
    }

    /// Whether the Application is still what was planned for. The store may be behind, and an owner that is about to go takes with
    /// it what it has adopted in its last moments: Kubernetes' own controllers look again for the same reason.
    async fn is_still_declared(&self, declared: &Arc<AppSpec>) -> Result<bool, String> {
        let is_current = self.index.get(&declared.name).is_some_and(|now| {
            (&now.uid, now.generation, &now.kinds, now.adopts)
                == (&declared.uid, declared.generation, &declared.kinds, declared.adopts)
        });
        if !is_current {
            return Ok(false);
        }
        let live = report::read(&self.client, &declared.name).await;
        let live = live.map_err(|error| format!("can't read the Application again: {error}"))?;
        Ok(live.is_some_and(|live| {
            live.uid.as_deref() == Some(declared.uid.as_str())
                && live.deletion_timestamp.is_none()
                && live.generation == declared.generation
        }))
    }
}

/// What has come of the changes so far.
#[derive(Default)]
struct Tally {
    writes: usize,
    failures: usize,
    refusals: HashMap<String, usize>,
}

impl Tally {
    /// Whether it is still worth trying.
    fn is_tried(&self, planned: &Planned) -> bool {
        self.refusals
            .get(&planned.target.resource.name())
            .is_none_or(|count| *count < REFUSALS)
    }
}

//! Plans a reconcile: pure functions of the spec, the stored rows, the Jobs and the time.
//!
//! ```text
//!  rows ─► adopt ─► own rows ─┬─► plan_jobs ─► Await, Run ─► JobRunner
//!                             │       └─► End, then:
//!                             └─► plan ─► HandOver, Wait, Sync ─► after_sync, after_abort
//! ```

mod adoption;
mod outcome;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;

pub use adoption::{Replaced, Rows, adopt};
pub use outcome::{AbortPlan, after_abort, after_sync, changed_charts, has_used_secrets, metric_label};

use super::decision::{SyncDecision, SyncMode, decide, due_look, fresh_since, is_poll_due, is_slow, until_next};
use super::jobs::{DueSync, Execution, LaterSync};
use super::spec::RepositorySpec;
use super::sync::request::SyncRequest;
use super::{NAME, SLOW};
use crate::catalog::Record;
use crate::runtime::controller::Action;
use crate::runtime::workqueue::Priority;

#[derive(Clone, Copy)]
pub struct ObservedRepository<'a> {
    pub spec: &'a RepositorySpec,
    pub rows: &'a Rows,
    /// The time of creation; `None` for a manifest.
    pub created: Option<Timestamp>,
    /// The class of the worker; `None` for a sync that is due whatever the schedule says.
    pub class: Option<&'static str>,
    /// A sync is requested by something else than the object, such as a changed Secret.
    pub force_sync: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobsPlan {
    /// Waits for the list of Jobs, without which another executor may be at work.
    Await { is_overdue: bool },
    /// Ends the Jobs that an earlier executor left, before this process syncs.
    End,
    /// Brings the CronJob and Jobs to the declared state, with a Job of the sync that is due.
    Run(Option<DueSync>),
}

#[derive(Debug)]
pub enum SyncPlan {
    /// Leaves the repository to the workers of another class. No other class syncs it, so that it has one worker.
    HandOver(&'static str),
    /// Nothing is due before this time; without one, before the next event.
    Wait(Option<Timestamp>),
    Sync(Box<SyncRequest>),
}

#[must_use]
pub fn plan_jobs(observed: ObservedRepository<'_>, execution: Execution, now: Timestamp) -> JobsPlan {
    match execution {
        Execution::Unknown { is_overdue } => JobsPlan::Await { is_overdue },
        Execution::InProcess => JobsPlan::End,
        Execution::Jobs => JobsPlan::Run(due_job(observed, now)),
    }
}

/// Returns the sync that needs a Job of its own. A CronJob runs the scheduled syncs, and retries.
fn due_job(observed: ObservedRepository<'_>, now: Timestamp) -> Option<DueSync> {
    let (spec, rows, is_forced) = (observed.spec, observed.rows, observed.force_sync);
    let record = rows.record.as_ref();
    let later = record.filter(|record| is_of_later_generation(record, spec));
    let is_needed = is_forced || later.is_some();
    let is_polled = record.is_some_and(|record| is_poll_due(spec, record, now));
    let (is_due, is_poll) = match decide(spec, record, now) {
        SyncDecision::Suspended => (false, false),
        SyncDecision::Wait => (is_needed, false),
        SyncDecision::Sync(SyncMode::Conditional) => (is_needed || is_polled, !is_needed),
        SyncDecision::Sync(SyncMode::Complete) => (true, false),
    };
    is_due.then(|| DueSync {
        is_forced,
        is_poll,
        look: record.and_then(|record| due_look(record, now)),
        replaces_uid: rows.uid.clone().filter(|stored| *stored != spec.uid),
        later: later.map(|record| LaterSync {
            revision: record.revision,
        }),
    })
}

fn is_of_later_generation(record: &Record, spec: &RepositorySpec) -> bool {
    record.uid == spec.uid && spec.generation.is_some_and(|generation| record.generation > generation)
}

/// Plans the work of this process on a repository without Jobs.
#[must_use]
pub fn plan(observed: ObservedRepository<'_>, now: Timestamp) -> SyncPlan {
    let (spec, record) = (observed.spec, observed.rows.record.as_ref());
    let is_slow = record.is_some_and(|record| is_slow(&spec.url, record));
    let class = if is_slow { SLOW } else { NAME };
    if observed.class.is_some_and(|current| current != class) {
        return SyncPlan::HandOver(class);
    }
    let is_forced = observed.class.is_none() || observed.force_sync;
    let mode = match decide(spec, record, now) {
        SyncDecision::Suspended => return SyncPlan::Wait(None),
        SyncDecision::Wait if !is_forced => return SyncPlan::Wait(Some(now + until_next(spec, record, now))),
        SyncDecision::Wait => SyncMode::Conditional,
        SyncDecision::Sync(mode) => mode,
    };
    SyncPlan::Sync(Box::new(SyncRequest {
        fresh_since: fresh_since(spec, record, observed.created, mode, now),
        spec: spec.clone(),
        previous: record.cloned(),
        expected_uid: observed.rows.uid.clone(),
        mode,
        started: now,
    }))
}

/// Requeues for the schedule at low priority, even if a user's change caused this reconcile.
#[must_use]
pub fn scheduled(delay: Duration) -> Action {
    Action::RequeueAfter {
        delay,
        priority: Some(Priority::LOW),
    }
}

use std::time::Duration;

use jiff::Timestamp;

use super::RepositoryReconciler;
use super::report::write_status;
use crate::api::AppRepository;
use crate::catalog::Record;
use crate::controllers::apprepository::jobs::{Blocked, Declared, JobRunner};
use crate::controllers::apprepository::plan::{JobsPlan, ObservedRepository, plan_jobs, scheduled};
use crate::controllers::apprepository::status::SyncPhase;
use crate::runtime::controller::{Action, ReconcileError};

/// Interval between checks while Jobs end, or the caches are incomplete. The watch usually reports it earlier.
const POLL: Duration = Duration::from_secs(2);

/// Reconciles the Jobs of a repository. Returns `None` if this process syncs it, once no Job of it is left.
pub(super) async fn act_on_jobs(
    reconciler: &RepositoryReconciler,
    runner: &JobRunner,
    object: &AppRepository,
    observed: ObservedRepository<'_>,
) -> Result<Option<Action>, ReconcileError> {
    let (spec, record) = (observed.spec, observed.rows.record.as_ref());
    let declared = Declared { object, spec };
    let blocked = match plan_jobs(observed, runner.execution(object), Timestamp::now()) {
        JobsPlan::Await { is_overdue: false } => return Ok(Some(Action::requeue_after(POLL))),
        JobsPlan::Await { is_overdue: true } => Blocked::unlisted(&runner.jobs.settings.namespace),
        JobsPlan::End => match runner.jobs.end(&spec.name).await {
            Ok(true) => return Ok(None),
            Ok(false) => return Ok(Some(Action::requeue_after(POLL))),
            // Two executors would sync the repository.
            Err(error) => error.into(),
        },
        JobsPlan::Run(due) => match runner.bring_to(declared, due.as_ref()).await {
            Ok(()) => return report_jobs(reconciler, runner, declared, record).await.map(Some),
            Err(blocked) => blocked,
        },
    };
    Err(report_blocked(reconciler, runner, declared, record, blocked).await)
}

async fn report_jobs(
    reconciler: &RepositoryReconciler,
    runner: &JobRunner,
    declared: Declared<'_>,
    record: Option<&Record>,
) -> Result<Action, ReconcileError> {
    let report = runner.report(declared.spec, record);
    let state = report.unrecorded.as_ref();
    runner
        .publish_result(declared, state.or(record.map(|record| &record.state)))
        .await;
    write_status(reconciler, declared, record, state, SyncPhase::Idle).await?;
    Ok(scheduled(report.recheck))
}

/// Reports a problem that keeps the repository from running as Jobs, and returns the error of the reconcile.
async fn report_blocked(
    reconciler: &RepositoryReconciler,
    runner: &JobRunner,
    declared: Declared<'_>,
    record: Option<&Record>,
    blocked: Blocked,
) -> ReconcileError {
    runner.publish_result(declared, Some(&blocked.state)).await;
    let written = write_status(reconciler, declared, record, Some(&blocked.state), SyncPhase::Idle).await;
    written.err().unwrap_or_else(|| blocked.into_error())
}

//! The end of a pass: its status, its events, and the time of the next one.

use std::time::Duration;

use futures::future::join_all;
use kube::ResourceExt;
use tokio::time::{Instant, timeout};

use super::env::Env;
use super::failure::{Failure, FailureKind, Stop};
use super::observed::Observed;
use super::observed::requests::{RECONCILE_INTERVAL, requested_interval};
use super::outcome::Outcome;
use super::outcome::status::{self, Built};
use super::pass::{PassEnd, stages};
use crate::api::oam::{Application, ApplicationStatus, Condition, WorkflowStatus};
use crate::runtime::controller::{Action, ReconcileError};
use crate::runtime::events::Event;
use crate::runtime::jitter::jitter;
use crate::runtime::kube_client::ApiError;
use crate::runtime::workqueue::{Backoff, Priority};
use crate::text::{MAX_TEXT, truncate};

pub(super) const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_mins(5),
};
/// Delay after a conflict: the cache will have the newer version.
const STALE_RETRY: Duration = Duration::from_millis(100);
/// Delay of a pass while others use a joined cluster. Their end wakes the Application earlier; frequent retries would take
/// the turns of those that wait longer.
const CLUSTER_RETRY: Duration = Duration::from_secs(5);

/// Runs and measures the pass.
pub(super) async fn run(env: &Env<'_>, mut observed: Observed) -> Result<Action, ReconcileError> {
    let mut outcome = Outcome::of(observed.app.status.as_ref().unwrap_or(&ApplicationStatus::default()));
    let (start, begin) = (Instant::now(), phase(&observed).to_owned());
    let result = run_stages(env, &mut observed, &mut outcome).await;
    let metrics = &env.reconciler.metrics;
    metrics.observe_pass(&begin, phase(&observed), start.elapsed());
    result
}

/// Returns the phase as last read or written.
fn phase(observed: &Observed) -> &str {
    let status = observed.app.status.as_ref();
    status.map_or("", |status| status.phase.as_str())
}

/// Runs the stages, within the time limit of a pass, and writes what they found.
async fn run_stages(env: &Env<'_>, observed: &mut Observed, outcome: &mut Outcome) -> Result<Action, ReconcileError> {
    let limit = env.options().pass_timeout;
    let result = timeout(limit, stages(env, observed, outcome)).await;
    // Also after a timeout: the next pass gets further.
    env.keep_render_answers();
    let has_timed_out = result.is_err();
    let result = result.unwrap_or_else(|_| {
        let message = format!("reconcile exceeded {limit:?}");
        Err(Failure::new(FailureKind::Timeout, message).into())
    });
    let label = result.as_ref().err().map_or("success", Stop::label);
    env.reconciler.metrics.count_pass(label);
    env.memory.lock().missing_bytes = match &result {
        Err(Stop::NeedsMemory(bytes)) => *bytes,
        _ => 0,
    };
    let (now, generation) = (env.now, observed.app.metadata.generation);
    let (built, failure) = match result {
        Ok(PassEnd::Gone) => return Ok(Action::Done),
        Err(Stop::Stale | Stop::NeedsMemory(_)) => {
            save_steps(env, observed, outcome).await;
            return Ok(Action::requeue_after(STALE_RETRY));
        }
        Err(Stop::NeedsCluster) => {
            save_steps(env, observed, outcome).await;
            // A step that has called must not call again each time.
            env.keep_evaluations();
            return Ok(Action::requeue_after(jitter(CLUSTER_RETRY, 0.5..1.5)));
        }
        Ok(PassEnd::Waiting) => (status::build(outcome, now), None),
        // The results of steps are recorded: steps that have ended must not run again.
        Err(Stop::NeedsEvaluator) => {
            outcome.next = Some(env.keep_evaluations());
            (status::build_deferred(outcome, now), None)
        }
        Err(Stop::Unsupported(unsupported)) => {
            outcome.next = None;
            let before = observed.app.status.clone().unwrap_or_default();
            (status::build_refused(&before, generation, &unsupported, now), None)
        }
        Err(Stop::Failed(failure)) => {
            outcome.warn_of(&failure);
            let built = status::build_failed(outcome, &failure, generation, now);
            (built, Some(failure))
        }
    };
    match write(env, observed, &built.status, has_timed_out).await {
        Ok(()) => {}
        Err(error) if error.is_conflict() => return Ok(Action::requeue_after(STALE_RETRY)),
        Err(error) if error.is_not_found() => return Ok(Action::Done),
        Err(error) => {
            let message = format!("failed to update status: {error}");
            return Err(ReconcileError::transient(message, BACKOFF));
        }
    }
    let resync = resync_period(env, observed, outcome);
    publish(env, observed, outcome, built).await;
    schedule_next(outcome, failure, resync)
}

fn schedule_next(outcome: &Outcome, failure: Option<Failure>, resync: Duration) -> Result<Action, ReconcileError> {
    match failure {
        None => {
            // Passes of Applications that started together are spread.
            let resync = jitter(resync, 0.9..1.1);
            Ok(Action::RequeueAfter {
                delay: outcome.next.map_or(resync, |next| next.min(resync)),
                priority: Some(Priority::LOW),
            })
        }
        Some(Failure {
            message,
            retry_after: None,
            ..
        }) => Err(ReconcileError::transient(message, BACKOFF)),
        Some(Failure {
            message, retry_after, ..
        }) => Err(ReconcileError::Terminal { message, retry_after }),
    }
}

/// Writes the status, within a grace period if the pass has exceeded its time.
async fn write(
    env: &Env<'_>,
    observed: &mut Observed,
    status: &ApplicationStatus,
    has_timed_out: bool,
) -> Result<(), ApiError> {
    let grace_period = env.options().grace_period;
    let write = observed.write_status(env, status);
    if !has_timed_out {
        return write.await;
    }
    let written = timeout(grace_period, write).await;
    written.unwrap_or_else(|_| Err(ApiError::unavailable(format!("no response within {grace_period:?}"))))
}

/// Stores what steps have done in a pass that writes no other status: steps that have ended must not run again. If
/// this write fails, they do.
async fn save_steps(env: &Env<'_>, observed: &mut Observed, outcome: &mut Outcome) {
    let steps = |workflow: Option<&WorkflowStatus>| workflow.map(|workflow| workflow.steps.clone()).unwrap_or_default();
    if steps(outcome.workflow.as_ref()) == steps(outcome.before.workflow.as_ref()) {
        return;
    }
    let built = status::build(outcome, env.now);
    match observed.write_status(env, &built.status).await {
        Ok(()) => publish(env, observed, outcome, built).await,
        Err(error) => {
            tracing::debug!(application = %env.name, %error, "failed to record what steps have done");
        }
    }
}

/// Returns the longest time between two passes, by the Application or else by the process.
fn resync_period(env: &Env<'_>, observed: &Observed, outcome: &mut Outcome) -> Duration {
    let default = env.options().resync_period;
    let (interval, notice) = match requested_interval(observed.app.annotations()) {
        None => (default, String::new()),
        Some(Ok(interval)) => (interval, String::new()),
        Some(Err(text)) => {
            let text = truncate(text, MAX_TEXT);
            let notice = format!("annotation {RECONCILE_INTERVAL} is not a duration such as 30s: {text:?}");
            (default, notice)
        }
    };
    outcome.notices.insert("InvalidInterval", notice);
    interval
}

/// Publishes what is new. Warnings that were published before are repeated after a while, or after a success.
async fn publish(env: &Env<'_>, observed: &Observed, outcome: &mut Outcome, built: Built) {
    let Built { status, mut events } = built;
    {
        let mut memory = env.memory.lock();
        for (reason, note) in std::mem::take(&mut outcome.warnings) {
            if memory.admit_warning(reason, &note) {
                events.push(Event::warning(reason, note));
            }
        }
        let are_true = |conditions: &[Condition]| conditions.iter().all(|condition| condition.status == "True");
        // A single success may be one of many that alternate with failures.
        let has_succeeded = are_true(&status.conditions) && are_true(&outcome.before.conditions);
        if outcome.is_complete && has_succeeded {
            memory.forget_warnings();
        }
        // A pass that ended early has no notices.
        for (reason, note) in std::mem::take(&mut outcome.notices) {
            if memory.admit_notice(reason, &note) {
                events.push(Event::warning(reason, note));
            }
        }
    }
    let metadata = &observed.app.metadata;
    let publisher = &env.reconciler.events;
    let published = events
        .into_iter()
        .map(|event| publisher.publish::<Application>(metadata, "Reconcile", event));
    join_all(published).await;
}

//! The end of a pass: its status, its events, and the time of the next one.

use std::time::Duration;

use futures::future::join_all;
use kube::ResourceExt;
use tokio::time::{Instant, timeout};

use super::failure::{Failure, FailureKind, Stop};
use super::observed::requests::{RECONCILE_INTERVAL, requested_interval};
use super::outcome::status::{self, Built};
use super::pass::{Pass, PassEnd};
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

impl Pass<'_> {
    /// Runs and measures the pass.
    pub(super) async fn run(mut self) -> Result<Action, ReconcileError> {
        let (start, begin) = (Instant::now(), self.phase().to_owned());
        let result = self.run_stages().await;
        let metrics = &self.env.reconciler.metrics;
        metrics.observe_pass(&begin, self.phase(), start.elapsed());
        result
    }

    /// Returns the phase as last read or written.
    fn phase(&self) -> &str {
        let status = self.observed.app.status.as_ref();
        status.map_or("", |status| status.phase.as_str())
    }

    /// Runs the stages, within the time limit of a pass, and writes what they found.
    async fn run_stages(&mut self) -> Result<Action, ReconcileError> {
        let limit = self.env.options().pass_timeout;
        let stages = timeout(limit, self.stages()).await;
        // Also after a timeout: the next pass gets further.
        self.env.keep_render_answers();
        let has_timed_out = stages.is_err();
        let result = stages.unwrap_or_else(|_| {
            let message = format!("reconcile exceeded {limit:?}");
            Err(Failure::new(FailureKind::Timeout, message).into())
        });
        let label = result.as_ref().err().map_or("success", Stop::label);
        self.env.reconciler.metrics.count_pass(label);
        self.env.memory.lock().missing_bytes = match &result {
            Err(Stop::NeedsMemory(bytes)) => *bytes,
            _ => 0,
        };
        let (now, generation) = (self.env.now, self.observed.app.metadata.generation);
        let (built, failure) = match result {
            Ok(PassEnd::Gone) => return Ok(Action::Done),
            Err(Stop::Stale | Stop::NeedsMemory(_)) => {
                self.save_steps().await;
                return Ok(Action::requeue_after(STALE_RETRY));
            }
            Err(Stop::NeedsCluster) => {
                self.save_steps().await;
                // A step that has called must not call again each time.
                self.env.keep_evaluations();
                return Ok(Action::requeue_after(jitter(CLUSTER_RETRY, 0.5..1.5)));
            }
            Ok(PassEnd::Waiting) => (status::build(&self.outcome, now), None),
            // What steps have done is recorded: steps that have ended must not run again.
            Err(Stop::NeedsEvaluator) => {
                self.outcome.next = Some(self.env.keep_evaluations());
                (status::build_deferred(&self.outcome, now), None)
            }
            Err(Stop::Unsupported(unsupported)) => {
                self.outcome.next = None;
                let before = self.observed.app.status.clone().unwrap_or_default();
                (status::build_refused(&before, generation, &unsupported, now), None)
            }
            Err(Stop::Failed(failure)) => {
                self.outcome.warn_of(&failure);
                let built = status::build_failed(&self.outcome, &failure, generation, now);
                (built, Some(failure))
            }
        };
        match self.write(&built.status, has_timed_out).await {
            Ok(()) => {}
            Err(error) if error.is_conflict() => return Ok(Action::requeue_after(STALE_RETRY)),
            Err(error) if error.is_not_found() => return Ok(Action::Done),
            Err(error) => {
                let message = format!("failed to update status: {error}");
                return Err(ReconcileError::transient(message, BACKOFF));
            }
        }
        let resync = self.resync_period();
        self.publish(built).await;
        self.schedule_next(failure, resync)
    }

    fn schedule_next(&self, failure: Option<Failure>, resync: Duration) -> Result<Action, ReconcileError> {
        match failure {
            None => {
                // Passes of Applications that started together are spread.
                let resync = jitter(resync, 0.9..1.1);
                Ok(Action::RequeueAfter {
                    delay: self.outcome.next.map_or(resync, |next| next.min(resync)),
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
    async fn write(&mut self, status: &ApplicationStatus, has_timed_out: bool) -> Result<(), ApiError> {
        let grace_period = self.env.options().grace_period;
        let write = self.observed.write_status(self.env, status);
        if !has_timed_out {
            return write.await;
        }
        let written = timeout(grace_period, write).await;
        written.unwrap_or_else(|_| Err(ApiError::unavailable(format!("no response within {grace_period:?}"))))
    }

    /// Stores what steps have done in a pass that writes no other status: steps that have ended must not run again. If
    /// this write fails, they do.
    async fn save_steps(&mut self) {
        let steps =
            |workflow: Option<&WorkflowStatus>| workflow.map(|workflow| workflow.steps.clone()).unwrap_or_default();
        if steps(self.outcome.workflow.as_ref()) == steps(self.outcome.before.workflow.as_ref()) {
            return;
        }
        let built = status::build(&self.outcome, self.env.now);
        match self.observed.write_status(self.env, &built.status).await {
            Ok(()) => self.publish(built).await,
            Err(error) => {
                tracing::debug!(application = %self.env.name, %error, "failed to record what steps have done");
            }
        }
    }

    /// Returns the longest time between two passes, by the Application or else by the process.
    fn resync_period(&mut self) -> Duration {
        let default = self.env.options().resync_period;
        let (interval, notice) = match requested_interval(self.observed.app.annotations()) {
            None => (default, String::new()),
            Some(Ok(interval)) => (interval, String::new()),
            Some(Err(text)) => {
                let text = truncate(text, MAX_TEXT);
                let notice = format!("annotation {RECONCILE_INTERVAL} is not a duration such as 30s: {text:?}");
                (default, notice)
            }
        };
        self.outcome.notices.insert("InvalidInterval", notice);
        interval
    }

    /// Publishes what is new. Warnings that were published before are repeated after a while, or after a success.
    async fn publish(&mut self, built: Built) {
        let Built { status, mut events } = built;
        {
            let mut memory = self.env.memory.lock();
            for (reason, note) in std::mem::take(&mut self.outcome.warnings) {
                if memory.admit_warning(reason, &note) {
                    events.push(Event::warning(reason, note));
                }
            }
            let are_true = |conditions: &[Condition]| conditions.iter().all(|condition| condition.status == "True");
            // A single success may be one of many that alternate with failures.
            let has_succeeded = are_true(&status.conditions) && are_true(&self.outcome.before.conditions);
            if self.outcome.is_complete && has_succeeded {
                memory.forget_warnings();
            }
            // A pass that ended early has no notices.
            for (reason, note) in std::mem::take(&mut self.outcome.notices) {
                if memory.admit_notice(reason, &note) {
                    events.push(Event::warning(reason, note));
                }
            }
        }
        let metadata = &self.observed.app.metadata;
        let publisher = &self.env.reconciler.events;
        let published = events
            .into_iter()
            .map(|event| publisher.publish::<Application>(metadata, "Reconcile", event));
        join_all(published).await;
    }
}

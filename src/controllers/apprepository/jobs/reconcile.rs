//! Reconciles a repository that runs as Jobs.

use std::time::Duration;

use jiff::Timestamp;
use kube::api::ObjectMeta;

use super::Settings;
use super::client::JobError;
use super::executor::Executor;
use super::ignored;
use super::names;
use super::objects::{JobSecrets, Repository, SyncRun};
use super::progress::{Assessment, Progress, assess};
use super::secrets::{Copied, CopyError};
use super::template::{self, PodParts, TemplatePolicy};
use super::watch::Jobs;
use crate::api::{AppRepository, NamespacedName, PodTemplate};
use crate::catalog::{Record, State};
use crate::controllers::apprepository::decision::{Decision, MAX_REQUEUE, Mode, decide};
use crate::controllers::apprepository::reconciler::{Reconciler, TombstoneError};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::status::{Phase, READY};
use crate::controllers::apprepository::sync::request::SyncError;
use crate::runtime::controller::{Action, ReconcileError};
use crate::runtime::events::Event;
use crate::runtime::workqueue::{Backoff, Priority};

/// Backoff while an object can't be written.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(2),
    cap: Duration::from_secs(5 * 60),
};
/// Interval between checks while Jobs end, or the caches are incomplete. The watch usually reports it earlier.
const POLL: Duration = Duration::from_secs(2);

/// A repository and its record, as one reconcile sees them.
#[derive(Clone, Copy)]
pub(in crate::controllers::apprepository) struct Seen<'a> {
    pub object: &'a AppRepository,
    pub spec: &'a RepositorySpec,
    pub record: Option<&'a Record>,
    /// The UID of the stored rows.
    pub stored_uid: Option<&'a str>,
}

/// A problem that is reported in the status.
struct Blocked {
    state: State,
    /// The error of the reconcile: retried with backoff, or not before the next event.
    is_transient: bool,
}

impl Blocked {
    fn new(reason: &str, message: String, is_transient: bool) -> Self {
        let state = State {
            ready: Some(false),
            stalled: !is_transient,
            reason: reason.to_owned(),
            message,
            failures: 1,
            ..State::default()
        };
        Self { state, is_transient }
    }
}

impl From<JobError> for Blocked {
    fn from(error: JobError) -> Self {
        Self::new(error.reason(), error.to_string(), error.is_transient())
    }
}

impl From<SyncError> for Blocked {
    fn from(error: SyncError) -> Self {
        Self::new(&error.reason, error.message, error.transient)
    }
}

impl From<TombstoneError> for Blocked {
    fn from(error: TombstoneError) -> Self {
        let reason = match &error {
            TombstoneError::Api(_) => "JobsFailed",
            TombstoneError::Catalog(error) => error.reason(),
        };
        Self::new(reason, error.to_string(), true)
    }
}

impl From<CopyError> for Blocked {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Secret(error) => SyncError::from(error).into(),
            CopyError::Write(error) => error.into(),
        }
    }
}

impl Reconciler {
    /// Reconciles a repository that runs as Jobs. Returns `None` if this process syncs it, once no Job of it is left.
    pub(in crate::controllers::apprepository) async fn run_as_jobs(
        &self,
        jobs: &Jobs,
        seen: Seen<'_>,
    ) -> Result<Option<Action>, ReconcileError> {
        if !jobs.is_synced() {
            if jobs.is_overdue() {
                let message = format!(
                    "failed to list CronJobs, Jobs and pods in namespace {} since the start; grant the service account the \
                     verbs list and watch on cronjobs.batch, jobs.batch and pods",
                    jobs.settings.namespace
                );
                return self
                    .block(seen, Blocked::new("JobsUnknown", message, true))
                    .await
                    .map(Some);
            }
            return Ok(Some(Action::requeue_after(POLL)));
        }
        let settings = &jobs.settings;
        match Executor::of(seen.object, settings.executor, settings.allow_annotation) {
            Executor::InProcess => match jobs.end(&seen.spec.name).await {
                Ok(true) => Ok(None),
                Ok(false) => Ok(Some(Action::requeue_after(POLL))),
                // Two executors would sync the repository.
                Err(error) => self.block(seen, error.into()).await.map(Some),
            },
            Executor::Job => match self.prepare(jobs, seen).await {
                Ok(()) => self.report_progress(jobs, seen).await.map(Some),
                Err(blocked) => self.block(seen, blocked).await.map(Some),
            },
        }
    }

    /// Brings the CronJob and Jobs of a repository to the declared state.
    async fn prepare(&self, jobs: &Jobs, seen: Seen<'_>) -> Result<(), Blocked> {
        let (settings, spec) = (&jobs.settings, seen.spec);
        let name = &spec.name;
        let (parts, schedule) = match self.check_spec(settings, seen) {
            Ok(checked) => checked,
            Err(blocked) => {
                // An earlier spec is no longer wanted either.
                jobs.end(name).await?;
                return Err(blocked);
            }
        };
        self.publish_ignored_template(settings, seen, &parts).await;
        let Copied { secrets, versions } = match jobs.copy_secrets(&self.origin, spec).await {
            Ok(copied) => copied,
            Err(error) => {
                let blocked = Blocked::from(error);
                // The CronJob has the credentials of an earlier spec or Secret, and may not be suspended.
                if !blocked.is_transient || spec.suspended {
                    jobs.end(name).await?;
                }
                // Without --watch-secrets, no event follows when the Secret is there again.
                return Err(Blocked {
                    is_transient: true,
                    ..blocked
                });
            }
        };
        let repository = Repository {
            spec,
            parts: &parts,
            secrets: &secrets,
            origin: self.origin.id(),
        };
        jobs.ensure_cron_job(name, &settings.cron_job(&repository, &schedule))
            .await?;
        jobs.end_superseded(name, &spec.uid, spec.generation).await?;
        if secrets == JobSecrets::default() {
            jobs.remove_copy(name).await?;
        }
        let is_forced = self.states.read(name, |state| state.force_sync);
        let replaced = seen.record.filter(|record| is_of_later_generation(record, spec));
        let is_due = match decide(spec, seen.record, Timestamp::now()) {
            Decision::Suspended => false,
            // A CronJob runs the scheduled syncs, and retries.
            Decision::Wait | Decision::Sync(Mode::Conditional) => is_forced || replaced.is_some(),
            Decision::Sync(Mode::Complete) => true,
        };
        if !is_due {
            return Ok(());
        }
        let tombstone = self.outdated_tombstone(name, &seen.object.metadata).await?;
        let replaces_revision = replaced.and_then(|record| record.revision);
        let run = SyncRun {
            request: request(
                spec,
                is_forced.then_some(versions.as_str()),
                [replaces_revision, tombstone],
            ),
            replaces_uid: seen.stored_uid.filter(|stored| *stored != spec.uid).map(str::to_owned),
            replaces_revision,
        };
        let job_name = names::sync_job(name, &run.request);
        if !jobs.of(name).iter().any(|job| job.name == job_name) {
            if replaced.is_some() && !self.is_live(name, &seen.object.metadata).await? {
                tracing::info!("the cache is older than the last sync, waiting for the watch");
                return Ok(());
            }
            jobs.create_job(&settings.sync_job(&repository, &run)).await?;
        }
        if let Some(deleted_at) = tombstone {
            // After the Job, which a restored one of the same request may stand for otherwise.
            let forgotten = self.catalog.forget_deletion(name, &spec.uid, deleted_at).await;
            forgotten.map_err(TombstoneError::Catalog)?;
        }
        if is_forced {
            self.states.update(name, |state| state.force_sync = false);
        }
        Ok(())
    }

    /// Returns what a Job takes from the template, and the schedule of the CronJob.
    fn check_spec(&self, settings: &Settings, seen: Seen<'_>) -> Result<(PodParts, String), Blocked> {
        let spec = seen.spec;
        // Its text becomes an argument of the pod.
        self.syncer.check_url(spec)?;
        let refused = |message: String| Blocked::new("PodTemplateRefused", message, false);
        let template = seen.object.spec.sync_job_pod_template.as_ref();
        if let Some(template) = template.filter(|template| template.is_reduced())
            && settings.template != TemplatePolicy::None
        {
            let (bytes, limit) = (template.bytes(), settings.template_limit);
            return Err(refused(format!(
                "spec.syncJobPodTemplate has {bytes} bytes, more than {limit} (--job-pod-template-limit); shorten it"
            )));
        }
        let template = template.and_then(PodTemplate::parse);
        let parts = template::merge(template.as_ref(), settings.template, &settings.resources)
            .map_err(|error| refused(error.to_string()))?;
        let schedule = spec.cron.for_kubernetes().ok_or_else(|| {
            let message = format!(
                "the schedule {} is not one of a CronJob; use five fields without L, W, # and ?, or a duration",
                spec.cron
            );
            Blocked::new("InvalidSchedule", message, false)
        })?;
        Ok((parts, schedule))
    }

    /// Publishes an event about the parts of the template that are left out, once for each text.
    async fn publish_ignored_template(&self, settings: &Settings, seen: Seen<'_>, parts: &PodParts) {
        let template = seen
            .object
            .spec
            .sync_job_pod_template
            .as_ref()
            .and_then(PodTemplate::parse);
        let note = ignored::note(template.as_ref(), settings.template, parts);
        let previous = self.states.update(&seen.spec.name, |state| {
            std::mem::replace(&mut state.ignored_template, note.clone())
        });
        if let Some(note) = note.filter(|note| previous.as_ref() != Some(note)) {
            let event = Event::warning("PodTemplateIgnored", note);
            self.origin.publish(&seen.object.metadata, event).await;
        }
    }

    async fn is_live(&self, name: &NamespacedName, meta: &ObjectMeta) -> Result<bool, Blocked> {
        let live = self.origin.is_live(name, meta).await;
        live.map_err(|error| TombstoneError::Api(error).into())
    }

    /// Reports the present state of the Jobs and the record.
    async fn report_progress(&self, jobs: &Jobs, seen: Seen<'_>) -> Result<Action, ReconcileError> {
        let (name, now) = (&seen.spec.name, Timestamp::now());
        let mut of_repository = jobs.of(name);
        of_repository.retain(|job| job.repository_uid.as_deref() == Some(&seen.spec.uid));
        let namespace = &jobs.settings.namespace;
        let Assessment { progress, recheck } = assess(&of_repository, &jobs.pods_of(name), seen.record, namespace, now);
        let is_new = seen
            .record
            .is_none_or(|record| record.spec_hash.as_deref() != Some(seen.spec.spec_hash.as_str()));
        let unrecorded = match progress {
            Progress::Problem(state) => Some(state),
            Progress::Waiting if is_new && !seen.spec.suspended => Some(State {
                reason: "WaitingForJobs".to_owned(),
                message: "The Job waits until others have ended, see --max-jobs and --max-jobs-per-namespace."
                    .to_owned(),
                ..State::default()
            }),
            Progress::Waiting | Progress::Running | Progress::Idle => None,
        };
        self.publish_result(seen, unrecorded.as_ref()).await;
        self.write_status(seen.object, seen.spec, seen.record, unrecorded.as_ref(), Phase::Idle)
            .await?;
        Ok(Action::RequeueAfter {
            delay: recheck.unwrap_or(MAX_REQUEUE),
            priority: Some(Priority::LOW),
        })
    }

    /// Publishes an event when the result changes. The first one that this process sees is not a change.
    async fn publish_result(&self, seen: Seen<'_>, unrecorded: Option<&State>) {
        let Some(state) = unrecorded.or(seen.record.map(|record| &record.state)) else {
            return;
        };
        let Some(ready) = state.ready else { return };
        let result = (ready, state.reason.clone());
        let name = &seen.spec.name;
        let previous = self
            .states
            .update(name, |state| state.job_result.replace(result.clone()));
        if previous.as_ref() == Some(&result) || (previous.is_none() && ready && was_ready(seen.object)) {
            return;
        }
        let event = if ready {
            Event::normal("SyncSucceeded", &state.message)
        } else {
            let reason = if state.stalled { "SyncStalled" } else { "SyncFailed" };
            Event::warning(reason, format!("{}: {}", state.reason, state.message))
        };
        self.origin.publish(&seen.object.metadata, event).await;
    }

    /// Reports a problem that keeps the repository from running as Jobs.
    async fn block(&self, seen: Seen<'_>, blocked: Blocked) -> Result<Action, ReconcileError> {
        let Blocked { state, is_transient } = blocked;
        self.publish_result(seen, Some(&state)).await;
        self.write_status(seen.object, seen.spec, seen.record, Some(&state), Phase::Idle)
            .await?;
        // A missing right or quota may be granted without an event.
        let is_retried =
            is_transient || matches!(state.reason.as_str(), "JobsForbidden" | "JobsFailed" | "CronJobExists");
        if is_retried {
            return Err(ReconcileError::transient(state.message, BACKOFF));
        }
        Err(ReconcileError::Terminal {
            message: state.message,
            retry_after: Some(MAX_REQUEUE),
        })
    }
}

fn was_ready(object: &AppRepository) -> bool {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == READY && condition.status == "True")
}

/// Returns true if a later generation of the same object was synced: the API server was restored to an earlier state, or
/// the cache is stale.
fn is_of_later_generation(record: &Record, spec: &RepositorySpec) -> bool {
    record.uid == spec.uid && spec.generation.is_some_and(|generation| record.generation > generation)
}

/// Returns a text that differs for each request of a sync.
fn request(spec: &RepositorySpec, secret_versions: Option<&str>, restored: [Option<i64>; 2]) -> String {
    let requests = &spec.requests;
    serde_json::json!([
        spec.uid,
        spec.generation,
        spec.spec_hash,
        requests.resync_requests,
        requests.requested_at,
        requests.flux_requested_at,
        spec.allow_shrink,
        secret_versions,
        restored,
    ])
    .to_string()
}

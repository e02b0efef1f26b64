use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::ObjectMeta;

use super::JobSettings;
use super::blocked::Blocked;
use super::executor::{Execution, Executor};
use super::names;
use super::objects::{JobRepository, JobSecrets, SyncRun};
use super::progress::{JobAssessment, JobProgress, assess};
use super::secrets::Copied;
use super::template::{self, PodParts, TemplatePolicy, ignored};
use super::watch::Jobs;
use crate::api::{AppRepository, NamespacedName, PodTemplate};
use crate::catalog::{Record, RecordState};
use crate::controllers::apprepository::decision::{MAX_REQUEUE, is_polled, until_look, until_next};
use crate::controllers::apprepository::origin::Origin;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::state::RepositoryStates;
use crate::controllers::apprepository::status::READY;
use crate::controllers::apprepository::sync::location::check_url;
use crate::controllers::apprepository::tombstones::{TombstoneError, Tombstones};
use crate::http::Fetcher;
use crate::runtime::events::Event;

/// Interval after which a poll is decided again, besides events.
const POLL_RECHECK: Duration = Duration::from_secs(60);

pub struct JobRunner {
    pub jobs: Arc<Jobs>,
    pub origin: Arc<Origin>,
    pub tombstones: Tombstones,
    pub states: RepositoryStates,
    /// Knows the URLs that syncs may fetch.
    pub fetcher: Fetcher,
}

#[derive(Clone, Copy)]
pub struct Declared<'a> {
    pub object: &'a AppRepository,
    pub spec: &'a RepositorySpec,
}

/// A sync that needs a Job of its own, besides the Jobs of the CronJob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueSync {
    /// A referenced Secret has changed.
    pub is_forced: bool,
    /// The UID of the stored rows of another object, which the repository takes over.
    pub replaces_uid: Option<String>,
    pub later: Option<LaterSync>,
    /// Nothing but a poll needs the sync. It waits for other Jobs, so that many pushes make few of them.
    pub is_poll: bool,
    /// The time of the later look of a poll, which makes a Job of its own.
    pub look: Option<Timestamp>,
}

/// A sync of a later generation: the API server was restored to an earlier state, or the cache is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterSync {
    /// The revision of its rows.
    pub revision: Option<i64>,
}

pub struct JobsReport {
    /// State that no record has.
    pub unrecorded: Option<RecordState>,
    /// The time after which it may change without an event.
    pub recheck: Duration,
}

impl JobRunner {
    #[must_use]
    pub fn execution(&self, object: &AppRepository) -> Execution {
        if !self.jobs.is_synced() {
            return Execution::Unknown {
                is_overdue: self.jobs.is_overdue(),
            };
        }
        match self.executor(Some(object)) {
            Executor::InProcess => Execution::InProcess,
            Executor::Job => Execution::Jobs,
        }
    }

    /// Returns the executor that an object chooses. An undecodable object has the default, as one without a choice.
    #[must_use]
    pub fn executor(&self, object: Option<&AppRepository>) -> Executor {
        let settings = &self.jobs.settings;
        object.map_or(settings.executor, |object| {
            Executor::of(object, settings.executor, settings.allow_annotation)
        })
    }

    /// Brings the CronJob and Jobs of a repository to the declared state, with a Job of the sync that is due.
    pub async fn bring_to(&self, declared: Declared<'_>, due: Option<&DueSync>) -> Result<(), Blocked> {
        let name = &declared.spec.name;
        let is_forced = due.is_some_and(|due| due.is_forced);
        if is_forced {
            // Before the Secrets are read: a change afterwards forces another sync.
            self.states.update(name, |state| state.force_sync = false);
        }
        let result = self.write_objects(declared, due).await;
        if is_forced && !matches!(result, Ok(JobStart::Started)) {
            self.states.update(name, |state| state.force_sync = true);
        }
        result.map(drop)
    }

    async fn write_objects(&self, declared: Declared<'_>, due: Option<&DueSync>) -> Result<JobStart, Blocked> {
        let (jobs, settings, spec) = (&self.jobs, &self.jobs.settings, declared.spec);
        let name = &spec.name;
        let (parts, schedule) = match self.check_spec(declared) {
            Ok(checked) => checked,
            Err(blocked) => {
                // An earlier spec is no longer wanted either.
                jobs.end(name).await?;
                return Err(blocked);
            }
        };
        self.publish_ignored_template(declared, &parts).await;
        let Copied { secrets, versions } = self.copy_secrets(spec).await?;
        let repository = JobRepository {
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
        match due {
            Some(due) => self.start(declared, due, &repository, &versions).await,
            None => Ok(JobStart::NotDue),
        }
    }

    /// Creates the Job of a sync, unless it exists.
    async fn start(
        &self,
        declared: Declared<'_>,
        due: &DueSync,
        repository: &JobRepository<'_>,
        secret_versions: &str,
    ) -> Result<JobStart, Blocked> {
        let (spec, meta) = (declared.spec, &declared.object.metadata);
        let name = &spec.name;
        let tombstone = self.tombstones.find_outdated(name, meta).await?;
        let replaces_revision = due.later.and_then(|later| later.revision);
        let secret_versions = due.is_forced.then_some(secret_versions);
        // Other Jobs handle the poll too. In their names, each push during such a Job would make another one.
        let poll = due
            .is_poll
            .then(|| serde_json::json!([spec.requests.poll_at, due.look]));
        let run = SyncRun {
            request: request(spec, secret_versions, [replaces_revision, tombstone], poll.as_ref()),
            replaces_uid: due.replaces_uid.clone(),
            replaces_revision,
        };
        let job_name = names::sync_job(name, &run.request);
        let jobs = self.jobs.jobs_of(name);
        if due.is_poll && jobs.iter().any(|job| job.outcome.is_none()) {
            return Ok(JobStart::NotDue);
        }
        if !jobs.iter().any(|job| job.name == job_name) {
            if due.later.is_some() && !self.is_live(name, meta).await? {
                tracing::info!("the cache is older than the last sync, waiting for the watch");
                return Ok(JobStart::StaleCache);
            }
            let job = self.jobs.settings.sync_job(repository, &run);
            self.jobs.create_job(&job).await?;
        }
        if let Some(deleted_at) = tombstone {
            // After the Job: otherwise a restored Job of the same request may stand for it.
            let catalog = &self.tombstones.catalog;
            let forgotten = catalog.forget_deletion(name, &spec.uid, deleted_at).await;
            forgotten.map_err(TombstoneError::Catalog)?;
        }
        Ok(JobStart::Started)
    }

    async fn copy_secrets(&self, spec: &RepositorySpec) -> Result<Copied, Blocked> {
        let error = match self.jobs.copy_secrets(&self.origin, spec).await {
            Ok(copied) => return Ok(copied),
            Err(error) => error,
        };
        let blocked = Blocked::from(error);
        // The CronJob has the credentials of an earlier spec or Secret, and may not be suspended.
        if !blocked.is_transient || spec.suspended {
            self.jobs.end(&spec.name).await?;
        }
        // Without --watch-secrets, no event follows when the Secret is there again.
        Err(Blocked {
            is_transient: true,
            ..blocked
        })
    }

    /// Returns what a Job takes from the template, and the schedule of the CronJob.
    fn check_spec(&self, declared: Declared<'_>) -> Result<(PodParts, String), Blocked> {
        let (settings, spec) = (&self.jobs.settings, declared.spec);
        // Its text becomes an argument of the pod.
        check_url(spec, &self.fetcher)?;
        let parts = merge_template(settings, declared.object)?;
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
    async fn publish_ignored_template(&self, declared: Declared<'_>, parts: &PodParts) {
        let object = declared.object;
        let template = object.spec.sync_job_pod_template.as_ref().and_then(PodTemplate::parse);
        let note = ignored::note(template.as_ref(), self.jobs.settings.template, parts);
        let previous = self.states.update(&declared.spec.name, |state| {
            std::mem::replace(&mut state.ignored_template, note.clone())
        });
        if let Some(note) = note.filter(|note| previous.as_ref() != Some(note)) {
            let event = Event::warning("PodTemplateIgnored", note);
            self.origin.publish(&object.metadata, event).await;
        }
    }

    async fn is_live(&self, name: &NamespacedName, meta: &ObjectMeta) -> Result<bool, TombstoneError> {
        Ok(self.origin.is_live(name, meta).await?)
    }

    #[must_use]
    pub fn report(&self, spec: &RepositorySpec, record: Option<&Record>) -> JobsReport {
        let (name, now) = (&spec.name, Timestamp::now());
        let mut jobs = self.jobs.jobs_of(name);
        jobs.retain(|job| job.repository_uid.as_deref() == Some(&spec.uid));
        let namespace = &self.jobs.settings.namespace;
        let JobAssessment { progress, recheck } = assess(&jobs, &self.jobs.pods_of(name), record, namespace, now);
        let is_new = record.is_none_or(|record| record.spec_hash.as_deref() != Some(spec.spec_hash.as_str()));
        let unrecorded = match progress {
            JobProgress::Problem(state) => Some(state),
            JobProgress::Waiting if is_new && !spec.suspended => Some(RecordState {
                reason: "WaitingForJobs".to_owned(),
                message: "The Job waits until others have ended, see --max-jobs and --max-jobs-per-namespace."
                    .to_owned(),
                ..RecordState::default()
            }),
            JobProgress::Waiting | JobProgress::Running | JobProgress::Idle => None,
        };
        JobsReport {
            unrecorded,
            recheck: recheck
                .unwrap_or(MAX_REQUEUE)
                .min(record.map_or(MAX_REQUEUE, |record| until_poll(spec, record, now))),
        }
    }

    /// Publishes an event when the result changes. The first result that this process sees is not a change.
    pub async fn publish_result(&self, declared: Declared<'_>, state: Option<&RecordState>) {
        let Some((state, ready)) = state.and_then(|state| Some((state, state.ready?))) else {
            return;
        };
        let result = (ready, state.reason.clone());
        let previous = self.states.update(&declared.spec.name, |repository| {
            repository.job_result.replace(result.clone())
        });
        let is_known = previous.is_none() && ready && was_ready(declared.object);
        if previous.as_ref() == Some(&result) || is_known {
            return;
        }
        let event = if ready {
            Event::normal("SyncSucceeded", &state.message)
        } else {
            let reason = if state.stalled { "SyncStalled" } else { "SyncFailed" };
            Event::warning(reason, format!("{}: {}", state.reason, state.message))
        };
        self.origin.publish(&declared.object.metadata, event).await;
    }
}

enum JobStart {
    NotDue,
    /// The cache is older than the stored rows, and the watch has to deliver the object first.
    StaleCache,
    /// The Job exists.
    Started,
}

fn merge_template(settings: &JobSettings, object: &AppRepository) -> Result<PodParts, Blocked> {
    let refused = |message: String| Blocked::new("PodTemplateRefused", message, false);
    let template = object.spec.sync_job_pod_template.as_ref();
    if let Some(template) = template.filter(|template| template.is_reduced())
        && settings.template != TemplatePolicy::None
    {
        let (bytes, limit) = (template.bytes(), settings.template_limit);
        return Err(refused(format!(
            "spec.syncJobPodTemplate has {bytes} bytes, more than {limit} (--job-pod-template-limit); shorten it"
        )));
    }
    let template = template.and_then(PodTemplate::parse);
    template::merge(template.as_ref(), settings.template, &settings.resources)
        .map_err(|error| refused(error.to_string()))
}

fn was_ready(object: &AppRepository) -> bool {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == READY && condition.status == "True")
}

fn request(
    spec: &RepositorySpec,
    secret_versions: Option<&str>,
    restored: [Option<i64>; 2],
    poll: Option<&serde_json::Value>,
) -> String {
    let requests = &spec.requests;
    let request = serde_json::json!([
        spec.uid,
        spec.generation,
        spec.spec_hash,
        requests.resync_requests,
        requests.requested_at,
        requests.flux_requested_at,
        spec.allow_shrink,
        secret_versions,
        restored,
    ]);
    // Without a poll, Jobs keep the names of earlier releases.
    request.to_string() + &poll.map(ToString::to_string).unwrap_or_default()
}

/// Returns the time after which a poll may need a Job.
fn until_poll(spec: &RepositorySpec, record: &Record, now: Timestamp) -> Duration {
    let until = if spec.suspended {
        MAX_REQUEUE
    } else if is_polled(spec, record) {
        until_next(spec, Some(record), now)
    } else {
        until_look(record, now)
    };
    // The Job exists, and its end is an event.
    if until.is_zero() { POLL_RECHECK } else { until }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::apprepository::tests::samples::spec_with;

    #[test]
    fn each_request_secret_restore_and_poll_has_a_job_of_its_own() {
        let spec = spec_with(|_| ());
        let requested = spec_with(|object| object["spec"]["resyncRequests"] = 7.into());
        let restored = |later, tombstone| request(&spec, None, [later, tombstone], None);
        let polled = |at: &str| request(&spec, None, [None, None], Some(&serde_json::json!([at, null])));
        let requests = [
            request(&spec, None, [None, None], None),
            request(&requested, None, [None, None], None),
            request(&spec, Some("sea/login@1"), [None, None], None),
            request(&spec, Some("sea/login@2"), [None, None], None),
            restored(Some(5), None),
            restored(None, Some(5)),
            restored(None, Some(6)),
            polled("2026-01-01T10:04:00Z"),
            polled("2026-01-01T10:04:01Z"),
        ];
        for (number, request) in requests.iter().enumerate() {
            assert!(!requests[..number].contains(request), "{request}");
        }
        assert_eq!(
            requests[0],
            request(&spec_with(|_| ()), None, [None, None], None),
            "the same one has the same Job"
        );
    }
}

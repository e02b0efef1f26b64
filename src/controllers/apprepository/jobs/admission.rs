//! Releases waiting Jobs within the limits.
//!
//! All sync Jobs are created suspended, by us and by CronJobs, and released here: a tick that is due for all repositories
//! then starts no more pods than allowed. The namespace with the fewest running Jobs comes first, then the repository that
//! has waited longest. A Job whose pod does not start holds no slot that another Job waits for: it is suspended, and
//! waits again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::progress::not_started;
use super::progress::view::{JobView, NotStarted};
use super::{JobLimits, Jobs};
use crate::api::NamespacedName;

/// Interval after which a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(30);
/// Time for which the wait of a repository outlives its Job: a CronJob that replaces a Job deletes it first.
const WAIT_KEPT: SignedDuration = SignedDuration::from_secs(60);

impl Jobs {
    /// Releases Jobs whenever a Job is added or ends. Never returns.
    pub async fn release_waiting(self: Arc<Self>) {
        let mut queue = JobQueue::default();
        let mut wait = RETRY;
        loop {
            let _ = tokio::time::timeout(wait, self.changed.notified()).await;
            wait = RETRY;
            if !self.is_synced() {
                continue;
            }
            let now = Timestamp::now();
            let mut jobs = self.all();
            self.count(&jobs);
            queue.update(&mut jobs, now);
            for job in superseded(&jobs) {
                if let Err(error) = self.delete_job(&job.name, &job.uid).await {
                    tracing::warn!(%error, job = job.name, retry_in = ?RETRY, "failed to delete a superseded Job");
                }
            }
            let pods = self.all_pods();
            let namespace = &self.settings.namespace;
            let idle = |job: &JobView| not_started(job, &pods, namespace, now);
            wait = until_next_start(&jobs, now).map_or(RETRY, |next| next.min(RETRY));
            for step in plan(&jobs, idle, &queue, self.settings.limits, now) {
                if let Err(error) = self.execute(&step, &mut queue, now).await {
                    tracing::warn!(%error, job = step.job().name, retry_in = ?RETRY, "failed to suspend or release a Job");
                    // The next release needs the slot. A failed release concerns one Job.
                    if let Step::Suspend(..) = step {
                        break;
                    }
                }
            }
        }
    }

    fn count(&self, jobs: &[JobView]) {
        let unfinished = jobs.iter().filter(|job| job.outcome.is_none());
        let (waiting, running): (Vec<_>, Vec<_>) = unfinished.partition(|job| job.is_suspended);
        self.metrics.set_unfinished(waiting.len(), running.len());
    }

    async fn execute(&self, step: &Step, queue: &mut JobQueue, now: Timestamp) -> Result<(), super::client::JobError> {
        match step {
            Step::Release(job) => self.release(&job.name, &job.uid).await?,
            Step::Suspend(job, reason) => {
                tracing::info!(
                    job = job.name,
                    reason = reason.reason,
                    "suspended a Job whose pod does not start, since others wait"
                );
                self.suspend(&job.name, &job.uid, reason).await?;
            }
        }
        queue.record(step, now);
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Release(JobView),
    Suspend(JobView, NotStarted),
}

impl Step {
    const fn job(&self) -> &JobView {
        match self {
            Self::Release(job) | Self::Suspend(job, _) => job,
        }
    }
}

/// The repositories whose Jobs wait. A Job that replaces another continues its wait.
#[derive(Debug, Default)]
struct JobQueue {
    waits: HashMap<NamespacedName, Wait>,
    /// By UID, whether a Job is suspended: writes that the watch has not delivered.
    written: HashMap<String, bool>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Timestamp,
    /// Time at which a waiting Job was last seen.
    seen: Timestamp,
}

impl JobQueue {
    /// Applies the writes that the watch has not delivered, and forgets the others. Records new waits.
    fn update(&mut self, jobs: &mut [JobView], now: Timestamp) {
        let is_delivered = |uid: &String, is_suspended: bool| {
            let mut same = jobs.iter().filter(|job| job.uid == *uid);
            same.all(|job| job.is_suspended == is_suspended)
        };
        self.written
            .retain(|uid, is_suspended| !is_delivered(uid, *is_suspended));
        for job in jobs {
            job.is_suspended = self.written.get(&job.uid).copied().unwrap_or(job.is_suspended);
            if let Some(name) = job.repository.as_ref().filter(|_| job.is_waiting()) {
                let since = job.not_started.as_ref().map_or(job.created, |reason| reason.at);
                let wait = self.waits.entry(name.clone());
                wait.or_insert(Wait { since, seen: now }).seen = now;
            }
        }
        self.waits.retain(|_, wait| now.duration_since(wait.seen) < WAIT_KEPT);
    }

    fn record(&mut self, step: &Step, now: Timestamp) {
        let job = step.job();
        let is_suspended = matches!(step, Step::Suspend(..));
        self.written.insert(job.uid.clone(), is_suspended);
        if let Some(name) = &job.repository {
            self.waits.remove(name);
            if is_suspended {
                self.waits.insert(name.clone(), Wait { since: now, seen: now });
            }
        }
    }

    fn since(&self, job: &JobView) -> Timestamp {
        let wait = job.repository.as_ref().and_then(|name| self.waits.get(name));
        wait.map_or(job.created, |wait| wait.since)
    }
}

/// A repository keeps the oldest Job of its CronJob, and the newest requested Job, which handles all requests.
fn superseded(jobs: &[JobView]) -> Vec<&JobView> {
    let mut kept: HashMap<_, &JobView> = HashMap::new();
    let mut superseded = Vec::new();
    let mut waiting: Vec<&JobView> = jobs.iter().filter(|job| job.is_waiting()).collect();
    waiting.sort_by_key(|job| (job.created, &job.name));
    for job in waiting.into_iter().filter(|job| job.repository.is_some()) {
        let key = (&job.repository, &job.repository_uid, job.generation, job.is_scheduled);
        match kept.get_mut(&key) {
            None => drop(kept.insert(key, job)),
            Some(_) if job.is_scheduled => superseded.push(job),
            Some(earlier) => superseded.push(std::mem::replace(earlier, job)),
        }
    }
    superseded
}

/// Suspends before it releases, for each slot. `not_started` tells why a running Job may be suspended.
fn plan(
    jobs: &[JobView],
    not_started: impl Fn(&JobView) -> Option<NotStarted>,
    queue: &JobQueue,
    limits: JobLimits,
    now: Timestamp,
) -> Vec<Step> {
    let outdated: Vec<&str> = superseded(jobs).into_iter().map(|job| job.uid.as_str()).collect();
    let unfinished = jobs.iter().filter(|job| job.is_unfinished() && !job.is_deleted);
    let (mut waiting, running): (Vec<_>, Vec<_>) = unfinished.partition(|job| job.is_suspended);
    waiting.retain(|job| job.not_before <= now && !outdated.contains(&job.uid.as_str()));
    waiting.sort_by_key(|job| (queue.since(job), &job.name));
    let mut slots = Slots::of(&running, limits);
    let mut steps = Vec::new();
    let mut idle: Option<Vec<(&JobView, NotStarted)>> = None;
    while !waiting.is_empty() {
        // The first of equal Jobs has waited longest.
        let first = |is_admitted: &dyn Fn(&str) -> bool| {
            let candidates = waiting
                .iter()
                .enumerate()
                .filter(|(_, job)| is_admitted(namespace(job)));
            candidates.min_by_key(|(_, job)| slots.count(namespace(job)))
        };
        if let Some((at, _)) = first(&|namespace| slots.has_free(namespace)) {
            let job = waiting.remove(at);
            slots.take(namespace(job));
            steps.push(Step::Release(job.clone()));
            continue;
        }
        let idle = idle.get_or_insert_with(|| idle_jobs(&running, &not_started));
        let victim = |namespace_of_waiting: &str| slots.victim(idle, namespace_of_waiting);
        let Some((_, job)) = first(&|namespace| victim(namespace).is_some()) else {
            break;
        };
        let Some(at) = victim(namespace(job)) else { break };
        let (job, reason) = idle.remove(at);
        slots.free(namespace(job));
        steps.push(Step::Suspend(job.clone(), reason));
    }
    // Without a release, as when more run than a lowered limit allows.
    while let Some(Step::Suspend(..)) = steps.last() {
        steps.pop();
    }
    steps
}

/// Returns the running Jobs that may be suspended, the oldest first.
fn idle_jobs<'a>(
    running: &[&'a JobView],
    not_started: impl Fn(&JobView) -> Option<NotStarted>,
) -> Vec<(&'a JobView, NotStarted)> {
    let mut idle: Vec<_> = running
        .iter()
        .filter_map(|job| Some((*job, not_started(job)?)))
        .collect();
    idle.sort_by_key(|(job, _)| (job.started, &job.name));
    idle
}

/// Returns the time until the first of the Jobs that wait for their delay after a tick may run.
fn until_next_start(jobs: &[JobView], now: Timestamp) -> Option<Duration> {
    let delayed = jobs.iter().filter(|job| job.is_waiting() && job.not_before > now);
    let next = delayed.map(|job| job.not_before).min()?;
    Duration::try_from(next.duration_since(now)).ok()
}

struct Slots<'a> {
    total: usize,
    by_namespace: BTreeMap<&'a str, usize>,
    limits: JobLimits,
}

impl<'a> Slots<'a> {
    fn of(running: &[&'a JobView], limits: JobLimits) -> Self {
        let mut by_namespace = BTreeMap::new();
        for job in running {
            *by_namespace.entry(namespace(job)).or_default() += 1;
        }
        Self {
            total: running.len(),
            by_namespace,
            limits,
        }
    }

    /// Returns the index of a Job of the same namespace if that is at its limit, else of the namespace with most Jobs.
    fn victim(&self, idle: &[(&JobView, NotStarted)], namespace_of_waiting: &str) -> Option<usize> {
        let is_full = self.count(namespace_of_waiting) >= self.limits.per_namespace;
        let victims = idle
            .iter()
            .enumerate()
            .filter(|(_, (job, _))| !is_full || namespace(job) == namespace_of_waiting);
        let most = victims.min_by_key(|(_, (job, _))| Reverse(self.count(namespace(job))));
        most.map(|(at, _)| at)
    }

    fn count(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }

    fn has_free(&self, namespace: &str) -> bool {
        self.total < self.limits.total && self.count(namespace) < self.limits.per_namespace
    }

    fn take(&mut self, namespace: &'a str) {
        self.total += 1;
        *self.by_namespace.entry(namespace).or_default() += 1;
    }

    fn free(&mut self, namespace: &'a str) {
        self.total -= 1;
        *self.by_namespace.entry(namespace).or_default() -= 1;
    }
}

pub(super) fn namespace(job: &JobView) -> &str {
    job.repository.as_ref().map_or("", |name| name.namespace.as_str())
}

#[cfg(test)]
mod tests;

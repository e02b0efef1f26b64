//! Enqueues keys at the ticks of their cron expressions, by the wall clock.
//!
//! Reconcilers also requeue each key until its next tick, but timers of the work queue follow the monotonic clock: after
//! a step of the wall clock they fire late. The trigger is rebuilt after a step, and keeps schedules punctual.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

use super::Cron;
use super::clock_steps::StepDetector;

/// The scheduler broadcasts up to three messages per due job on channels of 200; receivers that lag miss ticks or
/// terminate. Keys beyond the limit rely on the timers of the work queue.
const MAX_JOBS: usize = 64;

/// A list adds many keys within moments.
const DEBOUNCE: Duration = Duration::from_millis(500);

/// The scheduler answers from memory; it never answers after one of its tasks has terminated.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct CronTrigger<K> {
    schedules: Arc<Mutex<Schedules<K>>>,
    changed: Arc<Notify>,
}

type Schedules<K> = HashMap<K, (Arc<Cron>, Duration)>;
type Enqueue<K> = dyn Fn(K, Duration) + Send + Sync;

impl<K> Default for CronTrigger<K> {
    fn default() -> Self {
        Self {
            schedules: Arc::default(),
            changed: Arc::default(),
        }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> CronTrigger<K> {
    pub fn set(&self, key: &K, cron: &Arc<Cron>, jitter: Duration) {
        if cron.next_after(Timestamp::now()).is_none() {
            // The scheduler removes jobs without a next tick immediately, and may crash when there are many.
            return self.remove(key);
        }
        let previous = self.schedules.lock().insert(key.clone(), (Arc::clone(cron), jitter));
        if previous.is_none_or(|(previous, _)| previous != *cron) {
            self.changed.notify_one();
        }
    }

    pub fn remove(&self, key: &K) {
        if self.schedules.lock().remove(key).is_some() {
            self.changed.notify_one();
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.schedules.lock().len()
    }

    /// Calls `enqueue` with a key and its jitter at each tick. Never returns.
    pub async fn run(self, enqueue: impl Fn(K, Duration) + Send + Sync + 'static) {
        let Err(error) = self.run_jobs(Arc::new(enqueue)).await;
        tracing::error!(%error, "cron scheduler failed, scheduled syncs rely on the timers of the work queue");
        std::future::pending().await
    }

    async fn run_jobs(&self, enqueue: Arc<Enqueue<K>>) -> Result<Infallible, JobSchedulerError> {
        let scheduler = JobScheduler::new().await?;
        scheduler.start().await?;
        let mut jobs = HashMap::new();
        let mut clock = StepDetector::default();
        loop {
            tokio::select! {
                () = self.changed.notified() => sleep(DEBOUNCE).await,
                // Each job holds the time of its next tick.
                () = clock.wait_for_step() => self.remove_jobs(&scheduler, &mut jobs).await?,
            }
            timeout(UPDATE_TIMEOUT, self.update(&scheduler, &mut jobs, &enqueue))
                .await
                .map_err(|_| JobSchedulerError::CantAdd)??;
        }
    }

    async fn remove_jobs(
        &self,
        scheduler: &JobScheduler,
        jobs: &mut HashMap<String, Job>,
    ) -> Result<(), JobSchedulerError> {
        for (_, job) in jobs.drain() {
            scheduler.remove(&job.guid()).await?;
        }
        Ok(())
    }

    async fn update(
        &self,
        scheduler: &JobScheduler,
        jobs: &mut HashMap<String, Job>,
        enqueue: &Arc<Enqueue<K>>,
    ) -> Result<(), JobSchedulerError> {
        let mut expressions = self.expressions(jobs);
        for (_, job) in jobs.extract_if(|expression, _| !expressions.contains(expression)) {
            scheduler.remove(&job.guid()).await?;
        }
        expressions.retain(|expression| !jobs.contains_key(expression));
        for expression in expressions {
            let job = self.job(expression.clone(), Arc::clone(enqueue))?;
            scheduler.add(job.clone()).await?;
            jobs.insert(expression, job);
        }
        Ok(())
    }

    fn expressions(&self, jobs: &HashMap<String, Job>) -> HashSet<String> {
        let schedules = self.schedules.lock();
        let all: HashSet<_> = schedules.values().flat_map(|(cron, _)| cron.expressions()).collect();
        let (with_job, without): (Vec<_>, Vec<_>) = all.into_iter().partition(|&text| jobs.contains_key(text));
        let first = with_job.into_iter().chain(without).take(MAX_JOBS);
        first.cloned().collect()
    }

    fn job(&self, expression: String, enqueue: Arc<Enqueue<K>>) -> Result<Job, JobSchedulerError> {
        let trigger = self.clone();
        Job::new(expression.clone(), move |_, _| {
            let is_due = |cron: &Cron| cron.expressions().contains(&expression);
            for (key, (_, jitter)) in trigger.schedules.lock().iter().filter(|(_, (cron, _))| is_due(cron)) {
                enqueue(key.clone(), *jitter);
            }
        })
    }
}

#[cfg(test)]
#[path = "trigger_tests.rs"]
mod tests;

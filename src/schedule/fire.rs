//! Firing: one job of tokio-cron-scheduler for each distinct expression, shared by all keys that have it.
//!
//! ```text
//!  set, remove ──► wanted: expression → keys ──wake──► task: adds and removes jobs until they are those that are wanted
//!                      ▲                                                  │
//!                      └──────────── who has it? ◄──────tick────────── scheduler
//! ```
//!
//! A job for each key would lose ticks: what is due at once goes through a broadcast channel of fixed size, and all of
//! `*/10 * * * *` is due at once.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    sync::{
        broadcast,
        mpsc::{self, error::TrySendError},
    },
    time::{sleep, timeout},
};
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

use super::Cron;

/// Ticks on their way: more than the expressions that users think of, so that none is lost when all are due at once.
const TICKS: usize = 2048;
/// Jobs on their way to be added or removed. They are large, their room is taken from the start, and what reads them ends for good
/// where there are too many; but they are few, since each is waited for. So many the scheduler has by default.
const CHANGES: usize = 200;

/// The scheduler answers from memory: what takes longer than this is as good as failed, and is tried again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The wait before a job that could not be added or removed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The scheduler could not be started, which it has no reason for but a defect.
#[derive(Debug, thiserror::Error)]
#[error("the scheduler could not be started: {0}")]
pub struct StartError(#[from] JobSchedulerError);

/// Calls a handler for each key whenever its cron is due. A handle: clones are the same schedule, and firing ends with
/// the last of them.
pub struct Schedule<K> {
    wanted: Arc<Mutex<Wanted<K>>>,
    wake: mpsc::Sender<()>,
}

impl<K> Clone for Schedule<K> {
    fn clone(&self) -> Self {
        Self {
            wanted: Arc::clone(&self.wanted),
            wake: self.wake.clone(),
        }
    }
}

/// What is to be fired: by key for changing it, by expression for firing it.
struct Wanted<K> {
    expressions: HashMap<K, Vec<String>>,
    keys: HashMap<String, HashMap<K, Duration>>,
}

impl<K> Default for Wanted<K> {
    fn default() -> Self {
        Self {
            expressions: HashMap::new(),
            keys: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Wanted<K> {
    fn remove(&mut self, key: &K) {
        for expression in self.expressions.remove(key).unwrap_or_default() {
            if let Some(keys) = self.keys.get_mut(&expression) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&expression);
                }
            }
        }
    }

    /// Whether `key` is fired just so.
    fn is(&self, key: &K, cron: &Cron, jitter: Duration) -> bool {
        let jitter_of = |expression: &String| self.keys.get(expression).and_then(|keys| keys.get(key));
        self.has(key, cron) && cron.expressions().iter().all(|of| jitter_of(of) == Some(&jitter))
    }

    fn has(&self, key: &K, cron: &Cron) -> bool {
        let expressions = self.expressions.get(key);
        expressions.is_some_and(|expressions| expressions == cron.expressions())
    }

    fn set(&mut self, key: &K, cron: &Cron, jitter: Duration) {
        self.remove(key);
        for expression in cron.expressions() {
            self.keys
                .entry(expression.clone())
                .or_default()
                .insert(key.clone(), jitter);
        }
        self.expressions.insert(key.clone(), cron.expressions().to_vec());
    }
}

impl<K: Clone + Eq + Hash + Debug + Send + Sync + 'static> Schedule<K> {
    /// Starts with nothing to fire. The handler is called for each key at each of its ticks, with the key's jitter; it
    /// must not block. A key whose cron has two expressions may be handled twice for a tick of both.
    ///
    /// # Errors
    /// If the scheduler can't be started.
    pub async fn start(handler: impl Fn(&K, Duration) + Send + Sync + 'static) -> Result<Self, StartError> {
        let scheduler = scheduler().await?;
        let wanted = Arc::<Mutex<Wanted<_>>>::default();
        // One message is enough to say that something has changed.
        let (wake, woken) = mpsc::channel(1);
        let jobs = Jobs {
            scheduler,
            wanted: Arc::clone(&wanted),
            handler: Arc::new(handler),
            running: HashMap::new(),
        };
        tokio::spawn(jobs.run(woken));
        Ok(Self { wanted, wake })
    }

    /// Fires `key` by `cron` from now on, and not as before.
    pub fn set(&self, key: &K, cron: &Cron, jitter: Duration) {
        if cron.next_after(Timestamp::now()).is_none() {
            // Its years are over. The scheduler removes such jobs by itself, all in one burst that it may not survive.
            return self.remove(key);
        }
        self.change(|wanted| {
            if wanted.is(key, cron, jitter) {
                return false;
            }
            let has_same_jobs = wanted.has(key, cron);
            wanted.set(key, cron, jitter);
            !has_same_jobs
        });
    }

    /// Fires `key` no more.
    pub fn remove(&self, key: &K) {
        self.change(|wanted| {
            let known = wanted.expressions.contains_key(key);
            wanted.remove(key);
            known
        });
    }

    /// The number of keys that are fired.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.wanted).expressions.len()
    }

    /// Whether no key is fired.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes what is wanted, and wakes the task where `change` says that its jobs may have to change too.
    fn change(&self, change: impl FnOnce(&mut Wanted<K>) -> bool) {
        let changed = change(&mut lock(&self.wanted));
        if changed && let Err(TrySendError::Closed(())) = self.wake.try_send(()) {
            tracing::error!("the schedule has ended: nothing is fired any more");
        }
    }
}

/// A scheduler that runs. It would make all its channels of one size, three megabytes of them.
async fn scheduler() -> Result<JobScheduler, JobSchedulerError> {
    let mut scheduler = JobScheduler::new_with_channel_size(CHANGES).await?;
    // Before the start nobody else has it, and nobody listens to ticks.
    let context = Arc::get_mut(&mut scheduler.context).ok_or(JobSchedulerError::CantInit)?;
    context.job_activation_tx = broadcast::Sender::new(TICKS);
    context.notify_tx = broadcast::Sender::new(TICKS);
    scheduler.start().await?;
    Ok(scheduler)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No code that can panic runs under these locks, so what they hold is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Handler<K> = Arc<dyn Fn(&K, Duration) + Send + Sync>;

/// The jobs that the scheduler has, kept to those that are wanted.
struct Jobs<K> {
    scheduler: JobScheduler,
    wanted: Arc<Mutex<Wanted<K>>>,
    handler: Handler<K>,
    running: HashMap<String, Job>,
}

impl<K: Clone + Eq + Hash + Debug + Send + Sync + 'static> Jobs<K> {
    async fn run(mut self, mut woken: mpsc::Receiver<()>) {
        while woken.recv().await.is_some() {
            while let Err(error) = self.converge().await {
                tracing::warn!(%error, "a scheduled job could not be added or removed; trying again");
                sleep(RETRY).await;
            }
        }
        // The scheduler keeps its jobs to itself; without keys they have nothing to fire, whatever is still due.
        *lock(&self.wanted) = Wanted::default();
        if let Err(error) = self.scheduler.shutdown().await {
            tracing::warn!(%error, "the scheduler did not shut down");
        }
    }

    async fn converge(&mut self) -> Result<(), JobSchedulerError> {
        let wanted: HashSet<String> = lock(&self.wanted).keys.keys().cloned().collect();
        let gone: Vec<String> = self
            .running
            .keys()
            .filter(|running| !wanted.contains(*running))
            .cloned()
            .collect();
        for expression in gone {
            if let Some(job) = self.running.get(&expression) {
                let id = job.guid();
                timeout(PATIENCE, self.scheduler.remove(&id))
                    .await
                    .map_err(|_| JobSchedulerError::CantRemove)??;
                self.running.remove(&expression);
            }
        }
        for expression in wanted {
            if !self.running.contains_key(&expression) {
                let job = self.job(&expression)?;
                timeout(PATIENCE, self.scheduler.add(job.clone()))
                    .await
                    .map_err(|_| JobSchedulerError::CantAdd)??;
                self.running.insert(expression, job);
            }
        }
        Ok(())
    }

    /// A job that fires all keys that have the expression when it is due.
    fn job(&self, expression: &str) -> Result<Job, JobSchedulerError> {
        let (wanted, handler, own) = (
            Arc::clone(&self.wanted),
            Arc::clone(&self.handler),
            expression.to_owned(),
        );
        Job::new_async(expression, move |_, _| {
            let keys = lock(&wanted).keys.get(&own).cloned().unwrap_or_default();
            let handler = Arc::clone(&handler);
            Box::pin(async move {
                tracing::debug!(keys = keys.len(), "a schedule is due");
                for (key, jitter) in keys {
                    handler(&key, jitter);
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;
    use crate::schedule::parse;

    const DEADLINE: Duration = Duration::from_secs(10);

    async fn schedule() -> (Schedule<u32>, UnboundedReceiver<(u32, Duration)>) {
        let (fired, ticks) = unbounded_channel();
        let schedule = Schedule::start(move |key: &u32, jitter| _ = fired.send((*key, jitter)))
            .await
            .unwrap();
        (schedule, ticks)
    }

    async fn until(mut condition: impl AsyncFnMut() -> bool) {
        timeout(DEADLINE, async {
            while !condition().await {
                tokio::task::yield_now().await
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn a_key_is_fired_when_its_cron_is_due_with_its_jitter() {
        let (schedule, mut ticks) = schedule().await;
        schedule.set(&7, &parse("* * * * * *").unwrap(), Duration::from_millis(5));
        let fired = timeout(Duration::from_secs(3), ticks.recv()).await.unwrap();
        assert_eq!(fired, Some((7, Duration::from_millis(5))));
    }

    #[tokio::test]
    async fn keys_with_one_expression_share_a_job_and_all_are_fired() {
        let (schedule, mut ticks) = schedule().await;
        for key in 0..2_000 {
            schedule.set(&key, &parse("* * * * * *").unwrap(), Duration::ZERO);
        }
        let mut seen = HashSet::new();
        until(async || {
            seen.extend(ticks.recv().await.map(|(key, _)| key));
            seen.len() == 2_000
        })
        .await;
    }

    #[tokio::test]
    async fn expressions_that_are_due_at_once_lose_no_tick() {
        let (schedule, mut ticks) = schedule().await;
        // Distinct expressions that are all due every second: 2,000 jobs, more than the scheduler's own channel holds.
        const JOBS: u32 = 2_000;
        for key in 0..JOBS {
            let seconds = format!("0-59,{},{}", key % 60, key / 60);
            schedule.set(&key, &parse(&format!("{seconds} * * * * *")).unwrap(), Duration::ZERO);
        }
        let mut seen = HashSet::new();
        until(async || {
            seen.extend(ticks.recv().await.map(|(key, _)| key));
            seen.len() == JOBS as usize
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn expressions_whose_years_are_over_are_in_no_others_way() {
        let (schedule, mut ticks) = schedule().await;
        for key in 0..2_000_u32 {
            let over = format!("{} {} 1 1 * 2020", key % 60, key / 60 % 24);
            schedule.set(&key, &parse(&over).unwrap(), Duration::ZERO);
        }
        assert!(schedule.is_empty(), "nothing of them is left to be fired");
        let every_second = parse("* * * * * *").unwrap();
        schedule.set(&1, &every_second, Duration::ZERO);
        until(async || ticks.recv().await.is_some_and(|(key, _)| key == 1)).await;
        schedule.set(&1, &parse("0 0 1 1 * 2020").unwrap(), Duration::ZERO);
        assert!(schedule.is_empty());
        schedule.set(&2, &every_second, Duration::ZERO);
        until(async || ticks.recv().await.is_some_and(|(key, _)| key == 2)).await;
    }

    #[tokio::test]
    async fn a_key_that_is_removed_or_set_anew_is_not_fired_as_before() {
        let (schedule, mut ticks) = schedule().await;
        schedule.set(&1, &parse("* * * * * *").unwrap(), Duration::ZERO);
        schedule.set(&2, &parse("* * * * * *").unwrap(), Duration::ZERO);
        schedule.set(&3, &parse("* * * * * *").unwrap(), Duration::ZERO);
        until(async || ticks.recv().await.is_some_and(|(key, _)| key == 1)).await;
        schedule.remove(&1);
        schedule.set(&2, &parse("@yearly").unwrap(), Duration::ZERO);
        assert_eq!(schedule.len(), 2);
        // What was on its way when the key was removed may still come; the tick after the next has none of it.
        for tick in 0..3 {
            until(async || {
                let (key, _) = ticks.recv().await.unwrap();
                assert!(tick < 2 || key == 3, "fired {key}");
                key == 3
            })
            .await;
        }
    }

    #[tokio::test]
    async fn jobs_come_and_go_with_the_keys_that_need_them() {
        let scheduler = scheduler().await.unwrap();
        let wanted = Arc::<Mutex<Wanted<_>>>::default();
        let handler: Handler<u32> = Arc::new(|_, _| ());
        let mut jobs = Jobs {
            scheduler,
            wanted: Arc::clone(&wanted),
            handler,
            running: HashMap::new(),
        };
        let both_days = parse("0 0 13 * 5").unwrap();
        let hourly = parse("@hourly").unwrap();

        lock(&wanted).set(&1, &both_days, Duration::ZERO);
        lock(&wanted).set(&2, &hourly, Duration::ZERO);
        lock(&wanted).set(&3, &hourly, Duration::ZERO);
        jobs.converge().await.unwrap();
        assert_eq!(jobs.running.len(), 3);

        lock(&wanted).remove(&1);
        lock(&wanted).remove(&2);
        jobs.converge().await.unwrap();
        assert_eq!(jobs.running.keys().collect::<Vec<_>>(), ["0 0 * * * *"]);

        lock(&wanted).remove(&3);
        jobs.converge().await.unwrap();
        assert!(jobs.running.is_empty() && lock(&wanted).keys.is_empty());
    }

    #[tokio::test]
    async fn firing_ends_with_the_last_handle() {
        let (schedule, _ticks) = schedule().await;
        schedule.set(&1, &parse("* * * * * *").unwrap(), Duration::ZERO);
        let wanted = Arc::clone(&schedule.wanted);
        let other = schedule.clone();
        drop(schedule);
        assert_eq!(other.len(), 1);
        drop(other);
        until(async || lock(&wanted).keys.is_empty()).await;
    }
}

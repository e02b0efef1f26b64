//! The work of a process that leads: watches from the start, and everything that writes as soon as it leads a shard.

use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::database::{self, DatabaseIdentity};
use super::health::ProcessHealth;
use super::leader::{LeaderEvent, Leadership};
use super::setup::ManagerMetrics;
use super::startup::{self, OpenCatalog};
use crate::budget::Budgets;
use crate::catalog::Catalog;
use crate::controllers::{Controller, Serve, Task};
use crate::runtime::controller::{Class, Key, WorkerPool};
use crate::runtime::workqueue::Queue;

/// The controllers of the process over their shared work queue.
pub(super) struct Manager {
    queue: Queue<Key>,
    budgets: Budgets,
    classes: Vec<Class>,
    sources: Vec<Task>,
    servers: Vec<Serve>,
    leader_tasks: Vec<Task>,
    shard_tasks: Vec<Task>,
    enqueue_all: Vec<Box<dyn Fn() + Send + Sync>>,
    has_synced: Vec<Box<dyn Fn() -> bool + Send + Sync>>,
    drain_timeout: Duration,
    catalog: Option<Catalog>,
}

impl Manager {
    pub(super) fn new(queue: Queue<Key>, budgets: Budgets, drain_timeout: Duration) -> Self {
        Self {
            queue,
            budgets,
            classes: Vec::new(),
            sources: Vec::new(),
            servers: Vec::new(),
            leader_tasks: Vec::new(),
            shard_tasks: Vec::new(),
            enqueue_all: Vec::new(),
            has_synced: Vec::new(),
            drain_timeout,
            catalog: None,
        }
    }

    pub(super) fn add(&mut self, controller: Controller) {
        tracing::debug!(controller = controller.name, "adding controller");
        self.classes.extend(controller.classes);
        self.sources.extend(controller.sources);
        self.servers.extend(controller.servers);
        self.leader_tasks.extend(controller.leader_tasks);
        self.shard_tasks.extend(controller.shard_tasks);
        self.enqueue_all.push(controller.enqueue_all);
        self.has_synced.push(controller.has_synced);
    }

    pub(super) fn add_leader_task(&mut self, task: Option<Task>) {
        self.leader_tasks.extend(task);
    }

    /// Takes the servers, which outlive the work.
    pub(super) fn take_servers(&mut self) -> Vec<Serve> {
        std::mem::take(&mut self.servers)
    }

    /// Runs the watches at once, and everything that writes as soon as this replica leads.
    pub(super) async fn run(
        mut self,
        metrics: &ManagerMetrics,
        health: &ProcessHealth,
        shutdown: &CancellationToken,
        leadership: &mut Leadership,
        database: Option<(&mut OpenCatalog, &DatabaseIdentity)>,
    ) -> Result<(), Error> {
        health.watch_caches(std::mem::take(&mut self.has_synced));
        self.catalog = database.as_ref().map(|(database, _)| database.catalog.clone());
        let is_standby = leadership.is_candidate();
        if is_standby {
            health.stand_by(true);
            self.queue.pause();
        }
        let mut tasks: JoinSet<()> = std::mem::take(&mut self.sources).into_iter().collect();
        let prepared = tokio::select! {
            () = shutdown.cancelled() => None,
            error = wait_for_ended_task(&mut tasks, health) => Some(Err(error)),
            prepared = prepare_to_lead(leadership, database) => Some(prepared),
        };
        let result = match prepared {
            None => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(database)) => {
                health.stand_by(false);
                self.leader_tasks.extend(database.leader_tasks);
                self.shard_tasks.extend(database.shard_tasks);
                if is_standby {
                    self.queue.resume();
                    self.enqueue_all.iter().for_each(|enqueue| enqueue());
                }
                self.work(metrics, health, shutdown, leadership, &mut tasks).await
            }
        };
        shutdown.cancel();
        tasks.shutdown().await;
        result
    }

    async fn work(
        mut self,
        metrics: &ManagerMetrics,
        health: &ProcessHealth,
        shutdown: &CancellationToken,
        leadership: &mut Leadership,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), Error> {
        self.start_tasks(tasks, leadership);
        let classes = std::mem::take(&mut self.classes);
        let pool = WorkerPool::new(
            self.queue.clone(),
            classes,
            self.budgets.clone(),
            metrics.workers.clone(),
        );
        let canceled = CancellationToken::new();
        let mut workers = tokio::spawn(pool.run(canceled.clone()));
        let result = loop {
            let event = tokio::select! {
                () = shutdown.cancelled() => break Ok(()),
                error = wait_for_ended_task(tasks, health) => break Err(error),
                event = leadership.next_event() => event,
                _ = &mut workers => {
                    health.report_ended_task();
                    break Err(Error("workers exited unexpectedly, see log".to_owned()));
                }
            };
            match event {
                LeaderEvent::Lost(error) => break Err(error),
                LeaderEvent::Gained => {
                    self.start_tasks(tasks, leadership);
                    self.enqueue_all.iter().for_each(|enqueue| enqueue());
                }
            }
        };
        // In each case: no new work starts, and readiness fails.
        shutdown.cancel();
        tasks.abort_all();
        self.queue.shut_down();
        let drained = tokio::select! {
            biased;
            // Another process may lead already, so reconciles in progress are canceled.
            error = leadership.lost() => Err(error),
            drained = drain(&mut workers, self.drain_timeout) => drained,
        };
        if !workers.is_finished() {
            canceled.cancel();
            // Errors have been logged; only the end matters.
            let _ = workers.await;
        }
        result.and(drained)
    }

    /// Starts the tasks of a leader that do not run yet. Called for each shard that this process takes.
    fn start_tasks(&mut self, tasks: &mut JoinSet<()>, leadership: &Leadership) {
        for task in self.shard_tasks.drain(..) {
            tasks.spawn(task);
        }
        if leadership.shards().is_primary() {
            for task in self.leader_tasks.drain(..) {
                tasks.spawn(task);
            }
        }
        if let Some(catalog) = &self.catalog {
            tasks.spawn(database::claim_leases(catalog.clone()));
        }
    }
}

#[derive(Default)]
struct DatabaseTasks {
    leader_tasks: Vec<Task>,
    shard_tasks: Vec<Task>,
}

/// Creates or migrates the tables and claims the database, once this replica leads. A database that does not respond
/// delays this by a few seconds: Applications do not need it.
async fn prepare_to_lead(
    leadership: &mut Leadership,
    database: Option<(&mut OpenCatalog, &DatabaseIdentity)>,
) -> Result<DatabaseTasks, Error> {
    leadership.acquire().await;
    let Some((database, identity)) = database else {
        return Ok(DatabaseTasks::default());
    };
    let prepare = async {
        database.ensure_tables().await?;
        // With any shard: no row of another cluster may be written or removed.
        if database.is_ready() {
            let claim = database::claim(&database.catalog, identity, true);
            // A claim that was cut off is repeated by its task.
            timeout(startup::TABLES_TIMEOUT, claim).await.unwrap_or(Ok(false))?;
        }
        Ok(DatabaseTasks {
            leader_tasks: database.leader_tasks(identity),
            shard_tasks: database.shard_tasks(),
        })
    };
    tokio::select! {
        prepared = prepare => prepared,
        error = leadership.lost() => Err(error),
    }
}

/// Waits for the first task that ends. No task should: without it, the process would look healthy and do nothing.
async fn wait_for_ended_task(tasks: &mut JoinSet<()>, health: &ProcessHealth) -> Error {
    tasks.join_next().await;
    health.report_ended_task();
    Error("background task exited unexpectedly, see log".to_owned())
}

/// Waits for reconciles in progress. Canceled ones have written nothing: their transactions are rolled back.
async fn drain(workers: &mut JoinHandle<()>, drain_timeout: Duration) -> Result<(), Error> {
    if workers.is_finished() || timeout(drain_timeout, workers).await.is_ok() {
        tracing::info!("drained");
        return Ok(());
    }
    Err(Error(format!(
        "reconciles in progress were canceled {drain_timeout:?} after the signal; --drain-timeout sets the limit"
    )))
}

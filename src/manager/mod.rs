//! Runs the controllers in one process: build, fill caches, elect, work, drain.
//!
//! The listener for health and metrics starts first and ends last, so that probes see the process wait for a database, and see it
//! drain.

mod database;
mod health;
mod leader;
pub mod once;
mod profiling;
pub mod setup;
pub mod shutdown;
mod startup;

use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::budget::Budgets;
use crate::catalog::Catalog;
use crate::controllers::{Controller, Task, application, apprepository, oam};
use crate::runtime::controller::{Class, Key, WorkerPool};
use crate::runtime::kube_client::{ConnectOptions, connect};
use crate::runtime::workqueue::Queue;
use crate::server::{Authorize, ListenAddress, ProcessMetrics};
use database::Identity;
use health::Health;
use leader::Leadership;
pub use leader::{LeaderElection, LeaseOptions};
use setup::{Metrics, Setup};
use startup::OpenCatalog;
pub use startup::{DatabaseOptions, PasswordSecret, Patience, lock};

/// The timeout for closing connections to the database. With that of the Lease and the runtime, the process ends within
/// 2 s.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The options of the process.
#[derive(Clone)]
pub struct Options {
    pub source: SourceOptions,
    /// The options of the AppRepository controller; it is disabled if `None`.
    pub apprepository: Option<apprepository::Options>,
    /// The options of the Application controller; it is disabled if `None`.
    pub application: Option<application::Options>,
    /// The options of the controller of KubeVela's Applications; it is disabled if `None`.
    pub oam: Option<oam::Options>,
    /// Those of the AppRepository controller, if it is enabled.
    pub budgets: Budgets,
    /// The database of the catalog.
    pub database: DatabaseOptions,
    /// Part of the origin of this cluster's repositories; empty if no other cluster uses the database.
    pub cluster_id: String,
    /// The maximum number of retries and requeues per second.
    pub queue_rate: NonZeroU32,
    /// The burst of retries and requeues above the rate.
    pub queue_burst: NonZeroU32,
    pub listeners: Vec<Listener>,
    pub profiling: Option<Profiling>,
    /// Requires a token that the API server authorizes for `/metrics`.
    pub metrics_auth: bool,
    /// The maximum number of connections to each address.
    pub http_connections: usize,
    /// The timeout for reconciles in progress at shutdown.
    pub drain_timeout: Duration,
    pub leader_election: LeaderElection,
}

/// An address for health or metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: ListenAddress,
    /// The flag of the address, for errors.
    pub flag: &'static str,
    pub has_probes: bool,
    pub has_metrics: bool,
}

/// The listener for profiling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profiling {
    pub address: ListenAddress,
    /// The arguments of the process, without secrets.
    pub command_line: Vec<String>,
}

impl Options {
    fn uses_sqlite(&self) -> bool {
        self.apprepository.is_some() && self.database.is_sqlite()
    }
}

/// The source of objects.
#[derive(Clone, Debug)]
pub enum SourceOptions {
    /// The API server of a cluster.
    Cluster(ConnectOptions),
    /// A directory of manifests.
    Directory(PathBuf),
}

/// A message for the user: the process cannot continue.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    fn from_display(error: impl Display) -> Self {
        Self(error.to_string())
    }
}

/// Runs the controllers until `shutdown`.
///
/// # Errors
/// A part cannot be set up or ends, the Lease is lost, or reconciles do not end within the drain timeout.
pub async fn run(options: &Options, shutdown: CancellationToken) -> Result<(), Error> {
    let mut registry = Registry::default();
    let budgets = options.budgets.metrics();
    let metrics = Metrics::register(&mut registry, budgets, options.oam.as_ref());
    registry.register_collector(Box::new(ProcessMetrics));
    let health = Health::default();
    if let Some(prerequisites) = &metrics.prerequisites {
        health.watch_prerequisites(prerequisites.clone());
    }
    let authorize = authorize_metrics(options, &metrics).await?;
    let listening = health::listen(options, registry, budgets, &health, authorize, &shutdown).await?;
    let profiling = profiling::listen(options).await;
    let result = match &profiling {
        Ok(_) => lead(options, &metrics, &health, &shutdown).await,
        Err(error) => Err(error.clone()),
    };
    if let Ok(Some(profiling)) = profiling {
        profiling.end().await;
    }
    listening.end().await;
    result
}

async fn authorize_metrics(options: &Options, metrics: &Metrics) -> Result<Option<Authorize>, Error> {
    match &options.source {
        SourceOptions::Cluster(cluster) if options.metrics_auth => {
            // The number of reviews is limited instead.
            let unlimited = ConnectOptions {
                limits: None,
                ..cluster.clone()
            };
            let client = connect(&unlimited, &metrics.requests)
                .await
                .map_err(Error::from_display)?;
            Ok(Some(health::authorize_metrics(client)))
        }
        _ => Ok(None),
    }
}

/// Runs the controllers, and releases the Lease last: no work of this process is in progress when another takes over.
async fn lead(
    options: &Options,
    metrics: &Metrics,
    health: &Health,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let leadership = Leadership::new(options, &metrics.requests);
    let Some(leadership) = shutdown.run_until_cancelled(leadership).await else {
        return Ok(());
    };
    let mut leadership = leadership?;
    if let Some(is_known) = leadership.is_known() {
        health.watch_lease(is_known);
    }
    let result = set_up_and_run(options, metrics, health, shutdown, &mut leadership).await;
    leadership.release().await;
    result
}

/// A standby fills its caches before it leads. With SQLite it waits first: the leader holds the lock of the database.
async fn set_up_and_run(
    options: &Options,
    metrics: &Metrics,
    health: &Health,
    shutdown: &CancellationToken,
    leadership: &mut Leadership,
) -> Result<(), Error> {
    if options.uses_sqlite() {
        health.stand_by(leadership.is_candidate());
        if shutdown.run_until_cancelled(leadership.acquire()).await.is_none() {
            return Ok(());
        }
        health.stand_by(false);
    }
    let is_standby = leadership.is_candidate();
    let setup = Setup::new(options, metrics, Patience::Wait, is_standby, shutdown.clone());
    let setup = tokio::select! {
        setup = shutdown.run_until_cancelled(setup) => match setup {
            Some(setup) => setup?,
            None => return Ok(()),
        },
        error = leadership.lost() => return Err(error),
    };
    let mut manager = Manager::new(setup.context.queue.clone(), options.drain_timeout);
    if let (Some(parts), Some(options)) = (setup.apprepository, &options.apprepository) {
        manager.add(parts.into_controller(&setup.context, options));
    }
    let controllers = setup.application.into_iter().chain(setup.oam);
    controllers.for_each(|controller| manager.add(controller));
    let mut database = setup.catalog;
    let identity = setup.identity;
    if let Some(database) = &database {
        health.watch_catalog(database.catalog.clone());
    }
    let result = manager
        .run(
            metrics,
            health,
            shutdown,
            leadership,
            database.as_mut().zip(identity.as_ref()),
        )
        .await;
    if let Some(database) = database {
        close(&database.catalog).await;
        drop(database.lock);
    }
    result
}

/// Closes the catalog. A database that is disconnected may never answer; uncommitted work is rolled back.
async fn close(catalog: &Catalog) {
    let _ = timeout(CLOSE_TIMEOUT, catalog.close()).await;
}

/// The controllers of the process over their shared work queue.
struct Manager {
    queue: Queue<Key>,
    classes: Vec<Class>,
    sources: Vec<Task>,
    leader_tasks: Vec<Task>,
    enqueue_all: Vec<Box<dyn Fn() + Send + Sync>>,
    has_synced: Vec<Box<dyn Fn() -> bool + Send + Sync>>,
    drain_timeout: Duration,
}

impl Manager {
    fn new(queue: Queue<Key>, drain_timeout: Duration) -> Self {
        Self {
            queue,
            classes: Vec::new(),
            sources: Vec::new(),
            leader_tasks: Vec::new(),
            enqueue_all: Vec::new(),
            has_synced: Vec::new(),
            drain_timeout,
        }
    }

    fn add(&mut self, controller: Controller) {
        tracing::debug!(controller = controller.name, "adding controller");
        self.classes.extend(controller.classes);
        self.sources.extend(controller.sources);
        self.leader_tasks.extend(controller.leader_tasks);
        self.enqueue_all.push(controller.enqueue_all);
        self.has_synced.push(controller.has_synced);
    }

    /// Runs the watches at once, and everything that writes as soon as this replica leads.
    async fn run(
        mut self,
        metrics: &Metrics,
        health: &Health,
        shutdown: &CancellationToken,
        leadership: &mut Leadership,
        database: Option<(&mut OpenCatalog, &Identity)>,
    ) -> Result<(), Error> {
        health.watch_caches(std::mem::take(&mut self.has_synced));
        let is_standby = leadership.is_candidate();
        if is_standby {
            health.stand_by(true);
            self.queue.pause();
        }
        let mut tasks: JoinSet<()> = std::mem::take(&mut self.sources).into_iter().collect();
        let prepared = tokio::select! {
            () = shutdown.cancelled() => None,
            error = task_ended(&mut tasks, health) => Some(Err(error)),
            prepared = prepare_to_lead(leadership, database) => Some(prepared),
        };
        let result = match prepared {
            None => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(leader_tasks)) => {
                health.stand_by(false);
                self.leader_tasks.extend(leader_tasks);
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
        self,
        metrics: &Metrics,
        health: &Health,
        shutdown: &CancellationToken,
        leadership: &mut Leadership,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), Error> {
        for task in self.leader_tasks {
            tasks.spawn(task);
        }
        let pool = WorkerPool::new(self.queue.clone(), self.classes, metrics.workers.clone());
        let canceled = CancellationToken::new();
        let mut workers = tokio::spawn(pool.run(canceled.clone()));
        let result = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            error = task_ended(tasks, health) => Err(error),
            error = leadership.lost() => Err(error),
            _ = &mut workers => {
                health.task_ended();
                Err(Error("workers exited unexpectedly, see log".to_owned()))
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
}

/// Waits until this replica leads, then creates or migrates the tables and claims the database. Returns the tasks that
/// keep it usable.
async fn prepare_to_lead(
    leadership: &mut Leadership,
    database: Option<(&mut OpenCatalog, &Identity)>,
) -> Result<Vec<Task>, Error> {
    leadership.acquire().await;
    let Some((database, identity)) = database else {
        return Ok(Vec::new());
    };
    let prepare = async {
        database.ensure_tables().await?;
        if database.is_ready() {
            database::claim(&database.catalog, identity, true).await?;
        }
        Ok(database.leader_tasks(identity))
    };
    tokio::select! {
        prepared = prepare => prepared,
        error = leadership.lost() => Err(error),
    }
}

/// Waits for the first task that ends. None does so regularly: without it, the process would look healthy and do nothing.
async fn task_ended(tasks: &mut JoinSet<()>, health: &Health) -> Error {
    tasks.join_next().await;
    health.task_ended();
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

//! Runs the controllers in one process: build, fill caches, elect, work, drain. The listener for health and metrics
//! starts first and ends last, so that probes see the process wait for a database, and see it drain.

pub mod archives;
mod catalog_server;
mod database;
mod debug;
pub mod gc;
mod health;
mod leader;
pub mod once;
mod releases;
mod run_catalog;
pub mod serve;
pub mod setup;
pub mod shutdown;
mod startup;
pub mod uninstall;
mod work;

use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::budget::Budgets;
use crate::catalog::Catalog;
use crate::controllers::{application, apprepository, oam};
use crate::releases::metrics::ReleaseMetrics;
use crate::runtime::kube_client::{ConnectOptions, connect};
use crate::server::{Authorize, HealthCheck, Info, ListenAddress, LogFilter, ProcessMetrics};
use crate::trace::SpanMetrics;
pub use catalog_server::{CatalogAddress, CatalogOptions};
use catalog_server::{CatalogContext, CatalogMetrics};
pub use debug::DebugListener;
use health::{ProcessHealth, Served};
use leader::Leadership;
pub use leader::{LeaderElection, LeaseOptions, NAME as LEASE_NAME};
pub use releases::ReleaseOptions;
use run_catalog::RunningCatalog;
use setup::{ManagerMetrics, Setup};
use startup::CatalogAccess;
pub use startup::{DatabaseOptions, PasswordSecret, Patience, lock};
use work::Manager;

/// With the timeouts of the Lease and the runtime, the process ends within 2 s.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub struct Options {
    pub source: SourceOptions,
    /// Controllers are disabled if `None`.
    pub apprepository: Option<apprepository::Options>,
    pub application: Option<application::Options>,
    pub oam: Option<oam::Options>,
    /// The budgets of the AppRepository controller, if it is enabled.
    pub budgets: Budgets,
    pub database: DatabaseOptions,
    /// Part of the origin of this cluster's repositories; empty if no other cluster uses the database.
    pub cluster_id: String,
    /// The maximum number of retries and requeues per second.
    pub queue_rate: NonZeroU32,
    /// The burst of retries and requeues above the rate.
    pub queue_burst: NonZeroU32,
    pub listeners: Vec<Listener>,
    /// Serves the catalog in this process.
    pub catalog: Option<CatalogOptions>,
    /// Watches the releases of the cluster.
    pub releases: Option<ReleaseOptions>,
    pub debug: Option<DebugListener>,
    pub log_filter: Option<Arc<dyn LogFilter>>,
    pub spans: Option<SpanMetrics>,
    /// Requires a token that the API server authorizes for `/metrics`.
    pub metrics_auth: bool,
    /// The maximum number of connections to each address.
    pub http_connections: usize,
    pub drain_timeout: Duration,
    pub leader_election: LeaderElection,
    /// Selects the objects to watch by their labels, normalized; all objects if `None`.
    pub label_selector: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: ListenAddress,
    /// The flag of the address, for errors.
    pub flag: &'static str,
    pub has_probes: bool,
    pub has_metrics: bool,
}

impl Options {
    fn uses_sqlite(&self) -> bool {
        self.apprepository.is_some() && self.database.is_sqlite()
    }

    /// A pod that is not ready gets no reviews, and KubeVela's Applications need neither database nor catalog.
    fn optional_beside_webhooks(&self, check: HealthCheck) -> HealthCheck {
        let serves_webhooks = self.oam.as_ref().is_some_and(|oam| oam.webhooks.is_some());
        if serves_webhooks { check.optional() } else { check }
    }
}

#[derive(Clone, Debug)]
pub enum SourceOptions {
    Cluster(ConnectOptions),
    Directory(PathBuf),
}

impl SourceOptions {
    /// Returns the same source for requests that have limits of their own.
    fn without_limits(&self) -> Self {
        match self {
            Self::Directory(directory) => Self::Directory(directory.clone()),
            Self::Cluster(cluster) => Self::Cluster(ConnectOptions {
                limits: None,
                ..cluster.clone()
            }),
        }
    }
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    fn from_display(error: impl Display) -> Self {
        Self(error.to_string())
    }
}

/// Fails if a part ends, the Lease is lost, or reconciles do not end within the drain timeout.
pub async fn run(options: &Options, shutdown: CancellationToken) -> Result<(), Error> {
    let mut registry = Registry::default();
    let budgets = options.budgets.metrics();
    let metrics = ManagerMetrics::register(&mut registry, budgets, options.oam.as_ref());
    registry.register_collector(Box::new(ProcessMetrics));
    if let Some(spans) = &options.spans {
        spans.register(&mut registry);
    }
    if let Some(releases) = &options.releases {
        registry.register_collector(Box::new(ReleaseMetrics(releases.watched.clone())));
    }
    let health = ProcessHealth::default();
    let authorize = authorize_metrics(options, &metrics).await?;
    let prerequisites = metrics.oam.as_ref().map(|oam| &oam.prerequisites);
    let mut ready = health.ready_checks(options, prerequisites, &shutdown);
    let mut servers = Servers {
        reviews: JoinSet::new(),
        catalog: start_catalog(options, &metrics, &mut registry, &shutdown).await?,
    };
    let check = servers.catalog.as_ref().map(RunningCatalog::check);
    ready.extend(check.map(|check| options.optional_beside_webhooks(check)));
    let oam = options.oam.as_ref();
    let served = Served {
        listeners: &options.listeners,
        connections: options.http_connections,
        registry,
        budgets,
        ready,
        info: Info {
            version: env!("CARGO_PKG_VERSION"),
            compat_version: oam.map(|oam| oam.compat_version.clone()),
            storage_driver: oam.map(|oam| oam.storage_driver.clone()),
        },
        authorize,
    };
    let listening = health::listen(served, &health).await?;
    let debug = debug::listen(options).await;
    let result = match &debug {
        Ok(_) => lead(options, &metrics, &health, &shutdown, &mut servers).await,
        Err(error) => Err(error.clone()),
    };
    servers.end().await;
    if let Ok(Some(debug)) = debug {
        debug.end().await;
    }
    listening.end().await;
    result
}

/// Servers of others' requests, which end after the work: clients still know this process for a while.
struct Servers {
    reviews: JoinSet<()>,
    catalog: Option<RunningCatalog>,
}

impl Servers {
    async fn end_catalog(&mut self) {
        if let Some(catalog) = self.catalog.take() {
            catalog.end().await;
        }
    }

    async fn end(&mut self) {
        self.end_catalog().await;
        while self.reviews.join_next().await.is_some() {}
    }
}

/// Starts the server of the catalog, if it is enabled.
async fn start_catalog(
    options: &Options,
    metrics: &ManagerMetrics,
    registry: &mut Registry,
    shutdown: &CancellationToken,
) -> Result<Option<RunningCatalog>, Error> {
    let Some(catalog) = &options.catalog else {
        return Ok(None);
    };
    let context = CatalogContext {
        // The number of reviews is limited instead.
        source: options.source.without_limits(),
        database: options.database.clone(),
        cluster_id: options.cluster_id.clone(),
        budgets: options.budgets.clone(),
        requests: metrics.requests.clone(),
        metrics: CatalogMetrics::register(registry, options.budgets.metrics()),
        releases: options.releases.as_ref().map(|releases| releases.watched.clone()),
    };
    RunningCatalog::start(catalog, context, shutdown).await.map(Some)
}

async fn authorize_metrics(options: &Options, metrics: &ManagerMetrics) -> Result<Option<Authorize>, Error> {
    // The number of reviews is limited instead.
    match options.source.without_limits() {
        SourceOptions::Cluster(unlimited) if options.metrics_auth => {
            let client = connect(&unlimited, &metrics.requests)
                .await
                .map_err(Error::from_display)?;
            Ok(Some(health::authorize_metrics(client)))
        }
        _ => Ok(None),
    }
}

/// Runs the controllers, and then releases the Lease: no work of this process is in progress when another takes over.
async fn lead(
    options: &Options,
    metrics: &ManagerMetrics,
    health: &ProcessHealth,
    shutdown: &CancellationToken,
    servers: &mut Servers,
) -> Result<(), Error> {
    let leadership = Leadership::new(options, &metrics.requests, &metrics.leader_election);
    let Some(leadership) = shutdown.run_until_cancelled(leadership).await else {
        return Ok(());
    };
    let mut leadership = leadership?;
    let options = &leadership.fence_options(options);
    if let Some(is_known) = leadership.is_known() {
        health.watch_lease(is_known);
    }
    let result = set_up_and_run(options, metrics, health, shutdown, &mut leadership, servers).await;
    leadership.release().await;
    result
}

/// A standby fills its caches before it leads. With SQLite it waits first: the leader holds the lock of the database.
async fn set_up_and_run(
    options: &Options,
    metrics: &ManagerMetrics,
    health: &ProcessHealth,
    shutdown: &CancellationToken,
    leadership: &mut Leadership,
    servers: &mut Servers,
) -> Result<(), Error> {
    if options.uses_sqlite() {
        health.stand_by(leadership.is_candidate());
        if shutdown.run_until_cancelled(leadership.acquire()).await.is_none() {
            return Ok(());
        }
        health.stand_by(false);
    }
    let access = if leadership.is_candidate() {
        CatalogAccess::WriteOnceLeading
    } else {
        CatalogAccess::Write
    };
    let shared = (leadership.shards().clone(), shutdown.clone());
    let setup = Setup::new(options, metrics, Patience::Wait, access, shared);
    let setup = tokio::select! {
        setup = shutdown.run_until_cancelled(setup) => match setup {
            Some(setup) => setup?,
            None => return Ok(()),
        },
        error = leadership.lost() => return Err(error),
    };
    let mut manager = Manager::new(
        setup.context.queue.clone(),
        setup.context.budgets.clone(),
        options.drain_timeout,
    );
    let mut database = None;
    if let Some(repositories) = setup.repositories {
        manager.add_leader_task(releases::task(options, &setup.context.source, &repositories));
        let controller = repositories
            .parts
            .into_controller(&setup.context, &repositories.options);
        manager.add(controller);
        health.watch_catalog(repositories.catalog.catalog.clone());
        leadership.fence_catalog(&repositories.catalog.catalog, &repositories.identity.origin);
        database = Some((repositories.catalog, repositories.identity));
    }
    setup
        .controllers
        .into_iter()
        .for_each(|controller| manager.add(controller));
    let open = database.as_mut().map(|(catalog, identity)| (catalog, &*identity));
    for serve in manager.take_servers() {
        servers.reviews.spawn(serve(shutdown.clone()));
    }
    if let Some(catalog) = &servers.catalog {
        catalog.announce_after_first_attempts(health.clone(), setup.context.queue.clone());
    }
    let result = manager.run(metrics, health, shutdown, leadership, open).await;
    // SQLite completes its file when the last connection is closed, if that may write.
    servers.end_catalog().await;
    if let Some((database, _)) = database {
        close(&database.catalog).await;
        drop(database.lock);
    }
    result
}

/// Closes the catalog. A database that is disconnected may never answer; uncommitted work is rolled back.
async fn close(catalog: &Catalog) {
    let _ = timeout(CLOSE_TIMEOUT, catalog.close()).await;
}

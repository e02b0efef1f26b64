//! `portolan serve`: the catalog over HTTP, read-only. It holds no Lease and runs no controllers.
//!
//! ```text
//!  health and metrics ─► API server: origin ─► first snapshot ─► ready ─► shutdown, drain
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::health::{self, ProcessHealth, Served, condition, listen_error, shutdown_check};
use super::setup::{connect_source, origin};
use super::{CLOSE_TIMEOUT, DatabaseOptions, Error, Listener, Patience, SourceOptions};
use crate::budget::{self, Budgets};
use crate::controllers::Source;
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::serve::access::{Access, AccessMetrics, AccessOptions, ClusterReviews};
use crate::serve::helm::HelmOptions;
use crate::serve::limits::{RequestLimits, TrustedProxies};
use crate::serve::live::Live;
use crate::serve::metrics::ServeMetrics;
use crate::serve::site::{Site, SiteOptions};
use crate::serve::snapshot::Snapshot;
use crate::server::{Info, ListenAddress, ProcessMetrics, Server, ServerLimits};

/// The maximum number of connections to each address.
const CONNECTIONS: usize = 256;
/// Between attempts to read the first snapshot.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct ServeOptions {
    pub source: SourceOptions,
    pub database: DatabaseOptions,
    /// As of the process that writes the repositories.
    pub cluster_id: String,
    /// All namespaces if `None`.
    pub namespace: Option<String>,
    /// The address of the catalog.
    pub address: ListenAddress,
    /// For health and metrics.
    pub listener: Listener,
    /// The path before `/api`; empty if there is none.
    pub prefix: String,
    /// Without effect for a directory of manifests, which everybody sees.
    pub access: AccessOptions,
}

/// Serves until the shutdown. Fails if an address can't be bound, or the API server refuses what is needed.
pub async fn run(options: &ServeOptions, shutdown: CancellationToken) -> Result<(), Error> {
    let mut registry = Registry::default();
    let budgets = budget::Metrics::default();
    budgets.register(&mut registry);
    registry.register_collector(Box::new(ProcessMetrics));
    let metrics = Metrics {
        requests: RequestMetrics::register(&mut registry, budgets.of("api_requests", 0)),
        access: AccessMetrics::register(&mut registry, budgets.of("access_reviews", 0)),
        serve: ServeMetrics::register(&mut registry),
        budgets,
    };
    let is_loaded = Arc::new(AtomicBool::new(false));
    let has_snapshot = Arc::clone(&is_loaded);
    let snapshot = condition("catalog", "the catalog has not been read", move || {
        has_snapshot.load(Ordering::Relaxed)
    });
    let served = Served {
        listeners: std::slice::from_ref(&options.listener),
        connections: CONNECTIONS,
        registry,
        budgets: &metrics.budgets,
        ready: vec![snapshot, shutdown_check(shutdown.clone())],
        info: Info {
            version: env!("CARGO_PKG_VERSION"),
            compat_version: None,
            storage_driver: None,
        },
        authorize: None,
    };
    let listening = health::listen(served, &ProcessHealth::default()).await?;
    let result = serve(options, &metrics, &is_loaded, shutdown).await;
    listening.end().await;
    result
}

struct Metrics {
    requests: RequestMetrics,
    access: AccessMetrics,
    serve: ServeMetrics,
    budgets: budget::Metrics,
}

async fn serve(
    options: &ServeOptions,
    metrics: &Metrics,
    is_loaded: &AtomicBool,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let bound = options.address.bind().await;
    let listener = bound.map_err(|error| listen_error(&options.address, "--serve", &error))?;
    let Some(connected) = shutdown.run_until_cancelled(connect(options, metrics)).await else {
        return Ok(());
    };
    let (live, access) = connected?;
    let live = Arc::new(live);
    let first = async {
        while live.view().await.is_err() {
            sleep(RETRY).await;
        }
        is_loaded.store(true, Ordering::Relaxed);
    };
    let site = Site::new(SiteOptions {
        live: Arc::clone(&live),
        access,
        prefix: options.prefix.clone(),
        external_origin: None,
        metrics: metrics.serve.clone(),
        limits: RequestLimits::default(),
        trusted_proxies: TrustedProxies::default(),
        helm: HelmOptions::default(),
        budgets: Budgets::default(),
    });
    let server = Server::new(
        listener,
        site.routes(),
        ServerLimits::for_catalog(CONNECTIONS),
        None,
        metrics.budgets.of("catalog_connections", CONNECTIONS as u64),
    );
    if let Ok(address) = server.local_addr() {
        tracing::info!(%address, path = options.prefix, "serving the catalog");
    }
    tokio::join!(server.run(shutdown.clone()), shutdown.run_until_cancelled(first));
    // A database that is disconnected may never answer.
    let _ = timeout(CLOSE_TIMEOUT, live.close()).await;
    Ok(())
}

/// Waits for the API server, which knows whose repositories are served. The database may be away.
async fn connect(options: &ServeOptions, metrics: &Metrics) -> Result<(Live, Access), Error> {
    let source = connect_source(&options.source, &metrics.requests).await?;
    let origin = origin(&source, &options.cluster_id, Patience::Wait).await?;
    let mut settings = options.database.settings(None).map_err(Error::from_display)?;
    settings.metrics = metrics.budgets.of("database_connections", 0);
    let empty = Snapshot::new(options.namespace.clone()).of_origin(origin.id().to_owned());
    let access = match source {
        Source::Directory(_) => Access::everything(),
        Source::Cluster(client) => {
            let access = AccessOptions {
                metrics: metrics.access.clone(),
                ..options.access.clone()
            };
            Access::new(access, Arc::new(ClusterReviews::new(client)))
        }
    };
    Ok((Live::new(settings, empty, metrics.serve.clone()), access))
}

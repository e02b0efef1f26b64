//! `portolan serve`: the catalog over HTTP, read-only. It holds no Lease and runs no controllers.
//!
//! ```text
//!  health and metrics ─► API server: origin ─► first snapshot ─► ready ─► shutdown, drain
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::catalog_server::{CatalogContext, CatalogMetrics, CatalogOptions, CatalogServer};
use super::health::{self, ProcessHealth, Served, condition, shutdown_check};
use super::{DatabaseOptions, Error, Listener, SourceOptions};
use crate::budget::Budgets;
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::server::{Info, ProcessMetrics};

/// The maximum number of connections for health and metrics.
const CONNECTIONS: usize = 256;
/// Between attempts to read the first snapshot.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct ServeOptions {
    pub source: SourceOptions,
    pub database: DatabaseOptions,
    /// As of the process that writes the repositories.
    pub cluster_id: String,
    pub budgets: Budgets,
    pub catalog: CatalogOptions,
    /// For health and metrics.
    pub listener: Listener,
}

/// Serves until the shutdown. Fails if an address can't be bound, or the API server refuses what is needed.
pub async fn run(options: &ServeOptions, shutdown: CancellationToken) -> Result<(), Error> {
    let mut registry = Registry::default();
    let budgets = options.budgets.metrics();
    budgets.register(&mut registry);
    registry.register_collector(Box::new(ProcessMetrics));
    let context = CatalogContext {
        source: options.source.clone(),
        database: options.database.clone(),
        cluster_id: options.cluster_id.clone(),
        budgets: options.budgets.clone(),
        requests: RequestMetrics::register(&mut registry, budgets.of("api_requests", 0)),
        metrics: CatalogMetrics::register(&mut registry, budgets),
        // This process has no right to read them.
        releases: None,
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
        budgets,
        ready: vec![snapshot, shutdown_check(shutdown.clone())],
        info: Info {
            version: env!("CARGO_PKG_VERSION"),
            compat_version: None,
            storage_driver: None,
        },
        authorize: None,
    };
    let listening = health::listen(served, &ProcessHealth::default()).await?;
    let result = match options.catalog.address.bind().await {
        Ok(listener) => serve(listener, options, &context, &is_loaded, shutdown).await,
        Err(error) => Err(error),
    };
    listening.end().await;
    result
}

/// Is ready once the first snapshot is read. Later faults are answered by request.
async fn serve(
    listener: TcpListener,
    options: &ServeOptions,
    context: &CatalogContext,
    is_loaded: &AtomicBool,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let connect = CatalogServer::connect(listener, CatalogServer::limits(), &options.catalog, context);
    let Some(server) = shutdown.run_until_cancelled(connect).await else {
        return Ok(());
    };
    let server = server?;
    let live = server.live();
    let first = async {
        while live.view().await.is_err() {
            sleep(RETRY).await;
        }
        is_loaded.store(true, Ordering::Relaxed);
    };
    tokio::join!(server.run(shutdown.clone()), shutdown.run_until_cancelled(first));
    Ok(())
}

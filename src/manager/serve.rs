//! `portolan serve`: the catalog over HTTP, read-only, or receivers of webhooks. It holds no Lease and runs no controllers.
//!
//! ```text
//!  health and metrics ─► API server: origin ─► first snapshot ─► ready ─► shutdown, drain
//!                    └─► receivers: ready at once ───────────────────────────┘
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::catalog_server::{CatalogAddress, CatalogContext, CatalogMetrics, CatalogOptions, CatalogServer};
use super::health::{self, Listening, ProcessHealth, Served, condition, shutdown_check};
use super::{DatabaseOptions, Error, Listener, SourceOptions};
use crate::budget::Budgets;
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::{ConnectOptions, connect};
use crate::serve::hooks::{ClusterObjects, HookMetrics, HookOptions, Hooks, MAX_BODIES};
use crate::serve::limits::TrustedProxies;
use crate::server::{HealthCheck, Info, ProcessMetrics, Server, ServerLimits};

/// The maximum number of connections for health and metrics, and to receivers.
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

/// Receivers of webhooks, without a catalog and a database.
#[derive(Clone)]
pub struct ReceiverOptions {
    pub cluster: ConnectOptions,
    /// Those whose repositories have receivers.
    pub namespaces: Vec<String>,
    pub address: CatalogAddress,
    pub trusted_proxies: TrustedProxies,
    pub budgets: Budgets,
    /// For health and metrics.
    pub listener: Listener,
}

/// Serves until the shutdown. Fails if an address can't be bound, or the API server refuses what is needed.
pub async fn run(options: &ServeOptions, shutdown: CancellationToken) -> Result<(), Error> {
    let (mut registry, budgets) = (process_registry(&options.budgets), options.budgets.metrics());
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
    let ready = vec![snapshot, shutdown_check(shutdown.clone())];
    let listening = listen(&options.listener, &options.budgets, registry, ready).await?;
    let result = match options.catalog.address.bind().await {
        Ok(listener) => serve(listener, options, &context, &is_loaded, shutdown).await,
        Err(error) => Err(error),
    };
    listening.end().await;
    result
}

fn process_registry(budgets: &Budgets) -> Registry {
    let mut registry = Registry::default();
    budgets.metrics().register(&mut registry);
    registry.register_collector(Box::new(ProcessMetrics));
    registry
}

/// Serves health and metrics.
async fn listen(
    listener: &Listener,
    budgets: &Budgets,
    registry: Registry,
    ready: Vec<HealthCheck>,
) -> Result<Listening, Error> {
    let served = Served {
        listeners: std::slice::from_ref(listener),
        connections: CONNECTIONS,
        registry,
        budgets: budgets.metrics(),
        ready,
        info: Info {
            version: env!("CARGO_PKG_VERSION"),
            compat_version: None,
            storage_driver: None,
        },
        authorize: None,
    };
    health::listen(served, &ProcessHealth::default()).await
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

/// Serves receivers of webhooks until the shutdown. It is ready at once: each request asks the API server.
pub async fn run_receivers(options: &ReceiverOptions, shutdown: CancellationToken) -> Result<(), Error> {
    let (mut registry, budgets) = (process_registry(&options.budgets), options.budgets.metrics());
    let requests = RequestMetrics::register(&mut registry, budgets.of("api_requests", 0));
    let metrics = HookMetrics::register(&mut registry);
    let client = connect(&options.cluster, &requests)
        .await
        .map_err(Error::from_display)?;
    let hooks = Hooks::new(HookOptions {
        objects: Arc::new(ClusterObjects::new(client)),
        namespaces: options.namespaces.clone(),
        trusted_proxies: options.trusted_proxies.clone(),
        bodies: budgets.of("receiver_bodies", MAX_BODIES as u64),
        metrics,
    });
    let connections = budgets.of("receiver_connections", CONNECTIONS as u64);
    let listener = options.address.bind().await?;
    let limits = ServerLimits::for_webhooks(CONNECTIONS);
    let server = Server::new(listener, hooks.routes(), limits, None, connections);
    if let Ok(address) = server.local_addr() {
        tracing::info!(%address, "serving receivers");
    }
    let ready = vec![shutdown_check(shutdown.clone())];
    let listening = listen(&options.listener, &options.budgets, registry, ready).await?;
    server.run(shutdown).await;
    listening.end().await;
    Ok(())
}

//! The server of the catalog, in `portolan serve` and in `portolan run`. It has its own listener, and its own read-only handle
//! of the database: readers take no connection from a sync.
//!
//! ```text
//!  bind ─► API server: origin ─► serve ─► shutdown, drain ─► close the database
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::archives::{ArchiveOptions, Archives};
use super::health::listen_error;
use super::setup::{connect_source, origin};
use super::{CLOSE_TIMEOUT, DatabaseOptions, Error, PasswordSecret, Patience, SourceOptions, database, startup};
use crate::budget::{self, Budgets};
use crate::controllers::Source;
use crate::controllers::apprepository::origin::Origin;
use crate::releases::watched::WatchedReleases;
use crate::runtime::kube_client::connect_without_credentials;
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::serve::access::{Access, AccessMetrics, AccessOptions, ClusterReviews, ListedResource, Visible};
use crate::serve::cluster::ClusterReader;
use crate::serve::helm::{ArchiveMode, ArchiveSource, HelmOptions};
use crate::serve::limits::{RequestLimits, TrustedProxies};
use crate::serve::live::{Live, LiveOptions};
use crate::serve::metrics::ServeMetrics;
use crate::serve::releases::ReleaseReader;
use crate::serve::site::{Site, SiteOptions};
use crate::serve::snapshot::Snapshot;
use crate::server::{ListenAddress, Server, ServerLimits};

/// The maximum number of connections to the catalog.
const CONNECTIONS: usize = 256;
/// Tried in this order on loopback: two processes of a developer get different ones.
const PORTS: RangeInclusive<u16> = 8090..=8099;

#[derive(Clone)]
pub struct CatalogOptions {
    pub address: CatalogAddress,
    /// All namespaces if `None`.
    pub namespace: Option<String>,
    /// The path before `/api`; empty if there is none.
    pub prefix: String,
    /// Scheme and authority of `--external-url`.
    pub external_origin: Option<String>,
    /// Without effect for a directory of manifests, which everybody sees.
    pub access: AccessOptions,
    pub limits: RequestLimits,
    pub trusted_proxies: TrustedProxies,
    /// Fetches archives for clients; they are redirected if `None`.
    pub archives: Option<ArchiveOptions>,
    /// Directory of rendered indexes and fetched archives; `None` for the system's default.
    pub spool_dir: Option<PathBuf>,
    /// The maximum number of connections to Postgres.
    pub database_connections: u32,
    /// The maximum size of the snapshot in memory, in bytes.
    pub memory: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogAddress {
    Fixed(ListenAddress),
    /// On loopback: port 8090, or else another one that is free.
    FreePort,
}

impl CatalogAddress {
    pub(super) async fn bind(&self) -> Result<TcpListener, Error> {
        match self {
            Self::Fixed(address) => {
                let bound = address.bind().await;
                bound.map_err(|error| listen_error(address, "--serve", &error))
            }
            Self::FreePort => bind_free_port().await,
        }
    }
}

async fn bind_free_port() -> Result<TcpListener, Error> {
    for port in PORTS {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            return Ok(listener);
        }
    }
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    bound.map_err(|error| {
        Error(format!(
            "failed to listen on 127.0.0.1: {error}; turn the catalog off with --serve="
        ))
    })
}

#[derive(Clone)]
pub(super) struct CatalogMetrics {
    access: AccessMetrics,
    serve: ServeMetrics,
}

impl CatalogMetrics {
    pub(super) fn register(registry: &mut Registry, budgets: &budget::Metrics) -> Self {
        Self {
            access: AccessMetrics::register(registry, budgets.of("access_reviews", 0)),
            serve: ServeMetrics::register(registry),
        }
    }
}

/// The parts that the server shares with its process.
pub(super) struct CatalogContext {
    pub(super) source: SourceOptions,
    pub(super) database: DatabaseOptions,
    /// As of the process that writes the repositories.
    pub(super) cluster_id: String,
    pub(super) budgets: Budgets,
    pub(super) requests: RequestMetrics,
    pub(super) metrics: CatalogMetrics,
    /// `None` unless this process watches releases.
    pub(super) releases: Option<WatchedReleases>,
}

/// A server whose address is bound, and that knows whose repositories it serves.
pub(super) struct CatalogServer {
    live: Arc<Live>,
    server: Server,
    password: Option<(PasswordSecret, kube::Client)>,
}

impl CatalogServer {
    /// Returns the limits of the listener.
    pub(super) fn limits() -> ServerLimits {
        ServerLimits::for_catalog(CONNECTIONS)
    }

    /// Waits for the API server, which knows the origin. The database may be away.
    pub(super) async fn connect(
        listener: TcpListener,
        limits: ServerLimits,
        options: &CatalogOptions,
        context: &CatalogContext,
    ) -> Result<Self, Error> {
        let source = connect_source(&context.source, &context.requests).await?;
        let origin = Arc::new(origin(&source, &context.cluster_id, Patience::Wait).await?);
        let password = context.database.password_source(&source);
        let initial = startup::password(&context.database, &source, Patience::Wait).await?;
        let mut settings = context.database.settings(initial).map_err(Error::from_display)?;
        settings.postgres_connections = options.database_connections;
        settings.metrics = context.budgets.metrics().of("catalog_database_connections", 0);
        let live = Arc::new(Live::new(LiveOptions {
            settings,
            empty: Snapshot::new(options.namespace.clone()).of_origin(origin.id().to_owned()),
            metrics: context.metrics.serve.clone(),
            memory: options.memory,
        }));
        let helm = helm(&source, origin, options, context).await?;
        let cluster = cluster(context).await?;
        let releases = releases(&source, options, context);
        let site = Site::new(SiteOptions {
            live: Arc::clone(&live),
            access: access(source, options, &context.metrics),
            prefix: options.prefix.clone(),
            external_origin: options.external_origin.clone(),
            metrics: context.metrics.serve.clone(),
            limits: options.limits,
            trusted_proxies: options.trusted_proxies.clone(),
            helm,
            cluster,
            releases,
            budgets: context.budgets.clone(),
        });
        let connections = context
            .budgets
            .metrics()
            .of("catalog_connections", limits.connections as u64);
        let server = Server::new(listener, site.routes(), limits, None, connections);
        if let Ok(address) = server.local_addr() {
            tracing::info!(%address, path = options.prefix, "serving the catalog");
        }
        Ok(Self { live, server, password })
    }

    pub(super) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live)
    }

    /// Serves until the shutdown, and drains.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let Self { live, server, password } = self;
        tokio::select! {
            () = server.run(shutdown) => {}
            () = refresh_password(&live, password) => {}
        }
        // A database that is disconnected may never answer.
        let _ = timeout(CLOSE_TIMEOUT, live.close()).await;
    }
}

/// Keeps up with the password of Postgres, as the controllers do. Never returns.
async fn refresh_password(live: &Live, password: Option<(PasswordSecret, kube::Client)>) {
    if let Some((secret, client)) = password
        // Postgres is opened without a connection.
        && let Ok(catalog) = live.catalog().await
    {
        database::refresh_password(catalog, secret, client).await;
    }
    std::future::pending().await
}

async fn helm(
    source: &Source,
    origin: Arc<Origin>,
    options: &CatalogOptions,
    context: &CatalogContext,
) -> Result<HelmOptions, Error> {
    let (mut archives, mut fetches) = (ArchiveMode::Redirect, None);
    if let Some(options) = options.archives.clone() {
        archives = ArchiveMode::Proxy;
        let fetched = Archives::new(options, &context.source, source.clone(), origin).await?;
        fetches = Some(Arc::new(fetched) as Arc<dyn ArchiveSource>);
    }
    Ok(HelmOptions {
        archives,
        source: fetches,
        spool: context.budgets.spool.clone(),
        spool_dir: options.spool_dir.clone(),
    })
}

/// Returns a reader with the rights of callers.
async fn cluster(context: &CatalogContext) -> Result<Option<ClusterReader>, Error> {
    match &context.source {
        SourceOptions::Directory(_) => Ok(None),
        SourceOptions::Cluster(cluster) => {
            let client = connect_without_credentials(cluster, &context.requests).await;
            let client = client.map_err(Error::from_display)?;
            Ok(Some(ClusterReader::new(client, &context.budgets)))
        }
    }
}

fn access(source: Source, options: &CatalogOptions, metrics: &CatalogMetrics) -> Access {
    match source {
        Source::Directory(_) => Access::everything(),
        Source::Cluster(client) => {
            let access = AccessOptions {
                watched_namespace: options.namespace.clone(),
                metrics: metrics.access.clone(),
                ..options.access.clone()
            };
            let reviews = ClusterReviews::new(client, ListedResource::AppRepositories);
            Access::new(access, Arc::new(reviews))
        }
    }
}

/// Returns the watched releases with reviews of their own: a right to list AppRepositories shows no release.
fn releases(source: &Source, options: &CatalogOptions, context: &CatalogContext) -> Option<ReleaseReader> {
    let (Source::Cluster(client), Some(releases)) = (source, &context.releases) else {
        return None;
    };
    let access = AccessOptions {
        resource: ListedResource::Releases,
        anonymous: Visible::default(),
        global_repos_namespace: None,
        watched_namespace: options.namespace.clone(),
        metrics: context.metrics.access.clone(),
        ..options.access.clone()
    };
    let reviews = ClusterReviews::new(client.clone(), ListedResource::Releases);
    Some(ReleaseReader {
        releases: releases.clone(),
        access: Access::new(access, Arc::new(reviews)),
    })
}

/// Returns the URL of the catalog's page.
pub(super) fn url(address: SocketAddr, prefix: &str) -> String {
    format!("http://{address}{prefix}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_processes_get_different_ports_of_loopback() {
        let (first, second) = (
            CatalogAddress::FreePort.bind().await,
            CatalogAddress::FreePort.bind().await,
        );
        let [first, second] = [first, second].map(|listener| listener.unwrap().local_addr().unwrap());
        assert!(first.ip().is_loopback() && second.ip().is_loopback());
        assert_ne!(first.port(), second.port());
    }

    #[tokio::test]
    async fn a_fixed_port_that_is_in_use_is_an_error_that_names_the_flag() {
        let used = CatalogAddress::FreePort.bind().await.unwrap();
        let address = used.local_addr().unwrap().to_string().parse().unwrap();
        let error = CatalogAddress::Fixed(address).bind().await.unwrap_err();
        assert!(error.to_string().contains("--serve"), "{error}");
    }
}

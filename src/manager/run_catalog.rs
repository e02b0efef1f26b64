//! The server of the catalog beside the controllers. Its faults end no sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::catalog_server::{CatalogContext, CatalogOptions, CatalogServer, url};
use super::health::{ProcessHealth, condition};
use super::{Error, SourceOptions};
use crate::controllers::apprepository;
use crate::runtime::controller::Key;
use crate::runtime::workqueue::Queue;
use crate::server::{HealthCheck, ServerLimits};

/// Time after the start, at which the URL is logged although repositories have not been tried.
const FIRST_ATTEMPTS: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A server that runs until [`Self::end`].
pub(super) struct RunningCatalog {
    shutdown: CancellationToken,
    attempted: CancellationToken,
    has_connected: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl RunningCatalog {
    /// Binds the address, and starts the server. It also ends with the process.
    pub(super) async fn start(
        options: &CatalogOptions,
        context: CatalogContext,
        shutdown: &CancellationToken,
    ) -> Result<Self, Error> {
        let listener = options.address.bind().await?;
        let address = listener.local_addr().map_err(Error::from_display)?;
        let mut limits = CatalogServer::limits();
        if address.ip().is_loopback() {
            // No load balancer has to learn of the end.
            limits = ServerLimits {
                linger: Duration::ZERO,
                ..limits
            };
        }
        let (shutdown, attempted) = (shutdown.child_token(), CancellationToken::new());
        let is_local = matches!(context.source, SourceOptions::Directory(_));
        let announced = is_local.then(|| announce(url(address, &options.prefix), attempted.clone(), shutdown.clone()));
        let (options, ended) = (options.clone(), shutdown.clone());
        let connected = Arc::new(AtomicBool::new(false));
        let has_connected = Arc::clone(&connected);
        let task = tokio::spawn(async move {
            let connect = CatalogServer::connect(listener, limits, &options, &context);
            match ended.run_until_cancelled(connect).await {
                None => {}
                Some(Ok(server)) => {
                    connected.store(true, Ordering::Relaxed);
                    if let Some(announced) = announced {
                        tokio::spawn(announced);
                    }
                    server.run(ended.clone()).await;
                }
                Some(Err(error)) => tracing::error!(%error, "failed to serve the catalog, repositories are synced"),
            }
        });
        Ok(Self {
            shutdown,
            attempted,
            has_connected,
            task,
        })
    }

    /// Fails before the server answers, and once it has ended. Its name is not that of `portolan serve`, by which alerts know
    /// processes without controllers.
    pub(super) fn check(&self) -> HealthCheck {
        let (has_connected, task) = (Arc::clone(&self.has_connected), self.task.abort_handle());
        condition("catalog_server", "the catalog is not served", move || {
            has_connected.load(Ordering::Relaxed) && !task.is_finished()
        })
    }

    /// Logs the URL once each repository of the first list has been tried.
    pub(super) fn announce_after_first_attempts(&self, health: ProcessHealth, queue: Queue<Key>) {
        let (shutdown, attempted) = (self.shutdown.clone(), self.attempted.clone());
        tokio::spawn(async move {
            let attempts = first_attempts(&health, &queue);
            if shutdown.run_until_cancelled(attempts).await.is_some() {
                attempted.cancel();
            }
        });
    }

    /// Drains.
    pub(super) async fn end(self) {
        self.shutdown.cancel();
        // A panic has been logged.
        let _ = self.task.await;
    }
}

async fn first_attempts(health: &ProcessHealth, queue: &Queue<Key>) {
    let classes = [apprepository::NAME, apprepository::SLOW];
    let attempts = async {
        while !health.has_synced() {
            sleep(POLL_INTERVAL).await;
        }
        loop {
            // The keys of the list are added just after it is complete.
            sleep(POLL_INTERVAL).await;
            if classes.iter().all(|class| queue.is_idle(class)) {
                return;
            }
        }
    };
    let _ = timeout(FIRST_ATTEMPTS, attempts).await;
}

async fn announce(url: String, attempted: CancellationToken, shutdown: CancellationToken) {
    let due = timeout(FIRST_ATTEMPTS, attempted.cancelled());
    if shutdown.run_until_cancelled(due).await.is_some() {
        tracing::info!("catalog: {url}");
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use prometheus_client::registry::Registry;

    use super::super::DatabaseOptions;
    use super::super::catalog_server::{CatalogAddress, CatalogMetrics};
    use super::*;
    use crate::budget::Budgets;
    use crate::catalog::{Login, Pooler, StorageLimits};
    use crate::runtime::kube_client::metrics::RequestMetrics;
    use crate::serve::access::AccessOptions;
    use crate::serve::limits::{RequestLimits, TrustedProxies};

    fn options() -> CatalogOptions {
        let many = NonZeroU32::new(100).unwrap();
        CatalogOptions {
            address: CatalogAddress::FreePort,
            namespace: None,
            prefix: String::new(),
            external_origin: None,
            access: AccessOptions::default(),
            limits: RequestLimits {
                rate: many,
                burst: many,
            },
            trusted_proxies: TrustedProxies::default(),
            archives: None,
            spool_dir: None,
            database_connections: 1,
            memory: 1 << 20,
        }
    }

    fn context(manifests: &str) -> CatalogContext {
        let (budgets, mut registry) = (Budgets::default(), Registry::default());
        CatalogContext {
            source: SourceOptions::Directory(manifests.into()),
            database: DatabaseOptions {
                url: "sqlite://missing/portolan.db".to_owned(),
                login: Login::default(),
                connections: 1,
                pooler: Pooler::default(),
                limits: StorageLimits::default(),
                password_secret: None,
            },
            cluster_id: String::new(),
            requests: RequestMetrics::register(&mut registry, budgets.metrics().of("api_requests", 0)),
            metrics: CatalogMetrics::register(&mut registry, budgets.metrics()),
            releases: None,
            budgets,
        }
    }

    #[tokio::test]
    async fn the_check_passes_while_the_catalog_is_served() {
        let shutdown = CancellationToken::new();
        let catalog = RunningCatalog::start(&options(), context("."), &shutdown)
            .await
            .unwrap();
        let check = catalog.check();
        let passed = async {
            while !check.is_ok().await {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), passed).await.unwrap();
        catalog.end().await;
        assert!(!check.is_ok().await);
    }

    #[tokio::test]
    async fn the_check_fails_after_a_failed_start() {
        let shutdown = CancellationToken::new();
        let context = context("missing/manifests");
        let mut catalog = RunningCatalog::start(&options(), context, &shutdown).await.unwrap();
        let check = catalog.check();
        (&mut catalog.task).await.unwrap();
        assert!(!check.is_ok().await);
    }
}

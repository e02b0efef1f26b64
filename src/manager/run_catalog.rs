//! The server of the catalog beside the controllers. Its faults end no sync.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::catalog_server::{CatalogContext, CatalogOptions, CatalogServer, url};
use super::health::ProcessHealth;
use super::{Error, SourceOptions};
use crate::controllers::apprepository;
use crate::runtime::controller::Key;
use crate::runtime::workqueue::Queue;
use crate::server::ServerLimits;

/// Time after the start, at which the URL is logged although repositories have not been tried.
const FIRST_ATTEMPTS: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A server that runs until [`Self::end`].
pub(super) struct RunningCatalog {
    shutdown: CancellationToken,
    attempted: CancellationToken,
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
        let task = tokio::spawn(async move {
            let connect = CatalogServer::connect(listener, limits, &options, &context);
            match ended.run_until_cancelled(connect).await {
                None => {}
                Some(Ok(server)) => {
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
            task,
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

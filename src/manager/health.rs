//! The listener for health and metrics, and the readiness checks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::catalog::Catalog;
use crate::server::{self, Check, ListenAddress, Server};

type HasSynced = Box<dyn Fn() -> bool + Send + Sync>;

/// A running server.
pub(super) struct Listening {
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Listening {
    pub(super) async fn end(self) {
        self.shutdown.cancel();
        let _ = self.task.await;
    }
}

pub(super) async fn listen(
    address: &ListenAddress,
    registry: Registry,
    checks: Vec<Check>,
) -> Result<Listening, Error> {
    let server = Server::bind(address, server::routes(checks, Arc::new(registry)))
        .await
        .map_err(|error| {
            Error(format!(
                "failed to listen on {address}: {error}; choose another address with --listen"
            ))
        })?;
    if let Ok(address) = server.local_addr() {
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, "serving health and metrics");
    }
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(server.run(shutdown.clone()));
    Ok(Listening { shutdown, task })
}

/// The state that readiness depends on.
#[derive(Clone, Default)]
pub(super) struct Health(Arc<State>);

#[derive(Default)]
struct State {
    caches: OnceLock<Vec<HasSynced>>,
    catalog: OnceLock<Catalog>,
    /// Another replica leads. A standby is ready without the database, or a rollout would wait for it forever.
    stands_by: AtomicBool,
}

impl Health {
    pub(super) fn watch_caches(&self, caches: Vec<HasSynced>) {
        // Called once.
        let _ = self.0.caches.set(caches);
    }

    pub(super) fn watch_catalog(&self, catalog: Catalog) {
        // Called once.
        let _ = self.0.catalog.set(catalog);
    }

    pub(super) fn stand_by(&self, stands_by: bool) {
        self.0.stands_by.store(stands_by, Ordering::Relaxed);
    }

    fn stands_by(&self) -> bool {
        self.0.stands_by.load(Ordering::Relaxed)
    }

    /// Checks that the caches have synced, that the database answers, and that no shutdown was requested.
    pub(super) fn checks(&self, shutdown: &CancellationToken) -> Vec<Check> {
        let (caches, database, shutdown) = (self.clone(), self.clone(), shutdown.clone());
        vec![
            Check::new("caches", move || {
                let has_synced = match caches.0.caches.get() {
                    Some(caches) => caches.iter().all(|has_synced| has_synced()),
                    None => caches.stands_by(),
                };
                async move {
                    if has_synced {
                        Ok(())
                    } else {
                        Err("the first list is not complete".to_owned())
                    }
                }
            }),
            Check::new("database", move || {
                let health = database.clone();
                async move {
                    match health.0.catalog.get() {
                        _ if health.stands_by() => Ok(()),
                        Some(catalog) => catalog.ping().await.map_err(|error| error.to_string()),
                        None if health.0.caches.get().is_some() => Ok(()),
                        None => Err("the database is not open".to_owned()),
                    }
                }
            }),
            Check::new("shutdown", move || {
                let requested = shutdown.is_cancelled();
                async move {
                    if requested {
                        Err("the process is shutting down".to_owned())
                    } else {
                        Ok(())
                    }
                }
            }),
        ]
    }
}

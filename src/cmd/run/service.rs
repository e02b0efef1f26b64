//! `portolan run`: the service, from its start to its orderly end.
//!
//! The listener comes first and goes last, so that whoever watches the process sees it wait for a database and sees it drain.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use prometheus_client::registry::Registry;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    Run,
    assembly::{Assembly, Metrics},
    catalogue, leadership,
    patience::Patience,
};
use crate::api::AppRepository;
use crate::catalog::Catalog;
use crate::cmd::{Failure, progress};
use crate::controllers::apprepository::orphans as collect;
use crate::runtime::controller::Reconcile;
use crate::runtime::informer::Store;
use crate::runtime::leader_election::LeaderGuard;
use crate::server::{self, Check, ProcessMetrics, Server};

/// How long connections to the database get to be closed in order.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// Runs until `shutdown`.
pub(super) async fn run(run: &Run, shutdown: CancellationToken) -> Result<(), Failure> {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    registry.register_collector(Box::new(ProcessMetrics));
    let health = Health::default();
    let listening = listen(run, registry, health.checks(&shutdown)).await?;
    let result = lead(run, metrics, &health, &shutdown).await;
    listening.end().await;
    result
}

/// Works once this process leads, and as long as it does.
async fn lead(run: &Run, metrics: Metrics, health: &Health, shutdown: &CancellationToken) -> Result<(), Failure> {
    health.stand_by(run.enable_leader_election);
    let Some(held) = shutdown
        .run_until_cancelled(leadership::wait(run, metrics.requests()))
        .await
    else {
        return Ok(());
    };
    let mut held = held?;
    health.stand_by(false);
    let result = work(run, metrics, health, shutdown, held.as_mut()).await;
    // Given back last: whoever takes over finds nothing under way.
    if let Some(held) = held {
        held.release().await;
    }
    result
}

async fn work(
    run: &Run,
    metrics: Metrics,
    health: &Health,
    shutdown: &CancellationToken,
    held: Option<&mut LeaderGuard>,
) -> Result<(), Failure> {
    let mut lost = std::pin::pin!(leadership::lost(held));
    let mut is_lost = false;
    let assembling = Assembly::new(run, metrics, Patience::Wait, shutdown.clone());
    let assembly = tokio::select! {
        assembly = shutdown.run_until_cancelled(assembling) => match assembly {
            Some(assembly) => assembly?,
            None => return Ok(()),
        },
        failure = &mut lost => return Err(failure),
    };
    health.watch(assembly.catalog.clone(), assembly.store.clone());

    let (catalog, queue) = (assembly.catalog.clone(), assembly.queue.clone());
    let reconciler = Arc::clone(&assembly.reconciler) as Arc<dyn Reconcile>;
    let mut controller = tokio::spawn(assembly.controller(reconciler).run());
    let mut parts = JoinSet::new();
    parts.spawn(progress::follow(assembly.activity.names()).then(|()| futures::future::pending()));
    parts.spawn(collect::refill(
        catalog.rebuilt(),
        assembly.store.clone(),
        queue.clone(),
    ));
    if !assembly.is_database_there {
        parts.spawn(catalogue::make_ready(catalog.clone()));
    }
    parts.spawn(assembly.collector.run(assembly.listed));
    parts.spawn(assembly.informer);
    parts.spawn(assembly.schedule);
    parts.spawn(assembly.secrets);
    parts.spawn(assembly.warning);
    if let Some(applications) = assembly.applications {
        parts.spawn(applications.following);
    }

    let outcome = tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        // None of them ends by itself. Without one of them all would look well while nothing happens, so the process ends.
        _ = parts.join_next() => Err(Failure::failed("a part of the process has ended unexpectedly; the log tells which")),
        failure = &mut lost => {
            is_lost = true;
            Err(failure)
        }
        _ = &mut controller => Err(Failure::failed("the workers have ended unexpectedly; the log tells why")),
    };
    // However it came to the end: nothing new is begun, and readiness says so.
    shutdown.cancel();
    parts.shutdown().await;
    queue.shut_down();
    // Another may lead already: nothing is brought to its end that could be in its way.
    let patience = if is_lost { Duration::ZERO } else { run.drain_timeout };
    let drained = drain(controller, patience).await;
    // A database that is cut off may never answer, and has nothing to lose: what is not committed is rolled back.
    let _ = timeout(CLOSE_DEADLINE, catalog.close()).await;
    drop(assembly.lock);
    outcome.and(drained)
}

/// Waits for the syncs under way. What is cut off has written nothing: its transaction is rolled back.
async fn drain(mut controller: JoinHandle<()>, patience: Duration) -> Result<(), Failure> {
    if controller.is_finished() || timeout(patience, &mut controller).await.is_ok() {
        tracing::info!("drained");
        return Ok(());
    }
    controller.abort();
    let _ = controller.await;
    Err(Failure::failed(format!(
        "syncs were still under way {patience:?} after the signal, and were given up; --drain-timeout gives them longer"
    )))
}

/// A server that is running.
struct Listening {
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Listening {
    async fn end(self) {
        self.shutdown.cancel();
        let _ = self.task.await;
    }
}

async fn listen(run: &Run, registry: Registry, checks: Vec<Check>) -> Result<Listening, Failure> {
    let address = run.metrics_addr.as_ref().unwrap_or(&run.listen);
    let server = Server::bind(address, server::routes(checks, Arc::new(registry)))
        .await
        .map_err(|error| {
            Failure::failed(format!(
                "can't listen on {address}: {error}; choose another address with --listen"
            ))
        })?;
    if let Ok(address) = server.local_addr() {
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, "serving health and metrics");
    }
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(server.run(shutdown.clone()));
    Ok(Listening { shutdown, task })
}

/// What readiness depends on; it is there only once it has been opened.
#[derive(Clone, Default)]
struct Health {
    parts: Arc<OnceLock<(Catalog, Store<AppRepository>)>>,
    /// Whether another process leads. Who stands by is ready to, or a rollout would wait for it for ever.
    stands_by: Arc<AtomicBool>,
}

impl Health {
    fn watch(&self, catalog: Catalog, store: Store<AppRepository>) {
        // Set just once.
        let _ = self.parts.set((catalog, store));
    }

    fn stand_by(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::Relaxed);
    }

    /// Ready once a complete list of declarations was seen and the database answers, until shutdown is asked for.
    fn checks(&self, shutdown: &CancellationToken) -> Vec<Check> {
        let (catalog, store, shutdown) = (self.clone(), self.clone(), shutdown.clone());
        vec![
            Check::new("caches", move || {
                let parts = store.parts.get();
                let synced =
                    store.stands_by.load(Ordering::Relaxed) || parts.is_some_and(|(_, store)| store.is_synced());
                async move {
                    if synced {
                        Ok(())
                    } else {
                        Err("the declarations have not been listed yet".to_owned())
                    }
                }
            }),
            Check::new("database", move || {
                let stands_by = catalog.stands_by.load(Ordering::Relaxed);
                let catalog = catalog.parts.get().map(|(catalog, _)| catalog.clone());
                async move {
                    match catalog {
                        None if stands_by => Ok(()),
                        Some(catalog) => catalog.ping().await.map_err(|error| error.to_string()),
                        None => Err("it is not open yet".to_owned()),
                    }
                }
            }),
            Check::new("shutdown", move || {
                let asked = shutdown.is_cancelled();
                async move {
                    if asked {
                        Err("the process is ending".to_owned())
                    } else {
                        Ok(())
                    }
                }
            }),
        ]
    }
}

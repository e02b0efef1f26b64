//! The listeners for health and metrics, and the checks of `/livez` and `/readyz`.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Error, LeaderElection, Listener, Options};
use crate::budget;
use crate::catalog::Catalog;
use crate::controllers::oam::start::prerequisites::Prerequisites;
use crate::runtime::kube_client::review::may_get_path;
use crate::server::{
    self, AccessDecision, Authorize, HealthCheck, HealthMetrics, Info, ListenAddress, Server, ServerLimits,
};

/// The runtime is stuck if it does not poll the heartbeat task for this time.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

type HealthCondition = Box<dyn Fn() -> bool + Send + Sync>;

pub(super) struct Listening {
    shutdown: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Listening {
    pub(super) fn start(server: Server) -> Self {
        let shutdown = CancellationToken::new();
        let tasks = vec![tokio::spawn(server.run(shutdown.clone()))];
        Self { shutdown, tasks }
    }

    pub(super) async fn end(self) {
        self.shutdown.cancel();
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// The content of the listeners for health and metrics.
pub(super) struct Served<'a> {
    pub(super) listeners: &'a [Listener],
    /// The maximum number of connections to each address.
    pub(super) connections: usize,
    pub(super) registry: Registry,
    pub(super) budgets: &'a budget::Metrics,
    pub(super) ready: Vec<HealthCheck>,
    pub(super) info: Info,
    pub(super) authorize: Option<Authorize>,
}

/// Serves health and metrics, at separate addresses if there are two.
pub(super) async fn listen(served: Served<'_>, health: &ProcessHealth) -> Result<Listening, Error> {
    let mut registry = served.registry;
    let checks = HealthMetrics::register(&mut registry);
    let ready = served
        .ready
        .into_iter()
        .map(|check| check.with_metric(&checks))
        .collect();
    let probes = server::probe_routes(health.live_checks(), ready).merge(server::info_routes(&served.info));
    let metrics = server::metrics_routes(Arc::new(registry), served.authorize);
    let limit = served.connections;
    let used = served.budgets.of("http_connections", limit as u64);
    let shutdown = CancellationToken::new();
    let mut tasks = vec![tokio::spawn(beat(health.clone(), shutdown.clone()))];
    for listener in served.listeners {
        let (routes, what) = match (listener.has_probes, listener.has_metrics) {
            (true, true) => (probes.clone().merge(metrics.clone()), "health and metrics"),
            (true, false) => (probes.clone(), "health"),
            (false, _) => (metrics.clone(), "metrics"),
        };
        let server = Server::bind(
            &listener.address,
            routes,
            ServerLimits::with_probes(limit),
            used.clone(),
        )
        .await
        .map_err(|error| listen_error(&listener.address, listener.flag, &error))?;
        if let Ok(address) = server.local_addr() {
            tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, "serving {what}");
        }
        tasks.push(tokio::spawn(server.run(shutdown.clone())));
    }
    Ok(Listening { shutdown, tasks })
}

pub(super) fn listen_error(address: &ListenAddress, flag: &str, error: &io::Error) -> Error {
    Error(format!(
        "failed to listen on {address}: {error}; choose another address with {flag}"
    ))
}

/// Authorizes by TokenReview and SubjectAccessReview.
pub(super) fn authorize_metrics(client: kube::Client) -> Authorize {
    Box::new(move |token| {
        let client = client.clone();
        Box::pin(async move {
            match may_get_path(&client, &token, "/metrics").await {
                Ok(None) => AccessDecision::Unauthenticated,
                Ok(Some(true)) => AccessDecision::Allowed,
                Ok(Some(false)) => AccessDecision::Forbidden,
                Err(error) => {
                    tracing::warn!(%error, "failed to review the token of a request for metrics");
                    AccessDecision::Unknown
                }
            }
        })
    })
}

async fn beat(health: ProcessHealth, shutdown: CancellationToken) {
    let beats = async {
        loop {
            health.beat();
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
    };
    shutdown.run_until_cancelled(beats).await;
}

#[derive(Clone, Default)]
pub(super) struct ProcessHealth(Arc<State>);

#[derive(Default)]
struct State {
    last_beat: Mutex<Option<Instant>>,
    /// A task that never ends regularly has ended.
    has_lost_task: AtomicBool,
    caches: OnceLock<Vec<HealthCondition>>,
    is_lease_known: OnceLock<HealthCondition>,
    catalog: OnceLock<Catalog>,
    /// Another replica leads. A standby is ready without the database, or a rollout would wait for it forever.
    stands_by: AtomicBool,
}

impl ProcessHealth {
    fn beat(&self) {
        *self.0.last_beat.lock() = Some(Instant::now());
    }

    pub(super) fn report_ended_task(&self) {
        self.0.has_lost_task.store(true, Ordering::Relaxed);
    }

    pub(super) fn watch_caches(&self, caches: Vec<HealthCondition>) {
        // Called once.
        let _ = self.0.caches.set(caches);
    }

    /// Returns true once the first lists are complete.
    pub(super) fn has_synced(&self) -> bool {
        let caches = self.0.caches.get();
        caches.is_some_and(|caches| caches.iter().all(|has_synced| has_synced()))
    }

    pub(super) fn watch_lease(&self, is_known: HealthCondition) {
        // Called once.
        let _ = self.0.is_lease_known.set(is_known);
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

    /// Checks the process only: no tenant, database or API server can make it fail, since a restart would not help.
    fn live_checks(&self) -> Vec<HealthCheck> {
        let (runtime, tasks) = (self.clone(), self.clone());
        vec![
            condition("runtime", "the heartbeat task was not polled for 10 s", move || {
                let last = *runtime.0.last_beat.lock();
                last.is_none_or(|last| last.elapsed() < HEARTBEAT_TIMEOUT)
            }),
            condition("tasks", "a background task has ended", move || {
                !tasks.0.has_lost_task.load(Ordering::Relaxed)
            }),
        ]
    }

    /// Checks that the process can do its work. Disabled parts are not checked.
    pub(super) fn ready_checks(
        &self,
        options: &Options,
        prerequisites: Option<&Prerequisites>,
        shutdown: &CancellationToken,
    ) -> Vec<HealthCheck> {
        let (caches, lease, database, shutdown) = (self.clone(), self.clone(), self.clone(), shutdown.clone());
        let mut checks = vec![condition(
            "caches",
            "the first list is not complete",
            move || match caches.0.caches.get() {
                Some(caches) => caches.iter().all(|has_synced| has_synced()),
                None => caches.stands_by(),
            },
        )];
        if matches!(options.leader_election, LeaderElection::Enabled(_)) {
            checks.push(condition("lease", "the holder of the lease is unknown", move || {
                lease.0.is_lease_known.get().is_some_and(|is_known| is_known())
            }));
        }
        checks.extend(
            prerequisites
                .into_iter()
                .flat_map(|prerequisites| self.prerequisite_checks(prerequisites)),
        );
        if options.apprepository.is_some() {
            let check = HealthCheck::new("database", move || {
                let health = database.clone();
                async move {
                    match health.0.catalog.get() {
                        _ if health.stands_by() => Ok(()),
                        Some(catalog) => catalog.check_writable().await,
                        None => Err("the database is not open".to_owned()),
                    }
                }
            });
            checks.push(options.optional_beside_webhooks(check.with_warning()));
        }
        checks.push(shutdown_check(shutdown));
        checks
    }

    /// A standby may look for the prerequisites only once it leads.
    fn prerequisite_checks(&self, prerequisites: &Prerequisites) -> [HealthCheck; 2] {
        let check = |name, reason, is_found: fn(&Prerequisites) -> bool| {
            let (health, prerequisites) = (self.clone(), prerequisites.clone());
            condition(name, reason, move || health.stands_by() || is_found(&prerequisites))
        };
        [
            check(
                "crds",
                "custom resource definitions of core.oam.dev are missing",
                Prerequisites::has_crds,
            ),
            check(
                "evaluator",
                "the CUE evaluator has not answered",
                Prerequisites::has_evaluator,
            ),
        ]
    }
}

pub(super) fn shutdown_check(shutdown: CancellationToken) -> HealthCheck {
    condition("shutdown", "the process is shutting down", move || {
        !shutdown.is_cancelled()
    })
}

pub(super) fn condition(
    name: &'static str,
    reason: &'static str,
    holds: impl Fn() -> bool + Send + Sync + 'static,
) -> HealthCheck {
    HealthCheck::new(name, move || {
        let result = if holds() { Ok(()) } else { Err(reason.to_owned()) };
        async move { result }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_ok(checks: &[HealthCheck]) -> bool {
        for check in checks {
            if !check.is_ok().await {
                return false;
            }
        }
        true
    }

    #[tokio::test(start_paused = true)]
    async fn liveness_fails_only_without_heartbeats_or_after_the_loss_of_a_task() {
        let health = ProcessHealth::default();
        let checks = health.live_checks();
        health.beat();
        tokio::time::advance(HEARTBEAT_TIMEOUT - Duration::from_secs(1)).await;
        assert!(is_ok(&checks).await);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!is_ok(&checks).await);
        health.beat();
        assert!(is_ok(&checks).await);
        health.report_ended_task();
        assert!(!is_ok(&checks).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_heartbeat_task_keeps_the_process_alive() {
        let (health, shutdown) = (ProcessHealth::default(), CancellationToken::new());
        let task = tokio::spawn(beat(health.clone(), shutdown.clone()));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(is_ok(&health.live_checks()).await);
        shutdown.cancel();
        task.await.unwrap();
    }
}

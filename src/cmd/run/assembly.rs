//! Putting the parts together that both ways of running are made of.
//!
//! ```text
//!  flags ─► source ─► password ─► catalogue ─► origin ─┬─► reconciler ◄── controller ◄── queue ◄─┬── trigger ◄── informer
//!                                                      └─► collector                             └── schedule
//! ```

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, atomic::AtomicBool},
};

use futures::{FutureExt, StreamExt, future::BoxFuture};
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    Run,
    applications::Applications,
    catalogue::{self, Opened},
    patience::Patience,
    source::Source,
};
use crate::api::AppRepository;
use crate::catalog::Catalog;
use crate::catalog::lock::SqliteLock;
use crate::cmd::cluster::{self, given};
use crate::cmd::{Failure, sync_context as fetching};
use crate::controllers::application::metrics::Metrics as ApplicationMetrics;
use crate::controllers::apprepository::chart_files::{FilesReconciler, ImportQueue, Importer};
use crate::controllers::apprepository::event_handler::{EventHandler, key};
use crate::controllers::apprepository::kubeapps_cronjobs::{self, CronJobRemover};
use crate::controllers::apprepository::metrics::Metrics as RepositoryMetrics;
use crate::controllers::apprepository::origin::{Cluster, Directory, Origin};
use crate::controllers::apprepository::orphans::OrphanFinder;
use crate::controllers::apprepository::reconciler::Reconciler;
use crate::controllers::apprepository::running_syncs::RunningSyncs;
use crate::controllers::apprepository::secrets::source::CredentialSource;
use crate::controllers::apprepository::secrets::{SecretSettings, repositories_of};
use crate::controllers::apprepository::spec::Defaults;
use crate::controllers::apprepository::state::RepositoryStates;
use crate::controllers::apprepository::sync::Syncer;
use crate::controllers::apprepository::sync::location::FileAccess;
use crate::runtime::controller::{self, Controller, Key, Kind, Reconcile};
use crate::runtime::cron::{CronTrigger, Intervals};
use crate::runtime::informer::cluster::{Definition, Scope};
use crate::runtime::informer::{self, Change, Store};
use crate::runtime::kube_client::ApiError;
use crate::runtime::kube_client::metrics::Requests;
use crate::runtime::manifests::{self, Problems};
use crate::runtime::workqueue::{self as queue, Priority, Queue};

/// The label of the metrics of queue and pool.
const NAME: &str = "repository";

/// All figures of the process.
#[derive(Clone)]
pub(super) struct Metrics {
    queue: queue::Metrics,
    controller: controller::Metrics,
    repository: RepositoryMetrics,
    application: ApplicationMetrics,
    requests: Requests,
}

impl Metrics {
    /// Those of requests to the API server.
    pub(super) fn requests(&self) -> &Requests {
        &self.requests
    }

    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            queue: queue::Metrics::register(registry),
            controller: controller::Metrics::register(registry),
            repository: RepositoryMetrics::register(registry),
            application: ApplicationMetrics::register(registry),
            requests: Requests::register(registry),
        }
    }
}

/// The parts, ready to be started.
pub(super) struct Assembly {
    /// The declarations.
    pub(super) store: Store<AppRepository>,
    /// The database.
    pub(super) catalog: Catalog,
    /// The keys to be looked at.
    pub(super) queue: Queue<Key>,
    /// The syncs under way.
    pub(super) activity: RunningSyncs,
    /// What looks at keys.
    pub(super) reconciler: Arc<Reconciler>,
    /// What looks at keys of chart files.
    pub(super) files: Arc<FilesReconciler>,
    /// What looks at Applications and follows them; nothing, where that is not wanted or there is no cluster.
    pub(super) applications: Option<Applications>,
    /// Enqueues repositories at the ticks of their schedules, once it is polled; it never ends.
    pub(super) schedule: BoxFuture<'static, ()>,
    /// What follows the Secrets, once it is polled and as long as it is; it never ends where they are not to be followed.
    pub(super) secrets: BoxFuture<'static, ()>,
    /// What tells of Kubeapps' CronJobs, once it is polled; it never ends.
    pub(super) warning: BoxFuture<'static, ()>,
    /// What compares the catalogue with the declarations, when it is told of a complete list.
    pub(super) collector: OrphanFinder,
    /// What tells of complete lists.
    pub(super) listed: Arc<Notify>,
    /// What follows the declarations, once it is polled and as long as it is.
    pub(super) informer: BoxFuture<'static, ()>,
    /// What is wrong with the manifests in a folder; nothing ever with a cluster.
    pub(super) problems: Problems,
    pool: Pool,
    /// Held as long as anything may be written.
    pub(super) lock: Option<SqliteLock>,
    /// Whether the tables are as they have to be; otherwise somebody has to see to that.
    pub(super) is_database_there: bool,
}

/// What a pool of workers is made of.
struct Pool {
    workers: usize,
    files_at_once: usize,
    metrics: controller::Metrics,
}

impl Assembly {
    /// Makes all parts. Once `stopping` is cancelled, what is still queued is left alone.
    pub(super) async fn new(
        run: &Run,
        metrics: Metrics,
        patience: Patience,
        stopping: CancellationToken,
    ) -> Result<Self, Failure> {
        let defaults = defaults(run)?;
        let source = Source::of(run, &metrics.requests).await?;
        let Opened {
            catalog,
            lock,
            is_there,
        } = catalogue::open(run, &source, patience).await?;
        let (origin, files) = origin(run, &source, patience).await?;
        let lanes = [
            (Kind::Repository, count(run.sync_workers)),
            (Kind::ChartFiles, count(run.files_workers)),
            (Kind::Application, count(run.applications.application_workers)),
        ];
        let queue = queue(run, lanes, &metrics.queue);
        let schedule = CronTrigger::default();
        let (store, listed) = (Store::default(), Arc::new(Notify::new()));
        let (activity, states) = (RunningSyncs::default(), RepositoryStates::default());
        let scope = watched_namespace(run);
        let collector = OrphanFinder {
            store: store.clone(),
            catalog: catalog.clone(),
            queue: queue.clone(),
            states: Arc::clone(&states),
            metrics: metrics.repository.clone(),
            origin: origin.id().to_owned(),
            namespace: scope.clone(),
            confirmed: AtomicBool::new(run.confirm_removals),
        };
        let trigger = EventHandler {
            queue: queue.clone(),
            running_syncs: activity.clone(),
            states: Arc::clone(&states),
            listed: Arc::clone(&listed),
            schedule: schedule.clone(),
            defaults: defaults.clone(),
        };
        let origin = Arc::new(origin);
        let keys = CredentialSource::Secrets {
            origin: Arc::clone(&origin),
            settings: SecretSettings {
                kubeapps_namespace: cluster::own_namespace(run.namespace.as_deref()),
            },
        };
        let id = origin.id().to_owned();
        let tools = fetching::tools(&run.fetch, &run.content, catalog.clone(), keys, files, id)?;
        let importer = Importer::new(tools.clone(), run.content.settings(), metrics.repository.clone());
        let imports = ImportQueue::new(queue.clone(), Arc::clone(&states));
        let files = Arc::new(FilesReconciler {
            store: store.clone(),
            directory_mode: origin.is_directory(),
            defaults: defaults.clone(),
            catalog: catalog.clone(),
            importer,
            imports: imports.clone(),
            stopping: stopping.clone(),
        });
        let applications = match &source {
            Source::Cluster(client) if run.applications.applications && patience == Patience::Wait => {
                let scope =
                    given(run.watch_namespace.as_deref()).map_or(Scope::All, |name| Scope::Namespace(name.to_owned()));
                let (flags, figures) = (&run.applications, &metrics.application);
                Some(Applications::new(
                    flags,
                    client,
                    &scope,
                    &queue,
                    figures,
                    stopping.clone(),
                ))
            }
            _ => None,
        };
        let secrets = watch_secrets(run, &source, &store, &states, &queue);
        let warning = warn_of_kubeapps(run, &source, &store);
        let reconciler = Arc::new(Reconciler {
            store: store.clone(),
            origin,
            catalog: catalog.clone(),
            syncer: Syncer::new(tools, metrics.repository.clone()),
            defaults,
            running_syncs: activity.clone(),
            listed: Arc::clone(&listed),
            metrics: metrics.repository,
            imports: (run.content.imports() && patience == Patience::Wait).then_some(imports),
            cronjob_remover: cronjob_remover(run, &source, &states),
            states,
            stopping,
        });
        let (informer, problems) = follow(source, scope, store.clone(), trigger);
        let due = queue.clone();
        let schedule = schedule.run(move |name, jitter| due.add_after(key(&name), jitter, Priority::LOW));
        let pool = Pool {
            workers: lanes.iter().map(|(_, cap)| cap).sum(),
            files_at_once: count(run.files_workers),
            metrics: metrics.controller,
        };
        Ok(Self {
            store,
            catalog,
            queue,
            activity,
            reconciler,
            files,
            applications,
            schedule: schedule.boxed(),
            secrets,
            warning,
            collector,
            listed,
            informer,
            problems,
            pool,
            lock,
            is_database_there: is_there,
        })
    }

    /// How many repositories have their files imported at the same time.
    pub(super) fn files_at_once(&self) -> usize {
        self.pool.files_at_once
    }

    /// A pool of workers that hand keys to `reconciler`, and those of chart files to `files`.
    pub(super) fn controller(&self, reconciler: Arc<dyn Reconcile>) -> Controller {
        let files = Arc::clone(&self.files) as Arc<dyn Reconcile>;
        let mut reconcilers = HashMap::from([(Kind::Repository, reconciler), (Kind::ChartFiles, files)]);
        if let Some(applications) = &self.applications {
            reconcilers.insert(
                Kind::Application,
                Arc::clone(&applications.reconciler) as Arc<dyn Reconcile>,
            );
        }
        Controller::new(
            NAME,
            self.queue.clone(),
            reconcilers,
            self.pool.workers,
            self.pool.metrics.clone(),
        )
    }
}

fn defaults(run: &Run) -> Result<Defaults, Failure> {
    let intervals = Intervals::default();
    let crontab = intervals
        .parse(&run.crontab)
        .map_err(|error| Failure::usage(format!("--crontab can't be used: {error}")))?;
    Ok(Defaults {
        crontab,
        intervals,
        min_interval: run.min_interval,
        index_max_bytes: run.fetch.index_max_bytes,
    })
}

async fn origin(run: &Run, source: &Source, patience: Patience) -> Result<(Origin, FileAccess), Failure> {
    match source {
        Source::Cluster(client) => {
            let connect = || Cluster::new(client.clone());
            let cluster = patience.get("the API server", ApiError::is_retryable, connect).await?;
            Ok((Origin::Cluster(Box::new(cluster)), FileAccess::Never))
        }
        Source::Folder(folder) => {
            let origin = Directory::new(folder).map_err(|error| {
                Failure::failed(format!(
                    "can't read the folder --manifests {}: {error}",
                    folder.display()
                ))
            })?;
            let roots = std::iter::once(folder).chain(&run.allow_file_root).cloned().collect();
            Ok((Origin::Directory(origin), FileAccess::Below(roots)))
        }
    }
}

fn count(number: NonZeroU32) -> usize {
    usize::try_from(number.get()).unwrap_or(usize::MAX)
}

fn queue(run: &Run, lanes: [(Kind, usize); 3], metrics: &queue::Metrics) -> Queue<Key> {
    let settings = queue::Settings {
        name: NAME.to_owned(),
        lanes: lanes.to_vec(),
        rate_per_second: run.queue_rate,
        burst: run.queue_burst,
    };
    Queue::new(settings, metrics)
}

/// What has repositories synced when a Secret changes that they name.
fn watch_secrets(
    run: &Run,
    source: &Source,
    store: &Store<AppRepository>,
    states: &RepositoryStates,
    queue: &Queue<Key>,
) -> BoxFuture<'static, ()> {
    let (Source::Cluster(client), true) = (source, run.watch_secrets) else {
        return futures::future::pending().boxed();
    };
    let kubeapps_namespace = cluster::own_namespace(run.namespace.as_deref());
    let scope = watched_namespace(run).map_or(Scope::All, Scope::Namespace);
    let changes = informer::secrets::changes(client, &scope, &kubeapps_namespace);
    let settings = SecretSettings { kubeapps_namespace };
    let (store, states, queue) = (store.clone(), Arc::clone(states), queue.clone());
    changes
        .for_each(move |secret| {
            for name in repositories_of(&secret, &store, &settings) {
                states.update(&name, |state| state.force_sync = true);
                queue.add(key(&name), Priority::USER);
            }
            futures::future::ready(())
        })
        .boxed()
}

/// What takes the CronJobs of Kubeapps away, where that is asked for.
fn cronjob_remover(run: &Run, source: &Source, states: &RepositoryStates) -> Option<CronJobRemover> {
    match source {
        Source::Cluster(client) if run.adopt_kubeapps => {
            let namespace = cluster::own_namespace(run.namespace.as_deref());
            Some(CronJobRemover::new(client.clone(), namespace, Arc::clone(states)))
        }
        _ => None,
    }
}

/// What tells of the CronJobs of Kubeapps where they are to stay.
fn warn_of_kubeapps(run: &Run, source: &Source, store: &Store<AppRepository>) -> BoxFuture<'static, ()> {
    match source {
        Source::Cluster(client) if !run.adopt_kubeapps => {
            let namespace = cluster::own_namespace(run.namespace.as_deref());
            let (client, store) = (client.clone(), store.clone());
            async move {
                store.wait_until_synced().await;
                kubeapps_cronjobs::warn_of_cron_jobs(&client, &namespace, |name| store.get(name).is_some()).await;
                futures::future::pending().await
            }
            .boxed()
        }
        _ => futures::future::pending().boxed(),
    }
}

/// The one namespace that is watched, or nothing for all.
fn watched_namespace(run: &Run) -> Option<String> {
    match given(run.watch_namespace.as_deref()) {
        Some(namespace) => Some(namespace.to_owned()),
        None if run.repos_per_namespace => None,
        None => Some(cluster::own_namespace(run.namespace.as_deref())),
    }
}

/// What follows the declarations, and what is wrong with them, where they stand in files.
fn follow(
    source: Source,
    scope: Option<String>,
    store: Store<AppRepository>,
    trigger: EventHandler,
) -> (BoxFuture<'static, ()>, Problems) {
    match source {
        Source::Cluster(client) => {
            let scope = scope.map_or(Scope::All, Scope::Namespace);
            let events =
                informer::cluster::events::<AppRepository, AppRepository>(client, &scope, Definition::Required);
            (
                informer::run(events, store, move |change| trigger.on_change(change)).boxed(),
                Problems::default(),
            )
        }
        Source::Folder(folder) => {
            let (events, problems) = manifests::events(folder, &manifests::Settings::default());
            let known = problems.clone();
            let on_change = move |change| {
                // What is gone from a folder is judged all together, like what has vanished while a watch was cut: a volume
                // that is not mounted takes every manifest away at once. And a file that can't be read may declare anything:
                // nothing is known to be missing until it can, and then there is another list.
                let is_list = matches!(change, Change::Listed | Change::Removed { .. });
                match change {
                    Change::Listed => {}
                    Change::Removed { name, old, .. } => {
                        trigger.on_change(Change::Removed {
                            name,
                            old,
                            vanished: true,
                        });
                    }
                    change => trigger.on_change(change),
                }
                if is_list && known.is_complete() {
                    trigger.on_change(Change::Listed);
                }
            };
            (informer::run(events, store, on_change).boxed(), problems)
        }
    }
}

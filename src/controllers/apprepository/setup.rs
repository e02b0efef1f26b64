use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::FutureExt;
use kube::Client;
use tokio::sync::Notify;

use super::chart_files::{FilesReconciler, ImportQueue, Importer};
use super::database_faults::DatabaseFaults;
use super::event_handler::{EventHandler, enqueue_all, key};
use super::garbage::GarbageCollector;
use super::garbage::objects::Objects;
use super::jobs::{self, Jobs, Settings};
use super::kubeapps_cronjobs::{self, CronJobRemover};
use super::metrics::Metrics;
use super::options::Options;
use super::origin::Origin;
use super::orphans::{self, OrphanFinder};
use super::reconciler::Reconciler;
use super::running_syncs::preempt;
use super::secrets::source::CredentialSource;
use super::secrets::{self, repositories_of};
use super::state::RepositoryStates;
use super::sync::Syncer;
use super::sync::location::FileAccess;
use super::{CHART_FILES, CLEANUP, CLEANUP_WORKERS, NAME, SLOW};
use super::{CachedRepository, RepositoryCache};
use crate::api::{AppRepository, NamespacedName};
use crate::catalog::Catalog;
use crate::controllers::{Controller, SetupContext, Source, Task};
use crate::runtime::controller::{Class, Key, Reconcile};
use crate::runtime::cron::CronTrigger;
use crate::runtime::manifests::{self, Problems};
use crate::runtime::shards::MissingObjects;
use crate::runtime::watch::{self, Cached, Change, ErrorPolicy, Scope, Selection, Store, Stored};
use crate::runtime::workqueue::{Priority, Queue};

/// The parts of the controller. `portolan run --once` uses them one by one.
pub struct Parts {
    pub store: Store<Cached<CachedRepository>>,
    pub reconciler: Arc<Reconciler>,
    pub files: Arc<FilesReconciler>,
    pub garbage: GarbageCollector,
    pub informer: Task,
    /// Errors of a directory of manifests; none with a cluster.
    pub problems: Problems,
    listed: Arc<Notify>,
    schedule: CronTrigger<NamespacedName>,
    states: RepositoryStates,
}

#[must_use]
pub fn setup(context: &SetupContext, options: &Options, catalog: &Catalog, origin: Origin, metrics: &Metrics) -> Parts {
    let (store, listed, schedule) = (Store::default(), Arc::<Notify>::default(), CronTrigger::default());
    let (states, origin) = (RepositoryStates::default(), Arc::new(origin));
    let problems = Problems::default();
    problems.report_to(metrics.manifest_problems());
    let orphans = OrphanFinder {
        store: store.clone(),
        catalog: catalog.clone(),
        queue: context.queue.clone(),
        states: Arc::clone(&states),
        metrics: metrics.clone(),
        origin: Arc::clone(&origin),
        is_incomplete: match &context.source {
            Source::Cluster(_) => {
                let is_selection = context.label_selector.is_some();
                Box::new(move || is_selection)
            }
            Source::Directory(_) => {
                let problems = problems.clone();
                Box::new(move || !problems.is_complete())
            }
        },
        namespace: options.namespace.clone(),
        confirmed: AtomicBool::new(options.confirm_removals),
    };
    let garbage = GarbageCollector {
        orphans,
        catalog: catalog.clone(),
        objects: objects(&context.source, options),
        metrics: metrics.gc.clone(),
    };
    let event_handler = EventHandler {
        queue: context.queue.clone(),
        running_syncs: options.running.clone(),
        states: Arc::clone(&states),
        listed: Arc::clone(&listed),
        schedule: schedule.clone(),
        defaults: options.defaults.clone(),
    };
    let credentials = CredentialSource::Secrets {
        origin: Arc::clone(&origin),
        kubeapps_namespace: options.kubeapps_namespace.clone(),
    };
    let (id, file_access) = (origin.id().to_owned(), file_access(context, options));
    let sync_options = options.sync.clone();
    let syncs = sync_options.context(catalog.clone(), credentials, file_access, id);
    let imports = ImportQueue::new(context.queue.clone(), Arc::clone(&states), options.chart_files.mode);
    let has_imports = options.import_after_sync && options.chart_files.has_imports(catalog);
    let faults = Arc::new(DatabaseFaults::new(catalog.clone(), context.queue.clone()));
    let files = FilesReconciler {
        store: store.clone(),
        directory_mode: origin.is_directory(),
        defaults: options.defaults.clone(),
        catalog: catalog.clone(),
        faults: Arc::clone(&faults),
        importer: Importer::new(syncs.clone(), options.chart_files, metrics.clone()),
        imports: imports.clone(),
        stopping: context.stopping.clone(),
    };
    let reconciler = Reconciler {
        store: store.clone(),
        origin,
        catalog: catalog.clone(),
        faults,
        syncer: Syncer::new(syncs, metrics.clone()),
        defaults: options.defaults.clone(),
        running_syncs: options.running.clone(),
        queue: context.queue.clone(),
        listed: Arc::clone(&listed),
        metrics: metrics.clone(),
        imports: has_imports.then_some(imports),
        cronjob_remover: cronjob_remover(context, options, &states),
        jobs: jobs(context, options, metrics),
        states: Arc::clone(&states),
        stopping: context.stopping.clone(),
        has_selector: context.label_selector.is_some(),
        shards: context.shards.clone(),
    };
    let informer = informer(context, options, store.clone(), event_handler, &problems);
    Parts {
        store,
        reconciler: Arc::new(reconciler),
        files: Arc::new(files),
        garbage,
        informer,
        problems,
        listed,
        schedule,
        states,
    }
}

impl Parts {
    #[must_use]
    pub fn into_controller(self, context: &SetupContext, options: &Options) -> Controller {
        let mut sources = vec![self.informer];
        let catalog = self.garbage.catalog.clone();
        let (store, queue) = (self.store.clone(), context.queue.clone());
        let refill = async move { orphans::refill(catalog.rebuilt(), store, queue).await };
        let due = context.queue.clone();
        let schedule = self.schedule;
        let schedule = schedule.run(move |name, jitter| due.add_after(key(&name), jitter, Priority::LOW));
        let preempt = preempt(options.running.clone(), context.queue.clone());
        let faults = Arc::clone(&self.reconciler.faults);
        let probe = async move { faults.probe().await };
        let shard_tasks = vec![refill.boxed(), schedule.boxed(), preempt.boxed(), probe.boxed()];
        let mut leader_tasks = vec![self.garbage.run(self.listed, options.gc_interval).boxed()];
        if let Source::Cluster(client) = &context.source {
            if options.watch_secrets {
                sources.push(watch_secrets(client, options, &self.store, self.states, &context.queue));
            }
            if let Some(jobs) = &self.reconciler.jobs {
                let queue = context.queue.clone();
                sources.extend(jobs.watches(move |name| {
                    // A new leader enqueues all repositories.
                    if !queue.is_paused() {
                        queue.add(key(&name), Priority::USER);
                    }
                }));
                leader_tasks.push(Arc::clone(jobs).release_waiting().boxed());
            }
            let has_selector = context.label_selector.is_some();
            if self.reconciler.jobs.is_none() {
                leader_tasks.push(remove_leftovers(client, options, has_selector, &self.store));
            }
            if !has_selector {
                leader_tasks.push(check_cron_jobs(client, options, &self.store));
            } else {
                tracing::info!(
                    "--watch-label-selector is set: charts of repositories that were deleted while no replica ran are kept"
                );
            }
        }
        let (cached, queue) = (self.store.clone(), context.queue.clone());
        let owned = |reconciler: Arc<dyn Reconcile>| {
            let store = self.store.clone();
            let uid = move |key: &Key| Some(store.get(&key.name)?.uid().to_owned());
            context.shards.filter(reconciler, MissingObjects::OfAll, uid)
        };
        let reconciler = owned(self.reconciler);
        Controller {
            name: NAME,
            classes: vec![
                Class {
                    name: NAME,
                    workers: options.workers,
                    reconciler: Arc::clone(&reconciler),
                },
                Class {
                    name: SLOW,
                    workers: options.slow_workers(),
                    reconciler: Arc::clone(&reconciler),
                },
                Class {
                    name: CLEANUP,
                    workers: CLEANUP_WORKERS,
                    reconciler,
                },
                Class {
                    name: CHART_FILES,
                    workers: options.files_workers,
                    reconciler: owned(self.files),
                },
            ],
            sources,
            leader_tasks,
            shard_tasks,
            enqueue_all: Box::new(move || enqueue_all(&cached, &queue)),
            has_synced: Box::new(move || self.store.is_synced()),
        }
    }
}

fn objects(source: &Source, options: &Options) -> Option<Objects> {
    match source {
        Source::Cluster(client) => Some(Objects {
            client: client.clone(),
            namespace: options.kubeapps_namespace.clone(),
            lease_namespace: options.lease_namespace.clone(),
        }),
        Source::Directory(_) => None,
    }
}

fn file_access(context: &SetupContext, options: &Options) -> FileAccess {
    match &context.source {
        Source::Cluster(_) => FileAccess::Never,
        Source::Directory(manifests) => {
            let roots = std::iter::once(manifests).chain(&options.allowed_directories);
            FileAccess::Below(roots.cloned().collect())
        }
    }
}

/// Returns the Jobs of all repositories, if any may use them.
fn jobs(context: &SetupContext, options: &Options, metrics: &Metrics) -> Option<Arc<Jobs>> {
    let settings = options.jobs.clone().filter(Settings::is_enabled)?;
    match &context.source {
        Source::Cluster(client) => Some(Arc::new(Jobs::new(settings, client.clone(), metrics.jobs()))),
        Source::Directory(_) => None,
    }
}

fn cronjob_remover(context: &SetupContext, options: &Options, states: &RepositoryStates) -> Option<CronJobRemover> {
    match &context.source {
        Source::Cluster(client) if options.adopt_kubeapps => {
            let namespace = options.kubeapps_namespace.clone();
            Some(CronJobRemover::new(client.clone(), namespace, Arc::clone(states)))
        }
        _ => None,
    }
}

fn scope(options: &Options) -> Scope {
    options.namespace.clone().map_or(Scope::All, Scope::Namespace)
}

/// Syncs repositories when a Secret changes that they reference.
fn watch_secrets(
    client: &Client,
    options: &Options,
    store: &Store<Cached<CachedRepository>>,
    states: RepositoryStates,
    queue: &Queue<Key>,
) -> Task {
    let kubeapps_namespace = options.kubeapps_namespace.clone();
    let (store, queue, namespace) = (store.clone(), queue.clone(), kubeapps_namespace.clone());
    let on_change = move |secret| {
        for name in repositories_of(&secret, &store, &namespace) {
            states.update(&name, |state| state.force_sync = true);
            // A new leader enqueues all repositories.
            if !queue.is_paused() {
                queue.add(key(&name), Priority::USER);
            }
        }
    };
    secrets::watch(client.clone(), scope(options), kubeapps_namespace, on_change).boxed()
}

/// Logs Kubeapps' CronJobs that still exist, once. To adopt Kubeapps, it removes those of deleted repositories; the others
/// are removed after a sync.
fn check_cron_jobs(client: &Client, options: &Options, store: &Store<Cached<CachedRepository>>) -> Task {
    let (namespace, watched) = (options.kubeapps_namespace.clone(), options.namespace.clone());
    let (client, store, adopts) = (client.clone(), store.clone(), options.adopt_kubeapps);
    async move {
        store.wait_until_synced().await;
        let is_watched = |name: &NamespacedName| is_watched(watched.as_deref(), name);
        let is_declared = |name: &NamespacedName| store.get(name).is_some();
        if adopts {
            let is_undeclared = |name: &NamespacedName| is_watched(name) && !is_declared(name);
            kubeapps_cronjobs::remove_of_undeclared(&client, &namespace, is_undeclared).await;
        } else {
            kubeapps_cronjobs::warn_of_cron_jobs(&client, &namespace, is_declared).await;
        }
        futures::future::pending().await
    }
    .boxed()
}

/// Returns true if the watched namespace, `None` for all, is that of the repository.
fn is_watched(watched: Option<&str>, name: &NamespacedName) -> bool {
    watched.is_none_or(|watched| watched == name.namespace)
}

/// With a selector, other objects than the cached ones belong to another release.
fn remove_leftovers(
    client: &Client,
    options: &Options,
    has_selector: bool,
    store: &Store<Cached<CachedRepository>>,
) -> Task {
    let (client, namespace) = (client.clone(), options.kubeapps_namespace.clone());
    let (watched, store) = (options.namespace.clone(), store.clone());
    async move {
        store.wait_until_synced().await;
        let is_ours = |name: &NamespacedName| {
            is_watched(watched.as_deref(), name) && (!has_selector || store.get(name).is_some())
        };
        jobs::remove_leftovers(&client, &namespace, is_ours).await;
        futures::future::pending().await
    }
    .boxed()
}

fn informer(
    context: &SetupContext,
    options: &Options,
    store: Store<Cached<CachedRepository>>,
    event_handler: EventHandler,
    problems: &Problems,
) -> Task {
    match &context.source {
        Source::Cluster(client) => {
            let selection = Selection {
                scope: scope(options),
                labels: context.label_selector.clone(),
            };
            let on_change = move |change| event_handler.on_change(change);
            let cache = RepositoryCache {
                store: store.clone(),
                budget: options.sync.budgets.part("repository_cache", 16),
                template_limit: options.template_limit(),
            };
            watch::raw_informer(
                client.clone(),
                selection,
                ErrorPolicy::Required,
                store,
                move |raw| cache.convert(raw),
                on_change,
            )
            .boxed()
        }
        Source::Directory(manifests) => {
            let problems = problems.clone();
            let events = manifests::events::<AppRepository>(
                manifests.clone(),
                manifests::RESCAN_INTERVAL,
                data_url,
                problems.clone(),
            );
            let on_change = move |change| on_manifest_change(&event_handler, &problems, change);
            watch::run(events, store, on_change).boxed()
        }
    }
}

/// Returns the URL of the index of a declared repository.
#[must_use]
pub fn data_url(manifest: &serde_json::Value) -> Option<&str> {
    manifest["spec"]["url"].as_str()
}

/// Handles removed manifests together, like objects that vanished while a watch was disconnected: a volume that is not
/// mounted removes all of them at once. An unreadable file may declare any repository, so the list is complete only
/// without errors.
fn on_manifest_change(event_handler: &EventHandler, problems: &Problems, change: Change<Cached<CachedRepository>>) {
    let is_list = !matches!(change, Change::Applied { .. });
    match change {
        Change::Synced { .. } => {}
        Change::Deleted(old) => event_handler.on_change(Change::MissingFromList(old)),
        change => event_handler.on_change(change),
    }
    if is_list && problems.is_complete() {
        event_handler.on_change(Change::Synced { is_first: false });
    }
}

mod informer;
mod metrics;
mod tasks;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::FutureExt;
use tokio::sync::Notify;

pub use informer::data_url;
pub use metrics::AppRepositoryMetrics;

use super::chart_files::{FilesReconciler, ImportQueue, Importer};
use super::database_faults::DatabaseFaults;
use super::event_handler::{RepositoryEventHandler, enqueue_all, key};
use super::garbage::GarbageCollector;
use super::garbage::objects::GarbageObjects;
use super::garbage::orphans::{self, OrphanFinder};
use super::jobs::{JobRunner, JobSettings, Jobs};
use super::kubeapps_cronjobs::CronJobRemover;
use super::news_delivery::{self, NewsDelivery};
use super::options::Options;
use super::origin::Origin;
use super::reconciler::RepositoryReconciler;
use super::running_syncs::preempt;
use super::secrets::source::CredentialSource;
use super::state::RepositoryStates;
use super::sync::location::FileAccess;
use super::sync::{SyncContext, Syncer};
use super::tombstones::Tombstones;
use super::{CHART_FILES, CLEANUP, CLEANUP_WORKERS, CachedRepository, NAME, SLOW};
use crate::api::NamespacedName;
use crate::catalog::Catalog;
use crate::controllers::{Controller, SetupContext, Source, Task};
use crate::runtime::controller::{Class, Reconcile};
use crate::runtime::cron::CronTrigger;
use crate::runtime::manifests::Problems;
use crate::runtime::watch::{Cached, Scope, Store};
use crate::runtime::workqueue::Priority;
use informer::informer;

/// The parts of the controller. `portolan run --once` uses them one by one.
pub struct Parts {
    pub store: Store<Cached<CachedRepository>>,
    pub reconciler: Arc<RepositoryReconciler>,
    pub files: Arc<FilesReconciler>,
    pub garbage: GarbageCollector,
    pub informer: Task,
    /// Errors of a directory of manifests; none with a cluster.
    pub problems: Problems,
    news: NewsDelivery,
    jobs_changed: Arc<Notify>,
    listed: Arc<Notify>,
    schedule: CronTrigger<NamespacedName>,
    states: RepositoryStates,
}

#[must_use]
pub fn setup(
    context: &SetupContext,
    options: &Options,
    catalog: &Catalog,
    origin: Origin,
    metrics: &AppRepositoryMetrics,
) -> Parts {
    let problems = Problems::default();
    problems.report_to(metrics.repositories.manifest_problems());
    let builder = Builder {
        context,
        options,
        catalog,
        metrics,
        store: Store::default(),
        states: RepositoryStates::default(),
        listed: Arc::default(),
        origin: Arc::new(origin),
        faults: Arc::new(DatabaseFaults::new(catalog.clone(), context.queue.clone())),
        imports: ImportQueue::new(context.queue.clone(), options.chart_files.mode),
    };
    let schedule = CronTrigger::default();
    let event_handler = RepositoryEventHandler {
        queue: context.queue.clone(),
        running_syncs: options.running.clone(),
        states: Arc::clone(&builder.states),
        listed: Arc::clone(&builder.listed),
        schedule: schedule.clone(),
        defaults: options.defaults.clone(),
    };
    let syncs = builder.sync_context();
    let jobs_changed = Arc::<Notify>::default();
    Parts {
        news: builder.news_delivery(&jobs_changed),
        jobs_changed,
        reconciler: Arc::new(builder.reconciler(syncs.clone())),
        files: Arc::new(builder.files_reconciler(syncs)),
        garbage: builder.garbage_collector(&problems),
        informer: informer(context, options, builder.store.clone(), event_handler, &problems),
        problems,
        schedule,
        store: builder.store,
        listed: builder.listed,
        states: builder.states,
    }
}

struct Builder<'a> {
    context: &'a SetupContext,
    options: &'a Options,
    catalog: &'a Catalog,
    metrics: &'a AppRepositoryMetrics,
    store: Store<Cached<CachedRepository>>,
    states: RepositoryStates,
    listed: Arc<Notify>,
    origin: Arc<Origin>,
    faults: Arc<DatabaseFaults>,
    imports: ImportQueue,
}

impl Builder<'_> {
    fn garbage_collector(&self, problems: &Problems) -> GarbageCollector {
        let (context, options) = (self.context, self.options);
        let orphans = OrphanFinder {
            store: self.store.clone(),
            catalog: self.catalog.clone(),
            queue: context.queue.clone(),
            states: Arc::clone(&self.states),
            metrics: self.metrics.garbage.clone(),
            origin: Arc::clone(&self.origin),
            is_incomplete: match &context.source {
                Source::Cluster(_) => {
                    let is_partial = context.ownership.has_partial_lists();
                    Box::new(move || is_partial)
                }
                Source::Directory(_) => {
                    let problems = problems.clone();
                    Box::new(move || !problems.is_complete())
                }
            },
            namespace: options.namespace.clone(),
            confirmed: AtomicBool::new(options.confirm_removals),
        };
        GarbageCollector {
            orphans,
            catalog: self.catalog.clone(),
            objects: objects(&context.source, options),
            metrics: self.metrics.garbage.clone(),
        }
    }

    fn news_delivery(&self, jobs_changed: &Arc<Notify>) -> NewsDelivery {
        let (fetcher, allows_private) = (&self.options.sync.fetcher, self.options.news_private_networks);
        NewsDelivery {
            catalog: self.catalog.clone(),
            origin: Arc::clone(&self.origin),
            store: self.store.clone(),
            fetcher: fetcher.with_private_networks(allows_private),
            jobs_changed: Arc::clone(jobs_changed),
            has_other_writers: !self.context.ownership.owns_all(),
            has_other_watchers: self.options.namespace.is_some() || self.context.ownership.has_partial_lists(),
            permits: news_delivery::permits(self.context.budgets.metrics().of("news_requests", 0)),
            metrics: self.metrics.news.clone(),
        }
    }

    fn sync_context(&self) -> SyncContext {
        let credentials = CredentialSource::Secrets {
            origin: Arc::clone(&self.origin),
            kubeapps_namespace: self.options.kubeapps_namespace.clone(),
        };
        self.options.sync.clone().context(
            self.catalog.clone(),
            credentials,
            file_access(self.context, self.options),
            self.origin.id().to_owned(),
        )
    }

    fn files_reconciler(&self, syncs: SyncContext) -> FilesReconciler {
        let options = self.options;
        FilesReconciler {
            store: self.store.clone(),
            directory_mode: self.origin.is_directory(),
            defaults: options.defaults.clone(),
            catalog: self.catalog.clone(),
            faults: Arc::clone(&self.faults),
            importer: Importer::new(syncs, options.chart_files, self.metrics.repositories.clone()),
            imports: self.imports.clone(),
            stopping: self.context.stopping.clone(),
        }
    }

    fn reconciler(&self, syncs: SyncContext) -> RepositoryReconciler {
        let (context, options) = (self.context, self.options);
        let has_imports = options.import_after_sync && options.chart_files.has_imports(self.catalog);
        let tombstones = Tombstones {
            catalog: self.catalog.clone(),
            origin: Arc::clone(&self.origin),
        };
        RepositoryReconciler {
            store: self.store.clone(),
            origin: Arc::clone(&self.origin),
            catalog: self.catalog.clone(),
            job_runner: self.job_runner(&tombstones, &syncs),
            tombstones,
            faults: Arc::clone(&self.faults),
            syncer: Syncer::new(syncs, self.metrics.repositories.clone()),
            defaults: options.defaults.clone(),
            running_syncs: options.running.clone(),
            queue: context.queue.clone(),
            listed: Arc::clone(&self.listed),
            metrics: self.metrics.repositories.clone(),
            garbage_metrics: self.metrics.garbage.clone(),
            imports: has_imports.then(|| self.imports.clone()),
            cronjob_remover: cronjob_remover(context, options, &self.states),
            states: Arc::clone(&self.states),
            stopping: context.stopping.clone(),
            ownership: context.ownership.clone(),
        }
    }

    /// Returns the runner of Jobs, if any repository may use them.
    fn job_runner(&self, tombstones: &Tombstones, syncs: &SyncContext) -> Option<JobRunner> {
        let settings = self.options.jobs.clone().filter(JobSettings::is_enabled)?;
        let Source::Cluster(client) = &self.context.source else {
            return None;
        };
        Some(JobRunner {
            jobs: Arc::new(Jobs::new(settings, client.clone(), self.metrics.jobs.clone())),
            origin: Arc::clone(&self.origin),
            tombstones: tombstones.clone(),
            states: Arc::clone(&self.states),
            fetcher: syncs.fetcher.clone(),
        })
    }
}

/// Tasks of a controller by the processes that run them.
struct Tasks {
    sources: Vec<Task>,
    leader: Vec<Task>,
}

impl Parts {
    #[must_use]
    pub fn into_controller(self, context: &SetupContext, options: &Options) -> Controller {
        let mut tasks = self.cluster_tasks(context, options);
        let catalog = self.garbage.catalog.clone();
        let (store, queue) = (self.store.clone(), context.queue.clone());
        let refill = async move { orphans::refill(catalog.rebuilt(), store, queue).await };
        let due = context.queue.clone();
        let schedule = self
            .schedule
            .run(move |name, jitter| due.add_after(key(&name), jitter, Priority::LOW));
        let preempt = preempt(options.running.clone(), context.queue.clone());
        let faults = Arc::clone(&self.reconciler.faults);
        let probe = async move { faults.probe().await };
        let shard_tasks = vec![refill.boxed(), schedule.boxed(), preempt.boxed(), probe.boxed()];
        tasks.sources.insert(0, self.informer);
        let garbage = self.garbage.run(self.listed, options.gc_interval);
        tasks.leader.insert(0, garbage.boxed());
        tasks.leader.push(self.news.run().boxed());
        let (cached, queue) = (self.store.clone(), context.queue.clone());
        let owned = |reconciler: Arc<dyn Reconcile>| context.ownership.filter_owned(&cached, reconciler);
        Controller {
            name: NAME,
            classes: classes(options, &owned(self.reconciler), owned(self.files)),
            sources: tasks.sources,
            servers: Vec::new(),
            leader_tasks: tasks.leader,
            shard_tasks,
            enqueue_all: Box::new(move || enqueue_all(&cached, &queue)),
            has_synced: Box::new(move || self.store.is_synced()),
        }
    }

    fn cluster_tasks(&self, context: &SetupContext, options: &Options) -> Tasks {
        let (mut sources, mut leader) = (Vec::new(), Vec::new());
        let Source::Cluster(client) = &context.source else {
            return Tasks { sources, leader };
        };
        if options.watch_secrets {
            let states = Arc::clone(&self.states);
            sources.push(tasks::watch_secrets(
                client,
                options,
                &self.store,
                states,
                &context.queue,
            ));
        }
        let has_selector = context.ownership.has_partial_lists();
        match &self.reconciler.job_runner {
            Some(JobRunner { jobs, .. }) => {
                let queue = context.queue.clone();
                let jobs_changed = Arc::clone(&self.jobs_changed);
                sources.extend(jobs.watches(move |name| {
                    jobs_changed.notify_one();
                    // A new leader enqueues all repositories.
                    if !queue.is_paused() {
                        queue.add(key(&name), Priority::USER);
                    }
                }));
                leader.push(Arc::clone(jobs).release_waiting().boxed());
            }
            None => leader.push(tasks::remove_leftovers(client, options, has_selector, &self.store)),
        }
        if has_selector {
            tracing::info!(
                "--watch-label-selector is set: charts of repositories that were deleted while no replica ran are kept"
            );
        } else {
            leader.push(tasks::check_cron_jobs(client, options, &self.store));
        }
        Tasks { sources, leader }
    }
}

fn classes(options: &Options, reconciler: &Arc<dyn Reconcile>, files: Arc<dyn Reconcile>) -> Vec<Class> {
    let class = |name, workers| Class {
        name,
        workers,
        reconciler: Arc::clone(reconciler),
    };
    vec![
        class(NAME, options.workers),
        class(SLOW, options.slow_workers()),
        class(CLEANUP, CLEANUP_WORKERS),
        Class {
            name: CHART_FILES,
            workers: options.files_workers,
            reconciler: files,
        },
    ]
}

fn objects(source: &Source, options: &Options) -> Option<GarbageObjects> {
    match source {
        Source::Cluster(client) => Some(GarbageObjects {
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

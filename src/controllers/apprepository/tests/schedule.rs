//! Schedules kept by the work queue alone, without a cron trigger.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::NamespacedName;
use crate::budget::Budgets;
use crate::catalog::{self, Catalog, Database, FilesMode, Handled, Record, RecordState};
use crate::controllers::apprepository::chart_files;
use crate::controllers::apprepository::decision::{SyncDecision, decide, handled, until_due};
use crate::controllers::apprepository::origin::{Directory, Origin};
use crate::controllers::apprepository::running_syncs::RunningSyncs;
use crate::controllers::apprepository::spec::{Defaults, RepositorySpec};
use crate::controllers::apprepository::sync::filter_process::FilterProcesses;
use crate::controllers::apprepository::sync::object_limits::ObjectLimits;
use crate::controllers::apprepository::{AppRepositoryMetrics, Options, SyncOptions, setup};
use crate::controllers::{SetupContext, Source};
use crate::helm::archive;
use crate::http::{self, FetchLimits, Fetcher};
use crate::jq;
use crate::runtime::controller::{self, Action, Class, Key, Reconcile, ReconcileError, WorkerPool};
use crate::runtime::workqueue::{self as queue, Priority, Queue, QueueSettings};

const START: &str = "2026-01-01T00:05:00Z";

/// Reconciles one repository by a clock that starts at [`START`] and pauses with tokio's.
struct Schedule {
    spec: RepositorySpec,
    /// Lets each attempt fail, so that only the schedule repeats it.
    stalls: bool,
    start: Instant,
    record: Mutex<Option<Record>>,
    reconciles: Mutex<Vec<(Duration, Priority)>>,
    attempts: Mutex<Vec<Duration>>,
}

impl Schedule {
    fn new(interval: &str, stalls: bool) -> Arc<Self> {
        let object = serde_json::json!({
            "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
            "metadata": { "namespace": "default", "name": "stable", "uid": "u1", "generation": 1 },
            "spec": { "type": "helm", "url": "https://example.com", "interval": interval },
        });
        Arc::new(Self {
            spec: RepositorySpec::of(&serde_json::from_value(object).unwrap(), &Defaults::usual(), false),
            stalls,
            start: Instant::now(),
            record: Mutex::default(),
            reconciles: Mutex::default(),
            attempts: Mutex::default(),
        })
    }

    fn now(&self) -> Timestamp {
        START.parse::<Timestamp>().unwrap() + self.start.elapsed()
    }

    fn attempted(&self, now: Timestamp) -> Record {
        let spec = &self.spec;
        Record {
            uid: spec.uid.clone(),
            change_key: spec.change_key.as_str().to_owned(),
            spec_hash: Some(spec.spec_hash.clone()),
            handled: handled(spec, &Handled::default()),
            last_attempt: Some(now),
            state: RecordState {
                ready: Some(!self.stalls),
                stalled: self.stalls,
                ..RecordState::default()
            },
            trusted: true,
            ..Record::default()
        }
    }

    /// Runs after an event at [`START`]. Returns the time of each attempt after that, relative to its tick.
    async fn run(self: &Arc<Self>, time: Duration) -> Vec<Duration> {
        let mut registry = Registry::default();
        let queue = Queue::new(
            QueueSettings::default(),
            &queue::WorkqueueMetrics::register(&mut registry),
        );
        let class = Class {
            name: crate::controllers::apprepository::NAME,
            workers: 1,
            reconciler: Arc::clone(self) as Arc<dyn Reconcile>,
        };
        let metrics = controller::WorkerMetrics::register(&mut registry);
        tokio::spawn(
            WorkerPool::new(queue.clone(), vec![class], crate::budget::Budgets::default(), metrics)
                .run(CancellationToken::new()),
        );
        let key = Key {
            class: crate::controllers::apprepository::NAME,
            name: NamespacedName::new("default", "stable"),
        };
        queue.add(key, Priority::USER);
        sleep(time).await;
        let start = START.parse::<Timestamp>().unwrap();
        let attempts = self.attempts.lock().clone();
        let ticks = attempts.windows(2).map(|pair| {
            let tick = self.spec.cron.next_after(start + pair[0]).unwrap();
            Duration::try_from((start + pair[1]).duration_since(tick)).unwrap()
        });
        ticks.collect()
    }
}

impl Reconcile for Schedule {
    fn reconcile<'a>(&'a self, _key: &'a Key, priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move {
            let now = self.now();
            self.reconciles.lock().push((self.start.elapsed(), priority));
            let mut record = self.record.lock();
            if let SyncDecision::Sync(_) = decide(&self.spec, record.as_ref(), now) {
                self.attempts.lock().push(self.start.elapsed());
                *record = Some(self.attempted(now));
            }
            let delay = until_due(&self.spec, now, self.now());
            if self.stalls {
                return Err(ReconcileError::Terminal {
                    message: String::new(),
                    retry_after: Some(delay),
                });
            }
            Ok(Action::RequeueAfter {
                delay,
                priority: Some(Priority::LOW),
            })
        }
        .boxed()
    }
}

const DAY: Duration = Duration::from_hours(24);

#[tokio::test(start_paused = true)]
async fn a_repository_is_synced_at_each_tick_though_the_trigger_never_fires() {
    let schedule = Schedule::new("*/10 * * * *", false);
    let late = schedule.run(DAY).await;
    assert_eq!(late.len(), 144);
    let expected = schedule.spec.jitter() + Duration::from_secs(1);
    // Timers have a resolution of one millisecond.
    assert!(
        late.iter()
            .all(|late| late.abs_diff(expected) <= Duration::from_millis(2)),
        "{late:?}"
    );
    let reconciles = schedule.reconciles.lock();
    assert_eq!(reconciles.len(), 145, "one reconcile for each tick");
    assert!(reconciles[1..].iter().all(|(_, priority)| *priority == Priority::LOW));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_repository_is_retried_at_each_tick_though_the_trigger_never_fires() {
    let schedule = Schedule::new("@hourly", true);
    assert_eq!(schedule.run(DAY).await.len(), 24);
    let reconciles = schedule.reconciles.lock();
    assert!(reconciles[1..].iter().all(|(_, priority)| *priority == Priority::LOW));
}

#[tokio::test(start_paused = true)]
async fn a_repository_that_is_rarely_due_is_reconciled_once_an_hour() {
    let schedule = Schedule::new("0 12 * * *", false);
    assert_eq!(schedule.run(10 * DAY).await.len(), 10);
    let reconciles = schedule.reconciles.lock();
    let longest = reconciles.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
    assert!(
        longest <= Duration::from_hours(1) + Duration::from_millis(2),
        "{longest:?}"
    );
}

#[test]
fn a_sync_that_takes_longer_than_the_gap_is_followed_by_the_one_that_is_due() {
    let schedule = Schedule::new("* * * * *", false);
    let spec = &schedule.spec;
    let at = |time: &str| time.parse::<Timestamp>().unwrap();
    let (started, ended) = (at("2026-01-01T10:00:07Z"), at("2026-01-01T10:02:30Z"));
    assert_eq!(until_due(spec, started, ended), Duration::ZERO);
    let wait = until_due(spec, ended, ended);
    assert_eq!(wait, Duration::from_secs(31) + spec.jitter());
}

fn options() -> Options {
    Options {
        workers: 2,
        files_workers: 1,
        namespace: None,
        kubeapps_namespace: "kubeapps".to_owned(),
        defaults: Defaults {
            min_interval: Duration::from_secs(1),
            ..Defaults::usual()
        },
        sync: SyncOptions {
            fetcher: Fetcher::new(http::Settings::default()).unwrap(),
            fetch_limits: FetchLimits::default(),
            verify_delta: false,
            check_digests: DAY,
            keep_removed: None,
            spool_dir: None,
            budgets: Budgets::default(),
            objects: ObjectLimits::default(),
            // No repository has a filter.
            filters: FilterProcesses::new(PathBuf::new(), 0, jq::FilterLimits::default()),
        },
        chart_files: chart_files::FilesSettings {
            mode: FilesMode::None,
            icons: false,
            archive: archive::ArchiveLimits::default(),
            icon: chart_files::icon_decoder::IconLimits::default(),
        },
        import_after_sync: false,
        allowed_directories: Vec::new(),
        confirm_removals: false,
        gc_interval: DAY,
        lease_namespace: "kubeapps".to_owned(),
        watch_secrets: false,
        news_private_networks: false,
        adopt_kubeapps: false,
        running: RunningSyncs::default(),
        jobs: None,
    }
}

async fn until_attempted(
    catalog: &Catalog,
    name: &NamespacedName,
    is_next: impl Fn(&Record) -> bool,
) -> Option<Timestamp> {
    let attempted = async {
        loop {
            match catalog.record(name).await.unwrap() {
                Some(record) if is_next(&record) => return record.last_attempt,
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let attempted = timeout(Duration::from_secs(60), attempted).await;
    attempted.unwrap_or_else(|_| panic!("no new attempt of {name} at {}", Timestamp::now()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthy_and_stalled_repositories_are_synced_at_their_ticks_though_the_trigger_never_runs() {
    http::install_crypto_provider();
    let directory = tempfile::tempdir().unwrap();
    let index = "apiVersion: v1\nentries: {web: [{name: web, version: 1.0.0, urls: [web-1.0.0.tgz]}]}\n";
    for (name, index) in [("good", index), ("bad", "not an index")] {
        let manifest = format!(
            "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {{name: {name}}}\n\
             spec: {{type: helm, url: \"file:./{name}\", interval: \"* * * * * *\"}}\n"
        );
        fs::write(directory.path().join(format!("{name}.yaml")), manifest).unwrap();
        fs::create_dir(directory.path().join(name)).unwrap();
        fs::write(directory.path().join(name).join("index.yaml"), index).unwrap();
    }
    let database = Database::Sqlite(directory.path().join("portolan.db"));
    let catalog = Catalog::open(&catalog::CatalogSettings::new(database)).await.unwrap();
    let mut registry = Registry::default();
    let options = options();
    let settings = QueueSettings {
        classes: options.classes().into(),
        ..QueueSettings::default()
    };
    let context = SetupContext {
        ownership: crate::runtime::ownership::OwnershipFilter::all(),
        source: Source::Directory(directory.path().to_owned()),
        queue: Queue::new(settings, &queue::WorkqueueMetrics::register(&mut registry)),
        budgets: crate::budget::Budgets::default(),
        stopping: CancellationToken::new(),
    };
    let origin = Origin::Directory(Directory::new(directory.path()).unwrap());
    let metrics = AppRepositoryMetrics::register(&mut registry);
    let parts = setup(&context, &options, &catalog, origin, &metrics);
    let controller = parts.into_controller(&context, &options);
    let metrics = controller::WorkerMetrics::register(&mut registry);
    tokio::spawn(
        WorkerPool::new(context.queue, controller.classes, context.budgets, metrics).run(CancellationToken::new()),
    );
    for source in controller.sources {
        tokio::spawn(source);
    }
    for (name, stalls) in [("good", false), ("bad", true)] {
        let name = NamespacedName::new("default", name);
        let mut last = None;
        for _ in 0..3 {
            let is_next = |record: &Record| record.last_attempt > last && record.state.stalled == stalls;
            last = until_attempted(&catalog, &name, is_next).await;
        }
    }
}

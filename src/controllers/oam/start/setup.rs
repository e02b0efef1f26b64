use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::OnceCell;

use super::prerequisites::Prerequisites;
use super::{authentication, webhooks};
use crate::api::NamespacedName;
use crate::api::oam::DefinitionKind;
use crate::budget::{self, Budget};
use crate::controllers::oam::cache::{CacheEventHandler, Caches, key};
use crate::controllers::oam::clusters::{ClusterSettings, JoinedClusters};
use crate::controllers::oam::collect::Collector;
use crate::controllers::oam::compression::CrdCheck;
use crate::controllers::oam::definitions::{
    self, ChangedKind, DefinitionBudgets, DefinitionCaches, DefinitionParts, IsInUse,
};
use crate::controllers::oam::dispatch::fights::Fights;
use crate::controllers::oam::functions::http::HttpRequests;
use crate::controllers::oam::functions::logs::StepLogs;
use crate::controllers::oam::metrics::OamMetrics;
use crate::controllers::oam::objects::{Autoscalers, ClusterObjects, JoinedSettings, Objects};
use crate::controllers::oam::reconciler::{ClusterPasses, Memories, Reconciler, Wake};
use crate::controllers::oam::rights::AccessReviews;
use crate::controllers::oam::trackers::LOCAL;
use crate::controllers::oam::webhooks::{PreparedWebhooks, WebhookServerMetrics};
use crate::controllers::oam::{GatewayClient, NAME, Options};
use crate::controllers::{Controller, SetupContext, Source, Task};
use crate::cue::{self, Evaluator};
use crate::runtime::controller::{Class, Key};
use crate::runtime::events::EventPublisher;
use crate::runtime::watch::Scope;
use crate::runtime::workqueue::{ClassLimits, Priority, Queue};

/// Time limit of an evaluation for a review. Another namespace gets its turn then, before its review ends.
const REVIEW_EVALUATION: Duration = Duration::from_secs(2);

/// The source of events, as KubeVela names it.
const EVENT_SOURCE: &str = "Application";

impl Options {
    #[must_use]
    pub fn classes(&self) -> Vec<(&'static str, ClassLimits)> {
        let limits = ClassLimits {
            reserve: usize::from(self.workers > 1),
            per_namespace: (self.workers / 2).max(1),
            ..ClassLimits::workers(self.workers)
        };
        let definitions = DefinitionKind::ALL.map(|kind| (definitions::class(kind), ClassLimits::workers(1)));
        [(NAME, limits)].into_iter().chain(definitions).collect()
    }
}

/// The parts of the controller that serve health and metrics before it is set up.
#[derive(Clone)]
pub struct SharedParts {
    pub prerequisites: Prerequisites,
    metrics: OamMetrics,
    webhooks: Option<WebhookParts>,
}

/// The parts of the webhooks, if they are served.
#[derive(Clone)]
struct WebhookParts {
    /// A pool of its own, so that reviews delay no pass.
    evaluator: Evaluator,
    metrics: WebhookServerMetrics,
}

impl SharedParts {
    pub fn register(registry: &mut Registry, budgets: &budget::Metrics, options: &Options) -> Self {
        let evaluator = Evaluator::new(options.evaluator.clone(), budgets.of("cue_workers", 0));
        let webhooks = options.webhooks.as_ref().map(|_| {
            let one = cue::EvaluatorOptions {
                workers: NonZeroUsize::MIN,
                timeout: options.evaluator.timeout.min(REVIEW_EVALUATION),
                ..options.evaluator.clone()
            };
            WebhookParts {
                evaluator: evaluator.separate(one, budgets.of("cue_review_workers", 0)),
                metrics: WebhookServerMetrics::register(registry),
            }
        });
        evaluator.register(registry, webhooks.as_ref().map(|webhooks| &webhooks.evaluator));
        let has_compat = options.has_compat_metrics;
        if has_compat {
            evaluator.register_compat(registry);
        }
        Self {
            prerequisites: Prerequisites::new(evaluator),
            metrics: OamMetrics::register(registry, options.has_application_metrics, has_compat),
            webhooks,
        }
    }

    /// Returns the metrics of the webhooks, if they are served.
    #[must_use]
    pub fn webhook_metrics(&self) -> Option<&WebhookServerMetrics> {
        self.webhooks.as_ref().map(|webhooks| &webhooks.metrics)
    }
}

/// Builds the controller; `None` without an API server.
#[must_use]
pub fn setup(
    context: &SetupContext,
    options: &Options,
    parts: &SharedParts,
    prepared_webhooks: Option<PreparedWebhooks>,
) -> Option<Controller> {
    let Source::Cluster(client) = &context.source else {
        return None;
    };
    let reconciler = Arc::new(reconciler(context, client, options, parts));
    parts.metrics.set_objects(&reconciler.objects);
    let mut sources = sources(&reconciler, &context.queue);
    let (caches, definition_caches) = (reconciler.caches.clone(), reconciler.definitions.clone());
    let mut servers = Vec::new();
    if let Some((webhooks, parts)) = prepared_webhooks.zip(parts.webhooks.as_ref()) {
        let (serve, keep_certificate) =
            webhooks.into_server(options, &definition_caches, &parts.evaluator, &context.budgets);
        servers.push(serve);
        sources.push(keep_certificate);
    }
    sources.extend(parts.prerequisites.tasks(client));
    let (applications, queue) = (caches.applications.clone(), context.queue.clone());
    let has_definitions = reconciler.ownership.can_be_primary();
    let all_definitions = has_definitions.then(|| definition_caches.clone());
    Some(Controller {
        name: NAME,
        classes: classes(&reconciler),
        sources,
        servers,
        leader_tasks: leader_tasks(&reconciler),
        shard_tasks: Vec::new(),
        enqueue_all: Box::new(move || {
            for name in applications.names() {
                queue.add(key(&name), Priority::LOW);
            }
            if let Some(caches) = &all_definitions {
                definitions::enqueue_all(caches, &queue);
            }
        }),
        has_synced: Box::new(move || caches.is_synced() && definition_caches.is_synced()),
    })
}

fn reconciler(context: &SetupContext, client: &Client, options: &Options, parts: &SharedParts) -> Reconciler {
    let cache_budget = context.budgets.sixteenths(6, "oam_caches");
    let caches = Caches::new(cache_budget.clone(), options.has_compat_metrics);
    let definition_budgets = DefinitionBudgets {
        tenants: cache_budget.clone(),
        shared: context.budgets.sixteenths(2, "oam_definitions"),
        definition_namespace: options.definition_namespace.as_str().into(),
    };
    let handler = CacheEventHandler {
        queue: context.queue.clone(),
        applications: caches.applications.clone(),
    };
    let objects = objects(context, client, options, cache_budget, handler);
    let deferred = context.queue.clone();
    let wake: Wake = Arc::new(move |name| deferred.add(key(name), Priority::LOW));
    Reconciler {
        client: client.clone(),
        budgets: context.budgets.clone(),
        options: options.clone(),
        ownership: context.ownership.clone().with_shard_label(options.shard.clone()),
        caches,
        definitions: DefinitionCaches::new(options.namespace.as_deref(), definition_budgets),
        reviews: AccessReviews::new(client.clone(), parts.metrics.clone()),
        collector: Collector {
            objects: objects.clone(),
            client: client.clone(),
            write_limit: options.max_concurrent_writes,
        },
        objects,
        evaluator: parts.prerequisites.evaluator().clone(),
        events: EventPublisher::new(client.clone(), EVENT_SOURCE),
        metrics: parts.metrics.clone(),
        autoscalers: Autoscalers::default(),
        cluster_passes: ClusterPasses::new(options.workers, Arc::clone(&wake)),
        http_requests: HttpRequests::new(options.fetcher.clone(), &context.budgets, options.workers),
        step_logs: StepLogs::default(),
        wake,
        stopping: context.stopping.clone(),
        fights: Mutex::new(Fights::new(options.resync_period)),
        memories: Memories::new(context.budgets.sixteenths(4, "oam_results")),
        cluster_version: OnceCell::new(),
        tracker_crd: CrdCheck::default(),
        revision_crd: CrdCheck::default(),
    }
}

fn objects(
    context: &SetupContext,
    client: &Client,
    options: &Options,
    cache_budget: Budget,
    handler: CacheEventHandler,
) -> Objects {
    let changed = move |name: NamespacedName| handler.on_objects(&name);
    let gateway = options.joined.gateway.clone();
    let clusters = JoinedClusters::new(ClusterSettings {
        client: client.clone(),
        gateway: gateway.map_or_else(|| client.clone(), |GatewayClient(gateway)| gateway),
        namespace: options.definition_namespace.clone(),
        fetcher: options.joined.fetcher.clone(),
        allow_insecure: options.joined.allow_insecure,
        requests: options.joined.requests.clone(),
        write_fence: options.joined.write_fence.clone(),
    });
    let local = ClusterObjects::with_cache(
        client.clone(),
        LOCAL,
        options.resync_period,
        options.relist_period,
        ClusterObjects::cache(cache_budget, None),
        changed.clone(),
    );
    let joined = JoinedSettings {
        clusters,
        resync: options.resync_period,
        relist: options.relist_period,
        budget: context.budgets.sixteenths(2, "oam_joined_objects"),
        changed: Arc::new(changed),
    };
    Objects::new(local, joined)
}

fn sources(reconciler: &Reconciler, queue: &Queue<Key>) -> Vec<Task> {
    let (client, options, ownership) = (&reconciler.client, &reconciler.options, &reconciler.ownership);
    let handler = CacheEventHandler {
        queue: queue.clone(),
        applications: reconciler.caches.applications.clone(),
    };
    let scope = options.namespace.clone().map_or(Scope::All, Scope::Namespace);
    let selection = ownership.selection(scope);
    let mut sources = reconciler.caches.sources(client, &selection, handler.clone());
    let definition_namespace = options.definition_namespace.clone();
    let on_definition = move |change: definitions::DefinitionChange| {
        if let ChangedKind::Definition(kind) = change.kind {
            handler.on_definition(kind, &change.namespace, &change.name, &definition_namespace);
        }
    };
    let queue = ownership.can_be_primary().then(|| queue.clone());
    sources.extend(reconciler.definitions.sources(client, queue, on_definition));
    sources.push(reconciler.objects.clone().run().boxed());
    let clusters = reconciler.objects.clusters();
    if options.joined.is_enabled {
        sources.push(clusters.clone().run().boxed());
    } else {
        clusters.disable();
    }
    sources
}

fn classes(reconciler: &Arc<Reconciler>) -> Vec<Class> {
    let mut classes = vec![Class {
        name: NAME,
        workers: reconciler.options.workers,
        reconciler: reconciler.clone(),
    }];
    let ownership = &reconciler.ownership;
    if ownership.can_be_primary() {
        let definitions = definitions::classes(&DefinitionParts {
            client: reconciler.client.clone(),
            budgets: reconciler.budgets.clone(),
            caches: reconciler.definitions.clone(),
            settings: (&reconciler.options).into(),
            is_in_use: is_revision_in_use(&reconciler.caches, ownership.has_partial_lists()),
            evaluator: reconciler.evaluator.clone(),
            stopping: reconciler.stopping.clone(),
        });
        // Definitions are few, and belong to no Application.
        let of_primary = |class: Class| Class {
            reconciler: ownership.filter_primary(class.reconciler),
            ..class
        };
        classes.extend(definitions.into_iter().map(of_primary));
    }
    classes
}

fn leader_tasks(reconciler: &Reconciler) -> Vec<Task> {
    let (client, webhooks) = (&reconciler.client, &reconciler.options.webhooks);
    let (applications, metrics) = (reconciler.caches.applications.clone(), reconciler.metrics.clone());
    let lead = async move {
        metrics.set_applications(&applications);
        std::future::pending::<()>().await
    };
    let mut tasks = vec![lead.boxed(), webhooks::warn_task(client.clone(), webhooks.clone())];
    if reconciler.options.joined.is_enabled {
        tasks.push(reconciler.objects.clusters().clone().upgrade_secrets().boxed());
    }
    if reconciler.options.identity.needs_webhook() {
        let metrics = reconciler.metrics.clone();
        tasks.push(authentication::watch_task(client.clone(), metrics, webhooks.clone()));
    }
    tasks
}

/// Returns a function that tells if an Application names a revision of a definition, such as `webservice@v2`.
fn is_revision_in_use(caches: &Caches, has_selector: bool) -> IsInUse {
    let applications = caches.applications.clone();
    Arc::new(move |kind, revision| {
        // An Application that is not in the cache may use it.
        if has_selector || !applications.is_synced() {
            return true;
        }
        let names = applications.names();
        let mut cached = names.iter().filter_map(|name| applications.get(name));
        cached.any(|app| app.object().is_some_and(|app| app.may_use_revision(kind, revision)))
    })
}

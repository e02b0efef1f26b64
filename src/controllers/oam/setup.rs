use std::sync::Arc;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::cache::{Caches, EventHandler, key};
use super::collect::Collector;
use super::definitions::{ChangedKind, DefinitionCaches};
use super::dispatch::fights::Fights;
use super::metrics::Metrics;
use super::objects::Objects;
use super::reconciler::Reconciler;
use super::{NAME, Options};
use crate::controllers::{Controller, SetupContext, Source};
use crate::cue::Evaluator;
use crate::runtime::controller::Class;
use crate::runtime::events::EventPublisher;
use crate::runtime::watch::Scope;
use crate::runtime::workqueue::Priority;

/// The source of events, as KubeVela names it.
const EVENT_SOURCE: &str = "Application";

/// Builds the controller; `None` without an API server.
#[must_use]
pub fn setup(
    context: &SetupContext,
    options: &Options,
    evaluator: &Evaluator,
    metrics: &Metrics,
) -> Option<Controller> {
    let Source::Cluster(client) = &context.source else {
        return None;
    };
    let caches = Caches::default();
    let definitions = DefinitionCaches::new(options.namespace.as_deref(), &options.definition_namespace);
    let handler = EventHandler {
        queue: context.queue.clone(),
        applications: caches.applications.clone(),
    };
    let on_objects = handler.clone();
    let objects = Objects::new(client.clone(), options.resync_period, move |name| {
        on_objects.on_objects(&name);
    });
    metrics.set_objects(&objects);
    let scope = options.namespace.clone().map_or(Scope::All, Scope::Namespace);
    let mut sources = caches.sources(client, &scope, handler.clone());
    let definition_namespace = options.definition_namespace.clone();
    let on_definition = move |change: super::definitions::DefinitionChange| {
        if let ChangedKind::Definition(kind) = change.kind {
            handler.on_definition(kind, &change.namespace, &change.name, &definition_namespace);
        }
    };
    sources.extend(definitions.sources(client, None, on_definition));
    sources.push(objects.clone().run().boxed());
    let collector = Collector {
        objects: objects.clone(),
        client: client.clone(),
        write_limit: options.max_concurrent_writes,
    };
    let reconciler = Reconciler {
        client: client.clone(),
        options: options.clone(),
        caches: caches.clone(),
        definitions: definitions.clone(),
        objects,
        collector,
        evaluator: evaluator.clone(),
        events: EventPublisher::new(client.clone(), EVENT_SOURCE),
        metrics: metrics.clone(),
        fights: Mutex::new(Fights::new(options.resync_period)),
        memories: super::reconciler::Memories::default(),
        cluster_version: OnceCell::new(),
    };
    let (applications, queue) = (caches.applications.clone(), context.queue.clone());
    Some(Controller {
        name: NAME,
        classes: vec![Class {
            name: NAME,
            workers: options.workers,
            reconciler: Arc::new(reconciler),
        }],
        sources,
        leader_tasks: Vec::new(),
        enqueue_all: Box::new(move || {
            for name in applications.names() {
                queue.add(key(&name), Priority::LOW);
            }
        }),
        has_synced: Box::new(move || caches.is_synced() && definitions.is_synced()),
    })
}

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;

use super::cached::CachedApplication;
use super::event_handler::{ApplicationEventHandler, ComponentEventHandler, key};
use super::index::Index;
use super::kinds::ComponentKinds;
use super::metrics::ApplicationMetrics;
use super::owners::apply::Ownership;
use super::owners::finalizer::Adoptions;
use super::reconciler::{ApplicationReconciler, WriteThrottle};
use super::{NAME, components};
use crate::controllers::{Controller, FIELD_MANAGER, SetupContext, Source};
use crate::runtime::controller::Class;
use crate::runtime::events::EventPublisher;
use crate::runtime::watch::{ErrorPolicy, MAX_WATCHES, Scope, Store, WatchManager, WatchSettings, raw_informer};
use crate::runtime::workqueue::{ClassLimits, Priority};

#[derive(Clone)]
pub struct Options {
    pub workers: usize,
    pub kinds: ComponentKinds,
    /// The polling interval for component kinds that cannot be watched.
    pub sync_period: Duration,
    /// The namespace to watch; all namespaces if `None`.
    pub namespace: Option<String>,
}

impl Options {
    #[must_use]
    pub fn classes(&self) -> [(&'static str, ClassLimits); 1] {
        let limits = ClassLimits {
            reserve: usize::from(self.workers > 1),
            ..ClassLimits::workers(self.workers)
        };
        [(NAME, limits)]
    }
}

/// Builds the controller; `None` without an API server.
#[must_use]
pub fn setup(context: &SetupContext, options: &Options, metrics: &ApplicationMetrics) -> Option<Controller> {
    let Source::Cluster(client) = &context.source else {
        return None;
    };
    let (store, index) = (Store::default(), Index::default());
    let components = ComponentEventHandler {
        index: index.clone(),
        queue: context.queue.clone(),
    };
    let settings = WatchSettings {
        sync_period: options.sync_period,
        kinds: options.kinds.filter().clone(),
        relist_period: None,
        linger: Duration::ZERO,
        prefers_cluster_wide: false,
        max_watches: MAX_WATCHES,
    };
    let watches = WatchManager::new(client.clone(), settings, components::open, move |kind, event| {
        components.on_event(kind, &event);
    });
    metrics.set_watches(&watches);
    let event_handler = ApplicationEventHandler {
        index: index.clone(),
        queue: context.queue.clone(),
        watches: watches.clone(),
    };
    let scope = options.namespace.clone().map_or(Scope::All, Scope::Namespace);
    let on_change = move |change| event_handler.on_change(change);
    let informer = raw_informer(
        client.clone(),
        context.ownership.selection(scope),
        ErrorPolicy::Optional,
        store.clone(),
        CachedApplication::convert,
        on_change,
    );
    let (cached, queue) = (store.clone(), context.queue.clone());
    let (applications, watch_manager) = (store.clone(), watches.clone());
    // Before all Applications are known, kinds would be watched in each of the first few namespaces, and then in all.
    let component_watches = async move {
        applications.wait_until_synced().await;
        watch_manager.run().await;
    };
    let reconciler = ApplicationReconciler {
        store,
        events: EventPublisher::new(client.clone(), FIELD_MANAGER),
        ownership: Ownership {
            client: client.clone(),
            index: index.clone(),
            metrics: metrics.clone(),
            watches: watches.clone(),
            adoptions: Adoptions::default(),
        },
        kinds: options.kinds.clone(),
        index,
        watches,
        throttle: WriteThrottle::default(),
        metrics: metrics.clone(),
        denied: Mutex::default(),
        sync_period: options.sync_period,
        stopping: context.stopping.clone(),
    };
    Some(Controller {
        name: NAME,
        classes: vec![Class {
            name: NAME,
            workers: options.workers,
            reconciler: context.ownership.filter_owned(&cached, Arc::new(reconciler)),
        }],
        sources: vec![informer.boxed(), component_watches.boxed()],
        servers: Vec::new(),
        leader_tasks: Vec::new(),
        shard_tasks: Vec::new(),
        enqueue_all: Box::new(move || {
            for name in cached.names() {
                queue.add(key(&name), Priority::LOW);
            }
        }),
        // The definition may be missing, so readiness does not wait for the cache.
        has_synced: Box::new(|| true),
    })
}

//! The Applications of `app.k8s.io`: their flags, and how their parts are put together.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use clap::Args;
use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::api::Application;
use crate::cmd::parse::seconds;
use crate::controllers::application::cached::CachedApplication;
use crate::controllers::application::components;
use crate::controllers::application::event_handler::{ComponentEventHandler, EventHandler};
use crate::controllers::application::index::Index;
use crate::controllers::application::metrics::Metrics;
use crate::controllers::application::owner_apply::Ownership;
use crate::controllers::application::reconciler::{Reconciler, WriteThrottle};
use crate::controllers::apprepository::origin::FIELD_MANAGER;
use crate::runtime::controller::Key;
use crate::runtime::events::EventPublisher;
use crate::runtime::informer::cluster::{Definition, Scope};
use crate::runtime::informer::{self, Store};
use crate::runtime::watch::{Settings, WatchManager};
use crate::runtime::workqueue::Queue;

/// What concerns Applications.
#[derive(Args, Debug)]
pub struct ApplicationFlags {
    /// Sum up the readiness of the Applications of app.k8s.io in their status, where their definition is installed. Not with --manifests
    #[arg(
        long,
        env = "PORTOLAN_APPLICATIONS",
        default_value_t = true,
        help_heading = "Applications"
    )]
    pub applications: bool,
    /// How many Applications are looked at at the same time
    #[arg(
        long,
        env = "PORTOLAN_APPLICATION_WORKERS",
        value_name = "N",
        default_value = "4",
        help_heading = "Applications"
    )]
    pub application_workers: NonZeroU32,
    /// How often components are listed that may not be watched, in seconds or as 2m. What may be watched is looked at as it changes
    #[arg(long, env = "PORTOLAN_SYNC_PERIOD", value_name = "DURATION", default_value = "120", value_parser = seconds,
          help_heading = "Applications")]
    pub sync_period: Duration,
}

/// The parts, ready to be started.
pub(super) struct Applications {
    /// What looks at Applications.
    pub(super) reconciler: Arc<Reconciler>,
    /// What follows Applications and their components, once it is polled and as long as it is. It never ends.
    pub(super) following: BoxFuture<'static, ()>,
}

impl Applications {
    /// Puts the parts together.
    pub(super) fn new(
        flags: &ApplicationFlags,
        client: &Client,
        scope: &Scope,
        queue: &Queue<Key>,
        metrics: &Metrics,
        stopping: CancellationToken,
    ) -> Self {
        let (store, index) = (Store::<CachedApplication>::default(), Index::default());
        let component_trigger = ComponentEventHandler {
            index: index.clone(),
            queue: queue.clone(),
        };
        let settings = Settings {
            sync_period: flags.sync_period,
        };
        let watches = WatchManager::new(client.clone(), settings, components::open, move |kind, event| {
            component_trigger.on_event(kind, &event);
        });
        metrics.set_watches(&watches);
        let trigger = EventHandler {
            index: index.clone(),
            queue: queue.clone(),
            watches: watches.clone(),
        };
        let events =
            informer::cluster::events::<Application, CachedApplication>(client.clone(), scope, Definition::Optional);
        let informer = informer::run(events, store.clone(), move |change| trigger.on_change(change));
        let following = futures::future::join(informer, watches.clone().run())
            .map(|_| ())
            .boxed();
        let reconciler = Reconciler {
            store,
            events: EventPublisher::new(client.clone(), FIELD_MANAGER),
            ownership: Ownership {
                client: client.clone(),
                manager: FIELD_MANAGER,
                index: index.clone(),
                metrics: metrics.clone(),
                watches: watches.clone(),
            },
            index,
            watches,
            throttle: WriteThrottle::default(),
            metrics: metrics.clone(),
            sync_period: flags.sync_period,
            stopping,
        };
        Self {
            reconciler: Arc::new(reconciler),
            following,
        }
    }
}

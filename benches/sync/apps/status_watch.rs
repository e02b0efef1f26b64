//! Times of status changes of Applications, taken from a watch.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use portolan::api::Application;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(300);

/// `componentsReady` of Applications by name, such as `5/5`, and the time of its last change.
type Statuses = HashMap<String, Option<(String, Instant)>>;

/// A watch of Applications.
pub struct StatusWatch {
    seen: watch::Receiver<Statuses>,
    task: JoinHandle<()>,
}

impl StatusWatch {
    /// Starts the watch.
    pub fn new(applications: Api<Application>) -> Self {
        let (sender, seen) = watch::channel(Statuses::new());
        let task = tokio::spawn(async move {
            let events = watcher::watcher(applications, watcher::Config::default());
            let mut events = events.default_backoff().boxed();
            // The watch recovers from errors.
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(application) | Event::InitApply(application)) = event {
                    sender.send_modify(|seen| update(seen, application));
                }
            }
        });
        Self { seen, task }
    }

    /// Waits until this many Applications have this value, and returns the time of the last change.
    pub async fn all(&self, count: usize, components_ready: &str) -> Instant {
        let shows =
            |shown: &Option<(String, Instant)>| shown.as_ref().is_some_and(|(ready, _)| ready == components_ready);
        let seen = self
            .until(|seen| seen.values().filter(|shown| shows(shown)).count() == count)
            .await;
        let times = seen.values().flatten().map(|(_, since)| *since);
        times.max().expect("there are Applications")
    }

    /// Waits until an Application has this value, and returns the time of the change.
    pub async fn one(&self, name: &str, components_ready: &str) -> Instant {
        let time = |seen: &Statuses| {
            let (ready, since) = seen.get(name)?.as_ref()?;
            (ready == components_ready).then_some(*since)
        };
        let seen = self.until(|seen| time(seen).is_some()).await;
        time(&seen).expect("the value was observed")
    }

    /// Waits until no Application has a status.
    pub async fn none(&self) {
        self.until(|seen| seen.values().all(Option::is_none)).await;
    }

    async fn until(&self, holds: impl FnMut(&Statuses) -> bool) -> Statuses {
        let mut seen = self.seen.clone();
        let reached = tokio::time::timeout(PATIENCE, seen.wait_for(holds)).await;
        let reached = reached.unwrap_or_else(|_| panic!("statuses within {PATIENCE:?}: {:?}", *self.seen.borrow()));
        reached.expect("the watch continues").clone()
    }
}

impl Drop for StatusWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn update(seen: &mut Statuses, application: Application) {
    let shown = seen.entry(application.name_any()).or_default();
    let ready = application.status.and_then(|status| status.components_ready);
    if shown.as_ref().map(|(ready, _)| ready) != ready.as_ref() {
        *shown = ready.map(|ready| (ready, Instant::now()));
    }
}

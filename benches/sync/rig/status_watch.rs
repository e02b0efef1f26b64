//! Times of status changes, taken from a watch.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(300);

/// A value of the status by the object's name, and the time of its last change.
type Statuses = HashMap<String, Option<(String, Instant)>>;

/// A watch of objects with distinct names.
pub struct StatusWatch {
    seen: watch::Receiver<Statuses>,
    task: JoinHandle<()>,
}

impl StatusWatch {
    /// Starts the watch. `value` is the part of the status to look at.
    pub fn new<K>(objects: Api<K>, value: fn(&K) -> Option<String>) -> Self
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let (sender, seen) = watch::channel(Statuses::new());
        let task = tokio::spawn(async move {
            let events = watcher::watcher(objects, watcher::Config::default());
            let mut events = events.default_backoff().boxed();
            // The watch recovers from errors.
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(object) | Event::InitApply(object)) = event {
                    sender.send_modify(|seen| update(seen, object.name_any(), value(&object)));
                }
            }
        });
        Self { seen, task }
    }

    /// Waits until this many objects have this value, and returns the time of the last change.
    pub async fn all(&self, count: usize, expected: &str) -> Instant {
        let shows = |shown: &Option<(String, Instant)>| shown.as_ref().is_some_and(|(value, _)| value == expected);
        let seen = self
            .until(|seen| seen.values().filter(|shown| shows(shown)).count() == count)
            .await;
        let times = seen.values().flatten().map(|(_, since)| *since);
        times.max().expect("there are objects")
    }

    /// Waits until an object has this value, and returns the time of the change.
    pub async fn one(&self, name: &str, expected: &str) -> Instant {
        let time = |seen: &Statuses| {
            let (value, since) = seen.get(name)?.as_ref()?;
            (value == expected).then_some(*since)
        };
        let seen = self.until(|seen| time(seen).is_some()).await;
        time(&seen).expect("the value was observed")
    }

    /// Waits until no object has a value.
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

fn update(seen: &mut Statuses, name: String, value: Option<String>) {
    let shown = seen.entry(name).or_default();
    if shown.as_ref().map(|(value, _)| value) != value.as_ref() {
        *shown = value.map(|value| (value, Instant::now()));
    }
}

//! Times of changes, taken from a watch of objects.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(300);
/// The control plane alone needs 200 ms for each KubeVela Application.
const MILLISECONDS_FOR_EACH: u64 = 500;

type Seen = HashMap<String, Shown>;

struct Shown {
    since: Instant,
    /// A part of the status, and the time of its last change.
    value: Option<(String, Instant)>,
}

/// A watch of objects with distinct names.
pub struct StatusWatch {
    seen: watch::Receiver<Seen>,
    /// Aborted on drop.
    _task: JoinSet<()>,
}

impl StatusWatch {
    pub fn new(objects: Api<DynamicObject>, value: fn(&DynamicObject) -> Option<&str>) -> Self {
        let (sender, seen) = watch::channel(Seen::new());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let events = watcher::watcher(objects, watcher::Config::default());
            let mut events = events.default_backoff().boxed();
            // The watch recovers from errors.
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(object) | Event::InitApply(object)) = event {
                    sender.send_modify(|seen| update(seen, object.name_any(), value(&object)));
                }
            }
        });
        Self { seen, _task: task }
    }

    pub async fn created(&self, name: &str) -> Instant {
        self.until(|seen| seen.get(name).map(|shown| shown.since)).await
    }

    /// Waits until at least this many objects have names with this prefix.
    pub async fn named(&self, prefix: &str, count: usize) {
        let named = |seen: &Seen| seen.keys().filter(|name| name.starts_with(prefix)).count();
        self.until(|seen| (named(seen) >= count).then_some(())).await;
    }

    /// Waits until this many objects have this value, and returns the time of the last change.
    pub async fn all(&self, count: usize, expected: &str) -> Instant {
        let times = |seen: &Seen| {
            let times = seen.values().filter_map(|shown| shown.since(expected));
            times.collect::<Vec<_>>()
        };
        let patience = PATIENCE.max(Duration::from_millis(MILLISECONDS_FOR_EACH * count as u64));
        let last = self.within(patience, |seen| {
            let times = times(seen);
            times.iter().max().copied().filter(|_| times.len() == count)
        });
        last.await.unwrap_or_else(|| {
            let seen = self.seen.borrow();
            let missing = count.saturating_sub(times(&seen).len());
            let others = seen.iter().filter(|(_, shown)| shown.since(expected).is_none());
            let others = others.map(|(name, shown)| (name, shown.value.as_ref().map(|(value, _)| value)));
            let others: Vec<_> = others.take(3).collect();
            panic!("{missing} of {count} objects are not {expected} within {patience:?}, such as {others:?}")
        })
    }

    pub async fn one(&self, name: &str, expected: &str) -> Instant {
        self.until(|seen| seen.get(name)?.since(expected)).await
    }

    pub async fn none(&self) {
        self.until(|seen| seen.values().all(|shown| shown.value.is_none()).then_some(()))
            .await;
    }

    async fn until<T>(&self, found: impl Fn(&Seen) -> Option<T>) -> T {
        let reached = self.within(PATIENCE, found).await;
        reached.unwrap_or_else(|| panic!("the statuses are reached within {PATIENCE:?}"))
    }

    /// Returns `None` on a timeout.
    async fn within<T>(&self, patience: Duration, found: impl Fn(&Seen) -> Option<T>) -> Option<T> {
        let mut seen = self.seen.clone();
        let reached = tokio::time::timeout(patience, seen.wait_for(|seen| found(seen).is_some())).await;
        found(&reached.ok()?.expect("the watch continues"))
    }
}

impl Shown {
    fn since(&self, expected: &str) -> Option<Instant> {
        let (value, since) = self.value.as_ref()?;
        (value == expected).then_some(*since)
    }
}

fn update(seen: &mut Seen, name: String, value: Option<&str>) {
    let now = Instant::now();
    let shown = seen.entry(name).or_insert(Shown {
        since: now,
        value: None,
    });
    if shown.value.as_ref().map(|(value, _)| value.as_str()) != value {
        shown.value = value.map(|value| (value.to_owned(), now));
    }
}

//! When the statuses of Applications change, seen by a watch.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use portolan::api::Application;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(300);

/// What an Application shows.
#[derive(Clone, Debug)]
struct Shown {
    /// As in `5/5`.
    components_ready: String,
    is_error: bool,
    /// When it came to show that.
    since: Instant,
}

type Seen = HashMap<String, Shown>;

/// A watch of Applications, by their names.
pub struct Follower {
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Begins to watch.
    pub fn new(applications: Api<Application>) -> Self {
        let (sender, seen) = watch::channel(Seen::new());
        let task = tokio::spawn(async move {
            let mut events = watcher::watcher(applications, watcher::Config::default()).boxed();
            while let Some(event) = events.try_next().await.expect("the watch goes on") {
                sender.send_modify(|seen| take(seen, event));
            }
        });
        Self { seen, task }
    }

    /// Waits until so many Applications show this; when the last of them came to.
    pub async fn all(&self, count: usize, components_ready: &str) -> Instant {
        let shows = |shown: &&Shown| shown.components_ready == components_ready;
        let is_reached = |seen: &Seen| seen.values().filter(shows).count() == count;
        let seen = self.until(components_ready, is_reached).await;
        let times = seen.values().filter(shows).map(|shown| shown.since);
        times.max().expect("there are Applications")
    }

    /// Waits until an Application shows this; when it came to.
    pub async fn one(&self, name: &str, components_ready: &str) -> Instant {
        let shows = |shown: &Shown| shown.components_ready == components_ready;
        let seen = self.until(name, |seen: &Seen| seen.get(name).is_some_and(shows)).await;
        seen[name].since
    }

    /// Waits until these have the condition Error; when the last of them came to.
    pub async fn errors(&self, names: &[String]) -> Instant {
        let has_error = |seen: &Seen| {
            names
                .iter()
                .all(|name| seen.get(name).is_some_and(|shown| shown.is_error))
        };
        let seen = self.until("errors", has_error).await;
        names
            .iter()
            .map(|name| seen[name].since)
            .max()
            .expect("there are names")
    }

    /// Waits until no more Applications than so many have a status.
    pub async fn only(&self, count: usize) {
        self.until("deletions", |seen| seen.len() == count).await;
    }

    async fn until(&self, what: &str, holds: impl FnMut(&Seen) -> bool) -> Seen {
        let mut seen = self.seen.clone();
        let reached = tokio::time::timeout(PATIENCE, seen.wait_for(holds)).await;
        let reached = reached.unwrap_or_else(|_| panic!("{what} within {PATIENCE:?}: {:?}", *self.seen.borrow()));
        reached.expect("the watch goes on").clone()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn take(seen: &mut Seen, event: Event<Application>) {
    match event {
        Event::Apply(application) | Event::InitApply(application) => {
            let name = application.name_any();
            let status = application.status.unwrap_or_default();
            let Some(components_ready) = status.components_ready else {
                seen.remove(&name);
                return;
            };
            let is_error = |condition: &portolan::api::ApplicationCondition| {
                condition.type_ == "Error" && condition.status == "True"
            };
            let is_error = status.conditions.iter().any(is_error);
            let old = seen.get(&name);
            if old.is_none_or(|old| old.components_ready != components_ready || old.is_error != is_error) {
                let shown = Shown {
                    components_ready,
                    is_error,
                    since: Instant::now(),
                };
                seen.insert(name, shown);
            }
        }
        Event::Delete(application) => {
            seen.remove(&application.name_any());
        }
        Event::Init | Event::InitDone => {}
    }
}

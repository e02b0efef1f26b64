//! Events of objects in a cluster, from a watch that retries forever.

use std::{collections::VecDeque, fmt::Debug, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt, stream, stream::BoxStream};
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    core::DeserializeGuard,
    runtime::{
        utils::Backoff,
        watcher::{self, DefaultBackoff, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::api::Guarded;

/// Polling interval for a required definition that is not installed.
const DEFINITION_POLL: Duration = Duration::from_secs(3);
const OPTIONAL_POLL: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Namespace(String),
}

/// The handling of a missing CustomResourceDefinition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// Logs a warning. Keeps known objects: a missing definition does not prove that they were deleted.
    Required,
    Optional,
}

pub(super) type Next<K> = Result<Event<DeserializeGuard<K>>, watcher::Error>;

/// Returns the events of all objects of a kind in the scope. Never ends.
///
/// A failed watch resumes, or starts again with a complete list, with a backoff of up to 30 seconds. A missing
/// definition is logged once and polled. Errors are logged here and passed on for metrics. Objects are converted
/// immediately.
pub fn events<T, K>(
    client: Client,
    scope: &Scope,
    definition: Definition,
) -> impl Stream<Item = Next<K>> + Send + use<T, K>
where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    T: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K: Resource<DynamicType = ()> + From<T> + Clone + Send + 'static,
{
    let api = match scope {
        Scope::All => Api::all(client),
        Scope::Namespace(namespace) => Api::namespaced(client, namespace),
    };
    // A new watch starts with a complete list.
    let watch = move || {
        let events = watcher::watcher(api.clone(), watcher::Config::default());
        let convert = |Guarded(DeserializeGuard(object)): Guarded<T>| DeserializeGuard(object.map(K::from));
        events.map_ok(move |event| map(event, convert)).boxed()
    };
    events_of(watch, DefaultBackoff::default(), definition)
}

pub(super) fn map<A, B>(event: Event<A>, change: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(change(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(change(object)),
        Event::Delete(object) => Event::Delete(change(object)),
    }
}

pub(super) fn events_of<K>(
    watch: impl Fn() -> BoxStream<'static, Next<K>> + Send,
    backoff: impl Backoff,
    definition: Definition,
) -> impl Stream<Item = Next<K>> + Send
where
    K: Resource<DynamicType = ()> + Clone + Send + 'static,
{
    let state = Watch {
        watch,
        current: None,
        backoff,
        definition,
        wait: None,
        failure: None,
        is_listed: false,
        synthetic: VecDeque::new(),
    };
    stream::unfold(state, |mut state| async move {
        let event = state.next().await;
        Some((event, state))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    NotInstalled,
    Other,
}

struct Watch<W, K, B> {
    watch: W,
    current: Option<BoxStream<'static, Next<K>>>,
    backoff: B,
    definition: Definition,
    wait: Option<Duration>,
    failure: Option<Failure>,
    /// Set after a complete list, until synthetic events report an empty one.
    is_listed: bool,
    synthetic: VecDeque<Event<DeserializeGuard<K>>>,
}

impl<W, K, B> Watch<W, K, B>
where
    W: Fn() -> BoxStream<'static, Next<K>>,
    K: Resource<DynamicType = ()>,
    B: Backoff,
{
    async fn next(&mut self) -> Next<K> {
        loop {
            if let Some(event) = self.synthetic.pop_front() {
                return Ok(event);
            }
            if let Some(wait) = self.wait.take() {
                sleep(wait).await;
            }
            match self.current.get_or_insert_with(&self.watch).next().await {
                Some(Ok(event)) => return Ok(self.accept(event)),
                Some(Err(error)) => {
                    self.fail(&error);
                    return Err(error);
                }
                None => self.current = None,
            }
        }
    }

    fn accept(&mut self, event: Event<DeserializeGuard<K>>) -> Event<DeserializeGuard<K>> {
        self.is_listed |= matches!(event, Event::InitDone);
        // The stream emits the start of a list before it sends a request.
        if !matches!(event, Event::Init) {
            self.backoff.reset();
            if self.failure.take().is_some() {
                tracing::info!(kind = %K::kind(&()), "watch re-established");
            }
        }
        event
    }

    fn fail(&mut self, error: &watcher::Error) {
        let failure = match status_code(error) {
            Some(404) => Failure::NotInstalled,
            _ => Failure::Other,
        };
        self.report(failure, error);
        self.wait = match failure {
            Failure::NotInstalled => Some(match self.definition {
                Definition::Required => DEFINITION_POLL,
                Definition::Optional => OPTIONAL_POLL,
            }),
            Failure::Other => self.backoff.next(),
        };
        let is_list = matches!(error, watcher::Error::InitialListFailed(_));
        if failure == Failure::NotInstalled && is_list && self.definition == Definition::Optional && self.is_listed {
            // The objects are gone with their definition, and the watch no longer reports their deletion.
            self.synthetic.extend([Event::Init, Event::InitDone]);
            self.is_listed = false;
        }
        // The stream would request the expired version, or the missing kind, forever.
        if matches!(status_code(error), Some(404 | 410)) {
            self.current = None;
        }
    }

    fn report(&mut self, failure: Failure, error: &watcher::Error) {
        let resource = [K::plural(&()), K::group(&())].join(".");
        // The core group is empty.
        let resource = resource.trim_end_matches('.');
        if self.failure.replace(failure) == Some(failure) {
            tracing::debug!(resource, %error, "watch still failing");
        } else if failure == Failure::NotInstalled && self.definition == Definition::Optional {
            tracing::info!("custom resource definition {resource} is not installed, waiting for it");
        } else if failure == Failure::NotInstalled {
            tracing::warn!(
                "custom resource definition {resource} is not installed, waiting for it; run `portolan crds --apply` to \
                 install it"
            );
        } else if matches!(status_code(error), Some(401 | 403)) {
            tracing::warn!(
                %error,
                "watch of {resource} is not allowed, retrying; grant Portolan's service account the verbs get, list and \
                 watch on it"
            );
        } else {
            tracing::warn!(%error, "watch of {resource} failed, retrying");
        }
    }
}

fn status_code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => match error {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        },
        watcher::Error::WatchError(status) => Some(status.code),
        watcher::Error::NoResourceVersion => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::core::Status;
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;
    use crate::api::AppRepository;

    type Script = Vec<Next<AppRepository>>;

    fn error(code: u16) -> Box<Status> {
        Box::new(Status {
            code,
            ..Status::default()
        })
    }

    fn list_failed(code: u16) -> Next<AppRepository> {
        Err(watcher::Error::InitialListFailed(kube::Error::Api(error(code))))
    }

    fn watch_failed(code: u16) -> Next<AppRepository> {
        Err(watcher::Error::WatchStartFailed(kube::Error::Api(error(code))))
    }

    fn applied() -> Next<AppRepository> {
        let object = AppRepository::new("a", crate::api::AppRepositorySpec::default());
        Ok(Event::Apply(DeserializeGuard(Ok(object))))
    }

    /// Returns the events of scripted watches; there are none after the last script.
    fn scripted(scripts: Vec<Script>) -> (BoxStream<'static, Next<AppRepository>>, Arc<Mutex<VecDeque<Script>>>) {
        scripted_of(Definition::Required, scripts)
    }

    fn scripted_of(
        definition: Definition,
        scripts: Vec<Script>,
    ) -> (BoxStream<'static, Next<AppRepository>>, Arc<Mutex<VecDeque<Script>>>) {
        let scripts = Arc::new(Mutex::new(VecDeque::from(scripts)));
        let rest = Arc::clone(&scripts);
        let watch = move || match scripts.lock().pop_front() {
            Some(script) => stream::iter(script).boxed(),
            None => stream::pending().boxed(),
        };
        (events_of(watch, DefaultBackoff::default(), definition).boxed(), rest)
    }

    fn short(event: &Next<AppRepository>) -> &'static str {
        match event {
            Ok(Event::Init) => "init",
            Ok(Event::InitApply(_)) => "listed",
            Ok(Event::InitDone) => "done",
            Ok(Event::Apply(_)) => "apply",
            Ok(Event::Delete(_)) => "delete",
            Err(_) => "error",
        }
    }

    async fn take(events: &mut BoxStream<'static, Next<AppRepository>>, count: usize) -> Vec<&'static str> {
        events.take(count).map(|event| short(&event)).collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_definition_is_polled() {
        let missing = || vec![Ok(Event::Init), list_failed(404)];
        let (mut events, rest) = scripted(vec![missing(), missing(), vec![Ok(Event::Init), Ok(Event::InitDone)]]);
        let start = Instant::now();
        assert_eq!(
            take(&mut events, 6).await,
            ["init", "error", "init", "error", "init", "done"]
        );
        assert_eq!(start.elapsed().as_secs(), 6, "it is polled every three seconds");
        assert!(rest.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_definition_restarts_the_watch() {
        let (mut events, _) = scripted(vec![
            vec![Ok(Event::Init), Ok(Event::InitDone), watch_failed(404), applied()],
            vec![Ok(Event::Init), Ok(Event::InitDone)],
        ]);
        assert_eq!(take(&mut events, 5).await, ["init", "done", "error", "init", "done"]);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_removed_with_an_optional_definition_but_not_with_a_required_one() {
        let missing = || vec![Ok(Event::Init), list_failed(404)];
        let scripts = || {
            let seen = vec![Ok(Event::Init), Ok(Event::InitDone), watch_failed(404)];
            vec![seen, missing(), missing()]
        };
        let (mut events, _) = scripted_of(Definition::Optional, scripts());
        let changes = take(&mut events, 9).await;
        assert_eq!(
            changes,
            [
                "init", "done", "error", "init", "error", "init", "done", "init", "error"
            ]
        );
        let (mut events, _) = scripted_of(Definition::Required, scripts());
        assert_eq!(
            take(&mut events, 7).await,
            ["init", "done", "error", "init", "error", "init", "error"]
        );
        // Nothing was listed, so nothing is removed.
        let (mut events, _) = scripted_of(Definition::Optional, vec![missing(), missing()]);
        assert_eq!(take(&mut events, 4).await, ["init", "error", "init", "error"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_version_restarts_the_watch() {
        for expired in [watch_failed(410), Err(watcher::Error::WatchError(error(410)))] {
            let (mut events, _) = scripted(vec![vec![applied(), expired, applied()], vec![Ok(Event::Init)]]);
            assert_eq!(take(&mut events, 3).await, ["apply", "error", "init"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_failures_resume_the_watch_with_backoff() {
        let failures = (0..8).map(|_| watch_failed(500));
        let script = [applied()].into_iter().chain(failures).chain([applied()]).collect();
        let (mut events, _) = scripted(vec![script]);
        let start = Instant::now();
        assert_eq!(take(&mut events, 10).await[8..], ["error", "apply"]);
        assert!((40..240).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_is_restarted() {
        let (mut events, _) = scripted(vec![vec![applied()], vec![Ok(Event::Init)]]);
        assert_eq!(take(&mut events, 2).await, ["apply", "init"]);
    }
}

//! Objects of a cluster: a watch that is taken up again whatever happens to it.

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

/// How often to look for a definition that is not installed and has to be.
const DEFINITION_POLL: Duration = Duration::from_secs(3);
/// The same for one that need not be.
const OPTIONAL_POLL: Duration = Duration::from_secs(30);

/// Which namespaces are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// This one only.
    Namespace(String),
}

/// Whether the definition of a kind has to be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// Without it nothing works: it is looked for often, and a warning says so. That it is not there says nothing of its objects:
    /// what is removed for good with an object needs a better proof.
    Required,
    /// There may be no use for it. Where it was installed and is not any more, there are no objects.
    Optional,
}

pub(super) type Next<K> = Result<Event<DeserializeGuard<K>>, watcher::Error>;

/// The events of all objects of a kind in the scope. They never end.
///
/// The watch survives lost connections, restarts of the API server and versions that have expired: it is taken up where it
/// was or begun anew with a complete list, after a wait that grows to half a minute. While the kind's definition is not
/// installed, which may be so at the start or come about later, one line in the log says so and it is waited for. Errors
/// are logged here, the first of a series as a warning, and passed on for those who count them. What is kept of an object is
/// made of it at once.
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
    // A fresh watch each time: it begins with a complete list.
    let watch = move || {
        let events = watcher::watcher(api.clone(), watcher::Config::default());
        let kept = |Guarded(DeserializeGuard(object)): Guarded<T>| DeserializeGuard(object.map(K::from));
        events.map_ok(move |event| map(event, kept)).boxed()
    };
    events_of(watch, DefaultBackoff::default(), definition)
}

/// The event with another form of its objects.
pub(super) fn map<A, B>(event: Event<A>, change: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(change(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(change(object)),
        Event::Delete(object) => Event::Delete(change(object)),
    }
}

/// The events of watches that `watch` begins, with a new one where the old one can't go on.
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
        trouble: None,
        is_known: false,
        made_up: VecDeque::new(),
    };
    stream::unfold(state, |mut state| async move {
        let event = state.next().await;
        Some((event, state))
    })
}

/// What is the matter with the watch, so that it is said once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    NotInstalled,
    Other,
}

struct Watch<W, K, B> {
    watch: W,
    current: Option<BoxStream<'static, Next<K>>>,
    backoff: B,
    definition: Definition,
    /// How long to wait before the watch is asked again.
    wait: Option<Duration>,
    trouble: Option<Trouble>,
    /// Whether a complete list has been seen, and nothing else since.
    is_known: bool,
    /// What comes next without anybody being asked.
    made_up: VecDeque<Event<DeserializeGuard<K>>>,
}

impl<W, K, B> Watch<W, K, B>
where
    W: Fn() -> BoxStream<'static, Next<K>>,
    K: Resource<DynamicType = ()>,
    B: Backoff,
{
    async fn next(&mut self) -> Next<K> {
        loop {
            if let Some(event) = self.made_up.pop_front() {
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
        self.is_known |= matches!(event, Event::InitDone);
        // The beginning of a list is told before the API server has been asked for anything.
        if !matches!(event, Event::Init) {
            self.backoff.reset();
            if self.trouble.take().is_some() {
                tracing::info!(kind = %K::kind(&()), "watch re-established");
            }
        }
        event
    }

    fn fail(&mut self, error: &watcher::Error) {
        let trouble = match status_code(error) {
            Some(404) => Trouble::NotInstalled,
            _ => Trouble::Other,
        };
        self.report(trouble, error);
        self.wait = match trouble {
            Trouble::NotInstalled => Some(match self.definition {
                Definition::Required => DEFINITION_POLL,
                Definition::Optional => OPTIONAL_POLL,
            }),
            Trouble::Other => self.backoff.next(),
        };
        let is_list = matches!(error, watcher::Error::InitialListFailed(_));
        if trouble == Trouble::NotInstalled && is_list && self.definition == Definition::Optional && self.is_known {
            // With a definition go its objects, and the watch that would have told is over.
            self.made_up.extend([Event::Init, Event::InitDone]);
            self.is_known = false;
        }
        // A watch of a version that is no more, or of a kind that is no more, would ask for it for ever.
        if matches!(status_code(error), Some(404 | 410)) {
            self.current = None;
        }
    }

    fn report(&mut self, trouble: Trouble, error: &watcher::Error) {
        let resource = [K::plural(&()), K::group(&())].join(".");
        // Those of the core have no group.
        let resource = resource.trim_end_matches('.');
        if self.trouble.replace(trouble) == Some(trouble) {
            tracing::debug!(resource, %error, "watch still failing");
        } else if trouble == Trouble::NotInstalled && self.definition == Definition::Optional {
            tracing::info!("custom resource definition {resource} is not installed, waiting for it");
        } else if trouble == Trouble::NotInstalled {
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

/// The HTTP status that the API server answered with, if it did.
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

    /// The events of watches that go by these scripts, one after the other; after the last nothing comes.
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
    async fn a_definition_that_is_not_installed_is_waited_for() {
        let missing = || vec![Ok(Event::Init), list_failed(404)];
        let (mut events, rest) = scripted(vec![missing(), missing(), vec![Ok(Event::Init), Ok(Event::InitDone)]]);
        let start = Instant::now();
        assert_eq!(
            take(&mut events, 6).await,
            ["init", "error", "init", "error", "init", "done"]
        );
        assert_eq!(start.elapsed().as_secs(), 6, "it is looked for every three seconds");
        assert!(rest.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_that_vanishes_begins_the_watch_anew() {
        let (mut events, _) = scripted(vec![
            vec![Ok(Event::Init), Ok(Event::InitDone), watch_failed(404), applied()],
            vec![Ok(Event::Init), Ok(Event::InitDone)],
        ]);
        assert_eq!(take(&mut events, 5).await, ["init", "done", "error", "init", "done"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_that_went_while_the_watch_was_cut_takes_its_objects_with_it_where_that_harms_nobody() {
        let missing = || vec![Ok(Event::Init), list_failed(404)];
        let scripts = || {
            let seen = vec![Ok(Event::Init), Ok(Event::InitDone), watch_failed(404)];
            vec![seen, missing(), missing()]
        };
        let (mut events, _) = scripted_of(Definition::Optional, scripts());
        let told = take(&mut events, 9).await;
        assert_eq!(
            told,
            [
                "init", "done", "error", "init", "error", "init", "done", "init", "error"
            ]
        );
        let (mut events, _) = scripted_of(Definition::Required, scripts());
        assert_eq!(
            take(&mut events, 7).await,
            ["init", "done", "error", "init", "error", "init", "error"]
        );
        // What was never seen is not known to be gone.
        let (mut events, _) = scripted_of(Definition::Optional, vec![missing(), missing()]);
        assert_eq!(take(&mut events, 4).await, ["init", "error", "init", "error"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_has_expired_begins_the_watch_anew() {
        for expired in [watch_failed(410), Err(watcher::Error::WatchError(error(410)))] {
            let (mut events, _) = scripted(vec![vec![applied(), expired, applied()], vec![Ok(Event::Init)]]);
            assert_eq!(take(&mut events, 3).await, ["apply", "error", "init"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_failures_go_on_where_the_watch_was_after_a_growing_wait() {
        let failures = (0..8).map(|_| watch_failed(500));
        let script = [applied()].into_iter().chain(failures).chain([applied()]).collect();
        let (mut events, _) = scripted(vec![script]);
        let start = Instant::now();
        assert_eq!(take(&mut events, 10).await[8..], ["error", "apply"]);
        assert!((40..240).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_is_begun_anew() {
        let (mut events, _) = scripted(vec![vec![applied()], vec![Ok(Event::Init)]]);
        assert_eq!(take(&mut events, 2).await, ["apply", "init"]);
    }
}

use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use kube::api::ListParams;
use kube::core::Status;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource as KubeResource};
use serde::de::DeserializeOwned;

use super::discovery::Resource;
use super::projection::{Decoded, Document, DocumentCache, Object, Project, Whole};
use super::{Scope, map};

/// Objects per page of a list; at most one page is in memory.
const PAGE: u32 = 200;
/// The longest name of an object, in bytes.
const MAX_NAME: usize = 253;

pub type Events<T> = BoxStream<'static, Result<Event<T>, watcher::Error>>;
pub type ObjectEvents<K> = Events<Arc<Object<K>>>;

#[must_use]
pub fn events<T: Project, K: Send + 'static>(
    client: Client,
    resource: &Resource,
    scope: &Scope,
    convert: fn(T) -> K,
) -> ObjectEvents<K> {
    let api: Api<Decoded<T>> = scope.dynamic_api(client, resource);
    events_of(api, move |object| {
        Arc::new(Object::new(object.meta, convert(object.projection)))
    })
}

#[must_use]
pub fn documents(
    client: Client,
    resource: &Resource,
    scope: &Scope,
    selector: &str,
    cache: DocumentCache,
) -> ObjectEvents<Document> {
    let api: Api<Whole> = scope.dynamic_api(client, resource);
    let events = selected_events_of(api, Some(selector.to_owned()), move |object| cache.convert(object));
    events.map(|event| held(event?)).boxed()
}

/// Fails for an object for which there is no memory. Without it, the list would be incomplete.
fn held(event: Event<Option<Object<Document>>>) -> Result<Event<Arc<Object<Document>>>, watcher::Error> {
    Ok(match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(Some(object)) => Event::InitApply(Arc::new(object)),
        Event::Apply(Some(object)) => Event::Apply(Arc::new(object)),
        Event::Delete(Some(object)) => Event::Delete(Arc::new(object)),
        Event::InitApply(None) | Event::Apply(None) | Event::Delete(None) => {
            return Err(too_many());
        }
    })
}

/// Limits the objects of a watch that reports changes only. A list with more ends as if it were complete, so that the next
/// one replaces it; after more changes, the watch starts again.
pub(super) fn limited<K: Send + Sync + 'static>(events: ObjectEvents<K>, limit: usize) -> ObjectEvents<K> {
    let mut count = 0_usize;
    let batches = events.map(move |event| {
        let name = match &event {
            Ok(Event::Init) => {
                count = 0;
                ""
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                count += 1;
                &*object.name
            }
            _ => "",
        };
        let is_over = count > limit || name.len() > MAX_NAME;
        match event {
            Ok(Event::InitApply(_)) if is_over => Some(vec![Ok(Event::InitDone), Err(too_many())]),
            Ok(Event::Apply(_)) if is_over => None,
            event => Some(vec![event]),
        }
    });
    batches
        .take_while(|batch| ready(batch.is_some()))
        .flat_map(|batch| stream::iter(batch.into_iter().flatten()))
        .boxed()
}

/// Returns the converted events of a watch that starts with a complete list.
pub(super) fn events_of<A, T>(api: Api<A>, convert: impl Fn(A) -> T + Send + Sync + 'static) -> Events<T>
where
    A: KubeResource + Clone + Debug + DeserializeOwned + Send + 'static,
    T: 'static,
{
    selected_events_of(api, None, convert)
}

pub(super) fn selected_events_of<A, T>(
    api: Api<A>,
    selector: Option<String>,
    convert: impl Fn(A) -> T + Send + Sync + 'static,
) -> Events<T>
where
    A: KubeResource + Clone + Debug + DeserializeOwned + Send + 'static,
    T: 'static,
{
    let config = watcher::Config {
        label_selector: selector.clone(),
        ..watcher::Config::default().page_size(PAGE)
    };
    let watcher = watcher::watcher(api.clone(), config);
    let events = watcher.flat_map(move |event| match event {
        Err(watcher::Error::NoResourceVersion) => list_once(api.clone(), selector.clone()).left_stream(),
        event => stream::iter([event]).right_stream(),
    });
    events.map_ok(move |event| map(event, &convert)).boxed()
}

/// Lists objects without a resource version, as some aggregated API servers return them: they cannot be watched.
fn list_once<A>(api: Api<A>, selector: Option<String>) -> Events<A>
where
    A: Clone + Debug + DeserializeOwned + Send + 'static,
{
    let parameters = ListParams {
        label_selector: selector,
        ..ListParams::default().limit(PAGE)
    };
    stream::once(async move { api.list(&parameters).await })
        .flat_map(|list| {
            let events: Vec<_> = match list {
                Ok(list) if list.metadata.continue_.as_deref().unwrap_or_default().is_empty() => {
                    let objects = list.items.into_iter().map(|object| Ok(Event::InitApply(object)));
                    let all = [Ok(Event::Init)]
                        .into_iter()
                        .chain(objects)
                        .chain([Ok(Event::InitDone)]);
                    all.chain([Err(watcher::Error::WatchStartFailed(no_version()))])
                        .collect()
                }
                Ok(_) => vec![Err(watcher::Error::NoResourceVersion)],
                Err(error) => vec![Err(watcher::Error::InitialListFailed(error))],
            };
            stream::iter(events)
        })
        .boxed()
}

/// The error that API servers return for kinds that cannot be watched.
pub(super) fn no_version() -> kube::Error {
    not_allowed("list response has no resourceVersion")
}

fn too_many() -> watcher::Error {
    watcher::Error::InitialListFailed(not_allowed("too many objects"))
}

/// The kind is listed again after a while.
fn not_allowed(message: &str) -> kube::Error {
    kube::Error::Api(Box::new(Status {
        code: 405,
        message: message.to_owned(),
        ..Status::default()
    }))
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;

    use super::*;
    use crate::runtime::watch::error_policy::{ErrorPolicy, WatchFailure, WatchFailures};

    #[test]
    fn an_object_without_memory_ends_its_watch() {
        for event in [Event::InitApply(None), Event::Apply(None), Event::Delete(None)] {
            let failure = WatchFailure::from(&held(event).unwrap_err());
            assert_eq!((failure.is_list, &*failure.message), (true, "too many objects"));
            let interval = std::time::Duration::from_secs(60);
            let policy = ErrorPolicy::PollWhenForbidden { interval };
            let retry = WatchFailures::default().retry(policy, &failure, false);
            assert!(retry.reopens && retry.wait == interval);
        }
        assert!(matches!(held(Event::InitDone), Ok(Event::InitDone)));
    }

    /// Returns the numbers of events and of errors among them.
    async fn counts(events: Vec<Event<Arc<Object<()>>>>) -> (usize, usize) {
        let events = stream::iter(events.into_iter().map(Ok)).boxed();
        let events: Vec<_> = limited(events, 3).collect().await;
        (events.len(), events.iter().filter(|event| event.is_err()).count())
    }

    #[tokio::test]
    async fn a_list_with_too_many_objects_ends_with_an_error() {
        let object = |name: &str| {
            let name = Some(name.to_owned());
            let meta = ObjectMeta {
                name,
                ..ObjectMeta::default()
            };
            Arc::new(Object::new(meta, ()))
        };
        let list = |count| vec![Event::InitApply(object("a")); count];
        let whole = |count| [vec![Event::Init], list(count), vec![Event::InitDone]].concat();
        assert_eq!(counts(whole(3)).await, (5, 0));
        assert_eq!(counts([vec![Event::Init], list(4)].concat()).await, (6, 1));
        let long = object(&"a".repeat(MAX_NAME + 1));
        assert_eq!(counts(vec![Event::Init, Event::InitApply(long)]).await, (3, 1));
        let changed = [whole(2), vec![Event::Apply(object("a")); 9]].concat();
        assert_eq!(counts(changed).await, (5, 0), "the watch starts again");
    }
}

use std::fmt::Debug;
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
    selected_events_of(api, Some(selector.to_owned()), move |object| {
        Arc::new(cache.convert(object))
    })
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
    kube::Error::Api(Box::new(Status {
        code: 405,
        message: "list response has no resourceVersion".to_owned(),
        ..Status::default()
    }))
}

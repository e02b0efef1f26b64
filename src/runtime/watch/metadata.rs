use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::ObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::error_policy::ErrorPolicy;
use super::events::{Events, events_of, selected_events_of};
use super::store::{Change, ChangeSource, Store, Stored, WatchHealth};
use super::watcher::{Notification, Watch};
use super::{Object, Scope, Selection, discovery, map};
use crate::api::{NamespacedName, Partial};

/// The version is the projection, so that each new version is a change.
type Versioned = Arc<Object<Option<String>>>;

/// Reports the names of objects that are created, changed or deleted. Never ends. The first complete list is not
/// reported; later lists report what an interrupted watch has missed. Errors are logged once.
///
/// Requests metadata only. The annotation of `kubectl apply` may contain the content all the same, so only what
/// identifies an object is kept.
pub async fn watch_names<K>(client: Client, scope: Scope, on_change: impl Fn(NamespacedName) + Send + Sync + 'static)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + Sync + 'static,
{
    let api: Api<Partial<K>> = scope.api(client);
    let open = move || events_of(api.clone(), |object: Partial<K>| versioned(object.metadata));
    let description = discovery::Resource::of::<K>(true).name();
    watch(description, open, on_change).run_despite_panics().await;
}

fn versioned(meta: ObjectMeta) -> Versioned {
    let version = meta.resource_version;
    let meta = ObjectMeta {
        namespace: meta.namespace,
        name: meta.name,
        uid: meta.uid,
        ..ObjectMeta::default()
    };
    Arc::new(Object::new(meta, version))
}

fn watch(
    description: String,
    open: impl Fn() -> Events<Versioned> + Send + Sync + 'static,
    on_change: impl Fn(NamespacedName) + Send + Sync + 'static,
) -> Watch<Versioned> {
    Watch {
        description,
        open: Box::new(open),
        store: Store::default(),
        policy: ErrorPolicy::Required,
        relist_period: None,
        notify: Box::new(move |notification| {
            if let Notification::Change(
                Change::Applied { new: object, .. } | Change::Deleted(object) | Change::MissingFromList(object),
            ) = notification
            {
                on_change(object.key());
            }
        }),
    }
}

/// A report of [`watch_metadata`].
#[derive(Clone, Debug, PartialEq)]
pub enum MetadataEvent {
    /// An object is new or has changed. Of the metadata, there are names, UID, version and labels.
    Applied(Arc<ObjectMeta>),
    Deleted(Arc<ObjectMeta>),
    /// All objects are known, or known again.
    Listed,
    /// The API server does not serve the kind.
    NotServed,
    /// The objects are not known (any more), with the reason.
    Failed(String),
}

/// Same for names, versions and labels, also of the first list. Reports errors instead of logging them, and polls objects
/// that may not be watched. Never ends.
pub async fn watch_metadata<K>(
    client: Client,
    selection: Selection,
    poll: Duration,
    on_event: impl Fn(MetadataEvent) + Send + Sync + 'static,
) where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + Sync + 'static,
{
    let Selection { scope, labels } = selection;
    let api: Api<Partial<K>> = scope.api(client);
    let open = move || {
        selected_events_of(api.clone(), labels.clone(), |object: Partial<K>| {
            labeled(object.metadata)
        })
    };
    let description = discovery::Resource::of::<K>(true).name();
    events_watch(description, Store::default(), poll, open, on_event)
        .run_despite_panics()
        .await;
}

/// Same for the objects of a kind without namespaces that `is_kept` accepts. It gets whole objects. `store` has what was
/// reported by an earlier watch, of which this one reports the differences.
pub async fn watch_cluster_metadata<K>(
    client: Client,
    store: Store<Arc<ObjectMeta>>,
    poll: Duration,
    is_kept: fn(&K) -> bool,
    on_event: impl Fn(MetadataEvent) + Send + Sync + 'static,
) where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api: Api<K> = Api::all(client);
    let open = move || {
        let events = selected_events_of(api.clone(), None, move |object: K| {
            (is_kept(&object), labeled(object.meta().clone()))
        });
        events.filter_map(|event| ready(kept(event).transpose())).boxed()
    };
    let description = discovery::Resource::of::<K>(false).name();
    events_watch(description, store, poll, open, on_event)
        .run_despite_panics()
        .await;
}

/// An object that is not kept counts as deleted.
fn kept<T>(event: Result<Event<(bool, T)>, watcher::Error>) -> Result<Option<Event<T>>, watcher::Error> {
    Ok(match event? {
        Event::InitApply((false, _)) => None,
        Event::Apply((false, object)) => Some(Event::Delete(object)),
        event => Some(map(event, |(_, object)| object)),
    })
}

/// Annotations may contain the content.
fn labeled(meta: ObjectMeta) -> Arc<ObjectMeta> {
    Arc::new(ObjectMeta {
        namespace: meta.namespace,
        name: meta.name,
        uid: meta.uid,
        resource_version: meta.resource_version,
        labels: meta.labels,
        ..ObjectMeta::default()
    })
}

fn events_watch(
    description: String,
    store: Store<Arc<ObjectMeta>>,
    poll: Duration,
    open: impl Fn() -> Events<Arc<ObjectMeta>> + Send + Sync + 'static,
    on_event: impl Fn(MetadataEvent) + Send + Sync + 'static,
) -> Watch<Arc<ObjectMeta>> {
    let reported = store.clone();
    Watch {
        description,
        open: Box::new(open),
        store,
        policy: ErrorPolicy::PollWhenForbidden { interval: poll },
        relist_period: None,
        notify: Box::new(move |notification| {
            let event = match notification {
                Notification::Change(Change::Applied { new, .. }) => MetadataEvent::Applied(new),
                Notification::Change(Change::Deleted(old) | Change::MissingFromList(old)) => {
                    MetadataEvent::Deleted(old)
                }
                Notification::Change(Change::Synced { .. }) | Notification::Health => match reported.health() {
                    WatchHealth::Failed { message, .. } => MetadataEvent::Failed(message),
                    WatchHealth::Healthy | WatchHealth::Polled { .. } if reported.is_synced() => MetadataEvent::Listed,
                    WatchHealth::Healthy | WatchHealth::Polled { .. } => return,
                },
                Notification::NotServed => MetadataEvent::NotServed,
            };
            on_event(event);
        }),
    }
}

impl Stored for Arc<ObjectMeta> {
    const REPORTS_FIRST_LIST: bool = true;

    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.uid.as_deref().unwrap_or_default()
    }

    fn version(&self) -> &str {
        self.resource_version.as_deref().unwrap_or_default()
    }

    fn is_unchanged(&self, old: &Self, _: ChangeSource) -> bool {
        self == old
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::core::Status;

    use super::*;

    type Next = Result<Event<Versioned>, watcher::Error>;

    fn secret(name: &str, version: &str) -> Versioned {
        let metadata = ObjectMeta {
            namespace: Some("team-a".to_owned()),
            name: Some(name.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        versioned(metadata)
    }

    fn list(secrets: &[(&str, &str)]) -> Vec<Next> {
        let secrets = secrets
            .iter()
            .map(|(name, version)| Ok(Event::InitApply(secret(name, version))));
        [Ok(Event::Init)]
            .into_iter()
            .chain(secrets)
            .chain([Ok(Event::InitDone)])
            .collect()
    }

    /// Returns the names reported for these events.
    async fn changed_names(events: Vec<Next>) -> Vec<String> {
        let events = parking_lot::Mutex::new(Some(events));
        let open = move || match events.lock().take() {
            Some(events) => stream::iter(events).chain(stream::pending()).boxed(),
            None => stream::pending().boxed(),
        };
        let (sender, mut names) = tokio::sync::mpsc::unbounded_channel();
        let watch = watch("secrets".to_owned(), open, move |name| {
            sender.send(name.to_string()).unwrap();
        });
        tokio::time::timeout(Duration::from_secs(600), watch.run())
            .await
            .unwrap_err();
        std::iter::from_fn(|| names.try_recv().ok()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_list_reports_nothing() {
        assert!(changed_names(list(&[("a", "1"), ("b", "2")])).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn created_changed_and_deleted_secrets_are_reported() {
        let mut events = list(&[("a", "1"), ("b", "2")]);
        events.extend([
            Ok(Event::Apply(secret("a", "3"))),
            Ok(Event::Apply(secret("c", "4"))),
            Ok(Event::Delete(secret("b", "5"))),
        ]);
        assert_eq!(changed_names(events).await, ["team-a/a", "team-a/c", "team-a/b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_version_is_not_reported_again() {
        let mut events = list(&[("a", "1")]);
        events.extend([Ok(Event::Apply(secret("a", "1"))), Ok(Event::Delete(secret("b", "2")))]);
        assert!(changed_names(events).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn changes_missed_by_an_interrupted_watch_are_reported_after_the_next_list() {
        let mut events = list(&[("kept", "1"), ("changed", "2"), ("gone", "3")]);
        let interrupted = watcher::Error::WatchError(Box::new(Status {
            code: 500,
            ..Status::default()
        }));
        events.push(Err(interrupted));
        events.extend(list(&[("kept", "1"), ("changed", "4"), ("new", "5")]));
        assert_eq!(
            changed_names(events).await,
            ["team-a/changed", "team-a/new", "team-a/gone"]
        );
    }

    #[test]
    fn an_object_that_is_not_kept_is_not_listed_and_counts_as_deleted() {
        let kept = |event: Event<(bool, &'static str)>| format!("{:?}", kept(Ok(event)).unwrap());
        assert_eq!(kept(Event::InitApply((false, "a"))), "None");
        assert_eq!(kept(Event::InitApply((true, "a"))), "Some(InitApply(\"a\"))");
        assert_eq!(kept(Event::Apply((false, "a"))), "Some(Delete(\"a\"))");
        assert_eq!(kept(Event::Apply((true, "a"))), "Some(Apply(\"a\"))");
        assert_eq!(kept(Event::Delete((false, "a"))), "Some(Delete(\"a\"))");
        assert_eq!(kept(Event::InitDone), "Some(InitDone)");
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_list_is_not_complete() {
        let mut events = list(&[("a", "1")]);
        events.pop();
        events.extend(list(&[("a", "1"), ("b", "2")]));
        assert!(changed_names(events).await.is_empty());
    }
    fn cluster(name: &str, version: &str) -> Arc<ObjectMeta> {
        let meta = ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: Some(version.to_owned()),
            labels: Some([("region".to_owned(), "eu".to_owned())].into()),
            annotations: Some([("content".to_owned(), "hunter2".to_owned())].into()),
            ..ObjectMeta::default()
        };
        labeled(meta)
    }

    #[tokio::test(start_paused = true)]
    async fn metadata_is_reported_with_the_first_list_and_with_the_reason_why_there_is_none() {
        let denied = || {
            let status = Status {
                code: 403,
                message: "secrets is forbidden".to_owned(),
                ..Status::default()
            };
            Err(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status))))
        };
        let list = |objects: Vec<Arc<ObjectMeta>>| {
            let objects = objects.into_iter().map(|object| Ok(Event::InitApply(object)));
            let events = [Ok(Event::Init)].into_iter().chain(objects);
            events.chain([Ok(Event::InitDone)]).collect::<Vec<_>>()
        };
        let mut second = list(vec![cluster("a", "1"), cluster("b", "2")]);
        second.push(Ok(Event::Apply(cluster("a", "3"))));
        second.push(Ok(Event::Delete(cluster("b", "4"))));
        let streams = parking_lot::Mutex::new(vec![second, vec![denied()]]);
        let open = move || match streams.lock().pop() {
            Some(events) => stream::iter(events).chain(stream::pending()).boxed(),
            None => stream::pending().boxed(),
        };
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        let poll = Duration::from_secs(30);
        let watch = events_watch("secrets".to_owned(), Store::default(), poll, open, move |event| {
            sender.send(event).unwrap();
        });
        tokio::time::timeout(Duration::from_secs(100), watch.run())
            .await
            .unwrap_err();
        let events: Vec<MetadataEvent> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        assert!(!format!("{events:?}").contains("hunter2"));
        let expected = [
            MetadataEvent::Failed("failed to list secrets: secrets is forbidden".to_owned()),
            MetadataEvent::Applied(cluster("a", "1")),
            MetadataEvent::Applied(cluster("b", "2")),
            MetadataEvent::Listed,
            MetadataEvent::Listed,
            MetadataEvent::Applied(cluster("a", "3")),
            MetadataEvent::Deleted(cluster("b", "2")),
        ];
        assert_eq!(events, expected);
    }
}

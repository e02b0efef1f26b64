use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::api::ObjectMeta;
use kube::{Api, Client, Resource};

use super::error_policy::ErrorPolicy;
use super::events::{Events, events_of};
use super::store::{Change, Store, Stored};
use super::watcher::{Notification, Watch};
use super::{Object, Scope, discovery};
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{StreamExt, stream};
    use kube::core::Status;
    use kube::runtime::watcher::{self, Event};

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

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_list_is_not_complete() {
        let mut events = list(&[("a", "1")]);
        events.pop();
        events.extend(list(&[("a", "1"), ("b", "2")]));
        assert!(changed_names(events).await.is_empty());
    }
}

//! Watches the metadata of Secrets to detect changes, without reading their content.

use std::collections::{HashMap, HashSet};

use futures::{
    Stream, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::{
        utils::Backoff,
        watcher::{self, DefaultBackoff, Event},
    },
};

use super::cluster::{Definition, Next, Scope, events_of, map};
use crate::api::NamespacedName;
use crate::api::Partial;

type Metadata = Partial<Secret>;

/// Returns the names of Secrets that are created, changed or deleted. Never ends.
///
/// Watches the scope and Kubeapps' namespace, which has its copies. The first complete list is not reported; later
/// lists report what an interrupted watch has missed. Without the permission to list and watch Secrets, a warning is
/// logged once.
///
/// Requests metadata only. The annotation of `kubectl apply` may contain the content all the same, so only name and
/// version are kept.
pub fn changes(
    client: &Client,
    scope: &Scope,
    kubeapps_namespace: &str,
) -> impl Stream<Item = NamespacedName> + Send + use<> {
    let apis: Vec<Api<Metadata>> = match scope {
        Scope::All => vec![Api::all(client.clone())],
        Scope::Namespace(namespace) => {
            let namespaces = HashSet::from([namespace.as_str(), kubeapps_namespace]);
            let api = |namespace: &str| Api::namespaced(client.clone(), namespace);
            namespaces.into_iter().map(api).collect()
        }
    };
    let watches = apis.into_iter().map(|api| {
        // `Api<Guarded<_>>` would request whole objects.
        let watch = move || {
            watcher::watcher(api.clone(), watcher::Config::default())
                .map_ok(|event| map(event, |object| DeserializeGuard(Ok(object))))
                .boxed()
        };
        changes_of(watch, DefaultBackoff::default()).boxed()
    });
    stream::select_all(watches)
}

fn changes_of(
    watch: impl Fn() -> BoxStream<'static, Next<Metadata>> + Send,
    backoff: impl Backoff,
) -> impl Stream<Item = NamespacedName> + Send {
    let mut versions = SecretVersions::default();
    // Errors are already logged, and the watch is retried.
    events_of(watch, backoff, Definition::Required)
        .filter_map(|event| std::future::ready(event.ok()))
        .flat_map(move |event| stream::iter(versions.apply(event)))
}

#[derive(Default)]
struct SecretVersions {
    versions: HashMap<NamespacedName, String>,
    listed: HashSet<NamespacedName>,
    is_complete: bool,
}

impl SecretVersions {
    fn apply(&mut self, event: Event<DeserializeGuard<Metadata>>) -> Vec<NamespacedName> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let changed = self.applied(&object);
                self.listed.extend(NamespacedName::of(object.meta()));
                changed.filter(|_| self.is_complete).into_iter().collect()
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let removed = self.versions.extract_if(|name, _| !listed.contains(name));
                let removed = removed.map(|(name, _)| name).collect();
                if std::mem::replace(&mut self.is_complete, true) {
                    removed
                } else {
                    Vec::new()
                }
            }
            Event::Apply(object) => self.applied(&object).into_iter().collect(),
            Event::Delete(object) => {
                let name = NamespacedName::of(object.meta());
                name.filter(|name| self.versions.remove(name).is_some())
                    .into_iter()
                    .collect()
            }
        }
    }

    fn applied(&mut self, object: &DeserializeGuard<Metadata>) -> Option<NamespacedName> {
        let name = NamespacedName::of(object.meta())?;
        let version = object.resource_version().unwrap_or_default();
        let before = self.versions.insert(name.clone(), version.clone());
        (before != Some(version)).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use kube::{api::ObjectMeta, core::Status};

    use super::*;

    fn secret(name: &str, version: &str) -> DeserializeGuard<Metadata> {
        let metadata = ObjectMeta {
            namespace: Some("team-a".to_owned()),
            name: Some(name.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        DeserializeGuard(Ok(metadata.into()))
    }

    fn list(secrets: &[(&str, &str)]) -> Vec<Next<Metadata>> {
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
    async fn changed_names(events: Vec<Next<Metadata>>) -> Vec<String> {
        let events = parking_lot::Mutex::new(Some(events));
        let watch = move || match events.lock().take() {
            Some(events) => stream::iter(events).chain(stream::pending()).boxed(),
            None => stream::pending().boxed(),
        };
        let changes = changes_of(watch, DefaultBackoff::default()).map(|name| name.to_string());
        let over = tokio::time::sleep(std::time::Duration::from_secs(600));
        changes.take_until(over).collect().await
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

    #[tokio::test]
    async fn only_metadata_is_requested() {
        let (sender, mut requests) = tokio::sync::mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let accept = request.headers().get(http::header::ACCEPT).cloned();
            sender.send((request.uri().to_string(), accept)).unwrap();
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            async move {
                if is_watch {
                    std::future::pending::<()>().await;
                }
                let list = r#"{"metadata": {"resourceVersion": "1"}, "items": []}"#;
                let body = kube::client::Body::from(list.as_bytes().to_vec());
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        });
        let client = Client::new(service, "default");
        let scope = Scope::Namespace("team-a".to_owned());
        let mut changes = changes(&client, &scope, "kubeapps").boxed();
        let mut seen = Vec::new();
        while seen.len() < 4 {
            tokio::select! {
                _ = changes.next() => panic!("unexpected change"),
                request = requests.recv() => seen.push(request.unwrap()),
            }
        }
        for (uri, accept) in &seen {
            let accept = accept.as_ref().unwrap().to_str().unwrap();
            assert!(
                accept.contains("as=PartialObjectMetadata") && !accept.contains(','),
                "{uri}: {accept}"
            );
        }
        for (namespace, what) in ["team-a", "kubeapps"]
            .into_iter()
            .flat_map(|ns| [(ns, "limit="), (ns, "watch=true")])
        {
            let path = format!("/api/v1/namespaces/{namespace}/secrets?");
            assert!(
                seen.iter().any(|(uri, _)| uri.starts_with(&path) && uri.contains(what)),
                "{seen:?}"
            );
        }
    }
}

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::discovery;
use super::error_policy::ErrorPolicy;
use super::events::selected_events_of;
use super::store::{Change, ChangeSource, Store, Stored};
use super::watcher::{Notification, Watch};
use super::{Selection, map};
use crate::api::Raw;
use crate::budget::parsed_bytes;
use crate::text;

/// Maximum length of a decoding error, in bytes; decoders quote their input.
const MAX_ERROR: usize = 1_024;
/// Text of 1.3 MB may take a hundred times as much, and several kinds are decoded at the same time.
pub const MAX_DECODED_BYTES: u64 = 16 << 20;
/// Maximum size of each: the labels, annotations and finalizers of an invalid object. They count toward no share.
const MAX_META_BYTES: usize = 1 << 10;
/// Has the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object of a declared kind. An invalid object does not block the others.
#[derive(Clone, Debug)]
pub enum Cached<K> {
    Object(Arc<K>),
    /// Only the metadata could be decoded. Owners, and what else is large, are dropped.
    Invalid {
        meta: Arc<ObjectMeta>,
        error: String,
    },
}

impl<K: Resource> Cached<K> {
    #[must_use]
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Object(object) => object.meta(),
            Self::Invalid { meta, .. } => meta,
        }
    }

    #[must_use]
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Object(object) => Some(object),
            Self::Invalid { .. } => None,
        }
    }
}

impl<K> From<DeserializeGuard<K>> for Cached<K> {
    fn from(DeserializeGuard(object): DeserializeGuard<K>) -> Self {
        match object {
            Ok(object) => Self::Object(Arc::new(object)),
            Err(invalid) => Self::Invalid {
                meta: Arc::new(shrink(invalid.metadata)),
                error: text::truncate(&text::printable(&invalid.error), MAX_ERROR),
            },
        }
    }
}

fn shrink(meta: ObjectMeta) -> ObjectMeta {
    let is_small = |bytes: usize| bytes <= MAX_META_BYTES;
    let is_small_map =
        |map: &BTreeMap<String, String>| is_small(map.iter().map(|(name, value)| name.len() + value.len()).sum());
    let annotations = meta.annotations.map(|mut annotations| {
        annotations.remove(LAST_APPLIED);
        annotations
    });
    ObjectMeta {
        annotations: annotations.filter(is_small_map),
        owner_references: None,
        managed_fields: None,
        labels: meta.labels.filter(is_small_map),
        finalizers: meta
            .finalizers
            .filter(|finalizers| is_small(finalizers.iter().map(String::len).sum())),
        ..meta
    }
}

impl<K: Resource + Clone> Stored for Cached<K> {
    const REPORTS_FIRST_LIST: bool = true;

    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    fn is_unchanged(&self, old: &Self, source: ChangeSource) -> bool {
        let has_same_version = !self.version().is_empty() && self.version() == old.version();
        source == ChangeSource::List && has_same_version && self.uid() == old.uid()
    }
}

/// Converts objects immediately. Calls `on_change` in order. Never ends.
pub async fn informer<T, K>(
    client: Client,
    selection: impl Into<Selection>,
    policy: ErrorPolicy,
    store: Store<Cached<K>>,
    on_change: impl Fn(Change<Cached<K>>) + Send + Sync + 'static,
) where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    T: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K: Resource<DynamicType = ()> + From<T> + Clone + Send + Sync + 'static,
{
    let convert = |raw| decode(raw, K::from);
    raw_informer::<T, K>(client, selection, policy, store, convert, on_change).await;
}

/// Like [`informer`], with objects that `convert` converts from their text.
pub async fn raw_informer<T, K>(
    client: Client,
    selection: impl Into<Selection>,
    policy: ErrorPolicy,
    store: Store<Cached<K>>,
    convert: impl Fn(Raw<T>) -> Cached<K> + Clone + Send + Sync + 'static,
    on_change: impl Fn(Change<Cached<K>>) + Send + Sync + 'static,
) where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + 'static,
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    let Selection { scope, labels } = selection.into();
    inform(scope.api(client), labels, policy, store, convert, on_change).await;
}

/// Like [`raw_informer`], for a cluster-scoped kind.
pub async fn cluster_informer<T, K>(
    client: Client,
    policy: ErrorPolicy,
    store: Store<Cached<K>>,
    convert: impl Fn(Raw<T>) -> Cached<K> + Clone + Send + Sync + 'static,
    on_change: impl Fn(Change<Cached<K>>) + Send + Sync + 'static,
) where
    T: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + 'static,
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    inform(Api::all(client), None, policy, store, convert, on_change).await;
}

/// Decodes an object, unless it would take more memory than [`MAX_DECODED_BYTES`], and converts it.
#[must_use]
pub fn decode<T, K>(raw: Raw<T>, convert: impl FnOnce(T) -> K) -> Cached<K>
where
    T: Resource<DynamicType = ()> + DeserializeOwned,
{
    let bytes = parsed_bytes(raw.text());
    let decoded = if bytes > MAX_DECODED_BYTES {
        DeserializeGuard(Err(raw.invalid(too_large(bytes, MAX_DECODED_BYTES))))
    } else {
        raw.decode()
    };
    DeserializeGuard(decoded.0.map(convert)).into()
}

#[must_use]
pub fn too_large(bytes: u64, limit: u64) -> String {
    const MIB: u64 = 1 << 20;
    let (bytes, limit) = (bytes.div_ceil(MIB), limit / MIB);
    format!("takes {bytes} MiB of memory when it is decoded, more than {limit} MiB; use fewer fields and list elements")
}

async fn inform<T, K>(
    api: Api<Raw<T>>,
    labels: Option<String>,
    policy: ErrorPolicy,
    store: Store<Cached<K>>,
    convert: impl Fn(Raw<T>) -> Cached<K> + Clone + Send + Sync + 'static,
    on_change: impl Fn(Change<Cached<K>>) + Send + Sync + 'static,
) where
    T: Resource<DynamicType = ()> + Clone + Debug + 'static,
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    let watch = Watch {
        description: discovery::Resource::of::<T>(true).name(),
        open: Box::new(move || selected_events_of(api.clone(), labels.clone(), convert.clone())),
        store,
        policy,
        relist_period: None,
        notify: Box::new(move |notification| {
            if let Notification::Change(change) = notification {
                warn_if_invalid(&change);
                on_change(change);
            }
        }),
    };
    watch.run_despite_panics().await;
}

/// Applies events to `store` and calls `on_change` in order, until the events end. The source reports its errors.
pub async fn run<T, K, E>(
    events: impl Stream<Item = Result<Event<DeserializeGuard<T>>, E>>,
    store: Store<Cached<K>>,
    mut on_change: impl FnMut(Change<Cached<K>>),
) where
    T: Resource,
    K: Resource<DynamicType = ()> + From<T> + Clone,
{
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let convert = |DeserializeGuard(object): DeserializeGuard<T>| DeserializeGuard(object.map(K::from)).into();
        for change in store.apply(map(event, convert)) {
            warn_if_invalid(&change);
            on_change(change);
        }
    }
}

fn warn_if_invalid<K: Resource<DynamicType = ()> + Clone>(change: &Change<Cached<K>>) {
    if let Change::Applied { old, new, .. } = change
        && let Cached::Invalid { error, .. } = new
        && !matches!(old, Some(Cached::Invalid { error: before, .. }) if before == error)
    {
        tracing::warn!(kind = %K::kind(&()), namespace = new.namespace(), name = new.name(), error,
            "failed to decode object, skipping it until it changes");
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::{AppRepository, NamespacedName};

    type Events = Vec<Event<DeserializeGuard<AppRepository>>>;

    fn object(name: &str, version: &str) -> DeserializeGuard<AppRepository> {
        with_spec(
            name,
            version,
            &json!({ "type": "helm", "url": "https://charts.example.com" }),
        )
    }

    fn with_spec(name: &str, version: &str, spec: &Value) -> DeserializeGuard<AppRepository> {
        serde_json::from_value(json!({
            "metadata": { "namespace": "team-a", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version },
            "spec": spec,
        }))
        .unwrap()
    }

    fn broken(name: &str, version: &str) -> DeserializeGuard<AppRepository> {
        with_spec(name, version, &json!({ "type": "helm", "url": ["no text"] }))
    }

    fn list(objects: Vec<DeserializeGuard<AppRepository>>) -> Events {
        let objects = objects.into_iter().map(Event::InitApply);
        [Event::Init]
            .into_iter()
            .chain(objects)
            .chain([Event::InitDone])
            .collect()
    }

    fn short(change: &Change<Cached<AppRepository>>) -> String {
        let is = |cached: &Cached<AppRepository>| match cached {
            Cached::Object(object) => object.metadata.resource_version.clone().unwrap_or_default(),
            Cached::Invalid { .. } => "broken".to_owned(),
        };
        match change {
            Change::Applied { old, new, is_listed } => {
                let before = old.as_ref().map(is).unwrap_or_default();
                let listed = if *is_listed { " listed" } else { "" };
                format!("{} {before}>{}{listed}", new.name(), is(new))
            }
            Change::Deleted(old) => format!("{} {}>", old.name(), is(old)),
            Change::MissingFromList(old) => format!("{} {}> missing", old.name(), is(old)),
            Change::Synced { .. } => "listed".to_owned(),
        }
    }

    async fn changes(
        events: Vec<Result<Event<DeserializeGuard<AppRepository>>, String>>,
    ) -> (Store<Cached<AppRepository>>, Vec<String>) {
        let store = Store::default();
        let mut changes = Vec::new();
        run(stream::iter(events), store.clone(), |change| {
            changes.push(short(&change))
        })
        .await;
        (store, changes)
    }

    async fn changes_of(events: Events) -> (Store<Cached<AppRepository>>, Vec<String>) {
        changes(events.into_iter().map(Ok).collect()).await
    }

    #[tokio::test]
    async fn a_list_is_reported_by_object_and_then_as_complete() {
        let (store, reported) = changes_of(list(vec![object("a", "1"), object("b", "2")])).await;
        assert_eq!(reported, ["a >1 listed", "b >2 listed", "listed"]);
        assert!(store.is_synced());
        assert_eq!(store.len(), 2);
        store.wait_until_synced().await;
    }

    #[tokio::test]
    async fn a_store_is_not_synced_before_a_list_is_complete() {
        let (store, reported) = changes_of(vec![Event::Init, Event::InitApply(object("a", "1"))]).await;
        assert_eq!(reported, ["a >1 listed"]);
        assert!(!store.is_synced() && !store.is_empty());
    }

    #[tokio::test]
    async fn events_are_reported_with_the_previous_state() {
        let mut events = list(vec![]);
        events.extend([
            Event::Apply(object("a", "1")),
            Event::Apply(object("a", "2")),
            Event::Delete(object("a", "3")),
        ]);
        let (store, reported) = changes_of(events).await;
        assert_eq!(reported, ["listed", "a >1", "a 1>2", "a 2>"]);
        assert!(store.is_empty());
    }

    #[tokio::test]
    async fn objects_that_vanished_during_an_interruption_are_found_by_the_next_list() {
        let mut events = list(vec![object("a", "1"), object("b", "1"), object("c", "1")]);
        events.extend(list(vec![object("a", "1"), object("c", "2")]));
        let (store, reported) = changes_of(events).await;
        assert_eq!(reported[3..], ["listed", "c 1>2 listed", "b 1> missing", "listed"]);
        assert_eq!(store.len(), 2);
    }

    #[tokio::test]
    async fn an_interrupted_list_removes_nothing() {
        let mut events = list(vec![object("a", "1"), object("b", "1")]);
        events.extend([Event::Init, Event::InitApply(object("a", "1"))]);
        events.extend([
            Event::Init,
            Event::InitApply(object("b", "1")),
            Event::InitApply(object("a", "1")),
        ]);
        let (store, before) = changes_of(events).await;
        assert_eq!((store.len(), before.len()), (2, 3), "{before:?}");
    }

    #[tokio::test]
    async fn names_of_an_interrupted_list_are_discarded() {
        let mut events = list(vec![object("a", "1"), object("b", "1")]);
        events.extend([Event::Init, Event::InitApply(object("b", "1"))]);
        events.extend(list(vec![object("a", "1")]));
        let (_, reported) = changes_of(events).await;
        assert_eq!(reported[3..], ["b 1> missing", "listed"]);
    }

    #[tokio::test]
    async fn a_recreated_object_of_the_same_version_is_reported() {
        let mut other = object("a", "1");
        other.0.as_mut().unwrap().metadata.uid = Some("another".to_owned());
        let mut events = list(vec![object("a", "1")]);
        events.extend(list(vec![other]));
        let (_, reported) = changes_of(events).await;
        assert_eq!(reported, ["a >1 listed", "listed", "a 1>1 listed", "listed"]);
    }

    #[tokio::test]
    async fn an_undecodable_object_does_not_block_others() {
        let mut events = list(vec![broken("a", "1"), object("b", "1")]);
        events.extend([
            Event::Apply(broken("b", "2")),
            Event::Apply(object("a", "2")),
            Event::Delete(broken("b", "3")),
        ]);
        let (store, reported) = changes_of(events).await;
        assert_eq!(
            reported,
            [
                "a >broken listed",
                "b >1 listed",
                "listed",
                "b 1>broken",
                "a broken>2",
                "b broken>"
            ]
        );
        let name = NamespacedName {
            namespace: "team-a".to_owned(),
            name: "a".to_owned(),
        };
        assert!(store.get(&name).unwrap().object().is_some());
    }

    #[tokio::test]
    async fn an_undecodable_object_has_its_metadata_and_an_error() {
        let (store, _) = changes_of(list(vec![broken("a", "1")])).await;
        let cached = store.get(&store.names()[0]).unwrap();
        assert_eq!(cached.meta().uid.as_deref(), Some("uid-a"));
        let Cached::Invalid { error, .. } = cached else {
            panic!("expected an undecodable object")
        };
        assert!(error.contains("string"), "{error}");
    }

    #[test]
    fn small_annotations_of_an_undecodable_object_stay() {
        let kept = |news: &str| {
            let mut object = broken("a", "1");
            let metadata = &mut object.0.as_mut().unwrap_err().metadata;
            let annotations = [(LAST_APPLIED, "x".repeat(MAX_META_BYTES)), ("news", news.to_owned())];
            metadata.annotations = Some(annotations.map(|(name, text)| (name.to_owned(), text)).into());
            Cached::from(object).meta().annotations.clone()
        };
        assert_eq!(kept("hook"), Some([("news".to_owned(), "hook".to_owned())].into()));
        assert_eq!(kept(&"x".repeat(MAX_META_BYTES)), None);
    }

    fn after_an_assumed_write(events: Events) -> (Store<Cached<AppRepository>>, Vec<String>) {
        let store = Store::default();
        let apply = |events: Events| -> Vec<_> {
            let changes = events
                .into_iter()
                .flat_map(|event| store.apply(map(event, Cached::from)));
            changes.map(|change| short(&change)).collect()
        };
        apply(list(vec![object("a", "1")]));
        for version in ["3", "2", "unknown"] {
            store.assume(object("a", version).into());
        }
        let changes = apply(events);
        (store, changes)
    }

    fn version(store: &Store<Cached<AppRepository>>) -> Option<String> {
        let cached = store.get(&store.names()[0])?;
        cached.meta().resource_version.clone()
    }

    #[test]
    fn an_assumed_write_stays_until_the_watch_delivers_it() {
        let (store, reported) = after_an_assumed_write(vec![Event::Apply(object("a", "2"))]);
        assert!(reported.is_empty(), "{reported:?}");
        assert_eq!(
            version(&store).as_deref(),
            Some("3"),
            "older and incomparable versions are not assumed"
        );
        let events = vec![Event::Apply(object("a", "3")), Event::Apply(object("a", "2"))];
        let (store, reported) = after_an_assumed_write(events);
        assert_eq!(reported, ["a 3>3", "a 3>2"]);
        assert_eq!(version(&store).as_deref(), Some("2"));
    }

    #[test]
    fn deletions_recreated_objects_and_later_lists_replace_an_assumed_write() {
        let (store, reported) = after_an_assumed_write(vec![Event::Delete(object("a", "2"))]);
        assert_eq!((reported, store.len()), (vec!["a 3>".to_owned()], 0));
        let mut other = object("a", "2");
        other.0.as_mut().unwrap().metadata.uid = Some("another".to_owned());
        assert_eq!(after_an_assumed_write(vec![Event::Apply(other)]).1, ["a 3>2"]);
        let (_, reported) = after_an_assumed_write(list(vec![object("a", "2")]));
        assert_eq!(reported, ["a 3>2 listed", "listed"]);
    }

    #[tokio::test]
    async fn errors_and_objects_without_a_name_are_skipped() {
        let unnamed = serde_json::from_value(json!({ "spec": {} })).unwrap();
        let (store, reported) = changes(vec![
            Err("interrupted".to_owned()),
            Ok(Event::Init),
            Ok(Event::InitApply(unnamed)),
            Ok(Event::InitApply(object("a", "1"))),
            Err("interrupted".to_owned()),
            Ok(Event::InitDone),
        ])
        .await;
        assert_eq!(reported, ["a >1 listed", "listed"]);
        assert_eq!(store.names()[0].to_string(), "team-a/a");
    }
}

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::sync::watch;

use super::subscribers::Subscribers;
use crate::api::NamespacedName;
use crate::api::oam::labels;
use crate::runtime::watch::{
    Document, DocumentCache, GroupKind, KindEvent, KindFilter, Object, ObjectEvents, Resource, Scope, WatchSettings,
    documents,
};

/// The labels that name the Application of an object.
pub(super) const LABELS: &[&str] = &[labels::APP_NAME, labels::APP_NAMESPACE];
/// Maximum number of watches, usually one per kind. Objects of other kinds are read one by one.
const MAX_WATCHES: usize = 200;
/// Time for which a kind stays watched after its last Application.
const LINGER: Duration = Duration::from_mins(10);
/// Maximum number of Applications in one annotation. Anyone who may write the object may write it.
const MAX_SHARED_BY: usize = 100;

pub(super) fn settings(resync: Duration, relist: Option<Duration>) -> WatchSettings {
    WatchSettings {
        sync_period: resync,
        relist_period: relist,
        linger: LINGER,
        kinds: KindFilter::all(),
        prefers_cluster_wide: true,
        max_watches: MAX_WATCHES,
    }
}

pub(super) fn open(
    cache: DocumentCache,
) -> impl Fn(Client, &GroupKind, &Resource, &Scope) -> ObjectEvents<Document> + Send + Sync + 'static {
    move |client, _, resource, scope| documents(client, resource, scope, labels::APP_NAME, cache.clone())
}

pub(super) fn is_selected(object: &Value) -> bool {
    object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(labels::APP_NAME))
        .is_some()
}

pub(super) fn listener(
    subscribers: Arc<Subscribers>,
    kind_changed: Arc<watch::Sender<()>>,
    changed: impl Fn(NamespacedName) + Send + Sync + 'static,
) -> impl Fn(&GroupKind, KindEvent<Document>) + Send + Sync + 'static {
    move |kind, event| match event {
        KindEvent::Object { old, new } => {
            let mut applications = BTreeSet::new();
            for object in [old, new].iter().flatten() {
                applications.extend(owner(object));
                applications.extend(sharers(object));
            }
            applications.into_iter().for_each(&changed);
        }
        KindEvent::Kind => {
            kind_changed.send_replace(());
            subscribers.applications_of(kind).into_iter().for_each(&changed);
        }
    }
}

fn owner(object: &Object<Document>) -> Option<NamespacedName> {
    let name = object.labels.get(labels::APP_NAME)?;
    Some(NamespacedName::new(object.labels.get(labels::APP_NAMESPACE)?, name))
}

/// Returns the Applications that share an object. They look at an object that is not held in their next pass.
fn sharers(object: &Object<Document>) -> Vec<NamespacedName> {
    // Few objects are shared, and parsing takes longer than the search.
    let text = object.projection.text();
    if !text.is_some_and(|text| text.contains(labels::SHARED_BY)) {
        return Vec::new();
    }
    let value = object.to_value("", "").unwrap_or_default();
    let annotations = value.pointer("/metadata/annotations");
    let annotation = annotations.and_then(|annotations| annotations.get(labels::SHARED_BY));
    let names = annotation.and_then(Value::as_str).unwrap_or_default().split(',');
    let names = names.filter_map(|name| name.trim().split_once('/'));
    names
        .map(|(namespace, name)| NamespacedName::new(namespace, name))
        .take(MAX_SHARED_BY)
        .collect()
}

use std::collections::BTreeMap;

use kube::core::ObjectMeta;

use super::encoding::Encoded;
use super::inventory::{AppIdentity, TrackerType};
use super::names;
use crate::api::NamespacedName;
use crate::api::oam::labels::{self, APP_NAME, APP_NAMESPACE};
use crate::api::oam::{ResourceTracker, ResourceTrackerSpec};

/// Returns a tracker of an application with these objects. `shard` is the application's label of its controller.
#[must_use]
pub fn create(
    app: &AppIdentity,
    type_: TrackerType,
    revision: Option<&str>,
    shard: Option<&str>,
    objects: Encoded,
) -> ResourceTracker {
    let is_versioned = type_ == TrackerType::Versioned;
    let publish_version = app.publish_version.as_deref().filter(|_| is_versioned);
    let name = match type_ {
        TrackerType::Root => names::root(&app.name),
        TrackerType::Versioned => names::versioned(&app.name, app.generation, publish_version),
        TrackerType::ComponentRevision => names::component_revision(&app.name),
    };
    let labels = [
        (APP_NAME, Some(app.name.name.as_str())),
        (APP_NAMESPACE, Some(app.name.namespace.as_str())),
        (labels::APP_UID, Some(app.uid.as_str())),
        (labels::APP_REVISION, revision),
        (labels::SHARD_ID, shard),
    ];
    let labels = labels
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    let annotation = |version: &str| BTreeMap::from([(labels::PUBLISH_VERSION.to_owned(), version.to_owned())]);
    ResourceTracker {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(labels.collect()),
            annotations: publish_version.map(annotation),
            finalizers: Some(vec![labels::TRACKER_FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: ResourceTrackerSpec {
            type_: type_.name().to_owned(),
            application_generation: if is_versioned { app.generation } else { 0 },
            managed_resources: objects.managed_resources,
            compression: objects.compression,
        },
        status: None,
    }
}

/// Returns the selector of the trackers that are labeled with the name of an Application.
#[must_use]
pub fn tracker_selector(NamespacedName { namespace, name }: &NamespacedName) -> String {
    format!("{APP_NAME}={name},{APP_NAMESPACE}={namespace}")
}

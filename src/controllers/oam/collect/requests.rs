use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, PartialObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::api::oam::{ApplicationRevision, ResourceTracker, labels};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::trackers::Tracker;
use crate::runtime::kube_client::{ApiError, call};

/// Deletes a tracker. Returns its metadata, or `None` if it is gone.
pub(super) async fn delete_tracker(client: &Client, tracker: &Tracker) -> Result<Option<ObjectMeta>, ApiError> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: tracker.object.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match call(trackers(client).delete(tracker.name(), &parameters)).await {
        Ok(response) => {
            let deleting = response.left().map(|tracker| tracker.metadata);
            Ok(deleting.filter(|meta| meta.deletion_timestamp.is_some()))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) async fn remove_finalizer(client: &Client, tracker: &Tracker) -> Result<(), ApiError> {
    let finalizers = tracker.object.finalizers().iter();
    let finalizers: Vec<_> = finalizers
        .filter(|finalizer| *finalizer != labels::TRACKER_FINALIZER)
        .collect();
    let patch = json!({ "metadata": {
        "resourceVersion": tracker.object.resource_version(),
        "finalizers": finalizers,
    }});
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let written = call(trackers(client).patch(tracker.name(), &parameters, &Patch::Merge(patch))).await;
    ignore_not_found(written.map(|_| ()))
}

/// Deletes a revision. Returns true if it remains until its finalizers are removed.
pub(super) async fn delete_revision(client: &Client, namespace: &str, name: &str) -> Result<bool, ApiError> {
    let revisions: Api<PartialObjectMeta<ApplicationRevision>> = Api::namespaced(client.clone(), namespace);
    match call(revisions.delete(name, &DeleteParams::default())).await {
        Ok(response) => {
            let remaining = response.left().map(|revision| revision.metadata);
            Ok(remaining.is_some_and(|meta| meta.finalizers.is_some_and(|finalizers| !finalizers.is_empty())))
        }
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Trackers as metadata: their objects take up to 1.5 MiB.
fn trackers(client: &Client) -> Api<PartialObjectMeta<ResourceTracker>> {
    Api::all(client.clone())
}

fn ignore_not_found(result: Result<(), ApiError>) -> Result<(), ApiError> {
    result.or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
}

//! The decision about one object, from its record, the live object and the policies alone.

use serde_json::{Value, json};

use super::Subject;
use crate::api::NamespacedName;
use crate::api::oam::ManagedResource;
use crate::api::oam::labels::{APP_NAME, APP_NAMESPACE, SHARED_BY};
use crate::controllers::oam::dispatch::bookkeeping::{annotation, label};
use crate::controllers::oam::policies::{GarbageCollectStrategy, PolicyTarget};

#[derive(Clone, Debug, PartialEq)]
pub enum GarbageDecision {
    /// The object stays as it is.
    Leave,
    /// A JSON merge patch, after which the object no longer belongs to the Application.
    Release(Value),
    /// Delete the object with this UID.
    Delete { uid: String },
    /// The object is being deleted.
    Wait,
}

/// Returns true if the Application owns or shares an object. Other objects of that name do not belong to it.
pub fn is_managed(live: &Value, app: &NamespacedName) -> bool {
    is_owner(live, app) || sharers(live).any(|sharer| sharer == *app)
}

fn is_owner(live: &Value, app: &NamespacedName) -> bool {
    label(live, APP_NAME) == Some(&app.name) && label(live, APP_NAMESPACE) == Some(&app.namespace)
}

/// Iterates over the Applications that share an object, the owner first.
fn sharers(live: &Value) -> impl Iterator<Item = NamespacedName> {
    let keys = annotation(live, SHARED_BY)
        .unwrap_or_default()
        .split(',')
        .map(str::trim);
    keys.filter(|key| !key.is_empty()).map(|key| {
        // As in KubeVela.
        let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
        NamespacedName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    })
}

/// Only the owner, which the labels name, deletes an object or removes the labels; others leave the list of sharers.
#[must_use]
pub fn decide(subject: &Subject<'_>, entry: &ManagedResource, live: &Value) -> GarbageDecision {
    let recorded = entry.raw.as_ref().and_then(|manifest| manifest.parse().ok());
    let target = PolicyTarget::of(recorded.as_ref().unwrap_or(live));
    if subject.read_only.contains(&target) {
        return GarbageDecision::Leave;
    }
    let app = &subject.app.name;
    let others: Vec<_> = sharers(live).filter(|sharer| sharer != app).collect();
    if !is_owner(live, app) {
        return if is_managed(live, app) {
            GarbageDecision::Release(change_sharers(live, &others, None))
        } else {
            GarbageDecision::Leave
        };
    }
    if let Some(next) = others.first() {
        return GarbageDecision::Release(change_sharers(live, &others, Some(next)));
    }
    let is_kept = entry.skip_gc
        || subject.orphans_all
        || subject.rules.strategy(&target) == GarbageCollectStrategy::Never
        || subject.rules.is_orphaned(&target);
    let metadata = |name: &str| live.get("metadata")?.get(name)?.as_str();
    match metadata("uid") {
        _ if is_kept => GarbageDecision::Release(without_owner(live)),
        Some(uid) if metadata("deletionTimestamp").is_none() => GarbageDecision::Delete { uid: uid.to_owned() },
        _ => GarbageDecision::Wait,
    }
}

/// Returns the patch that sets the sharers. `owner` is the next owner, if it changes.
fn change_sharers(live: &Value, sharers: &[NamespacedName], owner: Option<&NamespacedName>) -> Value {
    let sharers: Vec<_> = sharers.iter().map(ToString::to_string).collect();
    let sharers = (!sharers.is_empty()).then(|| sharers.join(","));
    let mut metadata = json!({
        "resourceVersion": resource_version(live),
        "annotations": {SHARED_BY: sharers},
    });
    if let Some(owner) = owner {
        metadata["labels"] = json!({APP_NAME: owner.name, APP_NAMESPACE: owner.namespace});
    }
    json!({ "metadata": metadata })
}

fn without_owner(live: &Value) -> Value {
    let mut metadata = json!({
        "resourceVersion": resource_version(live),
        "labels": {APP_NAME: null, APP_NAMESPACE: null},
    });
    if annotation(live, SHARED_BY).is_some() {
        metadata["annotations"] = json!({SHARED_BY: null});
    }
    json!({ "metadata": metadata })
}

fn resource_version(live: &Value) -> Value {
    live.pointer("/metadata/resourceVersion").cloned().unwrap_or_default()
}

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::kinds::ReconciledKind;
use crate::api::conditions::{find, upsert};
use crate::api::oam::{Condition, DefinitionStatus, LatestRevision};

const SYNCED: &str = "Synced";

/// Returns true if the status names the revision and the ConfigMap with its schema, and no failure.
pub(super) fn is_complete<D: ReconciledKind>(definition: &D, latest: &LatestRevision, schema: &str) -> bool {
    let status = definition.status();
    let has_failed = synced(status).is_some_and(|condition| condition.status != "True");
    // KubeVela doesn't always write the condition. Its absence is no reason to write.
    names(status, latest) && status.is_some_and(|status| status.config_map_ref == schema) && !has_failed
}

/// Returns the merge patch for a definition that is recorded in a revision, with the name of the ConfigMap with its schema.
pub(super) fn recorded<D: ReconciledKind>(definition: &D, latest: &LatestRevision, schema: &str) -> Value {
    let conditions = conditions(definition.status(), "True", "ReconcileSuccess", "");
    patch(
        definition,
        json!({ "conditions": conditions, "latestRevision": latest, "configMapRef": schema }),
    )
}

/// Returns the merge patch for a definition that is recorded, but has no schema, or `None` if the status says so.
pub(super) fn recorded_without_schema<D: ReconciledKind>(
    definition: &D,
    latest: &LatestRevision,
    message: &str,
) -> Option<Value> {
    let status = definition.status();
    if names(status, latest) && has_failed_with(status, message) {
        return None;
    }
    let conditions = conditions(status, "False", "ReconcileError", message);
    Some(patch(
        definition,
        json!({ "conditions": conditions, "latestRevision": latest }),
    ))
}

/// Returns the merge patch for a definition that can't be recorded, or `None` if the status says so.
pub(super) fn failed<D: ReconciledKind>(definition: &D, message: &str) -> Option<Value> {
    let status = definition.status();
    if has_failed_with(status, message) {
        return None;
    }
    let conditions = conditions(status, "False", "ReconcileError", message);
    Some(patch(definition, json!({ "conditions": conditions })))
}

/// Returns true if the status names the revision.
pub(super) fn names(status: Option<&DefinitionStatus>, latest: &LatestRevision) -> bool {
    let named = status.and_then(|status| status.latest_revision.as_ref());
    // A version that was deleted has the same name when it is recorded again, but no ConfigMap.
    named.is_some_and(|named| named.name == latest.name && named.revision == latest.revision)
}

fn has_failed_with(status: Option<&DefinitionStatus>, message: &str) -> bool {
    synced(status).is_some_and(|condition| condition.status == "False" && condition.message == message)
}

fn synced(status: Option<&DefinitionStatus>) -> Option<&Condition> {
    find(&status?.conditions, SYNCED)
}

/// Returns all conditions with a new condition of type `Synced`. Other types stay as they are.
fn conditions(status: Option<&DefinitionStatus>, new: &str, reason: &str, message: &str) -> Vec<Condition> {
    let now = Timestamp::now();
    // The API server stores whole seconds.
    let now = Time(now.round(Unit::Second).unwrap_or(now));
    let condition = Condition {
        type_: SYNCED.to_owned(),
        status: new.to_owned(),
        last_transition_time: None,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let mut conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
    upsert(&mut conditions, condition, now);
    conditions
}

/// The UID makes the patch of a recreated definition fail.
fn patch<D: ReconciledKind>(definition: &D, status: Value) -> Value {
    let meta = definition.meta();
    json!({ "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version }, "status": status })
}

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::kinds::ReconciledKind;
use crate::api::conditions::{find, upsert};
use crate::api::oam::{Condition, DefinitionStatus, LatestRevision};

const SYNCED: &str = "Synced";

/// Returns the merge patch for a definition that is recorded in a revision, or `None` if the status says so.
pub(super) fn recorded<D: ReconciledKind>(definition: &D, latest: &LatestRevision) -> Option<Value> {
    let status = definition.status();
    let named = status.and_then(|status| status.latest_revision.as_ref());
    let has_failed = synced(status).is_some_and(|condition| condition.status != "True");
    // KubeVela doesn't always write the condition. Its absence is no reason to write.
    if named.is_some_and(|named| named.name == latest.name) && !has_failed {
        return None;
    }
    let conditions = conditions(status, "True", "ReconcileSuccess", "");
    Some(patch(
        definition,
        json!({ "conditions": conditions, "latestRevision": latest }),
    ))
}

/// Returns the merge patch for a definition that can't be recorded, or `None` if the status says so.
pub(super) fn failed<D: ReconciledKind>(definition: &D, message: &str) -> Option<Value> {
    let status = definition.status();
    if synced(status).is_some_and(|condition| condition.status == "False" && condition.message == message) {
        return None;
    }
    let conditions = conditions(status, "False", "ReconcileError", message);
    Some(patch(definition, json!({ "conditions": conditions })))
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

//! Objects of the API server, decoded as far as pages show them. An invalid field never fails its list.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::api::lenient::{null_as_default, or_default, valid_elements};
use crate::api::{ComponentStatus, Descriptor, oam};

#[derive(Deserialize)]
pub(super) struct List<T> {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) metadata: ListMeta,
    #[serde(default = "Vec::new")]
    pub(super) items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ListMeta {
    #[serde(rename = "continue")]
    next: String,
}

impl<T> List<T> {
    /// Returns the token that continues the list.
    pub(super) fn next(&self) -> Option<&str> {
        Some(self.metadata.next.as_str()).filter(|next| !next.is_empty())
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) namespace: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) creation_timestamp: Option<Timestamp>,
    pub(super) deletion_timestamp: Option<Value>,
}

/// An object of which only the metadata are needed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Partial {
    #[serde(deserialize_with = "or_default")]
    pub(super) metadata: Meta,
}

/// An Application in a list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Listed {
    #[serde(deserialize_with = "or_default")]
    pub(super) metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    pub(super) status: Health,
}

/// The part of a status that a list shows. Of app.k8s.io, the conditions only.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Health {
    #[serde(rename = "status", deserialize_with = "or_default")]
    pub(super) phase: String,
    #[serde(deserialize_with = "valid_elements")]
    pub(super) services: Vec<oam::ServiceStatus>,
    #[serde(deserialize_with = "valid_elements")]
    pub(super) conditions: Vec<oam::Condition>,
}

/// An Application of either group.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Application {
    #[serde(deserialize_with = "or_default")]
    pub(super) metadata: Meta,
    #[serde(deserialize_with = "or_default")]
    pub(super) spec: Spec,
    #[serde(deserialize_with = "or_default")]
    pub(super) status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Spec {
    /// Of KubeVela.
    #[serde(deserialize_with = "valid_elements")]
    pub(super) components: Vec<Component>,
    /// Of app.k8s.io.
    #[serde(deserialize_with = "or_default")]
    pub(super) descriptor: Descriptor,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Component {
    pub(super) name: String,
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub(super) type_: String,
    #[serde(deserialize_with = "valid_elements")]
    pub(super) depends_on: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    #[serde(flatten)]
    pub(super) health: Health,
    #[serde(deserialize_with = "or_default")]
    pub(super) workflow: Option<oam::WorkflowStatus>,
    #[serde(deserialize_with = "or_default")]
    pub(super) latest_revision: Option<oam::LatestRevision>,
    #[serde(deserialize_with = "valid_elements")]
    pub(super) applied_resources: Vec<oam::AppliedResource>,
    /// Of app.k8s.io.
    #[serde(deserialize_with = "valid_elements")]
    pub(super) components: Vec<ComponentStatus>,
    #[serde(deserialize_with = "or_default")]
    pub(super) components_ready: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Event {
    #[serde(deserialize_with = "or_default")]
    metadata: Meta,
    /// `Normal` or `Warning`.
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    pub(super) type_: String,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) reason: String,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) message: String,
    #[serde(deserialize_with = "or_default")]
    last_timestamp: Option<Timestamp>,
    #[serde(deserialize_with = "or_default")]
    event_time: Option<Timestamp>,
    #[serde(deserialize_with = "or_default")]
    series: Series,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Series {
    last_observed_time: Option<Timestamp>,
}

impl Event {
    pub(super) fn last_seen(&self) -> Option<Timestamp> {
        let last = self.series.last_observed_time.max(self.last_timestamp);
        last.max(self.event_time).or(self.metadata.creation_timestamp)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_fields_do_not_fail_a_list() {
        let list = json!({
            "metadata": { "continue": "next", "remainingItemCount": 3 },
            "items": [
                { "metadata": { "name": "a", "creationTimestamp": "soon" }, "status": { "status": "running" } },
                { "metadata": { "name": 7 }, "status": { "status": 7, "services": [7, { "name": "web" }] } },
                { "metadata": { "name": "c", "creationTimestamp": "10000-01-01T00:00:00Z" }, "status": "running" },
                { "metadata": { "name": "d" }, "status": null, "spec": 7 },
                {},
            ],
        });
        let list: List<Listed> = serde_json::from_value(list).unwrap();
        let names = list.items.iter().map(|item| item.metadata.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["a", "", "c", "d", ""]);
        assert_eq!(list.items[0].status.phase, "running");
        assert_eq!(list.items[1].status.services.len(), 1);
        assert_eq!(list.next(), Some("next"));
        let empty: List<Listed> = serde_json::from_value(json!({ "items": [], "metadata": {} })).unwrap();
        assert_eq!(empty.next(), None);
    }

    #[test]
    fn a_status_of_either_group_is_decoded() {
        let vela = json!({
            "spec": { "components": [{ "name": "web", "dependsOn": ["db", 7] }, 7] },
            "status": {
                "status": "running", "services": [{ "name": "web", "healthy": true }],
                "workflow": { "status": "succeeded", "steps": [{ "id": "a", "name": "web", "phase": "succeeded" }] },
                "appliedResources": [{ "kind": "Deployment", "name": "web" }],
            },
        });
        let vela: Application = serde_json::from_value(vela).unwrap();
        assert_eq!(vela.spec.components[0].depends_on, ["db"]);
        assert_eq!(vela.status.health.phase, "running");
        assert_eq!(vela.status.workflow.unwrap().steps.len(), 1);
        assert_eq!(vela.status.applied_resources.len(), 1);
        let app = json!({ "spec": { "descriptor": { "type": "shop" } }, "status": {
            "componentsReady": "1/2", "components": [{ "kind": "Service", "name": "web", "status": "Ready" }],
            "conditions": [{ "type": "Ready", "status": "False" }],
        }});
        let app: Application = serde_json::from_value(app).unwrap();
        assert_eq!(app.status.components_ready, "1/2");
        assert_eq!(app.status.health.conditions.len(), 1);
        assert_eq!(app.status.components.len(), 1);
        assert_eq!(app.spec.descriptor.type_.as_deref(), Some("shop"));
    }

    #[test]
    fn an_event_was_last_seen_at_the_latest_of_its_times() {
        let seen = |event: Value| {
            let event: Event = serde_json::from_value(event).unwrap();
            event.last_seen().map(|time| time.to_string())
        };
        let (first, last) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let event = json!({ "lastTimestamp": null, "eventTime": first, "series": { "lastObservedTime": last } });
        assert_eq!(seen(event).as_deref(), Some(last));
        let event = json!({ "lastTimestamp": first, "series": null, "metadata": { "creationTimestamp": last } });
        assert_eq!(seen(event).as_deref(), Some(first));
        assert_eq!(seen(json!({})), None);
    }
}

//! An Application as it is kept: what decides anything, in little room.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use sha2::{Digest, Sha256};

use super::spec::AppSpec;
use crate::api::NamespacedName;
use crate::api::{Application, ApplicationCondition, ApplicationStatus};

/// An Application as far as it is of interest. What may be most of it is not kept: what describes it to people, annotations, and
/// the components in its status.
#[derive(Clone, Debug)]
pub struct CachedApplication {
    /// Which object it is, in which version, and whether it is being deleted.
    pub metadata: ObjectMeta,
    /// What it declares.
    pub declared: Arc<AppSpec>,
    /// What its status says, if it has one.
    pub said: Option<StatusSnapshot>,
}

impl From<Application> for CachedApplication {
    fn from(application: Application) -> Self {
        let name = NamespacedName {
            namespace: application.metadata.namespace.clone().unwrap_or_default(),
            name: application.metadata.name.clone().unwrap_or_default(),
        };
        let declared = Arc::new(AppSpec::of(&name, &application));
        let said = application.status.as_ref().map(StatusSnapshot::of);
        let meta = application.metadata;
        Self {
            metadata: ObjectMeta {
                name: meta.name,
                namespace: meta.namespace,
                uid: meta.uid,
                resource_version: meta.resource_version,
                generation: meta.generation,
                deletion_timestamp: meta.deletion_timestamp,
                ..ObjectMeta::default()
            },
            declared,
            said,
        }
    }
}

/// What a status says: all of it can be compared, but only its conditions can be read.
#[derive(Clone, Debug)]
pub struct StatusSnapshot {
    /// The conditions, of which those of others stay, and ours as long as they say the same.
    pub conditions: Arc<[ApplicationCondition]>,
    /// SHA-256 of the whole as it is written.
    digest: [u8; 32],
}

impl StatusSnapshot {
    /// What this status says.
    #[must_use]
    pub fn of(status: &ApplicationStatus) -> Self {
        // Nothing in a status can fail to be written as JSON.
        let text = serde_json::to_vec(status).unwrap_or_default();
        Self {
            conditions: status.conditions.as_slice().into(),
            digest: Sha256::digest(text).into(),
        }
    }
}

impl PartialEq for StatusSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Resource for CachedApplication {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Application::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Application::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Application::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Application::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;

    fn known(generation: i64, annotations: &Value, component: &str) -> CachedApplication {
        let application: Application = serde_json::from_value(json!({
            "metadata": {
                "name": "shop", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": generation,
                "annotations": annotations, "labels": { "a": "b" },
            },
            "spec": { "componentKinds": [{ "group": "", "kind": "Pod" }], "selector": {} },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "components": [{ "name": "web", "kind": "Pod", "status": component }],
            },
        }))
        .unwrap();
        application.into()
    }

    #[test]
    fn of_a_status_all_counts_and_the_conditions_can_be_read() {
        let ready = known(1, &json!({}), "Ready").said.unwrap();
        assert_eq!(ready.conditions[0].type_, "Ready");
        assert_eq!(known(2, &json!({}), "Ready").said.unwrap(), ready);
        assert_ne!(known(1, &json!({}), "InProgress").said.unwrap(), ready);
        assert_ne!(StatusSnapshot::of(&ApplicationStatus::default()), ready);
    }

    #[test]
    fn what_is_written_and_what_the_store_shows_of_it_later_say_the_same() {
        let status = ApplicationStatus {
            conditions: vec![ApplicationCondition {
                last_update_time: Some("2026-05-01T12:00:00Z".parse().map(Time).unwrap()),
                ..ApplicationCondition::default()
            }],
            ..ApplicationStatus::default()
        };
        let stored: ApplicationStatus = serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
        assert_eq!(StatusSnapshot::of(&stored), StatusSnapshot::of(&status));
    }

    #[test]
    fn what_says_which_object_it_is_stays_and_the_rest_of_its_metadata_does_not() {
        let known = known(1, &json!({ "portolan.dev/owned-kinds": "Pod" }), "Ready");
        let meta = &known.metadata;
        assert_eq!((meta.uid.as_deref(), meta.generation), (Some("u"), Some(1)));
        assert_eq!(
            (meta.name.as_deref(), meta.namespace.as_deref()),
            (Some("shop"), Some("team"))
        );
        assert_eq!(meta.resource_version.as_deref(), Some("7"));
        assert_eq!((&meta.annotations, &meta.labels), (&None, &None));
        assert_eq!(known.declared.recorded.len(), 1, "it is read before");
    }

    #[test]
    fn the_record_of_what_is_owned_declares_nothing() {
        let declared = |generation, annotations| known(generation, &annotations, "Ready").declared;
        let recorded = declared(1, json!({ "portolan.dev/owned-kinds": "Pod" }));
        assert!(declared(1, json!({})).is_declared_as(&recorded));
        assert!(!declared(2, json!({})).is_declared_as(&recorded));
    }
}

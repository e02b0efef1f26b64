//! The part of an Application that the controller keeps in memory.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use sha2::{Digest, Sha256};

use super::spec::{AppSpec, recorded_kinds};
use crate::api::{Application, ApplicationCondition, ApplicationStatus, NamespacedName, Raw};
use crate::runtime::watch::{Cached, decode};

/// An Application without descriptions, annotations and the components in its status, which may be most of it.
#[derive(Clone, Debug, Resource)]
#[resource(inherit = Application)]
pub struct CachedApplication {
    pub metadata: ObjectMeta,
    pub spec: Arc<AppSpec>,
    pub status: Option<StatusSnapshot>,
    /// Size of the object as JSON without its status, in bytes.
    pub size: usize,
}

impl CachedApplication {
    fn of(application: &Application, size: usize) -> Self {
        let name = NamespacedName::new(application.namespace().unwrap_or_default(), application.name_any());
        let spec = Arc::new(AppSpec::of(&name, application));
        let status = application.status.as_ref().map(StatusSnapshot::of);
        let meta = application.metadata.clone();
        Self {
            metadata: ObjectMeta {
                name: meta.name,
                namespace: meta.namespace,
                uid: meta.uid,
                resource_version: meta.resource_version,
                generation: meta.generation,
                deletion_timestamp: meta.deletion_timestamp,
                finalizers: meta.finalizers.filter(|finalizers| !finalizers.is_empty()),
                ..ObjectMeta::default()
            },
            spec,
            status,
            size,
        }
    }
}

impl CachedApplication {
    /// Converts an object as the API server sends it.
    #[must_use]
    pub fn convert(raw: Raw<Application>) -> Cached<Self> {
        // Decoded, it lacks the `managedFields`, which may be most of it.
        let status = raw.fields().get("status").map_or(0, |status| status.get().len());
        let size = raw.text().len() - status;
        decode(raw, |application| Self::of(&application, size))
    }

    /// Returns the Application after a write of its metadata.
    #[must_use]
    pub fn with_written(&self, written: ObjectMeta) -> Self {
        let recorded_kinds = recorded_kinds(written.annotations.as_ref());
        Self {
            spec: Arc::new(AppSpec {
                recorded_kinds,
                ..AppSpec::clone(&self.spec)
            }),
            metadata: ObjectMeta {
                resource_version: written.resource_version,
                finalizers: written.finalizers,
                ..self.metadata.clone()
            },
            ..self.clone()
        }
    }
}

/// The status as last seen. Snapshots can be compared as a whole; only the conditions can be read.
#[derive(Clone, Debug)]
pub struct StatusSnapshot {
    /// Conditions of other writers are preserved, ours while their content is unchanged.
    pub conditions: Arc<[ApplicationCondition]>,
    digest: [u8; 32],
}

impl StatusSnapshot {
    #[must_use]
    pub fn of(status: &ApplicationStatus) -> Self {
        // Serializing a status cannot fail.
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::ComponentStatus;
    use crate::controllers::application::status::Assessment;

    fn cached(generation: i64, annotations: &Value, component: &str) -> CachedApplication {
        let application = json!({
            "metadata": {
                "name": "shop", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": generation,
                "annotations": annotations, "labels": { "a": "b" },
            },
            "spec": { "componentKinds": [{ "group": "", "kind": "Pod" }], "selector": {} },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "components": [{ "name": "web", "kind": "Pod", "status": component }],
            },
        });
        convert(&application)
    }

    fn convert(application: &Value) -> CachedApplication {
        let cached = CachedApplication::convert(serde_json::from_str(&application.to_string()).unwrap());
        CachedApplication::clone(cached.object().unwrap())
    }

    #[test]
    fn a_status_fits_beside_fields_of_the_metadata_that_are_not_kept() {
        let fields: serde_json::Map<_, _> = (0..20_000).map(|at| (format!("f:label-{at:014}"), json!({}))).collect();
        let mut application = json!({
            "metadata": { "name": "shop", "namespace": "team", "uid": "u", "managedFields": [
                { "manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields },
            ] },
            "spec": { "selector": {} },
            "status": { "componentsReady": "1/2" },
        });
        let whole = |application: &Value| application.to_string().len();
        assert!(whole(&application) > 500_000, "{}", whole(&application));
        let components = (0..20_000).map(|at| ComponentStatus {
            name: Some(format!("component-{at}")),
            kind: Some("ConfigMap".to_owned()),
            status: Some("Ready".to_owned()),
            ..ComponentStatus::default()
        });
        let assessment = Assessment {
            components: components.collect(),
            ..Assessment::default()
        };
        let size = convert(&application).size;
        let status = assessment.status(Some(1), size, &[], Timestamp::UNIX_EPOCH);
        assert!(status.components.len() < 20_000, "all would fit");
        application["status"] = serde_json::to_value(&status).unwrap();
        assert!(whole(&application) < 3 << 19, "{}", whole(&application));
    }

    #[test]
    fn snapshots_compare_the_whole_status_and_expose_the_conditions() {
        let ready = cached(1, &json!({}), "Ready").status.unwrap();
        assert_eq!(ready.conditions[0].type_, "Ready");
        assert_eq!(cached(2, &json!({}), "Ready").status.unwrap(), ready);
        assert_ne!(cached(1, &json!({}), "InProgress").status.unwrap(), ready);
        assert_ne!(StatusSnapshot::of(&ApplicationStatus::default()), ready);
    }

    #[test]
    fn a_snapshot_equals_the_one_of_the_stored_status() {
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
    fn identifying_metadata_is_kept_and_the_rest_dropped() {
        let cached = cached(1, &json!({ "portolan.dev/owned-kinds": "Pod" }), "Ready");
        let meta = &cached.metadata;
        assert_eq!((meta.uid.as_deref(), meta.generation), (Some("u"), Some(1)));
        assert_eq!(
            (meta.name.as_deref(), meta.namespace.as_deref()),
            (Some("shop"), Some("team"))
        );
        assert_eq!(meta.resource_version.as_deref(), Some("7"));
        assert_eq!((&meta.annotations, &meta.labels), (&None, &None));
        assert_eq!(
            cached.spec.recorded_kinds.len(),
            1,
            "read before the annotations are dropped"
        );
    }

    #[test]
    fn a_write_of_the_metadata_changes_version_finalizers_and_record() {
        let before = cached(1, &json!({}), "Ready");
        let written = ObjectMeta {
            resource_version: Some("8".to_owned()),
            finalizers: Some(vec!["f".to_owned()]),
            annotations: Some([("portolan.dev/owned-kinds".to_owned(), "Pod".to_owned())].into()),
            ..ObjectMeta::default()
        };
        let after = before.with_written(written);
        assert_eq!(after.metadata.resource_version.as_deref(), Some("8"));
        assert_eq!(after.metadata.finalizers.as_deref(), Some(&["f".to_owned()][..]));
        assert_eq!(
            (after.spec.recorded_kinds.len(), before.spec.recorded_kinds.len()),
            (1, 0)
        );
        assert_eq!((after.metadata.uid, after.status), (before.metadata.uid, before.status));
    }

    #[test]
    fn recorded_kinds_are_not_part_of_the_spec() {
        let spec = |generation, annotations| cached(generation, &annotations, "Ready").spec;
        let recorded = spec(1, json!({ "portolan.dev/owned-kinds": "Pod" }));
        assert!(spec(1, json!({})).has_same_spec_as(&recorded));
        assert!(!spec(2, json!({})).has_same_spec_as(&recorded));
    }
}

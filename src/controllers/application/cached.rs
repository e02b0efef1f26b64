//! The part of an Application that the controller keeps in memory.

use std::io::{self, Write};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::spec::{AppSpec, recorded_kinds};
use crate::api::{Application, ApplicationCondition, ApplicationStatus, NamespacedName};

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

impl From<Application> for CachedApplication {
    fn from(application: Application) -> Self {
        let name = NamespacedName::new(application.namespace().unwrap_or_default(), application.name_any());
        let spec = Arc::new(AppSpec::of(&name, &application));
        let status = application.status.as_ref().map(StatusSnapshot::of);
        let size = json_size(&application.metadata) + json_size(&application.spec);
        let meta = application.metadata;
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

/// Counts the bytes of a value as JSON, without a copy of them.
pub(super) fn json_size(value: &impl Serialize) -> usize {
    struct Counter(usize);
    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Neither a type of the API nor the counter can fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

impl CachedApplication {
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;

    fn cached(generation: i64, annotations: &Value, component: &str) -> CachedApplication {
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

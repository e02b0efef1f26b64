use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::ObjectMeta;
use kube::core::error_boundary::InvalidObject;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::steps::{StepOutline, step_counts};
use super::types::Types;
use crate::api::oam::compression::{Compressed, CompressionError, Format};
use crate::api::oam::{Application, ApplicationStatus, DefinitionKind, PARSED};
use crate::api::raw::decode as decode_fields;
use crate::api::{Raw, impl_resource};
use crate::budget::{Budget, Reservation, parsed_bytes};
use crate::controllers::oam::PASS_COPIES;
use crate::runtime::watch::MAX_DECODED_BYTES;
use crate::text::truncate;

/// Memory of an Application besides its text.
const OBJECT_BYTES: usize = 1024;
/// Maximum size of an Application as JSON. The API server stores objects of up to 1.5 MiB.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// Longer than all phases.
const MAX_WORD_BYTES: usize = 32;
/// Labels and annotations that are kept are cut here, since they count toward no share. Versions and IDs are shorter.
const MAX_VALUE_BYTES: usize = 256;

/// An Application as compressed text, with fields for events. If its namespace holds too much, passes read the text.
#[derive(Clone, Debug)]
pub struct CachedApplication(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    /// With the labels and annotations that a pass does not read.
    meta: ObjectMeta,
    /// Digest of the inputs of a pass that other clients write.
    inputs: [u8; 32],
    is_parsed: bool,
    status: Option<StatusOutline>,
    types: Types,
    decoded_bytes: u64,
    too_large: Option<u64>,
    /// `None` if it is left out.
    contents: Option<Arc<ApplicationContents>>,
}

#[derive(Clone, Debug)]
pub struct StatusOutline {
    pub is_healthy: bool,
    pub phase: String,
    pub workflow_phase: Option<String>,
    /// With the number of each. Only kept for metrics.
    pub steps: Box<[(StepOutline, usize)]>,
}

impl StatusOutline {
    #[must_use]
    pub fn new(status: &ApplicationStatus, has_steps: bool) -> Self {
        let word = |text: &str| truncate(text, MAX_WORD_BYTES);
        let steps = status.workflow.as_ref().filter(|_| has_steps);
        Self {
            is_healthy: status.services.iter().all(|service| service.healthy),
            phase: word(&status.phase),
            workflow_phase: status.workflow.as_ref().map(|workflow| word(&workflow.phase)),
            steps: steps.map(step_counts).unwrap_or_default(),
        }
    }
}

#[derive(Debug)]
struct ApplicationContents {
    text: Compressed,
    _memory: Reservation,
}

impl_resource!([] CachedApplication, as Application, metadata_only: false, |this| &this.0.meta,
    &mut Arc::make_mut(&mut this.0).meta);

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("the Application in memory can't be decoded: {0}")]
    Compression(#[from] CompressionError),
    #[error("the Application in memory can't be decoded: {0}")]
    Json(#[from] serde_json::Error),
}

/// An Application as a pass needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedApplication {
    pub app: Application,
    /// The memory that it would take, if that is too much: then it has no spec, and can only be deleted.
    pub too_large: Option<u64>,
}

impl DecodedApplication {
    /// Leaves out a spec or a status that takes too much memory. Fails if the Application is invalid.
    pub fn of(raw: Raw<Application>) -> Result<Self, Box<InvalidObject>> {
        let bytes = parsed_bytes(raw.text());
        if bytes <= MAX_DECODED_BYTES {
            let app = raw.decode().0.map_err(Box::new)?;
            return Ok(Self { app, too_large: None });
        }
        let mut fields = raw.fields();
        fields.retain(|name, value| name != "spec" && parsed_bytes(value.get()) <= MAX_DECODED_BYTES);
        match decode_fields::<Application>(fields) {
            Ok(mut app) => {
                app.metadata = raw.metadata().clone();
                Ok(Self {
                    app,
                    too_large: Some(bytes),
                })
            }
            Err(error) => Err(Box::new(raw.invalid(error))),
        }
    }
}

impl CachedApplication {
    /// Converts an Application. `names` are the labels and annotations that are read without a pass.
    #[must_use]
    pub fn new(
        DecodedApplication { app, too_large }: &DecodedApplication,
        names: &[&str],
        has_steps: bool,
        budget: &Budget,
    ) -> Self {
        let text = serde_json::to_string(app).unwrap_or_default();
        let contents = Compressed::encode(Format::Zstd, text.as_bytes()).ok().and_then(|text| {
            let bytes = OBJECT_BYTES + text.data.len();
            let namespace = app.metadata.namespace.as_deref().unwrap_or_default();
            let _memory = budget.try_share(namespace, bytes as u64)?;
            Some(Arc::new(ApplicationContents { text, _memory }))
        });
        Self(Arc::new(Inner {
            meta: outline(&app.metadata, names),
            inputs: inputs(app),
            is_parsed: app.status.as_ref().is_some_and(is_parsed),
            status: app.status.as_ref().map(|status| StatusOutline::new(status, has_steps)),
            types: Types::of(&app.spec),
            decoded_bytes: PASS_COPIES * parsed_bytes(&text),
            too_large: *too_large,
            contents,
        }))
    }

    /// Returns true if another client has changed an input of a pass. The store holds our own writes.
    #[must_use]
    pub fn needs_pass(&self, old: &Self) -> bool {
        self.0.meta.uid != old.0.meta.uid || self.0.inputs != old.0.inputs
    }

    #[must_use]
    pub fn status(&self) -> Option<&StatusOutline> {
        self.0.status.as_ref()
    }

    /// Returns true if the Application has a revision, and the last pass could parse it.
    #[must_use]
    pub fn is_parsed(&self) -> bool {
        self.0.is_parsed
    }

    /// Returns true if the spec may use a definition, in any version.
    #[must_use]
    pub fn may_use(&self, kind: DefinitionKind, name: &str) -> bool {
        self.0.types.may_contain(kind, name)
    }

    /// A revision is named as `webservice@v2`. A spec that names too many does not keep all revisions of the cluster.
    #[must_use]
    pub fn may_use_revision(&self, kind: DefinitionKind, revision: &str) -> bool {
        self.0.types.may_contain_revision(kind, revision)
    }

    #[must_use]
    pub fn decoded_bytes(&self) -> u64 {
        self.0.decoded_bytes
    }

    /// Returns `None` if it is left out.
    pub fn unpack(&self) -> Result<Option<DecodedApplication>, UnpackError> {
        let Some(contents) = &self.0.contents else {
            return Ok(None);
        };
        let text = contents.text.decode(MAX_TEXT_BYTES)?;
        Ok(Some(DecodedApplication {
            app: serde_json::from_slice(&text)?,
            too_large: self.0.too_large,
        }))
    }
}

fn is_parsed(status: &ApplicationStatus) -> bool {
    let mut conditions = status.conditions.iter();
    let has_failed = conditions.any(|condition| condition.type_ == PARSED && condition.status == "False");
    status.latest_revision.is_some() && !has_failed
}

fn outline(meta: &ObjectMeta, names: &[&str]) -> ObjectMeta {
    let select = |map: &BTreeMap<String, String>| {
        map.iter()
            .filter(|(name, _)| names.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), truncate(value, MAX_VALUE_BYTES)))
            .collect()
    };
    ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        labels: meta.labels.as_ref().map(select),
        annotations: meta.annotations.as_ref().map(select),
        ..ObjectMeta::default()
    }
}

fn inputs(app: &Application) -> [u8; 32] {
    let meta = &app.metadata;
    let inputs = json!([
        meta.generation,
        meta.labels,
        meta.annotations,
        meta.deletion_timestamp.is_some(),
        meta.finalizers,
        app.status.as_ref().and_then(|status| status.workflow.as_ref()),
    ]);
    Sha256::digest(inputs.to_string().as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::Value;

    use super::*;
    use crate::api::oam::ApplicationSpec;

    fn app(change: impl FnOnce(&mut Value)) -> Application {
        let mut app = json!({
            "metadata": {
                "name": "shop", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 2,
                "labels": { "a": "b", "shard": "x" }, "annotations": { "large": "x".repeat(1000) },
            },
            "spec": {
                "components": [{ "name": "web", "type": "webservice@v2", "traits": [{ "type": "scaler" }],
                    "properties": { "image": "nginx", "text": "x".repeat(10_000) } }],
                "policies": [{ "name": "p", "type": "apply-once" }],
            },
            "status": { "status": "running", "latestRevision": { "name": "shop-v1", "revision": 1 } },
        });
        change(&mut app);
        serde_json::from_value(app).unwrap()
    }

    fn cached(app: &Application, limit: u64) -> CachedApplication {
        let decoded = DecodedApplication {
            app: app.clone(),
            too_large: None,
        };
        CachedApplication::new(&decoded, &["shard"], false, &Budget::new("test", limit))
    }

    #[test]
    fn an_application_that_takes_too_much_memory_has_no_spec_and_can_be_deleted() {
        let hostile = json!({ "list": vec![json!({ "a": 0 }); 100_000] });
        let large = app(|app| app["spec"]["components"][0]["properties"] = hostile);
        let decoded =
            DecodedApplication::of(serde_json::from_value(serde_json::to_value(large).unwrap()).unwrap()).unwrap();
        assert!(decoded.too_large.is_some_and(|bytes| bytes > 64 << 20));
        assert_eq!(decoded.app.spec, ApplicationSpec::default());
        assert!(decoded.app.status.as_ref().unwrap().latest_revision.is_some());
        let cached = CachedApplication::new(&decoded, &[], false, &Budget::new("test", 1 << 20));
        assert!(cached.decoded_bytes() < 1 << 20);
        assert_eq!(cached.unpack().unwrap(), Some(decoded));
    }

    #[test]
    fn a_cached_application_is_small_and_complete() {
        let original = app(|_| ());
        let cached = cached(&original, 1 << 20);
        let contents = cached.0.contents.as_ref().unwrap();
        assert!(contents.text.data.len() < 1000 && cached.decoded_bytes() > 10_000);
        assert_eq!(cached.unpack().unwrap().map(|decoded| decoded.app), Some(original));
        assert_eq!((cached.labels().len(), cached.annotations().len()), (1, 0));
        assert!(cached.is_parsed());
        assert!(cached.may_use(DefinitionKind::Component, "webservice"));
        assert!(cached.may_use_revision(DefinitionKind::Component, "webservice-v2"));
        assert!(cached.may_use(DefinitionKind::Trait, "scaler"));
        assert!(!cached.may_use(DefinitionKind::Trait, "webservice"));
        assert!(!cached.may_use_revision(DefinitionKind::Component, "webservice-v1"));
    }

    #[test]
    fn steps_are_kept_for_metrics_only() {
        let workflow = json!({ "steps": [{ "id": "a", "type": "deploy", "phase": "running" }] });
        let status: ApplicationStatus = serde_json::from_value(json!({ "workflow": workflow })).unwrap();
        assert_eq!(StatusOutline::new(&status, true).steps.len(), 1);
        assert!(StatusOutline::new(&status, false).steps.is_empty());
    }

    #[test]
    fn one_that_is_left_out_still_names_its_definitions() {
        let cached = cached(&app(|_| ()), 0);
        assert_eq!(cached.unpack().unwrap(), None);
        assert!(cached.may_use(DefinitionKind::Component, "webservice"));
        assert!(cached.may_use_revision(DefinitionKind::Component, "webservice-v2"));
        assert!(!cached.may_use(DefinitionKind::Component, "other"));
        assert!(cached.decoded_bytes() > 10_000);
    }

    #[test]
    fn values_that_are_kept_besides_the_contents_are_short() {
        let cached = cached(
            &app(|app| app["metadata"]["labels"]["shard"] = json!("x".repeat(9_999))),
            0,
        );
        assert!(cached.labels()["shard"].len() <= MAX_VALUE_BYTES);
    }

    #[test]
    fn changes_of_other_clients_need_a_pass_and_versions_do_not() {
        let before = cached(&app(|_| ()), 1 << 20);
        let needs_pass = |change: fn(&mut Value)| cached(&app(change), 0).needs_pass(&before);
        assert!(!needs_pass(|app| app["metadata"]["resourceVersion"] = json!("8")));
        assert!(!needs_pass(|app| app["status"]["status"] = json!("unhealthy")));
        for change in [
            (|app| app["metadata"]["generation"] = json!(3)) as fn(&mut Value),
            |app| app["metadata"]["uid"] = json!("other"),
            |app| app["metadata"]["annotations"]["large"] = json!("y"),
            |app| app["metadata"]["finalizers"] = json!(["x"]),
            |app| app["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            |app| app["status"]["workflow"] = json!({ "suspend": true }),
        ] {
            assert!(needs_pass(change));
        }
    }
}

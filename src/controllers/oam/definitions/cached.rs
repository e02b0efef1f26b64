//! Definitions in memory. Beyond the budget of a namespace they are left out, and read when they are needed.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{DeserializeGuard, ObjectMeta};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::kinds::{CachedKind, ChangedKind, shrink};
use crate::api::oam::LatestRevision;
use crate::api::oam::compression::{Compressed, Format};
use crate::api::raw::RawFields;
use crate::api::{Raw, impl_resource};
use crate::budget::{Budget, Budgets, Reservation, WorkError, parsed_bytes};
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::watch::{Cached, MAX_DECODED_BYTES, too_large};
use crate::text::truncate;

/// Memory of a definition besides its contents.
const OBJECT_BYTES: u64 = 1024;
/// Maximum memory of a definition that is kept decoded.
const SMALL_BYTES: u64 = 64 << 10;
/// Maximum size of a definition as JSON. The API server stores objects of up to 1.5 MiB.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// Owners that are kept, and the length of their UIDs. A revision has one owner, its definition.
const MAX_OWNERS: usize = 4;
const MAX_UID_BYTES: usize = 64;

#[derive(Clone, Debug)]
pub struct DefinitionBudgets {
    /// Of all namespaces but the definition namespace.
    pub tenants: Budget,
    /// Of the definition namespace.
    pub shared: Budget,
    pub definition_namespace: Arc<str>,
}

impl DefinitionBudgets {
    fn reserve(&self, namespace: &str, bytes: u64) -> Option<Arc<Reservation>> {
        let budget = if *namespace == *self.definition_namespace {
            &self.shared
        } else {
            &self.tenants
        };
        budget.try_share(namespace, bytes).map(Arc::new)
    }
}

/// A definition, Policy or Workflow with what events depend on. Clones share the contents.
#[derive(Clone, Debug)]
pub(super) struct CachedDefinition<D> {
    /// Names, version and owners.
    meta: ObjectMeta,
    outline: Arc<Outline>,
    decoded_bytes: u64,
    contents: DefinitionContents<D>,
}

#[derive(Clone, Debug)]
enum DefinitionContents<D> {
    Decoded(KeptInMemory<D>),
    Text(KeptInMemory<Compressed>),
    LeftOut,
}

#[derive(Clone, Debug)]
struct KeptInMemory<T> {
    value: Arc<T>,
    _memory: Arc<Reservation>,
}

#[derive(Debug)]
struct Outline {
    used_as: Option<(ChangedKind, String)>,
    latest_revision: LatestRevision,
    /// Digest of what Applications use.
    contents: [u8; 32],
    /// Digest of all but the version and the generation.
    whole: [u8; 32],
}

impl_resource!([D: CachedKind] CachedDefinition<D>, as D, metadata_only: false, |this| &this.meta, &mut this.meta);

impl<T> KeptInMemory<T> {
    fn new(value: T, memory: Arc<Reservation>) -> Self {
        Self {
            value: Arc::new(value),
            _memory: memory,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{kind} {namespace}/{name} {error}")]
    Invalid {
        kind: String,
        namespace: String,
        name: String,
        error: String,
    },
    #[error("failed to read {kind} {namespace}/{name}: {error}")]
    Api {
        kind: String,
        namespace: String,
        name: String,
        error: ApiError,
    },
    #[error(transparent)]
    Work(#[from] WorkError),
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RevisionFields {
    revision: i64,
    revision_hash: String,
    pub(super) definition_type: String,
}

impl<D: CachedKind> CachedDefinition<D> {
    pub(super) fn convert(raw: Raw<D>, budgets: &DefinitionBudgets) -> Cached<Self> {
        let mut meta = raw.metadata().clone();
        shrink(&mut meta);
        let namespace = meta.namespace.clone().unwrap_or_default();
        let fields = raw.fields();
        let metadata = serde_json::to_string(&meta).unwrap_or_default();
        let outline = Arc::new(Outline::of::<D>(&meta, &fields));
        let contents: u64 = fields.values().map(|value| parsed_bytes(value.get())).sum();
        let decoded_bytes = parsed_bytes(&metadata) + contents;
        let contents = if decoded_bytes <= SMALL_BYTES {
            match raw.decode().0 {
                Ok(object) => match budgets.reserve(&namespace, OBJECT_BYTES + decoded_bytes) {
                    Some(memory) => DefinitionContents::Decoded(KeptInMemory::new(shrunk(object), memory)),
                    None => DefinitionContents::LeftOut,
                },
                Err(invalid) => return DeserializeGuard(Err(invalid)).into(),
            }
        } else if decoded_bytes <= MAX_DECODED_BYTES {
            Self::pack(raw.text(), &namespace, budgets).unwrap_or(DefinitionContents::LeftOut)
        } else {
            DefinitionContents::LeftOut
        };
        Cached::Object(Arc::new(Self {
            meta: reduced(meta),
            outline,
            decoded_bytes,
            contents,
        }))
    }

    fn pack(text: &str, namespace: &str, budgets: &DefinitionBudgets) -> Option<DefinitionContents<D>> {
        let text = Compressed::encode(Format::Zstd, text.as_bytes()).ok()?;
        let memory = budgets.reserve(namespace, OBJECT_BYTES + text.data.len() as u64)?;
        Some(DefinitionContents::Text(KeptInMemory::new(text, memory)))
    }

    pub(super) fn used_as(&self) -> Option<&(ChangedKind, String)> {
        self.outline.used_as.as_ref()
    }

    pub(super) fn latest_revision(&self) -> &LatestRevision {
        &self.outline.latest_revision
    }

    pub(super) fn has_same_contents(&self, other: &Self) -> bool {
        self.outline.contents == other.outline.contents
    }

    /// Compares all but the version and the generation.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.meta.uid == other.meta.uid && self.outline.whole == other.outline.whole
    }

    pub(super) const fn decoded_bytes(&self) -> u64 {
        self.decoded_bytes
    }

    pub(super) const fn decoded(&self) -> Option<&Arc<D>> {
        match &self.contents {
            DefinitionContents::Decoded(object) => Some(&object.value),
            DefinitionContents::Text(_) | DefinitionContents::LeftOut => None,
        }
    }

    /// Decodes the object, and reads it before if it is left out; `None` if it is gone. The caller has reserved memory.
    pub(super) async fn load(&self, client: &Client, budgets: &Budgets) -> Result<Option<Arc<D>>, LoadError> {
        if self.decoded_bytes > MAX_DECODED_BYTES {
            return Err(self.invalid(too_large(self.decoded_bytes, MAX_DECODED_BYTES)));
        }
        let decoded = match &self.contents {
            DefinitionContents::Decoded(object) => return Ok(Some(Arc::clone(&object.value))),
            DefinitionContents::Text(text) => {
                let (text, namespace) = (Arc::clone(&text.value), self.namespace());
                budgets.compute(namespace, move || unpack::<D>(&text)).await?
            }
            DefinitionContents::LeftOut => match self.read(client).await? {
                Some(raw) if parsed_bytes(raw.text()) <= SMALL_BYTES => decode(raw),
                Some(raw) => budgets.compute(self.namespace(), move || decode(raw)).await?,
                None => return Ok(None),
            },
        };
        decoded
            .map(|object| Some(Arc::new(object)))
            .map_err(|error| self.invalid(error))
    }

    async fn read(&self, client: &Client) -> Result<Option<Raw<D>>, LoadError> {
        let api: Api<Raw<D>> = Api::namespaced(client.clone(), self.namespace());
        let raw = call(api.get_opt(self.name())).await.map_err(|error| LoadError::Api {
            kind: D::kind(&()).into_owned(),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
            error,
        })?;
        // The object may have grown.
        let bytes = raw.as_ref().map_or(0, |raw| parsed_bytes(raw.text()));
        if bytes > MAX_DECODED_BYTES.max(2 * self.decoded_bytes) {
            Err(self.invalid(too_large(bytes, MAX_DECODED_BYTES)))
        } else {
            Ok(raw)
        }
    }

    fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    fn invalid(&self, error: String) -> LoadError {
        LoadError::Invalid {
            kind: D::kind(&()).into_owned(),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
            error,
        }
    }
}

fn unpack<D: CachedKind>(text: &Compressed) -> Result<D, String> {
    let text = text.decode(MAX_TEXT_BYTES).map_err(|error| error.to_string())?;
    let raw = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    decode(raw)
}

fn decode<D: CachedKind>(raw: Raw<D>) -> Result<D, String> {
    raw.decode()
        .0
        .map(shrunk)
        .map_err(|invalid| format!("is invalid: {}", invalid.error))
}

fn shrunk<D: CachedKind>(mut object: D) -> D {
    object.shrink();
    object
}

fn reduced(meta: ObjectMeta) -> ObjectMeta {
    let owners = meta.owner_references.into_iter().flatten().take(MAX_OWNERS);
    let owners = owners.map(|owner| OwnerReference {
        uid: truncate(&owner.uid, MAX_UID_BYTES),
        ..OwnerReference::default()
    });
    ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        owner_references: Some(owners.collect()),
        ..ObjectMeta::default()
    }
}

impl Outline {
    fn of<D: CachedKind>(meta: &ObjectMeta, fields: &RawFields<'_>) -> Self {
        let spec = fields.get("spec").copied();
        let revision: RevisionFields = spec
            .and_then(|spec| serde_json::from_str(spec.get()).ok())
            .unwrap_or_default();
        // Lists lack kind and version of the API.
        let is_content = |name: &str| !matches!(name, "apiVersion" | "kind" | "status");
        let contents = fields.iter().filter(|(name, _)| is_content(name));
        let status = fields.get_key_value("status");
        let meta_text = serde_json::to_string(&ObjectMeta {
            resource_version: None,
            generation: None,
            ..meta.clone()
        });
        let whole = contents
            .clone()
            .chain(status)
            .map(|(name, value)| (name.as_str(), value.get()));
        let meta_text = meta_text.unwrap_or_default();
        Self {
            used_as: D::used_as(meta, &revision),
            contents: digest(contents.map(|(name, value): (&String, &&RawValue)| (name.as_str(), value.get()))),
            whole: digest(whole.chain([("metadata", meta_text.as_str())])),
            latest_revision: LatestRevision {
                name: meta.name.clone().unwrap_or_default(),
                revision: revision.revision,
                revision_hash: truncate(&revision.revision_hash, MAX_UID_BYTES),
            },
        }
    }
}

fn digest<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for (name, text) in fields {
        digest.update(format!("{name} {} ", text.len()));
        digest.update(text);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::oam::Policy;

    fn budgets(limit: u64) -> DefinitionBudgets {
        DefinitionBudgets {
            tenants: Budget::new("test", limit),
            shared: Budget::new("test", limit),
            definition_namespace: "system".into(),
        }
    }

    fn policy(namespace: &str, version: &str, properties: &Value) -> Raw<Policy> {
        let policy = json!({
            "metadata": { "name": "p", "namespace": namespace, "uid": "u", "resourceVersion": version,
                "managedFields": [{ "manager": "m" }] },
            "type": "topology", "properties": properties,
        });
        serde_json::from_str(&policy.to_string()).unwrap()
    }

    fn cached(namespace: &str, properties: &Value, budgets: &DefinitionBudgets) -> CachedDefinition<Policy> {
        let cached = CachedDefinition::convert(policy(namespace, "1", properties), budgets);
        CachedDefinition::clone(cached.object().unwrap())
    }

    fn large() -> Value {
        json!({ "list": vec![json!({ "a": 0 }); 1000] })
    }

    #[test]
    fn a_small_definition_is_kept_decoded_and_a_large_one_as_text() {
        let budgets = budgets(4 << 20);
        let small = cached("team", &json!({ "clusters": ["local"] }), &budgets);
        assert_eq!(small.decoded().unwrap().spec.type_, "topology");
        let large_one = cached("team", &large(), &budgets);
        assert!(large_one.decoded().is_none() && large_one.decoded_bytes() > 500 << 10);
        assert!(budgets.tenants.used() < 16 << 10, "{}", budgets.tenants.used());
        let DefinitionContents::Text(text) = &large_one.contents else {
            panic!("it is not kept")
        };
        let policy: Policy = unpack(&text.value).unwrap();
        assert_eq!(policy.spec.properties, Some(large()));
        assert_eq!(policy.metadata.managed_fields, None);
    }

    #[test]
    fn definitions_beyond_the_share_of_a_namespace_are_left_out_and_the_definition_namespace_has_its_own() {
        let budgets = budgets(20 << 10);
        let held: Vec<_> = (0..20)
            .map(|number| cached("greedy", &json!({ "a": number }), &budgets))
            .collect();
        let count = held.iter().filter(|one| one.decoded().is_some()).count();
        assert!((1..20).contains(&count), "{count}");
        assert!(cached("system", &json!({}), &budgets).decoded().is_some());
        assert!(cached("other", &json!({}), &budgets).decoded().is_some());
    }

    #[test]
    fn one_that_would_take_too_much_is_neither_kept_nor_decoded() {
        let budgets = budgets(64 << 20);
        let hostile = cached("team", &json!({ "list": vec![json!({ "a": 0 }); 100_000] }), &budgets);
        assert!(matches!(hostile.contents, DefinitionContents::LeftOut) && hostile.decoded_bytes() > 64 << 20);
        assert_eq!(budgets.tenants.used(), 0);
        assert_eq!(hostile.used_as(), Some(&(ChangedKind::Policy, "p".to_owned())));
    }

    #[test]
    fn changes_are_seen_without_the_contents() {
        let budgets = budgets(0);
        let before = cached("team", &large(), &budgets);
        let of = |change: fn(&mut Value)| {
            let mut object: Value = serde_json::from_str(policy("team", "2", &large()).text()).unwrap();
            change(&mut object);
            let raw = serde_json::from_str(&object.to_string()).unwrap();
            CachedDefinition::clone(CachedDefinition::<Policy>::convert(raw, &budgets).object().unwrap())
        };
        let same = of(|object| object["kind"] = json!("Policy"));
        assert!(before.is_same(&same) && before.has_same_contents(&same));
        let labeled = of(|object| object["metadata"]["labels"] = json!({ "a": "b" }));
        assert!(!before.is_same(&labeled) && before.has_same_contents(&labeled));
        let changed = of(|object| object["properties"]["list"][999]["a"] = json!(1));
        assert!(!before.is_same(&changed) && !before.has_same_contents(&changed));
    }
}

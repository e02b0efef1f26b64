//! The decision about one object: from its manifest, the live object and the policies alone.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::bookkeeping::{annotation, label, last_applied, remove_bookkeeping, set_annotation, with_bookkeeping};
use super::field_path::FieldPath;
use crate::api::oam::labels::{APP_NAME, APP_NAMESPACE, RENDER_HASH, SHARED_BY};
use crate::controllers::oam::policies::{ApplyOnceStage, Policies, PolicyTarget};
use crate::runtime::three_way;

/// Maximum number of finalizers in a manifest. Objects usually have at most three.
const MAX_FINALIZERS: usize = 100;

/// The fields that identify an object; empty if absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectIdentity<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl<'a> ObjectIdentity<'a> {
    #[must_use]
    pub fn of(object: &'a Value) -> Self {
        let text = |value: Option<&'a Value>| value.and_then(Value::as_str).unwrap_or_default();
        Self {
            api_version: text(object.get("apiVersion")),
            kind: text(object.get("kind")),
            namespace: text(object.pointer("/metadata/namespace")),
            name: text(object.pointer("/metadata/name")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A component is deployed: an object with the hash of the manifest is up to date.
    Dispatch,
    /// Its state is kept: fields that changed since are restored.
    StateKeep,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateMethod {
    #[default]
    Patch,
    Replace,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPolicy<'a> {
    pub is_read_only: bool,
    pub can_take_over: bool,
    pub is_shared: bool,
    /// `None` for the default of the process.
    pub update: Option<UpdateMethod>,
    /// Paths whose change needs a new object.
    pub recreate_fields: &'a [String],
    /// Paths whose live values win (apply-once); `*` for all of the object.
    pub live_fields: &'a [String],
}

impl<'a> ObjectPolicy<'a> {
    #[must_use]
    pub fn of(policies: &'a Policies, manifest: &Value, occasion: Occasion) -> Self {
        let target = PolicyTarget::of(manifest);
        let stage = match occasion {
            Occasion::Dispatch => ApplyOnceStage::Update,
            Occasion::StateKeep => ApplyOnceStage::StateKeep,
        };
        let update = policies.resource_update.strategy(&target);
        let apply_once = policies.apply_once.strategy(&target);
        let apply_once = apply_once.filter(|strategy| strategy.affects(stage));
        Self {
            is_read_only: policies.read_only.contains(&target),
            can_take_over: policies.take_over.contains(&target),
            is_shared: policies.shared_resource.contains(&target),
            update: update.map(|update| {
                if update.replaces() {
                    UpdateMethod::Replace
                } else {
                    UpdateMethod::Patch
                }
            }),
            recreate_fields: update.map_or(&[], |update| &update.recreate_fields),
            live_fields: apply_once.map_or(&[], |strategy| &strategy.paths),
        }
    }
}

impl ObjectPolicy<'_> {
    /// Returns true if an object that exists without an owner is neither created nor refused.
    #[must_use]
    pub fn concerns_existing(&self, settings: DispatchSettings) -> bool {
        self.is_read_only || self.is_shared || self.can_take_over || settings.can_take_over
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchSettings {
    /// Gate `ApplyResourceByReplace`.
    pub update: UpdateMethod,
    /// Gate `LegacyResourceOwnerValidation`: objects without an Application are taken over.
    pub can_take_over: bool,
}

#[derive(Clone, Debug)]
pub struct DispatchRequest<'a> {
    /// Namespace and name of the Application.
    pub application: (&'a str, &'a str),
    pub manifest: &'a Value,
    pub render_hash: &'a str,
    pub live: Option<&'a Value>,
    /// Manifests of this and earlier generations, from their trackers, the oldest first.
    pub recorded: &'a [Value],
    pub occasion: Occasion,
    pub policy: ObjectPolicy<'a>,
    /// A HorizontalPodAutoscaler sets `spec.replicas` of the live object.
    pub is_autoscaled: bool,
    pub settings: DispatchSettings,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DispatchDecision {
    Nothing,
    Create(Value),
    /// A JSON merge patch.
    Patch(Value),
    /// A JSON merge patch that adds the Application to the sharers of another Application's object.
    Share(Value),
    /// A merge patch of annotations and labels: live values that win (apply-once) are not recorded as applied.
    Record(Value),
    /// An update with the resource version of the live object.
    Replace(Value),
    /// Delete the object with this UID, and create another one once it is gone.
    Recreate {
        uid: String,
        object: Value,
    },
}

impl DispatchDecision {
    /// Returns true if the write may change replicas that an autoscaler sets.
    #[must_use]
    pub fn changes_replicas(&self) -> bool {
        match self {
            Self::Patch(body) | Self::Record(body) | Self::Replace(body) => body.pointer("/spec/replicas").is_some(),
            _ => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DispatchRefusal {
    #[error("{kind} has no name (generateName {generate_name:?}); set metadata.name, so that it can be found again")]
    NoName { kind: String, generate_name: String },
    #[error(
        "{kind} ({name}) is marked as read-only but does not exist. You should check the existence of the resource or remove \
         the read-only policy"
    )]
    ReadOnlyMissing { kind: String, name: String },
    #[error("{kind} {namespace}/{name} exists but not managed by any application now")]
    Unmanaged {
        kind: String,
        namespace: String,
        name: String,
    },
    #[error("existing object {kind} {namespace}/{name} is managed by other application {owner}")]
    OtherApplication {
        kind: String,
        namespace: String,
        name: String,
        owner: String,
    },
    #[error("application is controlled by {0} but is not sharable")]
    NotSharable(String),
    #[error("{kind} {name} has {count} finalizers, more than {MAX_FINALIZERS}")]
    TooManyFinalizers { kind: String, name: String, count: usize },
    #[error("failed to evaluate recreateFields: {0}")]
    RecreateFields(String),
    #[error("failed to evaluate apply-once: {0}")]
    LiveFields(String),
    #[error("cannot calculate patch by computing a three way diff: {0}")]
    Merge(#[from] three_way::ThreeWayError),
}

/// Fails if the object must not be written, for a reason that the user has to resolve.
pub fn decide(request: &DispatchRequest<'_>) -> Result<DispatchDecision, DispatchRefusal> {
    let ObjectIdentity { kind, name, .. } = ObjectIdentity::of(request.manifest);
    if name.is_empty() {
        let generate_name = request
            .manifest
            .pointer("/metadata/generateName")
            .and_then(Value::as_str);
        let generate_name = generate_name.unwrap_or_default().to_owned();
        return Err(DispatchRefusal::NoName {
            kind: kind.to_owned(),
            generate_name,
        });
    }
    let finalizers = request
        .manifest
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    if let Some(count) = finalizers.map(Vec::len).filter(|count| *count > MAX_FINALIZERS) {
        return Err(DispatchRefusal::TooManyFinalizers {
            kind: kind.to_owned(),
            name: name.to_owned(),
            count,
        });
    }
    match request.live {
        None if request.policy.is_read_only => Err(DispatchRefusal::ReadOnlyMissing {
            kind: kind.to_owned(),
            name: name.to_owned(),
        }),
        None => Ok(DispatchDecision::Create(request.object_to_create(""))),
        Some(_) if request.policy.is_read_only => Ok(DispatchDecision::Nothing),
        Some(live) => request.decide_existing(live),
    }
}

impl DispatchRequest<'_> {
    fn decide_existing(&self, live: &Value) -> Result<DispatchDecision, DispatchRefusal> {
        if self.is_sharer(live)? {
            return Ok(self.share(live));
        }
        let is_applied = label(live, RENDER_HASH) == Some(self.render_hash);
        let is_live_kept = self.policy.live_fields.iter().any(|path| path == "*");
        if is_live_kept {
            return Ok(DispatchDecision::Nothing);
        }
        let manifest = self.desired(live)?;
        if is_applied && self.occasion == Occasion::Dispatch {
            return self.record_live_fields(&manifest, live);
        }
        if self.must_recreate(&manifest, live)? {
            let uid = live
                .pointer("/metadata/uid")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            let sharers = annotation(live, SHARED_BY).unwrap_or_default();
            return Ok(DispatchDecision::Recreate {
                uid,
                object: self.object_to_create(sharers),
            });
        }
        let applied = self.applied(live);
        let applied: Vec<&Value> = applied.iter().collect();
        let change = three_way::patch(&applied, &manifest, live)?;
        if self.update_method() == UpdateMethod::Replace {
            let is_unchanged = change.is_none() && is_applied;
            return Ok(if is_unchanged {
                DispatchDecision::Nothing
            } else {
                DispatchDecision::Replace(self.replacement(&manifest, live))
            });
        }
        if change.is_none() {
            return self.record_live_fields(&manifest, live);
        }
        let object = with_bookkeeping(&manifest, self.render_hash, self.now);
        let patch = three_way::patch(&applied, &object, live)?;
        Ok(patch.map_or(DispatchDecision::Nothing, |patch| {
            DispatchDecision::Patch(patch.into_body(live))
        }))
    }

    /// Records live values that win as applied: KubeVela puts them into the manifest before it applies it.
    fn record_live_fields(&self, manifest: &Value, live: &Value) -> Result<DispatchDecision, DispatchRefusal> {
        let Some(recorded) = last_applied(live).filter(|_| !self.policy.live_fields.is_empty()) else {
            return Ok(DispatchDecision::Nothing);
        };
        let mut is_recorded = true;
        for path in self.policy.live_fields {
            let path = FieldPath::parse(path).map_err(DispatchRefusal::LiveFields)?;
            is_recorded &= path.get(&recorded) == path.get(manifest);
        }
        if is_recorded {
            return Ok(DispatchDecision::Nothing);
        }
        let object = with_bookkeeping(manifest, self.render_hash, self.now);
        let applied = self.applied(live);
        let applied: Vec<&Value> = applied.iter().collect();
        let patch = three_way::patch(&applied, &object, live)?;
        Ok(patch.map_or(DispatchDecision::Nothing, |patch| {
            DispatchDecision::Record(patch.into_body(live))
        }))
    }

    /// Checks the owner. Returns true if another Application owns the object and shares it.
    fn is_sharer(&self, live: &Value) -> Result<bool, DispatchRefusal> {
        let owner = match (label(live, APP_NAMESPACE), label(live, APP_NAME)) {
            (Some(namespace), Some(name)) if !namespace.is_empty() && !name.is_empty() => {
                Some(format!("{namespace}/{name}"))
            }
            _ => None,
        };
        let ObjectIdentity {
            kind, namespace, name, ..
        } = ObjectIdentity::of(live);
        let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        match owner {
            None if self.policy.can_take_over || self.settings.can_take_over => Ok(false),
            None => Err(DispatchRefusal::Unmanaged { kind, namespace, name }),
            Some(owner) if owner == self.key() => Ok(false),
            Some(owner) if !self.policy.is_shared => Err(DispatchRefusal::OtherApplication {
                kind,
                namespace,
                name,
                owner,
            }),
            Some(_) if annotation(live, SHARED_BY).is_some_and(|sharers| !sharers.is_empty()) => Ok(true),
            Some(owner) => Err(DispatchRefusal::NotSharable(owner)),
        }
    }

    fn key(&self) -> String {
        format!("{}/{}", self.application.0, self.application.1)
    }

    fn share(&self, live: &Value) -> DispatchDecision {
        let sharers = annotation(live, SHARED_BY).unwrap_or_default();
        let extended = self.sharers(sharers);
        if extended == sharers {
            return DispatchDecision::Nothing;
        }
        let version = live.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
        DispatchDecision::Share(json!({"metadata": {"resourceVersion": version, "annotations": {SHARED_BY: extended}}}))
    }

    /// Adds the Application to a list of sharers; the first one is the owner.
    fn sharers(&self, sharers: &str) -> String {
        let key = self.key();
        match sharers {
            "" => key,
            sharers if sharers.split(',').any(|sharer| sharer.trim() == key) => sharers.to_owned(),
            sharers => format!("{sharers},{key}"),
        }
    }

    fn object_to_create(&self, sharers: &str) -> Value {
        let mut manifest = self.manifest.clone();
        if self.policy.is_shared {
            set_annotation(&mut manifest, SHARED_BY, self.sharers(sharers));
        }
        with_bookkeeping(&manifest, self.render_hash, self.now)
    }

    /// Returns the manifest without the fields that others control.
    fn desired(&self, live: &Value) -> Result<Value, DispatchRefusal> {
        let mut manifest = self.manifest.clone();
        if self.is_autoscaled {
            remove_replicas(&mut manifest);
        }
        for path in self.policy.live_fields {
            let path = FieldPath::parse(path).map_err(DispatchRefusal::LiveFields)?;
            path.set(&mut manifest, path.get(live).cloned());
        }
        if self.policy.is_shared {
            set_annotation(
                &mut manifest,
                SHARED_BY,
                self.sharers(annotation(live, SHARED_BY).unwrap_or_default()),
            );
        }
        Ok(manifest)
    }

    /// Reads tracker and annotation. Each may lack a field, since an update without changes is not written.
    fn applied(&self, live: &Value) -> Vec<Value> {
        let recorded = self.recorded.iter().filter(|manifest| manifest.is_object()).cloned();
        let mut applied: Vec<Value> = recorded.chain(last_applied(live)).collect();
        for manifest in &mut applied {
            remove_bookkeeping(manifest);
            if self.is_autoscaled {
                remove_replicas(manifest);
            }
        }
        applied
    }

    fn must_recreate(&self, manifest: &Value, live: &Value) -> Result<bool, DispatchRefusal> {
        let mut differs = false;
        for text in self.policy.recreate_fields {
            let path = FieldPath::parse(text).map_err(DispatchRefusal::RecreateFields)?;
            let value = |object, side| {
                let missing = || format!("unable to get path {text} from {side} object: {text}: no such field");
                path.get(object)
                    .ok_or_else(|| DispatchRefusal::RecreateFields(missing()))
            };
            differs |= value(live, "existing")? != value(manifest, "desired")?;
        }
        Ok(differs)
    }

    fn update_method(&self) -> UpdateMethod {
        let ObjectIdentity { api_version, kind, .. } = ObjectIdentity::of(self.manifest);
        match self.policy.update.unwrap_or(self.settings.update) {
            // The API server has allocated addresses and ports, which an update must not lack.
            UpdateMethod::Replace if (api_version, kind) == ("v1", "Service") => UpdateMethod::Patch,
            method => method,
        }
    }

    /// Returns an update's body. Finalizers and owners of others stay, unless the manifest names its own.
    fn replacement(&self, manifest: &Value, live: &Value) -> Value {
        let mut object = with_bookkeeping(manifest, self.render_hash, self.now);
        if self.is_autoscaled
            && let Some(replicas) = live.pointer("/spec/replicas")
            && let Some(Value::Object(spec)) = object.get_mut("spec")
        {
            spec.insert("replicas".to_owned(), replicas.clone());
        }
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            for field in ["resourceVersion", "finalizers", "ownerReferences"] {
                if let Some(value) = live.get("metadata").and_then(|metadata| metadata.get(field)) {
                    metadata.entry(field).or_insert_with(|| value.clone());
                }
            }
        }
        object
    }
}

fn remove_replicas(manifest: &mut Value) {
    if let Some(Value::Object(spec)) = manifest.get_mut("spec") {
        spec.remove("replicas");
    }
}

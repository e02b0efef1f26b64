//! Changes to Applications before they are stored: the identity of the author, the shard, and names of steps.

use std::collections::BTreeMap;
use std::fmt::Display;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde::Deserialize;
use serde_json::{Value, json};

use super::identity::{RecordedIdentity, SERVICE_ACCOUNT_REFUSED, recorded_identity};
use super::settings::ApplicationWebhookSettings;
use super::shards::choose_shard;
use crate::api::lenient::null_as_default;
use crate::api::oam::labels::{GROUP_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION, SHARD_ID, USER_ANNOTATION};
use crate::controllers::oam::webhooks::review::{AdmissionRequest, Verdict};
use crate::runtime::watch::{MAX_DECODED_BYTES, too_large};

/// Labels or annotations. Null stands for an empty text.
type MetadataEntries = BTreeMap<String, Option<String>>;

/// The parts of an Application that are changed. The API server has not checked the others yet.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Outline {
    #[serde(deserialize_with = "null_as_default")]
    metadata: EntriesMetadata,
    #[serde(deserialize_with = "null_as_default")]
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EntriesMetadata {
    labels: Option<MetadataEntries>,
    annotations: Option<MetadataEntries>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    workflow: Option<Workflow>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Workflow {
    steps: Option<Vec<Option<Step>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Step {
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    sub_steps: Option<Vec<Option<SubStep>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SubStep {
    #[serde(deserialize_with = "null_as_default")]
    name: String,
}

/// The object before an update.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OldOutline {
    #[serde(deserialize_with = "null_as_default")]
    metadata: EntriesMetadata,
}

/// An Application to change.
#[derive(Debug)]
pub struct Mutation {
    object: Outline,
    old_shard: Option<String>,
}

impl Mutation {
    /// # Errors
    /// The verdict on an Application that can't be read.
    pub fn parse(request: &AdmissionRequest) -> Result<Self, Verdict> {
        let [bytes, old_bytes] = request.decoded_bytes();
        if bytes > MAX_DECODED_BYTES {
            return Err(invalid(too_large(bytes, MAX_DECODED_BYTES)));
        }
        // An old object may be larger than those that are reviewed. Nothing has reconciled it.
        let old: OldOutline = if request.has_old_object() && old_bytes <= MAX_DECODED_BYTES {
            request.old_object().map_err(invalid)?
        } else {
            OldOutline::default()
        };
        Ok(Self {
            object: request.object().map_err(invalid)?,
            old_shard: shard(&old.metadata).map(str::to_owned),
        })
    }

    /// Returns true if the Application belongs to no shard yet.
    #[must_use]
    pub fn needs_shard(&self) -> bool {
        self.old_shard.is_none() && shard(&self.object.metadata).is_none()
    }

    /// Returns the changes in the order of KubeVela. `ready_shard` is for an Application that needs one, if no shards
    /// are configured.
    #[must_use]
    pub fn verdict(
        &self,
        request: &AdmissionRequest,
        settings: &ApplicationWebhookSettings,
        ready_shard: Option<&str>,
    ) -> Verdict {
        let identity = match self.identity(request, settings) {
            Ok(identity) => identity,
            Err(message) => return Verdict::Invalid(message),
        };
        let mut patch = Vec::new();
        if let Some(identity) = identity {
            self.record_identity(&identity, &mut patch);
        }
        if let Some(shards) = settings.schedulable_shards()
            && shard(&self.object.metadata).is_none()
        {
            let chosen = || choose_shard(shards, &request.uid).or(ready_shard);
            if let Some(shard) = self.old_shard.as_deref().or_else(chosen) {
                let labels = self.object.metadata.labels.as_ref();
                set_entries("labels", labels, &[(SHARD_ID, shard)], &mut patch);
            }
        }
        self.name_steps(&mut patch);
        Verdict::Allowed {
            patch: Patch(patch),
            warnings: Vec::new(),
        }
    }

    fn identity(
        &self,
        request: &AdmissionRequest,
        settings: &ApplicationWebhookSettings,
    ) -> Result<Option<RecordedIdentity>, String> {
        // Writes of the controller would make it the author.
        if !settings.is_authenticated || settings.is_own_user(request.user()) {
            return Ok(None);
        }
        let annotations = self.object.metadata.annotations.as_ref();
        if annotations.is_some_and(|annotations| annotations.contains_key(SERVICE_ACCOUNT_ANNOTATION)) {
            return Err(SERVICE_ACCOUNT_REFUSED.to_owned());
        }
        let recorded = recorded_identity(&request.user_info, &settings.reviews);
        recorded.map(Some).map_err(|error| error.to_string())
    }

    fn record_identity(&self, identity: &RecordedIdentity, patch: &mut Vec<PatchOperation>) {
        let annotations = self.object.metadata.annotations.as_ref();
        let user = identity.user.as_deref().map(|user| (USER_ANNOTATION, user));
        let is_forged = annotations.is_some_and(|annotations| annotations.contains_key(USER_ANNOTATION));
        if user.is_none() && is_forged {
            let path = PointerBuf::from_tokens(["metadata", "annotations", USER_ANNOTATION]);
            patch.push(PatchOperation::Remove(RemoveOperation { path }));
        }
        let group = (GROUP_ANNOTATION, identity.groups.as_str());
        let entries: Vec<_> = user.into_iter().chain([group]).collect();
        set_entries("annotations", annotations, &entries, patch);
    }

    fn name_steps(&self, patch: &mut Vec<PatchOperation>) {
        let workflow = self.object.spec.workflow.as_ref();
        let steps = workflow.and_then(|workflow| workflow.steps.as_ref());
        for (index, step) in positions(steps) {
            let path = || steps_path().chain([index.to_string()]);
            if step.name.is_empty() {
                patch.push(add(path().chain(["name".to_owned()]), json!(format!("step-{index}"))));
            }
            for (sub_index, sub_step) in positions(step.sub_steps.as_ref()) {
                if sub_step.name.is_empty() {
                    let end = ["subSteps", &sub_index.to_string(), "name"].map(str::to_owned);
                    let name = format!("step-{index}-{sub_index}");
                    patch.push(add(path().chain(end), json!(name)));
                }
            }
        }
    }
}

fn invalid(error: impl Display) -> Verdict {
    Verdict::Invalid(format!("failed to decode: {error}"))
}

/// Returns the elements with their positions. The API server refuses null.
fn positions<T>(list: Option<&Vec<Option<T>>>) -> impl Iterator<Item = (usize, &T)> {
    let elements = list.into_iter().flatten().enumerate();
    elements.filter_map(|(index, element)| Some((index, element.as_ref()?)))
}

fn steps_path() -> impl Iterator<Item = String> {
    ["spec", "workflow", "steps"].into_iter().map(str::to_owned)
}

fn shard(metadata: &EntriesMetadata) -> Option<&str> {
    let shard = metadata.labels.as_ref()?.get(SHARD_ID)?.as_deref();
    shard.filter(|shard| !shard.is_empty())
}

/// Sets the entries of labels or annotations that have other values.
fn set_entries(
    field: &str,
    existing: Option<&MetadataEntries>,
    entries: &[(&str, &str)],
    patch: &mut Vec<PatchOperation>,
) {
    let path = ["metadata", field];
    let Some(existing) = existing else {
        let entries: BTreeMap<_, _> = entries.iter().copied().collect();
        patch.push(add(path, json!(entries)));
        return;
    };
    for (name, value) in entries {
        let is_set = existing.get(*name).is_some_and(|set| set.as_deref() == Some(value));
        if !is_set {
            patch.push(add(path.into_iter().chain([*name]), json!(value)));
        }
    }
}

/// Returns an operation that replaces a value that exists.
fn add<T: AsRef<str>>(path: impl IntoIterator<Item = T>, value: Value) -> PatchOperation {
    let mut pointer = PointerBuf::new();
    for token in path {
        pointer.push_back(token.as_ref());
    }
    PatchOperation::Add(AddOperation { path: pointer, value })
}

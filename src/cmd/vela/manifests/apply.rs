//! Applies objects of a file, as `kubectl apply` does on the client side.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{display, oam_kind};
use crate::api::NamespacedName;
use crate::api::oam::{Application, Policy, Workflow, labels};
use crate::cmd::vela::objects;
use crate::cmd::{Error, failed_to};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::three_way;

/// Attempts for a change, if others change the same object.
pub const MAX_ATTEMPTS: u32 = 5;
/// Larger manifests are not recorded in an annotation. The API server allows 256 KiB for all annotations.
const MAX_RECORDED: usize = 128 << 10;

pub fn changed_too_often(object: &str) -> Error {
    Error::Failed(format!("{object} is changed again and again by others; try again"))
}

/// An object of a file, without what the API server maintains.
pub struct ManifestObject {
    pub name: NamespacedName,
    pub is_application: bool,
    pub object: Value,
    api: ApiResource,
}

impl ManifestObject {
    pub fn new(mut object: Value, default_namespace: &str, flag: Option<&str>) -> Result<Self, Error> {
        let api = match oam_kind(&object) {
            Some("Application") => ApiResource::erase::<Application>(&()),
            Some("Policy") => ApiResource::erase::<Policy>(&()),
            Some("Workflow") => ApiResource::erase::<Workflow>(&()),
            _ => {
                return Err(Error::Failed(format!(
                    "{} is not an Application, Policy or Workflow of core.oam.dev; apply it with kubectl",
                    display(&object)
                )));
            }
        };
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (name, declared) = (text("name"), text("namespace"));
        if name.is_empty() {
            return Err(Error::Failed(format!("{} without metadata.name", api.kind)));
        }
        if flag.is_some_and(|flag| !declared.is_empty() && flag != declared) {
            return Err(Error::Usage(format!(
                "{} {name} is declared in namespace {declared}; omit -n or name that namespace",
                api.kind
            )));
        }
        let namespace = if declared.is_empty() {
            default_namespace
        } else {
            &declared
        };
        let name = NamespacedName::new(namespace, name);
        object["metadata"]["namespace"] = name.namespace.clone().into();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            let kept = ["name", "namespace", "labels", "annotations", "finalizers"];
            metadata.retain(|field, _| kept.contains(&field.as_str()));
        }
        Ok(Self {
            name,
            is_application: api.kind == "Application",
            api,
            object,
        })
    }

    /// Creates or changes the object. Fields that an earlier manifest had and this one lacks are removed.
    pub async fn apply(&self, client: &Client) -> Result<(&'static str, DynamicObject), Error> {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &self.name.namespace, &self.api);
        let failed = |error: ApiError| {
            if error.is_not_found() && error.message.contains("page not found") {
                objects::not_installed()
            } else {
                failed_to(format!("apply {} {}", self.api.kind, self.name))(error)
            }
        };
        let object = self.recorded();
        for _ in 0..MAX_ATTEMPTS {
            let Some(live) = call(api.get_opt(&self.name.name)).await.map_err(failed)? else {
                let created: DynamicObject = serde_json::from_value(object.clone())?;
                let parameters = PostParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                match call(api.create(&parameters, &created)).await {
                    Err(error) if error.is_conflict() => continue,
                    created => return Ok(("created", created.map_err(failed)?)),
                }
            };
            if live.metadata.deletion_timestamp.is_some() {
                return Err(Error::Failed(format!(
                    "{} {} is being deleted; wait until it is gone",
                    self.api.kind, self.name
                )));
            }
            let Some(patch) = self.patch(&object, &live)? else {
                return Ok(("unchanged", live));
            };
            match call(api.patch(&self.name.name, &patch_parameters(), &Patch::Merge(patch))).await {
                Err(error) if error.is_conflict() => {}
                written => return Ok(("changed", written.map_err(failed)?)),
            }
        }
        Err(changed_too_often(&format!("{} {}", self.api.kind, self.name)))
    }

    pub fn annotate(&mut self, name: &str, value: &str) {
        set_annotation(&mut self.object, name, value);
    }

    /// Returns the object as [`Self::apply`] would leave it.
    pub fn applied_to(&self, live: Option<&DynamicObject>) -> Result<Value, Error> {
        let object = self.recorded();
        let Some(live) = live else {
            return Ok(object);
        };
        let patch = self.patch(&object, live)?;
        let mut applied = serde_json::to_value(live)?;
        if let Some(patch) = patch {
            json_patch::merge(&mut applied, &patch);
        }
        Ok(applied)
    }

    fn recorded(&self) -> Value {
        let mut object = self.object.clone();
        let text = object.to_string();
        if text.len() <= MAX_RECORDED {
            set_annotation(&mut object, labels::LAST_APPLIED, &text);
        }
        object
    }

    /// Returns the patch for an object that exists, or `None` if nothing changes.
    fn patch(&self, object: &Value, live: &DynamicObject) -> Result<Option<Value>, Error> {
        let annotations = [labels::KUBECTL_LAST_APPLIED, labels::LAST_APPLIED];
        let texts = annotations.iter().filter_map(|name| live.annotations().get(*name));
        let mut applied: Vec<Value> = texts.filter_map(|text| serde_json::from_str(text).ok()).collect();
        // A version that an earlier command published would keep its own release.
        applied.push(json!({ "metadata": { "annotations": { labels::PUBLISH_VERSION: "" } } }));
        let applied: Vec<&Value> = applied.iter().collect();
        let live = serde_json::to_value(live)?;
        let mut object = object.clone();
        for field in ["labels", "annotations"] {
            // Without the field, those of others would be removed too.
            if live["metadata"][field].is_object() && !object["metadata"][field].is_object() {
                object["metadata"][field] = json!({});
            }
        }
        let patch = three_way::patch(&applied, &object, &live)?;
        Ok(patch.map(|patch| {
            let mut body = patch.into_body(&live);
            body["metadata"]["uid"] = live["metadata"]["uid"].clone();
            body
        }))
    }
}

fn set_annotation(object: &mut Value, name: &str, value: &str) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][name] = value.into();
}

pub fn patch_parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(object: Value) -> Result<ManifestObject, String> {
        let manifest = ManifestObject::new(object, "default", None);
        manifest.map_err(Error::into_message)
    }

    fn application(spec: &Value) -> Value {
        json!({ "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": { "name": "web" }, "spec": spec })
    }

    fn live(object: &Value) -> DynamicObject {
        serde_json::from_value(object.clone()).unwrap()
    }

    #[test]
    fn only_kinds_that_applications_consist_of_are_applied() {
        let error = manifest(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } }));
        assert!(error.err().unwrap().ends_with("apply it with kubectl"));
        let other = json!({ "apiVersion": "app.k8s.io/v1beta1", "kind": "Application", "metadata": { "name": "a" } });
        assert!(manifest(other).is_err());
        assert!(manifest(application(&json!({}))).unwrap().is_application);
    }

    #[test]
    fn fields_that_an_earlier_manifest_had_are_removed() {
        let earlier = application(&json!({ "components": [], "workflow": { "steps": [] } }));
        let mut existing = earlier.clone();
        set_annotation(&mut existing, labels::LAST_APPLIED, &earlier.to_string());
        set_annotation(&mut existing, "note", "of another manager");
        set_annotation(&mut existing, labels::PUBLISH_VERSION, "one");
        let manifest = manifest(application(&json!({ "components": [] }))).unwrap();
        let patch = manifest.patch(&manifest.object, &live(&existing)).unwrap().unwrap();
        assert_eq!(patch["spec"], json!({ "workflow": null }));
        let annotations = &patch["metadata"]["annotations"];
        assert!(annotations[labels::PUBLISH_VERSION].is_null() && annotations.get(labels::PUBLISH_VERSION).is_some());
        assert!(annotations.get("note").is_none(), "{patch}");
    }

    #[test]
    fn an_object_that_is_as_declared_is_not_written() {
        let manifest = manifest(application(
            &json!({ "components": [{ "name": "a", "type": "worker" }] }),
        ))
        .unwrap();
        let mut existing = manifest.object.clone();
        existing["metadata"]["finalizers"] = json!(["app.oam.dev/resource-tracker-finalizer"]);
        existing["status"] = json!({ "status": "running" });
        assert_eq!(manifest.patch(&manifest.object, &live(&existing)).unwrap(), None);
    }
}

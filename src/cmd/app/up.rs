use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::wait::{Expected, until_running};
use super::{Place, manifests, objects};
use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationRevision, ApplicationStatus, Policy, Workflow, labels};
use crate::cmd::flags::parse::positive_duration;
use crate::cmd::{Error, failed_to, output};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::revisions::expand;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::three_way;

/// Attempts for a change, if others change the same object.
const MAX_ATTEMPTS: u32 = 5;
/// Larger manifests are not recorded in an annotation. The API server allows 256 KiB for all annotations.
const MAX_RECORDED: usize = 128 << 10;

/// Deploy an Application: from a file, under a new version, or from a revision
#[derive(Args, Debug)]
pub struct Up {
    /// Name of an Application that exists
    #[arg(conflicts_with = "file")]
    name: Option<String>,
    /// File with Applications, Policies and Workflows; `-` for the standard input
    #[arg(long, short, value_name = "FILE", conflicts_with = "revision")]
    file: Option<PathBuf>,
    /// Version to publish; the release is then frozen (default with a name: the time)
    #[arg(long, value_name = "VERSION")]
    publish_version: Option<String>,
    /// Revision whose recorded spec is deployed, such as web-v3
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Wait until the Application runs; a failed condition ends the command with exit code 1
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, default_value = "10m")]
    timeout: Duration,
    #[command(flatten)]
    place: Place,
}

impl Up {
    pub(super) async fn execute(self) -> Result<(), Error> {
        if let Some(version) = &self.publish_version {
            check_version(version)?;
        }
        if self.file.is_none() && self.revision.is_none() && self.name.is_none() {
            return Err(Error::Usage(
                "name an Application, a file with --file, or a revision with --revision".to_owned(),
            ));
        }
        let documents = self.file.as_deref().map(manifests::read).transpose()?;
        let (client, namespace) = self.place.connect().await?;
        let deployed = match (documents, &self.revision, &self.name) {
            (Some(documents), _, _) => self.apply(&client, &namespace, documents).await?,
            (None, Some(revision), name) => {
                let revision = NamespacedName::new(namespace, revision);
                vec![self.restore(&client, &revision, name.as_deref()).await?]
            }
            (None, None, name) => {
                let name = NamespacedName::new(namespace, name.as_deref().unwrap_or_default());
                vec![self.publish(&client, &name).await?]
            }
        };
        for expected in deployed.iter().filter(|_| self.wait) {
            until_running(&client, expected, self.timeout).await?;
        }
        Ok(())
    }

    /// Applies the objects of a file.
    async fn apply(&self, client: &Client, namespace: &str, documents: Vec<Value>) -> Result<Vec<Expected>, Error> {
        let file = self.file.as_deref().unwrap_or(Path::new("")).display();
        let mut manifests = Vec::new();
        for document in documents {
            manifests.push(Manifest::new(document, namespace, self.place.namespace.as_deref())?);
        }
        if manifests.is_empty() {
            return Err(Error::Failed(format!("{file} contains no objects")));
        }
        // Applications refer to the others.
        manifests.sort_by_key(|manifest| manifest.is_application);
        let mut deployed = Vec::new();
        for mut manifest in manifests {
            if let (true, Some(version)) = (manifest.is_application, &self.publish_version) {
                set_annotation(&mut manifest.object, labels::PUBLISH_VERSION, version);
            }
            let (result, object) = manifest.apply(client).await?;
            output::print(&format!("{}: {result}\n", manifests::display(&manifest.object)))?;
            if manifest.is_application {
                deployed.push(expected(&manifest.name, &object, result != "unchanged"));
            }
        }
        Ok(deployed)
    }

    /// Publishes an Application as it is under a new version.
    async fn publish(&self, client: &Client, name: &NamespacedName) -> Result<Expected, Error> {
        let application = objects::application(client, name).await?;
        let version = self.publish_version.clone();
        let version = version.unwrap_or_else(|| Timestamp::now().strftime("up-%Y%m%d%H%M%S").to_string());
        let current = application.annotations().get(labels::PUBLISH_VERSION);
        if current == Some(&version) {
            return Err(Error::Failed(format!(
                "{name} publishes version {version} already; choose another one with --publish-version"
            )));
        }
        let patch = json!({ "metadata": {
            "uid": application.uid(),
            "annotations": { labels::PUBLISH_VERSION: version },
        } });
        let applications: Api<DynamicObject> = api::<Application>(client, &name.namespace);
        let written = call(applications.patch(&name.name, &patch_parameters(), &Patch::Merge(patch))).await;
        let written = written.map_err(|error| objects::application_error(name, "publish", error))?;
        output::print(&format!("{name}: published as {version}\n"))?;
        Ok(expected(name, &written, true))
    }

    /// Deploys the spec that a revision records.
    async fn restore(
        &self,
        client: &Client,
        revision_name: &NamespacedName,
        application: Option<&str>,
    ) -> Result<Expected, Error> {
        let revision = revision(client, revision_name).await?;
        let owner = revision.labels().get(labels::APP_NAME).cloned().unwrap_or_default();
        let name = NamespacedName::new(&revision_name.namespace, application.unwrap_or(&owner));
        if owner != name.name {
            return Err(Error::Failed(format!(
                "{} is a revision of Application {owner}, not of {}",
                revision_name.name, name.name
            )));
        }
        let contents = expand(&revision.spec).map_err(failed_to(format!("read revision {revision_name}")))?;
        let spec = serde_json::to_value(&contents.application.spec)?;
        let recorded = revision.annotations().get(labels::PUBLISH_VERSION);
        let version = self.publish_version.as_ref().or(recorded);
        let applications = api::<Application>(client, &name.namespace);
        let change = |live: &mut DynamicObject| {
            live.data["spec"] = spec.clone();
            match version {
                Some(version) => {
                    let version = version.clone();
                    live.annotations_mut()
                        .insert(labels::PUBLISH_VERSION.to_owned(), version);
                }
                // A version that stays would keep its own release.
                None => drop(live.annotations_mut().remove(labels::PUBLISH_VERSION)),
            }
        };
        let written = replace(&applications, &name, change).await?;
        output::print(&format!("{name}: deployed from revision {}\n", revision_name.name))?;
        Ok(expected(&name, &written, true))
    }
}

async fn revision(client: &Client, name: &NamespacedName) -> Result<ApplicationRevision, Error> {
    let revisions: Api<ApplicationRevision> = Api::namespaced(client.clone(), &name.namespace);
    let found = call(revisions.get_opt(&name.name)).await;
    found
        .map_err(failed_to(format!("read revision {name}")))?
        .ok_or_else(|| {
            Error::Failed(format!(
                "revision {name} not found; `portolan app history APPLICATION` lists those that are kept"
            ))
        })
}

/// Changes an Application in the version in which it was read, again if it changed meanwhile.
async fn replace(
    applications: &Api<DynamicObject>,
    name: &NamespacedName,
    change: impl Fn(&mut DynamicObject),
) -> Result<DynamicObject, Error> {
    let failed = |error| objects::application_error(name, "change", error);
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    for _ in 0..MAX_ATTEMPTS {
        let mut live = call(applications.get(&name.name)).await.map_err(failed)?;
        change(&mut live);
        match call(applications.replace(&name.name, &parameters, &live)).await {
            Err(error) if error.is_conflict() => {}
            written => return written.map_err(failed),
        }
    }
    Err(changed_too_often(&format!("Application {name}")))
}

fn changed_too_often(object: &str) -> Error {
    Error::Failed(format!("{object} is changed again and again by others; try again"))
}

/// An object of a file, without what the API server maintains.
struct Manifest {
    name: NamespacedName,
    api: ApiResource,
    is_application: bool,
    object: Value,
}

impl Manifest {
    fn new(mut object: Value, default_namespace: &str, flag: Option<&str>) -> Result<Self, Error> {
        let api = match manifests::oam_kind(&object) {
            Some("Application") => ApiResource::erase::<Application>(&()),
            Some("Policy") => ApiResource::erase::<Policy>(&()),
            Some("Workflow") => ApiResource::erase::<Workflow>(&()),
            _ => {
                return Err(Error::Failed(format!(
                    "{} is not an Application, Policy or Workflow of core.oam.dev; apply it with kubectl",
                    manifests::display(&object)
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
    async fn apply(&self, client: &Client) -> Result<(&'static str, DynamicObject), Error> {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &self.name.namespace, &self.api);
        let failed = |error: ApiError| match error.is_not_found() && error.message.contains("page not found") {
            true => objects::not_installed(),
            false => failed_to(format!("apply {} {}", self.api.kind, self.name))(error),
        };
        let mut object = self.object.clone();
        let text = object.to_string();
        if text.len() <= MAX_RECORDED {
            set_annotation(&mut object, labels::LAST_APPLIED, &text);
        }
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

fn patch_parameters() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn api<K: kube::Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()))
}

/// Returns the state to wait for after a write. Without a change, a failure of before counts too.
fn expected(name: &NamespacedName, written: &DynamicObject, is_changed: bool) -> Expected {
    let status: ApplicationStatus = serde_json::from_value(written.data["status"].clone()).unwrap_or_default();
    let version = written.annotations().get(labels::PUBLISH_VERSION);
    Expected {
        name: name.clone(),
        generation: written.metadata.generation.unwrap_or_default(),
        publish_version: version.filter(|version| !version.is_empty()).cloned(),
        conditions_before: if is_changed { status.conditions } else { Vec::new() },
    }
}

/// Checks that names of ResourceTrackers may contain a version.
fn check_version(version: &str) -> Result<(), Error> {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let ends = [version.bytes().next(), version.bytes().last()];
    let has_ends = ends.iter().flatten().all(u8::is_ascii_alphanumeric);
    match !version.is_empty() && version.len() <= 63 && version.bytes().all(is_name) && has_ends {
        true => Ok(()),
        false => Err(Error::Usage(
            "invalid value for --publish-version: use at most 63 lower case letters, digits, dots and dashes"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(object: Value) -> Result<Manifest, String> {
        let manifest = Manifest::new(object, "default", None);
        manifest.map_err(|(Error::Usage(message) | Error::Failed(message))| message)
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

    #[test]
    fn versions_are_names() {
        for valid in ["a", "v1.2", "up-20260101000000"] {
            assert!(check_version(valid).is_ok(), "{valid}");
        }
        for invalid in ["", "A", "a b", "-a", "a.", "a/b", &"a".repeat(64)] {
            assert!(check_version(invalid).is_err(), "{invalid}");
        }
    }
}

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use super::render::definition_set::DefinitionSet;
use super::render::{self, EvaluatorFlags, Renderer, cluster_version, declared, parse_supported};
use super::{DefinitionNamespace, Place, manifests, objects};
use crate::api::oam::{Application, LatestRevision, labels};
use crate::cmd::flags::non_empty;
use crate::cmd::{Error, failed_to, output};
use crate::controllers::oam::objects::{ObjectId, Objects};
use crate::controllers::oam::revisions::names::revision_name;
use crate::controllers::oam::trackers::{Inventory, ResourceKey, display_name};
use crate::runtime::kube_client::call;
use crate::runtime::three_way;
use crate::text::{sanitize, truncate};

/// The maximum length of a value, in bytes.
const MAX_VALUE: usize = 120;
/// Maximum number of lines for one object.
const MAX_LINES: usize = 200;
/// The period of watches, of which there are none here.
const NO_RESYNC: Duration = Duration::from_secs(3600);

/// Compare the objects of Applications in a file with the cluster
///
/// Shows the objects that are created, changed and removed when the file is deployed. The labels with the revision are
/// compared as if there were no new one. Values of Secrets are not shown.
#[derive(Args, Debug)]
pub struct Diff {
    /// File with Applications; `-` for the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    evaluator: EvaluatorFlags,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    place: Place,
}

/// The difference of one object.
#[derive(Debug, PartialEq)]
enum Difference {
    Create,
    Unchanged,
    /// Lines with the changed paths.
    Change(Vec<String>),
    /// The object belongs to another Application, or to none.
    Blocked(String),
}

impl Diff {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let documents = manifests::read(&self.file)?;
        let (client, namespace) = self.place.connect().await?;
        let is_application = |document: &Value| manifests::oam_kind(document) == Some("Application");
        let applications: Result<Vec<_>, _> = documents
            .into_iter()
            .filter(is_application)
            .map(|document| declared(document, &namespace))
            .collect();
        let applications = applications?;
        if applications.is_empty() {
            return Err(Error::Failed(format!(
                "{} contains no Application of core.oam.dev",
                self.file.display()
            )));
        }
        let evaluator = self.evaluator.evaluator();
        let version = live_version(&client).await?;
        let shared = non_empty(Some(&self.definitions.system_definition_namespace)).unwrap_or_default();
        let live_objects = Objects::new(client.clone(), NO_RESYNC, |_| {});
        // Discovers kinds. Dropping the set ends the task.
        let mut discovery = JoinSet::new();
        discovery.spawn(live_objects.clone().run());
        for application in &applications {
            let target = Target::read(&client, application).await?;
            let namespace = application.namespace().unwrap_or_default();
            let definitions = DefinitionSet::of_cluster(&client, [&namespace, shared]).await?;
            let parsed = parse_supported(application, &definitions, shared)?;
            let renderer = Renderer::new(&evaluator, &version, application, target.revision.clone(), &parsed);
            let rendered = render::objects(&renderer, &parsed).await?;
            target.print(&live_objects, application, rendered).await?;
        }
        Ok(())
    }
}

async fn live_version(client: &Client) -> Result<Value, Error> {
    let version = call(client.apiserver_version()).await;
    let version = version.map_err(failed_to("read the version of the cluster"))?;
    let digits: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
    let minor = digits.parse().unwrap_or_default();
    Ok(cluster_version(&version.major, minor, &version.git_version))
}

/// The Application in the cluster, if it exists.
struct Target {
    live: Option<Application>,
    inventory: Inventory,
    revision: LatestRevision,
}

impl Target {
    async fn read(client: &Client, application: &Application) -> Result<Self, Error> {
        let name = objects::identity(application).name;
        let applications: Api<Application> = Api::namespaced(client.clone(), &name.namespace);
        let live = call(applications.get_opt(&name.name)).await;
        let live = live.map_err(|error| objects::application_error(&name, "read", error))?;
        let inventory = match &live {
            Some(live) => objects::inventory(client, live).await?,
            None => Inventory::default(),
        };
        let status = live.as_ref().and_then(|live| live.status.clone()).unwrap_or_default();
        let latest = status.latest_revision.filter(|latest| !latest.name.is_empty());
        let first = || LatestRevision {
            name: revision_name(&name.name, 1),
            revision: 1,
            revision_hash: String::new(),
        };
        Ok(Self {
            revision: latest.unwrap_or_else(first),
            live,
            inventory,
        })
    }

    async fn print(
        &self,
        live_objects: &Objects,
        application: &Application,
        rendered: Vec<Value>,
    ) -> Result<(), Error> {
        let mut wanted = HashSet::new();
        for mut manifest in rendered {
            let mut id = ObjectId::of(&manifest);
            // A kind that is not installed is created by the Application itself, or fails when it is applied.
            let is_namespaced = live_objects.is_namespaced(&id).await;
            if let Ok(false) = is_namespaced {
                id.namespace.clear();
                if let Some(metadata) = manifest["metadata"].as_object_mut() {
                    metadata.remove("namespace");
                }
            }
            self.pass_annotations(&mut manifest);
            let display = manifests::display(&manifest);
            let difference = match is_namespaced {
                Err(error) => Difference::Blocked(error.to_string()),
                Ok(_) => match live_objects.read(&id).await {
                    Ok(live) => self.difference(application, &manifest, live.as_ref())?,
                    Err(error) => Difference::Blocked(error.to_string()),
                },
            };
            wanted.insert(key(&id));
            output::print(&difference.text(&display))?;
        }
        let current = self.inventory.current.iter().chain(&self.inventory.root);
        let history = self
            .inventory
            .history
            .last()
            .filter(|_| self.inventory.current.is_none());
        let entries = current.chain(history).flat_map(|tracker| &tracker.entries);
        let removed =
            entries.filter(|entry| !entry.deleted && !entry.skip_gc && !wanted.contains(&ResourceKey::of(entry)));
        let removed: Vec<String> = removed
            .map(|entry| format!("remove    {}", display_name(entry)))
            .collect();
        output::print(&output::section("", removed))
    }

    /// Adds the version that the controller has noted on the Application. Objects get it too.
    fn pass_annotations(&self, manifest: &mut Value) {
        let annotations = self.live.as_ref().map(ResourceExt::annotations);
        let version = annotations.and_then(|annotations| annotations.get(labels::KUBEVELA_VERSION));
        if let (Some(version), Some(passed)) = (version, manifest["metadata"]["annotations"].as_object_mut()) {
            passed.insert(labels::KUBEVELA_VERSION.to_owned(), version.clone().into());
        }
    }

    fn difference(
        &self,
        application: &Application,
        manifest: &Value,
        live: Option<&Value>,
    ) -> Result<Difference, Error> {
        let Some(live) = live else {
            return Ok(Difference::Create);
        };
        let label = |name: &str| live["metadata"]["labels"][name].as_str().unwrap_or_default();
        let (owner, namespace) = (label(labels::APP_NAME), label(labels::APP_NAMESPACE));
        let is_ours = owner == application.name_any() && Some(namespace) == application.namespace().as_deref();
        if !is_ours && owner.is_empty() {
            return Ok(Difference::Blocked(
                "exists but is not managed by any Application; a take-over policy adopts it".to_owned(),
            ));
        }
        if !is_ours {
            return Ok(Difference::Blocked(format!(
                "managed by Application {namespace}/{owner}"
            )));
        }
        let key = key(&ObjectId::of(manifest));
        let mut entries = self.inventory.in_order().flat_map(|tracker| &tracker.entries);
        let recorded = entries.rfind(|entry| ResourceKey::of(entry) == key);
        let recorded = recorded.and_then(|entry| entry.raw.as_ref()?.parse().ok());
        let applied: Vec<&Value> = recorded.iter().collect();
        let Some(patch) = three_way::patch(&applied, manifest, live)? else {
            return Ok(Difference::Unchanged);
        };
        let body = patch.into_body(&Value::Null);
        let mut lines = Lines {
            has_values: !manifests::is_secret(manifest),
            lines: Vec::new(),
        };
        lines.patch("", &body, live);
        Ok(Difference::Change(lines.lines))
    }
}

fn key(id: &ObjectId) -> ResourceKey {
    ResourceKey {
        group: id.group_kind().group.to_string(),
        kind: id.kind.clone(),
        cluster: crate::controllers::oam::trackers::LOCAL.to_owned(),
        namespace: id.namespace.clone(),
        name: id.name.clone(),
    }
}

impl Difference {
    fn text(&self, display: &str) -> String {
        let (word, details) = match self {
            Self::Create => ("create", String::new()),
            Self::Unchanged => ("unchanged", String::new()),
            Self::Change(_) => ("change", String::new()),
            Self::Blocked(reason) => ("blocked", format!(": {reason}")),
        };
        let mut text = sanitize(&format!("{word:<9} {display}{details}")) + "\n";
        if let Self::Change(lines) = self {
            for line in lines.iter().take(MAX_LINES) {
                text.push_str(&format!("  {}\n", sanitize(line)));
            }
            if lines.len() > MAX_LINES {
                text.push_str(&format!("  … and {} more\n", lines.len() - MAX_LINES));
            }
        }
        text
    }
}

/// The changed paths of an object, with old and new values.
struct Lines {
    has_values: bool,
    lines: Vec<String>,
}

impl Lines {
    /// Adds the changes of a merge patch.
    fn patch(&mut self, path: &str, patch: &Value, live: &Value) {
        let fields = patch.as_object().into_iter().flatten();
        for (name, new) in fields {
            let path = child(path, name);
            let old = live.get(name).filter(|old| !old.is_null());
            match (new, old) {
                (Value::Null, old) => self.compare(&path, old, None),
                (Value::Object(_), Some(old @ Value::Object(_))) => self.patch(&path, new, old),
                (new, old) => self.compare(&path, old, Some(new)),
            }
        }
    }

    fn compare(&mut self, path: &str, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (old, new) if old == new => {}
            (Some(Value::Array(old)), Some(Value::Array(new))) if old.len() == new.len() => {
                for (index, (old, new)) in old.iter().zip(new).enumerate() {
                    self.compare(&format!("{path}[{index}]"), Some(old), Some(new));
                }
            }
            (Some(Value::Object(old)), Some(Value::Object(new))) => self.compare_fields(path, old, new),
            (old, new) => {
                self.add('-', path, old);
                self.add('+', path, new);
            }
        }
    }

    fn compare_fields(&mut self, path: &str, old: &Map<String, Value>, new: &Map<String, Value>) {
        for (name, value) in old {
            self.compare(&child(path, name), Some(value), new.get(name));
        }
        for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
            self.compare(&child(path, name), None, Some(value));
        }
    }

    fn add(&mut self, sign: char, path: &str, value: Option<&Value>) {
        match value {
            None => {}
            Some(value) if self.has_values => {
                let value = truncate(&value.to_string(), MAX_VALUE);
                self.lines.push(format!("{sign} {path}: {value}"));
            }
            // An object of values names its keys.
            Some(Value::Object(fields)) => {
                let keys = fields.keys().map(|name| format!("{sign} {}", child(path, name)));
                self.lines.extend(keys);
            }
            Some(_) => self.lines.push(format!("{sign} {path}")),
        }
    }
}

fn child(path: &str, name: &str) -> String {
    match (path, name.contains(['.', '/'])) {
        ("", _) => name.to_owned(),
        (path, true) => format!("{path}[{name:?}]"),
        (path, false) => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(has_values: bool, patch: &Value, live: &Value) -> Vec<String> {
        let mut lines = Lines {
            has_values,
            lines: Vec::new(),
        };
        lines.patch("", patch, live);
        lines.lines
    }

    #[test]
    fn changed_paths_have_their_old_and_new_values() {
        let live = json!({
            "metadata": { "labels": { "a/b": "1" } },
            "spec": { "replicas": 1, "containers": [{ "name": "web", "image": "nginx:1" }], "paused": true },
        });
        let patch = json!({
            "metadata": { "labels": { "a/b": "2" } },
            "spec": { "replicas": 2, "containers": [{ "name": "web", "image": "nginx:2" }], "paused": null },
        });
        let lines = lines(true, &patch, &live);
        for expected in [
            "- metadata.labels[\"a/b\"]: \"1\"",
            "+ metadata.labels[\"a/b\"]: \"2\"",
            "- spec.replicas: 1",
            "+ spec.replicas: 2",
            "- spec.containers[0].image: \"nginx:1\"",
            "+ spec.containers[0].image: \"nginx:2\"",
            "- spec.paused: true",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
        }
        assert_eq!(lines.len(), 7);
    }

    #[test]
    fn of_secrets_only_keys_are_shown() {
        let live = json!({ "data": { "old": "aHVzaA==", "same": "aHVzaA==" } });
        let patch = json!({ "data": { "old": null, "new": "aHVzaA==" }, "stringData": { "token": "hush" } });
        let lines = lines(false, &patch, &live);
        assert_eq!(lines, ["+ data.new", "- data.old", "+ stringData.token"]);
    }
}

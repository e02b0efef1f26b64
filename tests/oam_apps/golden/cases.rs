//! The recorded cases.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::setup;
use super::normalize;

/// Policies that part of the controller does not support yet.
const UNSUPPORTED_POLICIES: [&str; 3] = ["topology", "override", "replication"];
const MAX_NAMESPACE: usize = 63;

pub struct Case {
    pub name: String,
    pub namespace: String,
    /// The documents that are applied.
    pub documents: Vec<Value>,
    /// The files of the record.
    pub files: Value,
    /// The record, normalized.
    pub expected: Value,
}

impl Case {
    /// Loads all cases of a directory.
    pub fn load_all(directory: &Path) -> Vec<Self> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut cases: Vec<_> = entries
            .filter(|path| path.join("input.yaml").exists())
            .map(|path| Self::load(&path))
            .collect();
        cases.sort_by(|one, other| one.name.cmp(&other.name));
        cases
    }

    fn load(path: &Path) -> Self {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let namespace: String = format!("v-{name}").chars().take(MAX_NAMESPACE).collect();
        let mut documents = documents(&path.join("input.yaml"));
        for document in &mut documents {
            document["metadata"]["namespace"] = namespace.as_str().into();
        }
        let expected = path.join("expected");
        let json = |name: &str| -> Value {
            let text = fs::read(expected.join(name));
            text.map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap())
        };
        let files = json!({
            "application": json("application.json"),
            "revisions": json("revisions.json"),
            "trackers": json("trackers.json"),
            "events": json("events.json"),
            "objects": self::documents(&expected.join("objects.yaml")),
            "missing": json("missing.json"),
        });
        Self {
            expected: normalize::record(&files),
            name,
            namespace,
            documents,
            files,
        }
    }

    /// Returns the declared Applications.
    pub fn apps(&self) -> impl Iterator<Item = &Value> {
        self.documents
            .iter()
            .filter(|document| document["kind"] == "Application")
    }

    /// Returns true if all generated steps are apply-component.
    pub fn is_supported(&self) -> bool {
        self.apps().all(|app| {
            let policies = app["spec"]["policies"].as_array().into_iter().flatten();
            let mut types = policies.filter_map(|policy| policy["type"].as_str());
            let mut components = app["spec"]["components"].as_array().into_iter().flatten();
            let identity = &app["metadata"]["annotations"]["app.oam.dev/service-account-name"];
            app["spec"]["workflow"].is_null()
                && identity.is_null()
                && !types.any(|type_| UNSUPPORTED_POLICIES.contains(&type_))
                && !components.any(|component| component["type"] == "ref-objects")
        })
    }

    /// Returns the record of an untouched case: the declared objects, and labels of the Applications.
    pub fn untouched(&self, labels: &Value) -> Value {
        let is_app = |document: &&Value| document["kind"] == "Application";
        let objects: Vec<_> = self.documents.iter().filter(|document| !is_app(document)).collect();
        let per_app = |value: &dyn Fn(&Value) -> Value| -> Value {
            let apps = self.apps().map(|app| (setup::name(app).to_owned(), value(app)));
            apps.collect::<Map<_, _>>().into()
        };
        let declared =
            |app: &Value| json!({ "status": {}, "labels": labels, "annotations": app["metadata"]["annotations"] });
        normalize::record(&json!({
            "application": per_app(&declared), "revisions": per_app(&|_| json!([])),
            "trackers": [], "events": [], "objects": objects,
        }))
    }
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let documents = serde_yaml::Deserializer::from_str(&text);
    let documents = documents.map(|document| Value::deserialize(document).unwrap());
    documents.filter(|document| !document.is_null()).collect()
}

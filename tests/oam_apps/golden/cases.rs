//! The recorded cases.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::normalize;

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
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let documents = serde_yaml::Deserializer::from_str(&text);
    let documents = documents.map(|document| Value::deserialize(document).unwrap());
    documents.filter(|document| !document.is_null()).collect()
}

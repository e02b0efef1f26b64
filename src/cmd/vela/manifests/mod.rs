//! Reads manifests from files, and prints objects as YAML.

mod apply;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::api::oam::GROUP;
use crate::cmd::{Error, failed_to};
use crate::runtime::manifests::document;
use crate::text::printable;
pub use apply::{MAX_ATTEMPTS, ManifestObject, changed_too_often, patch_parameters};

/// Maximum size of one file. The API server accepts objects of 1.5 MiB.
const MAX_FILE: u64 = 8 << 20;
const MAX_FILES: usize = 2_000;
const STDIN: &str = "-";

/// Reads the objects of a file in YAML or JSON with any number of documents; `-` is the standard input.
pub fn read(path: &Path) -> Result<Vec<Value>, Error> {
    let failed = || failed_to::<io::Error>(format!("read {}", path.display()));
    let mut content = Vec::new();
    if path.as_os_str() == STDIN {
        io::stdin().lock().take(MAX_FILE + 1).read_to_end(&mut content)
    } else {
        let file = File::open(path).map_err(failed())?;
        file.take(MAX_FILE + 1).read_to_end(&mut content)
    }
    .map_err(failed())?;
    if content.len() as u64 > MAX_FILE {
        return Err(Error::Failed(format!(
            "{} is larger than {} MiB",
            path.display(),
            MAX_FILE >> 20
        )));
    }
    parse(path, &content)
}

pub fn parse(path: &Path, content: &[u8]) -> Result<Vec<Value>, Error> {
    let documents =
        document::parse(path, content).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    Ok(documents.into_iter().flat_map(document::objects).collect())
}

/// Returns the files of a directory and its subdirectories that may hold manifests, in order.
pub fn files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let failed = || failed_to::<io::Error>(format!("read directory {}", directory.display()));
        for entry in fs::read_dir(&directory).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let path = entry.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            // Links are not followed: they may lead in circles.
            if entry.file_type().map_err(failed())?.is_dir() {
                directories.push(path);
            } else if matches!(extension, Some("yaml" | "yml" | "json")) {
                files.push(path);
            }
        }
        if files.len() + directories.len() > MAX_FILES {
            return Err(Error::Failed(format!("more than {MAX_FILES} files")));
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the kind of an object of the group, or `None` for other groups.
pub fn oam_kind(object: &Value) -> Option<&str> {
    let (group, _) = object["apiVersion"].as_str()?.split_once('/')?;
    object["kind"].as_str().filter(|_| group == GROUP)
}

/// Returns kind and name of an object for messages.
pub fn display(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let name = match text("/metadata/namespace") {
        "" => text("/metadata/name").to_owned(),
        namespace => format!("{namespace}/{}", text("/metadata/name")),
    };
    format!("{} {name}", text("/kind"))
}

/// Replaces the values of a Secret, which are never printed.
pub fn hide_secret_values(object: &mut Value) {
    if !is_secret(object) {
        return;
    }
    for field in ["data", "stringData"] {
        let values = object.get_mut(field).and_then(Value::as_object_mut);
        for value in values.into_iter().flat_map(|values| values.values_mut()) {
            *value = "(hidden)".into();
        }
    }
    // It repeats the values.
    let annotations = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.retain(|name, _| !name.ends_with("/last-applied-configuration"));
    }
}

pub fn is_secret(object: &Value) -> bool {
    object["apiVersion"] == "v1" && object["kind"] == "Secret"
}

/// Formats objects as YAML documents, without characters that control a terminal.
pub fn yaml(objects: &[Value]) -> Result<String, Error> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        let document = serde_yaml::to_string(object).map_err(failed_to("format the objects as YAML"))?;
        for line in document.lines() {
            text.push_str(&printable(line));
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_secrets_are_hidden_and_their_keys_are_not() {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "s", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "hush", "note": "kept",
            } },
            "data": { "password": "aHVzaA==" }, "stringData": { "token": "hush" },
        });
        hide_secret_values(&mut secret);
        let text = yaml(&[secret]).unwrap();
        assert!(!text.contains("hush") && !text.contains("aHVzaA"), "{text}");
        assert!(
            text.contains("password: (hidden)") && text.contains("token: (hidden)"),
            "{text}"
        );
        assert!(text.contains("note: kept"), "{text}");
    }

    #[test]
    fn other_kinds_are_printed_as_they_are() {
        let config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "1" } });
        let mut hidden = config.clone();
        hide_secret_values(&mut hidden);
        assert_eq!(hidden, config);
        assert_eq!(
            yaml(&[config]).unwrap(),
            "---\napiVersion: v1\ndata:\n  a: '1'\nkind: ConfigMap\n"
        );
    }

    #[test]
    fn yaml_cannot_control_a_terminal() {
        let hostile = json!({ "a": "x\u{1b}[2J\u{202e}y\nz" });
        let text = yaml(&[hostile]).unwrap();
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }

    #[test]
    fn a_file_may_hold_several_documents_and_lists() {
        let text = b"kind: A\n---\nkind: List\nitems: [{kind: B}, {kind: C}]\n---\n";
        let objects = parse(Path::new("x.yaml"), text).unwrap();
        let kinds: Vec<_> = objects.iter().map(|object| object["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "B", "C"]);
    }
}

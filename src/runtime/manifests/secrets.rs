//! Reads Secrets of a manifest directory on demand, without keeping them in memory.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::directory::namespace_of;
use super::document;
use super::reader::{self, MAX_FILE, read_capped};
use crate::api::NamespacedName;

pub(super) const KIND: &str = "Secret";

/// The content of a Secret. Implements neither Debug nor Display.
pub struct SecretContent {
    /// Changes with the content and reveals nothing about it.
    pub version: String,
    pub data: BTreeMap<String, Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretFileError {
    /// Some manifests could not be read and may contain the Secret.
    #[error("{0}")]
    Unreadable(String),
    #[error("{0}")]
    Invalid(String),
}

/// Returns the Secret of this name; none if no manifest contains it. The first Secret by path counts, and the default
/// namespace is `default`. Error messages never contain values.
pub fn secret(directory: &Path, name: &NamespacedName) -> Result<Option<SecretContent>, SecretFileError> {
    let Some(path) = find(directory, name)? else {
        return Ok(None);
    };
    let unreadable = |error: io::Error| unreadable(&path, &error);
    let full = directory.join(&path);
    // Before the content: a newer content then causes one redundant read instead of a missed change.
    let version = version(&fs::metadata(&full).map_err(unreadable)?).map_err(unreadable)?;
    let content = read_capped(&full, MAX_FILE).map_err(unreadable)?;
    let secrets = secrets(&path, &content).unwrap_or_default();
    let Some(secret) = secrets.into_iter().find(|object| is_named(object, name)) else {
        let changing = io::Error::other("file changed while it was read");
        return Err(unreadable(changing));
    };
    let data = data(&secret).map_err(|error| SecretFileError::Invalid(format!("in {}: {error}", path.display())))?;
    Ok(Some(SecretContent { version, data }))
}

fn find(directory: &Path, name: &NamespacedName) -> Result<Option<PathBuf>, SecretFileError> {
    let snapshot = reader::read(directory).map_err(|error| unreadable(directory, &error))?;
    let mut first_error = snapshot.unread.into_iter().next();
    for (path, content) in snapshot.files {
        let has_secret =
            content.and_then(|content| Ok(secrets(&path, &content)?.iter().any(|object| is_named(object, name))));
        match has_secret {
            Ok(true) => return Ok(Some(path)),
            Ok(false) => {}
            Err(message) => first_error = first_error.or(Some((path, message))),
        }
    }
    match first_error {
        None => Ok(None),
        Some((path, message)) => Err(unreadable(&path, &io::Error::other(message))),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> SecretFileError {
    SecretFileError::Unreadable(format!("failed to read {}: {error}", path.display()))
}

fn secrets(path: &Path, content: &[u8]) -> Result<Vec<Value>, String> {
    // Avoids parsing files without Secrets.
    if !content.windows(KIND.len()).any(|window| window == KIND.as_bytes()) {
        return Ok(Vec::new());
    }
    let objects = document::parse(path, content)?.into_iter().flat_map(document::objects);
    Ok(objects
        .filter(|object| object["kind"] == KIND && object["apiVersion"] == "v1")
        .collect())
}

fn is_named(object: &Value, name: &NamespacedName) -> bool {
    object["metadata"]["name"] == name.name.as_str() && namespace_of(object) == name.namespace
}

/// Combines modification time and size. Not a hash, which would allow guessing the content.
fn version(metadata: &fs::Metadata) -> io::Result<String> {
    let written = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{}-{}", written.as_nanos(), metadata.len()))
}

/// Returns the values like the API server: `stringData` overrides base64 `data`.
fn data(object: &Value) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut values = BTreeMap::new();
    for (key, text) in texts(object, "data")? {
        let text: String = text.split_ascii_whitespace().collect();
        let value = STANDARD.decode(text);
        values.insert(
            key.clone(),
            value.map_err(|_| format!("value of `{key}` in `data` is not valid base64"))?,
        );
    }
    for (key, text) in texts(object, "stringData")? {
        values.insert(key.clone(), text.as_bytes().to_vec());
    }
    Ok(values)
}

fn texts<'a>(object: &'a Value, field: &str) -> Result<Vec<(&'a String, &'a str)>, String> {
    let values = match &object[field] {
        Value::Null => None,
        Value::Object(values) => Some(values),
        _ => return Err(format!("`{field}` is not a map")),
    };
    let text = |(key, value): (&'a String, &'a Value)| match value {
        Value::Null => Ok((key, "")),
        Value::String(text) => Ok((key, text.as_str())),
        _ => Err(format!(
            "value of `{key}` in `{field}` is not a string; put it in quotes"
        )),
    };
    values.into_iter().flatten().map(text).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PLAIN: &str = "
apiVersion: v1
kind: Secret
metadata: {name: auth, namespace: team-a}
data: {token: aHVzaA==, both: b2xk}
stringData: {both: new}
";

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    fn name(namespace: &str) -> NamespacedName {
        NamespacedName {
            namespace: namespace.to_owned(),
            name: "auth".to_owned(),
        }
    }

    fn values(directory: &tempfile::TempDir, namespace: &str) -> Vec<(String, String)> {
        let content = secret(directory.path(), &name(namespace)).ok().flatten().unwrap();
        let text = |(key, value)| (key, String::from_utf8(value).unwrap());
        content.data.into_iter().map(text).collect()
    }

    fn error(files: &[(&str, &str)]) -> SecretFileError {
        secret(directory(files).path(), &name("team-a")).err().unwrap()
    }

    #[test]
    fn a_secret_is_found_by_name_and_namespace() {
        let others = format!("kind: ConfigMap\n---\n{}---{PLAIN}", PLAIN.replace("team-a", "team-b"));
        let directory = directory(&[("a.yaml", "kind: Nothing"), ("b.yaml", &others)]);
        let expected = [("both", "new"), ("token", "hush")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(values(&directory, "team-a"), expected);
        assert!(secret(directory.path(), &name("team-c")).unwrap_or_default().is_none());
    }

    #[test]
    fn secrets_in_lists_and_the_default_namespace_are_found() {
        let list = "{kind: SecretList, apiVersion: v1, items: [{metadata: {name: auth}, stringData: {a: b}}]}";
        assert_eq!(
            values(&directory(&[("a.yaml", list)]), "default"),
            [("a".to_owned(), "b".to_owned())]
        );
    }

    #[test]
    fn the_first_by_path_counts() {
        let other = PLAIN.replace("both: new", "both: second");
        assert_eq!(
            values(&directory(&[("b.yaml", &other), ("a.yaml", PLAIN)]), "team-a")[0].1,
            "new"
        );
    }

    #[test]
    fn the_version_changes_with_the_file_and_only_then() {
        let directory = directory(&[("a.yaml", PLAIN)]);
        let version = || {
            secret(directory.path(), &name("team-a"))
                .ok()
                .flatten()
                .unwrap()
                .version
        };
        let before = version();
        assert_eq!(version(), before);
        fs::write(directory.path().join("a.yaml"), PLAIN.replace("new", "newer")).unwrap();
        assert_ne!(version(), before);
    }

    #[rstest]
    #[case("data: {token: aHVzaA}")]
    #[case("data: {token: hush%}")]
    #[case("data: [hush]")]
    #[case("stringData: {token: {a: hush}}")]
    #[case("stringData: {token: 7}")]
    fn errors_of_invalid_secrets_contain_no_values(#[case] data: &str) {
        let text = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: auth, namespace: team-a}}\n{data}\n");
        let error = error(&[("a.yaml", &text)]);
        assert!(matches!(error, SecretFileError::Invalid(_)), "{error}");
        assert!(
            error.to_string().contains("a.yaml") && !error.to_string().contains("hush"),
            "{error}"
        );
    }

    #[test]
    fn an_unreadable_file_makes_missing_secrets_an_error() {
        let broken = error(&[("b.yaml", "kind: Secret\nstringData: {a: \"hush")]);
        assert!(matches!(broken, SecretFileError::Unreadable(_)), "{broken}");
        assert!(
            broken.to_string().contains("b.yaml") && !broken.to_string().contains("hush"),
            "{broken}"
        );
        let found = directory(&[("a.yaml", "kind: Secret\n: ["), ("b.yaml", PLAIN)]);
        assert_eq!(
            values(&found, "team-a").len(),
            2,
            "one that is found is found all the same"
        );
    }
}

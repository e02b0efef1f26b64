//! Secrets that stand in a folder of manifests, read when they are needed: nothing of them is kept.

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
use super::reader::{self as read, MAX_FILE, capped};
use crate::api::NamespacedName;

/// The kind of the documents that hold Secrets.
pub(super) const KIND: &str = "Secret";

/// A Secret as it was read. It can't be printed.
pub struct SecretContent {
    /// Another whenever the content is another. Nothing of the content can be told from it.
    pub version: String,
    /// The values by their keys.
    pub data: BTreeMap<String, Vec<u8>>,
}

/// Why a Secret of a folder can't be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretFileError {
    /// Not all manifests could be read: it may stand in one that could not.
    #[error("{0}")]
    Unreadable(String),
    /// The document is no proper Secret.
    #[error("{0}")]
    Invalid(String),
}

/// The Secret of this name in the folder; nothing if no manifest holds it. As with other objects, the first by path counts,
/// and one without a namespace is in `default`.
///
/// # Errors
/// It is not to be had. No message holds anything of a Secret's values.
pub fn secret(folder: &Path, name: &NamespacedName) -> Result<Option<SecretContent>, SecretFileError> {
    let Some(path) = find(folder, name)? else {
        return Ok(None);
    };
    let unreadable = |error: io::Error| unreadable(&path, &error);
    let full = folder.join(&path);
    // Taken before the content: if that is newer, it is only read once more than needed.
    let version = version(&fs::metadata(&full).map_err(unreadable)?).map_err(unreadable)?;
    let content = capped(&full, MAX_FILE).map_err(unreadable)?;
    let found = secrets(&path, &content).unwrap_or_default();
    let Some(found) = found.into_iter().find(|object| is_named(object, name)) else {
        let changing = io::Error::other("it changes while it is read");
        return Err(unreadable(changing));
    };
    let data = data(&found).map_err(|why| SecretFileError::Invalid(format!("in {}: {why}", path.display())))?;
    Ok(Some(SecretContent { version, data }))
}

/// The manifest that holds the Secret.
fn find(folder: &Path, name: &NamespacedName) -> Result<Option<PathBuf>, SecretFileError> {
    let snapshot = read::read(folder).map_err(|error| unreadable(folder, &error))?;
    let mut trouble = snapshot.unread.into_iter().next();
    for (path, content) in snapshot.files {
        let found =
            content.and_then(|content| Ok(secrets(&path, &content)?.iter().any(|object| is_named(object, name))));
        match found {
            Ok(true) => return Ok(Some(path)),
            Ok(false) => {}
            Err(why) => trouble = trouble.or(Some((path, why))),
        }
    }
    match trouble {
        None => Ok(None),
        Some((path, why)) => Err(unreadable(&path, &io::Error::other(why))),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> SecretFileError {
    SecretFileError::Unreadable(format!("{} can't be read: {error}", path.display()))
}

/// The Secrets that a file declares.
fn secrets(path: &Path, content: &[u8]) -> Result<Vec<Value>, String> {
    // Most files hold none, and need not be parsed to know.
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

/// When the file was written and how long it is: another after each change, and no hash, by which a value could be guessed.
fn version(metadata: &fs::Metadata) -> io::Result<String> {
    let written = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{}-{}", written.as_nanos(), metadata.len()))
}

/// The values, as the API server would give them: `stringData` stands above `data`, which is base64.
fn data(object: &Value) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut values = BTreeMap::new();
    for (key, text) in texts(object, "data")? {
        let text: String = text.split_ascii_whitespace().collect();
        let value = STANDARD.decode(text);
        values.insert(
            key.clone(),
            value.map_err(|_| format!("the value of `{key}` in `data` is no base64"))?,
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
        _ => return Err(format!("`{field}` is no map")),
    };
    let text = |(key, value): (&'a String, &'a Value)| match value {
        Value::Null => Ok((key, "")),
        Value::String(text) => Ok((key, text.as_str())),
        _ => Err(format!(
            "the value of `{key}` in `{field}` is no text: put it in quotes"
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

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn name(namespace: &str) -> NamespacedName {
        NamespacedName {
            namespace: namespace.to_owned(),
            name: "auth".to_owned(),
        }
    }

    fn values(folder: &tempfile::TempDir, namespace: &str) -> Vec<(String, String)> {
        let content = secret(folder.path(), &name(namespace)).ok().flatten().unwrap();
        let text = |(key, value)| (key, String::from_utf8(value).unwrap());
        content.data.into_iter().map(text).collect()
    }

    fn error(files: &[(&str, &str)]) -> SecretFileError {
        secret(folder(files).path(), &name("team-a")).err().unwrap()
    }

    #[test]
    fn a_secret_is_found_among_other_documents_by_its_name_and_namespace() {
        let others = format!("kind: ConfigMap\n---\n{}---{PLAIN}", PLAIN.replace("team-a", "team-b"));
        let folder = folder(&[("a.yaml", "kind: Nothing"), ("b.yaml", &others)]);
        let expected = [("both", "new"), ("token", "hush")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(values(&folder, "team-a"), expected);
        assert!(secret(folder.path(), &name("team-c")).unwrap_or_default().is_none());
    }

    #[test]
    fn one_without_a_namespace_is_in_default_and_one_in_a_list_is_found() {
        let list = "{kind: SecretList, apiVersion: v1, items: [{metadata: {name: auth}, stringData: {a: b}}]}";
        assert_eq!(
            values(&folder(&[("a.yaml", list)]), "default"),
            [("a".to_owned(), "b".to_owned())]
        );
    }

    #[test]
    fn the_first_by_path_counts() {
        let other = PLAIN.replace("both: new", "both: second");
        assert_eq!(
            values(&folder(&[("b.yaml", &other), ("a.yaml", PLAIN)]), "team-a")[0].1,
            "new"
        );
    }

    #[test]
    fn the_version_changes_with_the_file_and_only_then() {
        let folder = folder(&[("a.yaml", PLAIN)]);
        let version = || secret(folder.path(), &name("team-a")).ok().flatten().unwrap().version;
        let before = version();
        assert_eq!(version(), before);
        fs::write(folder.path().join("a.yaml"), PLAIN.replace("new", "newer")).unwrap();
        assert_ne!(version(), before);
    }

    #[rstest]
    #[case("data: {token: aHVzaA}")]
    #[case("data: {token: hush%}")]
    #[case("data: [hush]")]
    #[case("stringData: {token: {a: hush}}")]
    #[case("stringData: {token: 7}")]
    fn what_is_no_proper_secret_is_said_without_its_values(#[case] data: &str) {
        let text = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: auth, namespace: team-a}}\n{data}\n");
        let error = error(&[("a.yaml", &text)]);
        assert!(matches!(error, SecretFileError::Invalid(_)), "{error}");
        assert!(
            error.to_string().contains("a.yaml") && !error.to_string().contains("hush"),
            "{error}"
        );
    }

    #[test]
    fn while_a_file_can_t_be_read_nobody_knows_that_the_secret_is_not_there() {
        let broken = error(&[("b.yaml", "kind: Secret\nstringData: {a: \"hush")]);
        assert!(matches!(broken, SecretFileError::Unreadable(_)), "{broken}");
        assert!(
            broken.to_string().contains("b.yaml") && !broken.to_string().contains("hush"),
            "{broken}"
        );
        let found = folder(&[("a.yaml", "kind: Secret\n: ["), ("b.yaml", PLAIN)]);
        assert_eq!(
            values(&found, "team-a").len(),
            2,
            "one that is found is found all the same"
        );
    }
}

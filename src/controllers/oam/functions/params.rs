//! Decodes parameters of calls. They may contain secrets, which the messages of serde would quote.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::runtime::manifests::is_object_name;
use crate::text::{sanitize, truncate};

const MAX_PATH: usize = 200;

/// Decodes parameters. The error names the field only.
pub(super) fn decode<T: DeserializeOwned>(params: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(params).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => "$params is not a struct of the expected fields".to_owned(),
            path => format!("$params.{} has the wrong type", truncate(&sanitize(path), MAX_PATH)),
        }
    })
}

/// Returns the text of a required parameter.
pub(super) fn required(value: Option<String>, name: &str) -> Result<String, String> {
    match value {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(format!("$params.{name} is required")),
    }
}

/// Returns the name of an object, which becomes a part of a path.
pub(super) fn object_name(value: Option<String>, name: &str) -> Result<String, String> {
    let text = required(value, name)?;
    if is_object_name(&text) {
        Ok(text)
    } else {
        Err(format!("$params.{name} is not a valid name of an object"))
    }
}

/// Returns the cluster that parameters name; an empty text if they name none.
///
/// # Errors
/// The name is not valid.
pub fn cluster(params: &Value) -> Result<String, String> {
    match &params["cluster"] {
        Value::Null => Ok(String::new()),
        Value::String(name) => cluster_name(Some(name.clone())),
        _ => Err("$params.cluster has the wrong type".to_owned()),
    }
}

/// Returns the name of a cluster; an empty text if there is none.
pub(super) fn cluster_name(name: Option<String>) -> Result<String, String> {
    let name = name.unwrap_or_default();
    if name.is_empty() || is_object_name(&name) {
        Ok(name)
    } else {
        Err("$params.cluster is not a valid name of a cluster".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only decoded")]
    struct Test {
        text: Option<String>,
        map: Option<BTreeMap<String, String>>,
    }

    #[test]
    fn an_error_names_the_field_and_never_the_value() {
        let error = |params: Value| decode::<Test>(&params).unwrap_err();
        assert_eq!(error(json!({"text": ["hunter2"]})), "$params.text has the wrong type");
        assert_eq!(
            error(json!({"map": {"password": {"hunter2": 1}}})),
            "$params.map.password has the wrong type"
        );
        assert_eq!(
            error(json!("hunter2")),
            "$params is not a struct of the expected fields"
        );
    }

    #[test]
    fn a_hostile_key_in_a_message_is_short_and_printable() {
        let key = "\u{1b}[31m\n\u{202e}".repeat(1_000);
        let error = decode::<Test>(&json!({"map": {key: 1}})).unwrap_err();
        assert!(
            error.len() < 300 && !error.contains(['\u{1b}', '\n', '\u{202e}']),
            "{error}"
        );
    }

    #[test]
    fn a_cluster_is_named_like_an_object_or_not_at_all() {
        for (name, expected) in [(json!(null), ""), (json!(""), ""), (json!("east.eu-1"), "east.eu-1")] {
            assert_eq!(cluster(&json!({ "cluster": name })).as_deref(), Ok(expected));
        }
        assert_eq!(cluster(&json!({})).as_deref(), Ok(""));
        for name in [
            json!("../x"),
            json!("East"),
            json!("e".repeat(254)),
            json!({ "a": "b" }),
            json!(7),
        ] {
            let error = cluster(&json!({ "cluster": name })).unwrap_err();
            assert!(error.starts_with("$params.cluster ") && error.len() < 100, "{error}");
        }
    }

    #[test]
    fn a_name_that_is_a_path_is_refused() {
        for name in ["", "..", "a/b", "a%2fb", "A", "a\n"] {
            assert!(object_name(Some(name.to_owned()), "name").is_err(), "{name:?}");
        }
        assert_eq!(object_name(Some("a.b-c".to_owned()), "name").unwrap(), "a.b-c");
        assert_eq!(object_name(None, "name").unwrap_err(), "$params.name is required");
    }
}

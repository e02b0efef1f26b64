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
    fn a_name_that_is_a_path_is_refused() {
        for name in ["", "..", "a/b", "a%2fb", "A", "a\n"] {
            assert!(object_name(Some(name.to_owned()), "name").is_err(), "{name:?}");
        }
        assert_eq!(object_name(Some("a.b-c".to_owned()), "name").unwrap(), "a.b-c");
        assert_eq!(object_name(None, "name").unwrap_err(), "$params.name is required");
    }
}

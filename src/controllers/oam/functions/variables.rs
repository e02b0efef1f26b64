//! `builtin.#DoVar`: values that steps pass to each other by path.

use serde::Deserialize;
use serde_json::{Value, json};

use super::params::{decode, required};
use crate::controllers::oam::steps::Answer;
use crate::controllers::oam::workflow::ValueStore;
use crate::text::{sanitize, truncate};

/// Bytes of a path in a message.
const MAX_SHOWN: usize = 256;

#[derive(Deserialize)]
struct Params {
    #[serde(default)]
    method: Method,
    path: Option<String>,
    #[serde(default)]
    value: Value,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum Method {
    #[default]
    Get,
    Put,
}

/// Reads or writes a value. As for outputs, a value that is there can't change.
#[must_use]
pub fn variable(params: &Value, values: &mut ValueStore) -> Answer {
    answer(params, values).into()
}

fn answer(params: &Value, values: &mut ValueStore) -> Result<Value, String> {
    let Params { method, path, value } = decode(params)?;
    let path = required(path, "path")?;
    let shown = || truncate(&sanitize(&path), MAX_SHOWN);
    match method {
        Method::Get => match values.get(&path) {
            Some(value) => Ok(json!({ "value": value })),
            // In KubeVela's words.
            None => Err(format!("failed to lookup value: var(path={}) not exist", shown())),
        },
        Method::Put => match values.add(&path, &value) {
            Ok(()) => Ok(json!({})),
            Err(error) => Err(format!("failed to set {}: {error}", shown())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(values: &mut ValueStore, params: Value) -> Result<Value, String> {
        match variable(&params, values) {
            Answer::Returned(value) => Ok(value),
            Answer::Failed { message, .. } => Err(message),
            answer => panic!("{answer:?}"),
        }
    }

    #[test]
    fn a_value_is_read_where_it_was_put() {
        let mut values = ValueStore::default();
        let put = json!({ "method": "Put", "path": "db.host", "value": { "ip": "10.0.0.1" } });
        assert_eq!(call(&mut values, put.clone()), Ok(json!({})));
        assert_eq!(call(&mut values, put), Ok(json!({})), "a step that runs again");
        assert_eq!(
            call(&mut values, json!({ "path": "db.host.ip" })),
            Ok(json!({ "value": "10.0.0.1" }))
        );
    }

    #[test]
    fn a_value_that_is_not_there_or_is_another_fails() {
        let mut values = ValueStore::default();
        assert_eq!(
            call(&mut values, json!({ "method": "Get", "path": "db" })),
            Err("failed to lookup value: var(path=db) not exist".to_owned())
        );
        let put = |value: Value| json!({ "method": "Put", "path": "db", "value": value });
        assert_eq!(call(&mut values, put(json!(1))), Ok(json!({})));
        assert_eq!(
            call(&mut values, put(json!(2))),
            Err("failed to set db: conflicting values".to_owned())
        );
    }

    #[test]
    fn paths_and_values_are_limited_and_errors_are_short() {
        let mut values = ValueStore::default();
        let long = "\u{1b}a.".repeat(2_000);
        let large = "x".repeat(1 << 20);
        for params in [
            json!({}),
            json!({ "path": "" }),
            json!({ "path": 1 }),
            json!({ "method": "Drop", "path": "a" }),
            json!({ "path": long }),
            json!({ "method": "Put", "path": long, "value": 1 }),
            json!({ "method": "Put", "path": "a", "value": large }),
        ] {
            let error = call(&mut values, params).unwrap_err();
            assert!(error.len() < 400 && !error.contains('\u{1b}'), "{error}");
        }
        assert_eq!(values, ValueStore::default());
    }
}

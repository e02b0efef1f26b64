//! Differences between two records.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// Longest shown value.
const MAX_SHOWN: usize = 400;
/// The words around KubeVela's messages of failed functions, which CUE adds.
const AROUND_FUNCTION: [&str; 2] = [
    "function call error for : ",
    " (value: cue/format: unsupported node type <nil>)",
];
/// The row of the table of differences in docs/reference/kubevela.md that names them.
pub const AROUND_FUNCTION_ROW: &str = "messages of failed steps";

#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Keys and positions, separated by slashes.
    pub path: String,
    pub expected: Option<Value>,
    pub actual: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| {
            let text = value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string);
            match text.char_indices().nth(MAX_SHOWN) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        };
        let (expected, actual) = (shown(&self.expected), shown(&self.actual));
        write!(f, "{}\n      expected: {expected}\n      actual:   {actual}", self.path)
    }
}

/// Returns all differences between two normalized records. Null and an absent field are equal.
pub fn differences(expected: &Value, actual: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", Some(expected), Some(actual), &mut found);
    found
}

fn compare(path: &str, expected: Option<&Value>, actual: Option<&Value>, found: &mut Vec<Difference>) {
    let expected = expected.filter(|value| !value.is_null());
    let actual = actual.filter(|value| !value.is_null());
    match (expected, actual) {
        (Some(Value::Object(expected)), Some(Value::Object(actual))) => {
            let keys: BTreeSet<&String> = expected.keys().chain(actual.keys()).collect();
            for key in keys {
                compare(&join(path, key), expected.get(key), actual.get(key), found);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(actual))) => {
            for index in 0..expected.len().max(actual.len()) {
                let path = join(path, &index.to_string());
                compare(&path, expected.get(index), actual.get(index), found);
            }
        }
        (expected, actual) if is_equal(path, expected, actual) => {}
        (expected, actual) => found.push(Difference {
            path: path.to_owned(),
            expected: expected.cloned(),
            actual: actual.cloned(),
        }),
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}/{key}")
    }
}

fn is_equal(path: &str, expected: Option<&Value>, actual: Option<&Value>) -> bool {
    match (expected, actual) {
        (Some(Value::String(expected)), Some(Value::String(actual))) if path.contains("/workflow/steps/") => {
            expected == actual || without_function(expected) == actual
        }
        (expected, actual) => expected == actual,
    }
}

/// Returns the error of a function alone.
fn without_function(message: &str) -> &str {
    let [before, after] = AROUND_FUNCTION;
    let inner = message
        .strip_prefix(before)
        .and_then(|message| message.strip_suffix(after));
    inner.unwrap_or(message)
}

use serde_json::{Map, Value};

use crate::text::truncate;

/// The maximum length of a value, in bytes.
const MAX_VALUE: usize = 120;

pub fn changed_paths(from: &Map<String, Value>, to: &Map<String, Value>, has_values: bool) -> Vec<String> {
    let mut lines = DiffLines {
        has_values,
        lines: Vec::new(),
    };
    lines.compare_fields("", from, to);
    lines.lines
}

struct DiffLines {
    has_values: bool,
    lines: Vec<String>,
}

impl DiffLines {
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

    fn lines(has_values: bool, from: &Value, to: &Value) -> Vec<String> {
        changed_paths(from.as_object().unwrap(), to.as_object().unwrap(), has_values)
    }

    #[test]
    fn changed_paths_have_their_old_and_new_values() {
        let from = json!({
            "metadata": { "labels": { "a/b": "1" } },
            "spec": { "replicas": 1, "containers": [{ "name": "web", "image": "nginx:1" }], "paused": true },
        });
        let to = json!({
            "metadata": { "labels": { "a/b": "2" } },
            "spec": { "replicas": 2, "containers": [{ "name": "web", "image": "nginx:2" }] },
        });
        let lines = lines(true, &from, &to);
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
        let from = json!({ "data": { "old": "aHVzaA==", "same": "aHVzaA==" } });
        let to = json!({ "data": { "new": "aHVzaA==", "same": "aHVzaA==" }, "stringData": { "token": "hush" } });
        let mut lines = lines(false, &from, &to);
        lines.sort();
        assert_eq!(lines, ["+ data.new", "+ stringData.token", "- data.old"]);
    }
}

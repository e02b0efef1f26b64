//! The README of the chart and the page of its values, generated from their comments and schema. `UPDATE_EXPECT=1` writes
//! both.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use expect_test::expect_file;
use serde_yaml::Value;

use crate::support::project;

const HEADER: &str = "\
# Portolan

Installs [Portolan](../../README.md), a controller that syncs Helm chart repositories and OCI registries into the
database that Kubeapps reads. [docs/how-to](../../docs/how-to/install.md) leads from the installation to the removal.

```sh
helm install portolan charts/portolan --namespace portolan --create-namespace \\
  --set image.repository=REGISTRY/portolan --set image.tag=TAG
```

By default one pod works on all namespaces with SQLite on a persistent volume. Invalid and unknown values are refused.

Helm installs the CRDs, but does not upgrade them; see
[Custom resource definitions](../../docs/how-to/install.md#custom-resource-definitions). With `helm template`, pass
`--no-hooks`: the hook of `uninstallHook` is for `helm uninstall` only.

## Values

This table is generated from values.yaml.

| value | default | meaning |
|---|---|---|
";

const PAGE: &str = "\
# Chart values

*For administrators who install the chart. Generated from `charts/portolan/values.yaml` and its schema by \
`UPDATE_EXPECT=1 make test ARGS=packaging::readme`.*

Invalid and unknown values are refused.

| value | type | default | meaning |
|---|---|---|---|
";

/// A value of the chart.
struct Row {
    path: String,
    /// Empty for a group of values.
    default: String,
    comment: String,
}

/// Returns the comment before each key, by path.
fn comments(values: &str) -> BTreeMap<String, String> {
    let mut comments = BTreeMap::new();
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in values.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(text) = text.strip_prefix("# ") {
            comment.push(text);
            continue;
        }
        let is_key = |key: &&str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric());
        if let Some(key) = text.split_once(':').map(|(key, _)| key).filter(is_key) {
            path.retain(|(outer, _)| *outer < indent);
            path.push((indent, key));
            if !comment.is_empty() {
                let names: Vec<&str> = path.iter().map(|(_, name)| *name).collect();
                comments.insert(names.join("."), comment.join(" "));
            }
        }
        comment.clear();
    }
    comments
}

/// Adds a row for a value, and for the values in it if these have comments.
fn rows(path: &str, value: &Value, comments: &BTreeMap<String, String>, found: &mut Vec<Row>) {
    let inside = format!("{path}.");
    let has_rows = comments.keys().any(|other| other.starts_with(&inside));
    let comment = comments.get(path).map_or("", String::as_str).replace('|', "\\|");
    let default = if has_rows {
        String::new()
    } else {
        format!("`{}`", serde_json::to_string(value).unwrap())
    };
    assert!(has_rows || !comment.is_empty(), "{path} has no comment in values.yaml");
    if !comment.is_empty() {
        let path = path.to_owned();
        found.push(Row { path, default, comment });
    }
    if has_rows {
        for (name, value) in value.as_mapping().expect("a map") {
            rows(&format!("{inside}{}", name.as_str().unwrap()), value, comments, found);
        }
    }
}

/// Returns the rows of all values.
fn values() -> Vec<Row> {
    let values = std::fs::read_to_string(project("charts/portolan/values.yaml")).unwrap();
    let comments = comments(&values);
    let parsed: Value = serde_yaml::from_str(&values).unwrap();
    let mut found = Vec::new();
    for (name, value) in parsed.as_mapping().unwrap() {
        rows(name.as_str().unwrap(), value, &comments, &mut found);
    }
    found
}

/// Returns the type that the schema gives a value: its words, or the names of its types.
fn type_of(schema: &serde_json::Value, path: &str) -> String {
    let resolved = |part: &serde_json::Value| match part["$ref"].as_str() {
        Some(reference) => schema
            .pointer(reference.trim_start_matches('#'))
            .cloned()
            .expect("a definition"),
        None => part.clone(),
    };
    let found = path
        .split('.')
        .fold(schema.clone(), |part, name| resolved(&part["properties"][name]));
    if let Some(words) = found["enum"].as_array() {
        let words = words
            .iter()
            .map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned));
        return words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
    }
    match &found["type"] {
        serde_json::Value::Array(types) => {
            let types = types
                .iter()
                .filter_map(serde_json::Value::as_str)
                .filter(|name| *name != "null");
            types.collect::<Vec<_>>().join(", ")
        }
        name => name.as_str().unwrap_or_default().to_owned(),
    }
}

#[test]
fn the_readme_lists_all_values_with_their_comments() {
    let mut text = HEADER.to_owned();
    for Row { path, default, comment } in values() {
        writeln!(text, "| `{path}` | {default} | {comment} |").unwrap();
    }
    expect_file!["../../charts/portolan/README.md"].assert_eq(&text);
}

#[test]
fn the_page_of_values_has_their_types() {
    let schema = std::fs::read_to_string(project("charts/portolan/values.schema.json")).unwrap();
    let schema = serde_json::from_str(&schema).unwrap();
    let mut text = PAGE.to_owned();
    for Row { path, default, comment } in values() {
        let type_ = type_of(&schema, &path);
        assert!(!type_.is_empty(), "{path} has no type in the schema");
        writeln!(text, "| `{path}` | {type_} | {default} | {comment} |").unwrap();
    }
    expect_file!["../../docs/reference/chart-values.md"].assert_eq(&text);
}

#[test]
fn comments_belong_to_the_key_below_them() {
    let values = "# First\n# line.\na: 1\n\n# Of b.\nb:\n  # Of c.\n  c: {}\n  d: 2\nlist:\n  - e: 1\n";
    let expected = [("a", "First line."), ("b", "Of b."), ("b.c", "Of c.")];
    let found = comments(values);
    let found: Vec<_> = found
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    assert_eq!(found, expected);
}

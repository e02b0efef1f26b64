//! The README of the chart, generated from the comments of its values. `UPDATE_EXPECT=1` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use expect_test::expect_file;
use serde_yaml::Value;

use crate::support::project;

const HEADER: &str = "\
# Portolan

Installs [Portolan](../../README.md), a controller that syncs Helm chart repositories and OCI registries into the
database that Kubeapps reads. [docs/operations.md](../../docs/operations.md) is the guide from installation to removal.

```sh
helm install portolan charts/portolan --namespace portolan --create-namespace \\
  --set image.repository=REGISTRY/portolan --set image.tag=TAG
```

By default one pod works on all namespaces with SQLite on a persistent volume. Invalid and unknown values are refused.

Helm installs the CRDs, but does not upgrade them; see
[Custom resource definitions](../../docs/operations.md#custom-resource-definitions). With `helm template`, pass
`--no-hooks`: the hook of `uninstallHook` is for `helm uninstall` only.

## Values

This table is generated from values.yaml.

| value | default | meaning |
|---|---|---|
";

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
fn rows(path: &str, value: &Value, comments: &BTreeMap<String, String>, text: &mut String) {
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
        writeln!(text, "| `{path}` | {default} | {comment} |").unwrap();
    }
    if has_rows {
        for (name, value) in value.as_mapping().expect("a map") {
            rows(&format!("{inside}{}", name.as_str().unwrap()), value, comments, text);
        }
    }
}

#[test]
fn the_readme_lists_all_values_with_their_comments() {
    let values = std::fs::read_to_string(project("charts/portolan/values.yaml")).unwrap();
    let comments = comments(&values);
    let parsed: Value = serde_yaml::from_str(&values).unwrap();
    let mut text = HEADER.to_owned();
    for (name, value) in parsed.as_mapping().unwrap() {
        rows(name.as_str().unwrap(), value, &comments, &mut text);
    }
    expect_file!["../../charts/portolan/README.md"].assert_eq(&text);
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

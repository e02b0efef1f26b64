//! The table of list rules, derived from the OpenAPI document of the API server.

use std::collections::BTreeMap;

use expect_test::expect_file;
use portolan::runtime::three_way::list_rules::{BUILT_IN_GROUPS, type_name};
use serde_json::Value;

use crate::support::control_plane::control_plane;

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const KINDS: &str = "x-kubernetes-group-version-kind";

/// Fields with rules by type. `UPDATE_EXPECT=1` writes the table of a new version of Kubernetes.
#[tokio::test]
async fn the_list_rules_are_those_of_the_api_server() {
    let document = openapi_document().await;
    let mut table = Table {
        definitions: &document["definitions"],
        types: BTreeMap::new(),
    };
    for (name, definition) in table.definitions.as_object().unwrap() {
        if is_built_in_object(definition) {
            table.visit(name);
        }
    }
    table.visit(OBJECT_META);
    expect_file!["../../src/runtime/three_way/list_rules.txt"].assert_eq(&table.to_string());
}

#[tokio::test]
async fn built_in_kinds_are_found_by_group_version_and_kind() {
    let document = openapi_document().await;
    for (name, definition) in document["definitions"].as_object().unwrap() {
        if !is_built_in_object(definition) {
            continue;
        }
        let [group, version, kind] =
            ["group", "version", "kind"].map(|key| definition[KINDS][0][key].as_str().unwrap());
        // Some names of types differ from the group; none of them is in the table.
        if table_has(&short(name)) {
            assert_eq!(type_name(group, version, kind), short(name));
        }
    }
}

#[tokio::test]
async fn all_groups_of_the_api_server_are_known() {
    let document = openapi_document().await;
    let own = [
        "io.k8s.api.",
        "io.k8s.kube-aggregator.",
        "io.k8s.apiextensions-apiserver.",
    ];
    for (name, definition) in document["definitions"].as_object().unwrap() {
        let kinds = definition[KINDS].as_array().into_iter().flatten();
        for group in kinds.map(|kind| kind["group"].as_str().unwrap()) {
            if own.iter().any(|prefix| name.starts_with(prefix)) {
                assert!(BUILT_IN_GROUPS.contains(&group), "{group} is missing");
            }
        }
    }
}

async fn openapi_document() -> Value {
    let client = control_plane().await.client().await;
    let request = http::Request::get("/openapi/v2").body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

fn table_has(name: &str) -> bool {
    portolan::runtime::three_way::list_rules::TABLE
        .lines()
        .any(|line| line == name)
}

fn is_built_in_object(definition: &Value) -> bool {
    let group = definition[KINDS][0]["group"].as_str();
    let metadata = reference(&definition["properties"]["metadata"]);
    group.is_some_and(|group| BUILT_IN_GROUPS.contains(&group)) && metadata == Some(OBJECT_META)
}

/// The last three parts of a name: group, version and kind.
fn short(name: &str) -> String {
    let parts: Vec<&str> = name.rsplitn(4, '.').take(3).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join(".")
}

/// The type of a field, of the elements of a list, or of the values of a map.
fn reference(schema: &Value) -> Option<&str> {
    let path = schema["$ref"].as_str().or_else(|| schema["items"]["$ref"].as_str());
    path.and_then(|path| path.strip_prefix("#/definitions/"))
}

/// The words of a field's rule, without its type.
fn rule(schema: &Value) -> Vec<String> {
    let strategies = schema["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
    let has_strategy = |name| strategies.split(',').any(|strategy| strategy == name);
    let mut words = Vec::new();
    if schema["type"] == "array" && has_strategy("merge") {
        let merge_key = schema["x-kubernetes-patch-merge-key"].as_str();
        let keys = schema["x-kubernetes-list-map-keys"].as_array();
        words.push(match (merge_key, keys) {
            (None, _) => "set".to_owned(),
            (Some(_), Some(keys)) => {
                let keys: Vec<&str> = keys.iter().map(|key| key.as_str().unwrap()).collect();
                format!("keys={}", keys.join(","))
            }
            (Some(key), None) => format!("keys={key}"),
        });
    }
    if has_strategy("retainKeys") {
        words.push("union".to_owned());
    }
    if [schema, &schema["additionalProperties"]]
        .into_iter()
        .any(|schema| reference(schema) == Some(QUANTITY))
    {
        words.push("quantity".to_owned());
    }
    words
}

struct Table<'a> {
    definitions: &'a Value,
    types: BTreeMap<String, BTreeMap<&'a str, String>>,
}

impl<'a> Table<'a> {
    /// Adds a type and those that it leads to. Returns true if one of its fields has a rule or leads to one.
    fn visit(&mut self, name: &str) -> bool {
        if let Some(fields) = self.types.get(&short(name)) {
            return !fields.is_empty();
        }
        self.types.insert(short(name), BTreeMap::new());
        let definition = &self.definitions[name];
        let is_kind = definition.get(KINDS).is_some();
        for (field, schema) in definition["properties"].as_object().into_iter().flatten() {
            // A status is not in manifests; metadata is the same for all kinds.
            if field == "status" || (is_kind && field == "metadata") {
                continue;
            }
            let mut words = rule(schema);
            if let Some(child) = reference(schema).filter(|child| *child != QUANTITY)
                && self.visit(child)
            {
                words.push(short(child));
            }
            if !words.is_empty() {
                self.types
                    .entry(short(name))
                    .or_default()
                    .insert(field, words.join(" "));
            }
        }
        !self.types[&short(name)].is_empty()
    }
}

impl std::fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, fields) in self.types.iter().filter(|(_, fields)| !fields.is_empty()) {
            writeln!(f, "{name}")?;
            for (field, words) in fields {
                writeln!(f, "  {field} {words}")?;
            }
        }
        Ok(())
    }
}

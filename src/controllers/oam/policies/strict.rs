//! Keys that no version of KubeVela knows, for strict validation.

use serde_json::Value;

use super::{
    APPLY_ONCE, GARBAGE_COLLECT, OVERRIDE, READ_ONLY, REPLICATION, RESOURCE_UPDATE, SHARED_RESOURCE, TAKE_OVER,
    TOPOLOGY,
};

const SELECTOR: [&str; 6] = [
    "componentNames",
    "componentTypes",
    "oamTypes",
    "traitTypes",
    "resourceTypes",
    "resourceNames",
];

/// Returns the paths of unknown keys in the properties of a built-in policy. Other types have none.
#[must_use]
pub fn unknown_keys(type_: &str, properties: &Value) -> Vec<String> {
    let (keys, rule, strategy): (&[&str], &[&str], &[&str]) = match type_ {
        GARBAGE_COLLECT => (
            &[
                "applicationRevisionLimit",
                "keepLegacyResource",
                "continueOnFailure",
                "order",
                "rules",
            ],
            &["selector", "strategy", "propagation"],
            &[],
        ),
        APPLY_ONCE => (&["enable", "rules"], &["selector", "strategy"], &["path", "affect"]),
        SHARED_RESOURCE | TAKE_OVER | READ_ONLY => (&["rules"], &["selector"], &[]),
        RESOURCE_UPDATE => (&["rules"], &["selector", "strategy"], &["op", "recreateFields"]),
        TOPOLOGY => (
            &[
                "clusters",
                "clusterLabelSelector",
                "clusterSelector",
                "allowEmpty",
                "namespace",
            ],
            &[],
            &[],
        ),
        OVERRIDE => (&["components", "selector"], &[], &[]),
        REPLICATION => (&["keys", "selector"], &[], &[]),
        _ => return Vec::new(),
    };
    let mut paths = Vec::new();
    collect(properties, "", keys, &mut paths);
    for (index, element) in properties["rules"].as_array().into_iter().flatten().enumerate() {
        let path = format!("rules[{index}].");
        collect(element, &path, rule, &mut paths);
        collect(&element["selector"], &format!("{path}selector."), &SELECTOR, &mut paths);
        collect(&element["strategy"], &format!("{path}strategy."), strategy, &mut paths);
    }
    paths
}

fn collect(value: &Value, path: &str, keys: &[&str], paths: &mut Vec<String>) {
    let fields = value.as_object().into_iter().flat_map(serde_json::Map::keys);
    let unknown = fields.filter(|field| !keys.contains(&field.as_str()));
    paths.extend(unknown.map(|key| format!("{path}{key}")));
}

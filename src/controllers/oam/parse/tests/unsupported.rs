use rstest::rstest;

use super::*;
use crate::api::NamespacedName;
use crate::controllers::oam::trackers::{AppIdentity, Inventory, Tracker};

fn reasons(found: &[Unsupported]) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}

#[rstest]
#[case::plain(json!({}), &[])]
#[case::dag(json!({ "workflow": { "mode": { "steps": "DAG" } } }), &[])]
#[case::supported_policies(json!({ "policies": [
    { "type": "garbage-collect" }, { "type": "apply-once" }, { "type": "of-a-definition" },
] }), &[])]
#[case::workflow(json!({ "workflow": { "ref": "flow", "mode": { "steps": "Other" }, "steps": [{ "type": "suspend" }] } }), &[])]
#[case::placement(json!({ "policies": [{ "type": "topology" }, { "type": "override" }, { "type": "replication" }] }), &[])]
#[case::policies(
    json!({ "policies": [{ "type": "debug" }, { "name": "e", "type": "env-binding" }] }),
    &["policy e of type env-binding"]
)]
#[case::references(json!({ "components": [{ "name": "r", "type": "ref-objects" }] }), &[])]
fn parts_that_are_not_supported_are_named(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(reasons(&unsupported_application(&application(&spec))), expected);
}

#[rstest]
#[case::cue(template("output: {}"), None)]
#[case::terraform(json!({ "spec": { "schematic": { "terraform": { "configuration": "" } } } }), Some("a Terraform definition"))]
#[case::annotated(
    json!({ "metadata": { "annotations": { "type": "terraform" } }, "spec": {} }),
    Some("a Terraform definition")
)]
#[case::helm(json!({ "spec": { "schematic": { "helm": {} } } }), Some("a definition without a CUE template"))]
#[case::import(template("import \"vela/helm\"\n\noutput: {}"), Some("an import of vela/helm"))]
#[case::import_of_many(
    template("// text\npackage x\n\nimport (\n\t\"strings\"\n\th \"vela/helm\"\n)\noutput: {}"),
    Some("an import of vela/helm")
)]
#[case::import_of_the_cluster(
    template("import \"vela/kube\"\nimport \"ext/bank\"\noutput: {}"),
    Some("an import of ext/bank")
)]
#[case::import_for_steps(template("import \"vela/op\"\noutput: {}"), Some("an import of vela/op"))]
#[case::import_of_checks(template("import \"vela/config\"\noutput: {}"), Some("an import of vela/config"))]
#[case::supported_imports(
    template("import (\n\"vela/base64\"\n\"vela/cue\"\n\"vela/http\"\n\"vela/kube\"\n)\noutput: {}"),
    None
)]
#[case::standard_imports(
    template("import (\"strings\")\nimport \"strconv\"\noutput: {a: \"vela/x\"}\n\"vela/y\": 1"),
    None
)]
fn definitions_that_are_not_supported_are_named(#[case] definition: Value, #[case] expected: Option<&str>) {
    let mut cluster = Cluster::default();
    cluster.add("ComponentDefinition", "team", "web", &definition);
    let parsed = parse_in(&cluster, &components(&[("c", "web")])).unwrap();
    let expected: Vec<_> = expected
        .into_iter()
        .map(|feature| format!("component c with {feature}"))
        .collect();
    assert_eq!(reasons(&unsupported_definitions(&parsed.components)), expected);
}

#[test]
fn components_call_functions_in_their_own_template_or_in_one_of_their_traits() {
    let mut cluster = Cluster::with_definitions();
    let reads = template("import \"vela/kube\"");
    cluster.add("ComponentDefinition", "team", "reads", &reads);
    cluster.add("TraitDefinition", "team", "reads", &reads);
    let spec = json!({ "components": [
        { "name": "a", "type": "reads" },
        { "name": "b", "type": "worker", "traits": [{ "type": "scaler" }, { "type": "reads" }] },
        { "name": "c", "type": "worker", "traits": [{ "type": "scaler" }] },
    ] });
    let parsed = parse_in(&cluster, &spec).unwrap();
    let calls: Vec<bool> = parsed.components.iter().map(calls_functions).collect();
    assert_eq!(calls, [true, true, false]);
}

#[test]
fn imports_of_traits_count_too() {
    let mut cluster = Cluster::with_definitions();
    cluster.add("TraitDefinition", "team", "chart", &template("import \"vela/helm\""));
    let spec = json!({ "components": [{ "name": "c", "type": "worker", "traits": [{ "type": "chart" }] }] });
    let parsed = parse_in(&cluster, &spec).unwrap();
    assert_eq!(
        reasons(&unsupported_definitions(&parsed.components)),
        ["component c with an import of vela/helm"]
    );
}

#[test]
fn objects_in_other_clusters_are_named_once_for_each_tracker() {
    let tracker = |generation: i64, clusters: &[&str]| {
        let entries: Vec<_> = clusters
            .iter()
            .map(|cluster| json!({ "kind": "Pod", "cluster": cluster }))
            .collect();
        let object = json!({
            "metadata": { "name": format!("t{generation}") },
            "spec": { "type": "versioned", "applicationGeneration": generation, "managedResources": entries },
        });
        Tracker::decode(Arc::new(serde_json::from_value(object).unwrap())).unwrap()
    };
    let app = AppIdentity {
        name: NamespacedName::new("team", "shop"),
        uid: "u1".to_owned(),
        generation: 2,
        publish_version: None,
    };
    let trackers = vec![tracker(1, &["prod", "prod", "local"]), tracker(2, &["", "edge"])];
    let inventory = Inventory::of(&app, trackers).unwrap();
    assert_eq!(
        reasons(&unsupported_trackers(&inventory)),
        [
            "cluster edge in resourcetracker t2",
            "cluster prod in resourcetracker t1"
        ]
    );
}

#[test]
fn types_of_overrides_that_are_not_supported_are_named() {
    let mut cluster = Cluster::with_definitions();
    let terraform = json!({ "spec": { "schematic": { "terraform": { "configuration": "" } } } });
    cluster.add("ComponentDefinition", "team", "cloud", &terraform);
    cluster.add("TraitDefinition", "team", "chart", &template("import \"vela/helm\""));
    cluster.add("TraitDefinition", "team", "annotate", &json!({ "spec": {} }));
    let components = json!([
        { "type": "cloud", "traits": [{ "type": "chart" }, { "type": "scaler" }, { "type": "annotate" }] },
        { "type": "worker" },
    ]);
    let spec = json!({
        "components": [],
        "policies": [{ "name": "o", "type": "override", "properties": { "components": components } }],
    });
    let parsed = parse_in(&cluster, &spec).unwrap();
    assert_eq!(
        reasons(&unsupported_overrides(&parsed.overrides)),
        [
            "an override with type cloud, a Terraform definition",
            "an override with type chart, an import of vela/helm",
        ]
    );
}

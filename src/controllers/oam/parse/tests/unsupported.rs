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
#[case::terraform(json!({ "spec": { "schematic": { "terraform": { "configuration": "" } } } }), None)]
#[case::annotated(json!({ "metadata": { "annotations": { "type": "terraform" } }, "spec": {} }), None)]
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
    template("import (\n\"vela/base64\"\n\"vela/cue\"\n\"vela/http\"\nk \"vela/kube\"\n)\nread: k.#Get\noutput: {}"),
    None
)]
#[case::call_that_writes(
    template("import k \"vela/kube\"\nread: k.#Get\nif parameter.x {write: k.#Apply}\noutput: {}"),
    Some("a call of vela/kube.#Apply")
)]
#[case::call_that_sends(
    template("import \"vela/http\"\nask: http.#Post\noutput: {}"),
    Some("a call of vela/http.#Post")
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

/// Returns what is not supported of two trackers with these entries.
fn reasons_of_trackers(entries: [&[Value]; 2]) -> Vec<String> {
    let trackers = (1..).zip(entries).map(|(generation, entries)| {
        let object = json!({
            "metadata": { "name": format!("t{generation}") },
            "spec": { "type": "versioned", "applicationGeneration": generation, "managedResources": entries },
        });
        Tracker::decode(Arc::new(serde_json::from_value(object).unwrap())).unwrap()
    });
    let app = AppIdentity {
        name: NamespacedName::new("team", "shop"),
        uid: "u1".to_owned(),
        generation: 2,
        publish_version: None,
    };
    reasons(&unsupported_trackers(&Inventory::of(&app, trackers.collect()).unwrap()))
}

#[test]
fn releases_of_helm_are_named_once_for_each_tracker() {
    let secret = |name: &str| json!({ "apiVersion": "v1", "kind": "Secret", "name": name });
    let mut config = secret("sh.helm.release.v1.settings.v1");
    config["kind"] = "ConfigMap".into();
    let first = ["sh.helm.release.v1.web.front.v1", "sh.helm.release.v1.web.front.v2"].map(secret);
    let advice = "(leave the Application to vela-core, which installed the release, or drop its records with \
                  `portolan vela forget-release`)";
    assert_eq!(
        reasons_of_trackers([&first, &[secret("sh.helm.release.v1.db.v10"), secret("login"), config]]),
        [
            format!("Helm release db in resourcetracker t2 {advice}"),
            format!("Helm release web.front in resourcetracker t1 {advice}"),
        ]
    );
}

#[test]
fn objects_in_joined_clusters_are_supported() {
    let pods = ["east", "local", ""].map(|cluster| json!({ "kind": "Pod", "cluster": cluster }));
    assert_eq!(reasons_of_trackers([&pods, &[]]), [""; 0]);
}

#[test]
fn types_of_overrides_that_are_not_supported_are_named() {
    let mut cluster = Cluster::with_definitions();
    let helm = json!({ "spec": { "schematic": { "helm": {} } } });
    cluster.add("ComponentDefinition", "team", "chart-release", &helm);
    cluster.add("TraitDefinition", "team", "chart", &template("import \"vela/helm\""));
    cluster.add("TraitDefinition", "team", "annotate", &json!({ "spec": {} }));
    let components = json!([
        { "type": "chart-release", "traits": [{ "type": "chart" }, { "type": "scaler" }, { "type": "annotate" }] },
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
            "an override with type chart-release, a definition without a CUE template",
            "an override with type chart, an import of vela/helm",
        ]
    );
}

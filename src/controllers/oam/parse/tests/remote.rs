use super::*;
use crate::controllers::oam::clusters::JoinedCluster;

fn reasons(spec: &Value) -> Vec<String> {
    let mut cluster = Cluster::with_definitions();
    cluster.add("ComponentDefinition", "team", "ref-objects", &template("// ref"));
    let properties = json!({ "clusters": ["edge", "local"] });
    cluster.add(
        "Policy",
        "team",
        "ext",
        &json!({ "type": "topology", "properties": properties }),
    );
    let parsed = parse_in(&cluster, spec).unwrap();
    let found = unsupported_clusters(&parsed, &[]);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn other_clusters_are_found_in_policies_steps_and_references() {
    let inline = json!([
        { "type": "topology", "properties": { "clusters": ["inline"] } },
        { "type": "override", "properties": { "clusters": ["none"] } }, 7,
    ]);
    let spec = json!({
        "components": [{ "name": "r", "type": "ref-objects", "properties": { "objects": [
            { "resource": "configmap", "cluster": "source" }, { "cluster": "local" }, { "cluster": "" }, "text",
        ] } }],
        "policies": [
            { "name": "t", "type": "topology", "properties": { "clusters": ["prod", "prod", "local", ""] } },
            { "name": "o", "type": "override", "properties": { "clusters": ["none"] } },
        ],
        "workflow": { "steps": [
            { "name": "deploy", "type": "deploy", "properties": { "policies": ["ext"], "inlinePolicies": inline } },
            { "name": "group", "type": "step-group", "subSteps": [
                { "name": "apply", "type": "apply-component", "properties": { "component": "r", "cluster": "far" } },
                { "name": "near", "type": "apply-component", "properties": { "component": "r", "cluster": "local" } },
            ] },
        ] },
    });
    let expected = [
        "cluster edge in policy ext",
        "cluster far in step apply",
        "cluster inline in step deploy",
        "cluster prod in policy t",
        "cluster source in component r",
    ];
    assert_eq!(reasons(&spec), expected);
}

#[test]
fn only_steps_that_mean_clusters_name_one() {
    let types = [
        "apply-component",
        "builtin-apply-component",
        "apply-deployment",
        "apply-object",
        "export2config",
        "export2secret",
        "read-object",
    ];
    let mut cluster = Cluster::with_definitions();
    for type_ in types {
        cluster.add("WorkflowStepDefinition", "team", type_, &template("// step"));
    }
    let inline = json!([{ "type": "topology", "properties": { "clusters": ["prod"] } }]);
    let properties = json!({ "component": "r", "cluster": "orders-db", "inlinePolicies": inline });
    let of_type = |type_: &str| {
        let mut spec = components(&[("r", "worker")]);
        let step = json!({ "name": "s", "type": type_, "properties": properties });
        spec["workflow"] = json!({ "steps": [step] });
        let found = unsupported_clusters(&parse_in(&cluster, &spec).unwrap(), &[]);
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for type_ in types {
        assert_eq!(of_type(type_), ["cluster orders-db in step s"], "{type_}");
    }
    assert_eq!(of_type("deploy"), ["cluster prod in step s"]);
    assert_eq!(of_type("notify"), [""; 0], "a step type of a user");
    assert_eq!(of_type("suspend"), [""; 0]);
}

#[test]
fn invalid_properties_name_no_cluster() {
    let spec = json!({
        "components": [{ "name": "r", "type": "ref-objects", "properties": "text" }],
        "policies": [{ "name": "t", "type": "topology", "properties": [7] }],
        "workflow": { "steps": [{ "name": "deploy", "type": "deploy", "properties": "text" }] },
    });
    assert_eq!(reasons(&spec), Vec::<String>::new());
}

#[test]
fn joined_clusters_that_a_topology_selects_are_found() {
    let cluster = |name: &str, region: &str| JoinedCluster {
        name: name.to_owned(),
        labels: [("region".to_owned(), region.to_owned())].into(),
    };
    let joined = [cluster("prod-eu", "eu"), cluster("prod-us", "us")];
    let found = |properties: Value| {
        let mut spec = components(&[("r", "worker")]);
        spec["policies"] = json!([{ "name": "t", "type": "topology", "properties": properties }]);
        let inline = json!([{ "type": "topology", "properties": properties }]);
        spec["workflow"] = json!({ "steps": [
            { "name": "deploy", "type": "deploy", "properties": { "inlinePolicies": inline } },
        ] });
        let parsed = parse_in(&Cluster::with_definitions(), &spec).unwrap();
        let found = unsupported_clusters(&parsed, &joined);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty() || !cluster_selections(&parsed).is_empty());
        found
    };
    let of = |name: &str| ["policy t", "step deploy"].map(|place| format!("cluster {name} in {place}"));
    assert_eq!(
        found(json!({ "clusterLabelSelector": { "region": "eu" } })),
        of("prod-eu")
    );
    assert_eq!(
        found(json!({ "clusterLabelSelector": {} })),
        [of("prod-eu"), of("prod-us")].concat()
    );
    let labels = json!({ "cluster.core.oam.dev/control-plane": "true" });
    for properties in [
        json!({ "clusterLabelSelector": labels }),
        json!({ "clusterLabelSelector": { "region": "asia" }, "allowEmpty": true }),
        json!({ "clusters": ["local"], "clusterLabelSelector": { "region": "eu" } }),
        json!({}),
    ] {
        assert_eq!(found(properties), [""; 0]);
    }
}

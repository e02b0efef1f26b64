use super::*;
use crate::controllers::oam::clusters::CONTROL_PLANE;

fn selections(policies: Value, steps: Value) -> Vec<String> {
    let mut spec = components(&[("r", "worker")]);
    spec["policies"] = policies;
    spec["workflow"] = json!({ "steps": steps });
    cluster_selections(&parse_in(&Cluster::with_definitions(), &spec).unwrap())
}

#[test]
fn policies_and_steps_that_may_select_joined_clusters_are_named() {
    let topology = |properties: Value| json!([{ "name": "t", "type": "topology", "properties": properties }]);
    let found = |properties: Value| {
        let inline = json!({ "inlinePolicies": topology(properties.clone()) });
        let step = json!({ "name": "deploy", "type": "deploy", "properties": inline });
        selections(topology(properties), json!([step]))
    };
    for labels in [json!({}), json!({ "region": "eu" }), json!({ CONTROL_PLANE: "false" })] {
        assert_eq!(
            found(json!({ "clusterLabelSelector": labels })),
            ["policy t", "step deploy"]
        );
    }
    for properties in [
        json!({ "clusterLabelSelector": { CONTROL_PLANE: "true" } }),
        json!({ "clusters": ["east"], "clusterLabelSelector": { "region": "eu" } }),
        json!({}),
    ] {
        assert_eq!(found(properties), [""; 0]);
    }
}

#[test]
fn invalid_properties_select_no_cluster() {
    let policies = json!([{ "name": "t", "type": "topology", "properties": [7] }]);
    let step = |properties: Value| json!({ "name": "deploy", "type": "deploy", "properties": properties });
    for properties in [
        json!("text"),
        json!({ "inlinePolicies": [7] }),
        json!({ "inlinePolicies": 7 }),
    ] {
        assert_eq!(selections(policies.clone(), json!([step(properties)])), [""; 0]);
    }
}

use super::*;
use crate::controllers::oam::policies::PolicyTarget;

#[test]
fn policies_of_other_types_are_rendered_by_their_definition() {
    let spec = json!({ "components": [], "policies": [
        { "name": "once", "type": "apply-once", "properties": { "enable": true } },
        { "name": "limit", "type": "quota", "properties": { "cpu": 1 } },
    ] });
    let parsed = parse_in(&Cluster::with_definitions(), &spec).unwrap();
    let [rendered] = &parsed.policies[..] else {
        panic!("one policy");
    };
    assert_eq!(rendered.policy.name, "limit");
    assert_eq!(parsed.all_policies.len(), 2);
}

#[test]
fn a_policy_whose_definition_has_a_scope_is_skipped_alone_and_known_to_steps() {
    let mut cluster = Cluster::with_definitions();
    let mut definition = template("output: {}");
    definition["spec"]["scope"] = "Application".into();
    cluster.add("PolicyDefinition", "vela-system", "labeled", &definition);
    let rules = json!({ "rules": [{ "selector": { "resourceTypes": ["Pod"] }, "strategy": "never" }] });
    let spec = json!({
        "components": [],
        "policies": [
            { "name": "same", "type": "labeled" },
            { "name": "same", "type": "garbage-collect", "properties": rules },
            { "name": "scoped", "type": "labeled" },
        ],
        "workflow": { "steps": [{ "name": "s", "type": "deploy", "properties": { "policies": ["scoped"] } }] },
    });
    let parsed = parse_in(&cluster, &spec).unwrap();
    let pod = PolicyTarget {
        kind: "Pod",
        ..PolicyTarget::default()
    };
    assert!(parsed.rules.garbage_collect.has_strategy(&pod));
    assert_eq!((parsed.skipped_policies.len(), parsed.policies.len()), (2, 0));
    assert!(parsed.all_policies.iter().any(|policy| policy.name == "scoped"));
}

#[test]
fn policies_that_a_deploy_step_names_are_found_by_namespace() {
    let mut cluster = Cluster::with_definitions();
    cluster.add(
        "Policy",
        "team",
        "ext",
        &json!({ "type": "topology", "properties": { "clusters": ["local"] } }),
    );
    let spec = |names: &[&str]| {
        json!({
            "components": [],
            "policies": [{ "name": "own", "type": "topology", "properties": {} }],
            "workflow": { "steps": [{ "name": "group", "type": "step-group", "subSteps": [
                { "name": "out", "type": "deploy", "properties": { "policies": names } },
                { "name": "tell", "type": "notify", "properties": { "policies": ["not a policy"] } },
            ] }] },
        })
    };
    let parsed = parse_in(&cluster, &spec(&["own", "ext"])).unwrap();
    assert_eq!(parsed.external_policies.keys().collect::<Vec<_>>(), ["ext"]);
    assert_eq!(
        parsed
            .all_policies
            .iter()
            .map(|policy| policy.name.as_str())
            .collect::<Vec<_>>(),
        ["own", "ext"]
    );
    let error = parse_in(&cluster, &spec(&["own", "lost"])).unwrap_err();
    assert_eq!(
        error,
        "failed to parsePolicies: external policy lost not found, which step out names"
    );
}

#[test]
fn invalid_policies_are_errors() {
    let spec = json!({ "components": [], "policies": [
        { "name": "collect", "type": "garbage-collect", "properties": { "rules": "all" } },
    ] });
    let error = parse_in(&Cluster::default(), &spec).unwrap_err();
    assert!(
        error.starts_with("failed to parsePolicies: failed to parse garbage-collect policy: rules: "),
        "{error}"
    );
}

#[test]
fn rules_come_from_the_application_and_not_from_its_workflow() {
    let mut cluster = Cluster::with_definitions();
    let rules = json!({ "rules": [{ "selector": { "resourceTypes": ["Pod"] } }] });
    cluster.add(
        "Policy",
        "team",
        "ext",
        &json!({ "type": "read-only", "properties": rules }),
    );
    let spec = json!({
        "components": [], "policies": [{ "name": "own", "type": "take-over", "properties": rules }],
        "workflow": { "steps": [{ "name": "s", "type": "deploy", "properties": { "policies": ["ext"] } }] },
    });
    let parsed = parse_in(&cluster, &spec).unwrap();
    let pod = PolicyTarget {
        kind: "Pod",
        ..PolicyTarget::default()
    };
    assert!(parsed.rules.take_over.contains(&pod) && !parsed.rules.read_only.contains(&pod));
    let mut addon = application(&json!({ "components": [] }));
    addon.metadata.labels = Some([("addons.oam.dev/name".to_owned(), "fluxcd".to_owned())].into());
    let parsed = parse(&addon, &live(&cluster)).unwrap();
    assert!(parsed.rules.apply_once.omits_manifests());
}

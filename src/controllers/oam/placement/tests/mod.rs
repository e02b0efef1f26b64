mod limits;
mod overrides;
mod progress;
mod replication;
mod services;
mod topology;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::api::oam::AppPolicy;

pub const SETTINGS: PlacementSettings<'static> = PlacementSettings {
    namespace: "team",
    allow_cross_namespace: true,
    unanchored_overrides: false,
    clusters: Ok(&[]),
    accepts_any_cluster: false,
};

pub fn components(specs: &[Value]) -> Vec<Component> {
    specs
        .iter()
        .map(|spec| serde_json::from_value(spec.clone()).unwrap())
        .collect()
}

pub fn policy(name: &str, type_: &str, properties: Value) -> AppPolicy {
    AppPolicy {
        name: name.to_owned(),
        type_: type_.to_owned(),
        properties: Some(properties),
        ..AppPolicy::default()
    }
}

/// Deploys with policies that the step names in order.
pub fn deploy(
    specs: &[Value],
    policies: &[AppPolicy],
    settings: &PlacementSettings<'_>,
) -> Result<Vec<PlacedComponent>, PlacementError> {
    let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    let step = DeployParameters::parse(&json!({ "policies": names })).unwrap();
    deployments(&components(specs), policies, &step, settings)
}

pub fn keys(placed: &[PlacedComponent]) -> Vec<String> {
    placed.iter().map(PlacedComponent::key).collect()
}

fn web() -> Vec<Value> {
    vec![json!({ "name": "web", "type": "webservice" })]
}

#[test]
fn what_remains_is_in_the_namespace_of_the_application_and_exceptions_that_do_not_exist_are_ignored() {
    let components = components(&[web(), vec![json!({ "name": "job", "type": "task" })]].concat());
    let mut deployer = Deployer::new(&components, &[], SETTINGS);
    let mut remaining = |parameters: Value| {
        let parameters = RemainingParameters::parse(&parameters);
        parameters.and_then(|parameters| deployer.remaining(&parameters))
    };
    assert_eq!(keys(&remaining(json!({})).unwrap()), ["///web", "///job"]);
    let exceptions = json!({ "exceptions": ["web", "lost"] });
    assert_eq!(keys(&remaining(exceptions).unwrap()), ["///job"]);
    let old_form = json!({ "exceptions": { "web": { "skipAllTraits": true } } });
    assert!(matches!(remaining(old_form), Err(PlacementError::InvalidParameters(_))));
}

#[test]
fn without_policies_components_go_to_the_application_in_the_local_cluster() {
    let specs = [web(), vec![json!({ "name": "job", "type": "task" })]].concat();
    let placed = deploy(&specs, &[], &SETTINGS).unwrap();
    assert_eq!(keys(&placed), ["local///web", "local///job"]);
    assert_eq!(*placed[0].component, components(&web())[0]);
}

#[test]
fn topology_override_and_replication_apply_in_this_order() {
    let policies = [
        policy("r", "replication", json!({ "selector": ["extra"], "keys": ["a", "b"] })),
        policy(
            "o",
            "override",
            json!({ "components": [{ "name": "extra", "type": "worker" }] }),
        ),
        policy("t", "topology", json!({ "namespace": "prod" })),
        policy("u", "topology", json!({ "namespace": "test" })),
        policy("once", "apply-once", json!({ "enable": true })),
    ];
    let placed = deploy(&web(), &policies, &SETTINGS).unwrap();
    let expected = [
        "local/prod//web",
        "local/test//web",
        "local/prod/a/extra",
        "local/test/a/extra",
        "local/prod/b/extra",
        "local/test/b/extra",
    ];
    assert_eq!(keys(&placed), expected);
}

#[test]
fn a_step_uses_the_policies_that_it_names_and_then_its_own() {
    let policies = [
        policy("prod", "topology", json!({ "namespace": "prod" })),
        policy("other", "topology", json!({ "namespace": "other" })),
    ];
    let inline = json!([
        { "type": "topology", "properties": { "namespace": "inline" } },
        { "type": "override", "properties": 1 },
    ]);
    let step = |inline: &Value| DeployParameters::parse(&json!({ "policies": ["prod"], "inlinePolicies": inline }));
    let first = step(&json!([inline[0]])).unwrap();
    let placed = deployments(&components(&web()), &policies, &first, &SETTINGS).unwrap();
    assert_eq!(keys(&placed), ["local/prod//web", "local/inline//web"]);
    let error = deployments(&components(&web()), &policies, &step(&inline).unwrap(), &SETTINGS).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("failed to parse override policy inline-override-policy-1: "),
        "{text}"
    );
}

#[test]
fn a_policy_that_is_missing_is_named() {
    let step = DeployParameters::parse(&json!({ "policies": ["lost"] })).unwrap();
    let error = deployments(&[], &[], &step, &SETTINGS).unwrap_err();
    assert_eq!(error.to_string(), "policy lost not found");
}

#[test]
fn of_two_policies_with_one_name_the_later_counts() {
    let policies = [
        policy("t", "topology", json!({ "namespace": "one" })),
        policy("t", "topology", json!({ "namespace": "two" })),
    ];
    let step = DeployParameters::parse(&json!({ "policies": ["t"] })).unwrap();
    let placed = deployments(&components(&web()), &policies, &step, &SETTINGS).unwrap();
    assert_eq!(keys(&placed), ["local/two//web"]);
}

#[rstest]
#[case::absent(json!({}), &["local/two//web"])]
#[case::null(json!({ "ignoreTerraformComponent": null }), &["local/two//web"])]
#[case::ignored(json!({ "ignoreTerraformComponent": true }), &["local/two//web"])]
#[case::not_ignored(json!({ "ignoreTerraformComponent": false }), &["local/two//web", "local/two//db"])]
fn terraform_components_are_deployed_if_the_step_says_so(#[case] mut parameters: Value, #[case] expected: &[&str]) {
    let components = components(&[web(), vec![json!({ "name": "db", "type": "rds" })]].concat());
    let policies = [policy("t", "topology", json!({ "namespace": "two" }))];
    parameters["policies"] = json!(["t"]);
    let step = DeployParameters::parse(&parameters).unwrap();
    let mut deployer = Deployer::new(&components, &policies, SETTINGS).with_terraform(["db"].into());
    assert_eq!(keys(&deployer.deployments(&step).unwrap()), expected);
}

#[test]
fn an_override_may_add_a_terraform_component() {
    let db = json!({ "name": "db", "type": "rds", "properties": { "size": 1 } });
    let policies = [policy("o", "override", json!({ "components": [db] }))];
    let step = DeployParameters::parse(&json!({ "policies": ["o"] })).unwrap();
    let mut deployer = Deployer::new(&[], &policies, SETTINGS).with_terraform(["db"].into());
    assert_eq!(keys(&deployer.deployments(&step).unwrap()), ["local///db"]);
}

#[rstest]
#[case::absent(json!({}), Ok(()))]
#[case::null(json!({ "parallelism": null, "policies": null, "inlinePolicies": null }), Ok(()))]
#[case::one(json!({ "parallelism": 1, "ignoreTerraformComponent": null }), Ok(()))]
#[case::huge(json!({ "parallelism": 5_000_000_000_i64 }), Ok(()))]
#[case::zero(json!({ "parallelism": 0 }), Err("parallelism cannot be smaller than 1"))]
#[case::negative(json!({ "parallelism": -3 }), Err("parallelism cannot be smaller than 1"))]
#[case::text(
    json!({ "parallelism": "5" }),
    Err("invalid parameters of a deploy step: parallelism: invalid type: string \"5\", expected i64")
)]
#[case::policies(
    json!({ "policies": "prod" }),
    Err("invalid parameters of a deploy step: policies: invalid type: string \"prod\", expected a sequence")
)]
#[case::list(json!([1]), Err("invalid parameters of a deploy step: [0]: invalid type: integer `1`, expected a sequence"))]
fn parameters_of_a_step_are_checked(#[case] parameters: Value, #[case] expected: Result<(), &str>) {
    let parsed = DeployParameters::parse(&parameters).map(drop);
    assert_eq!(
        parsed.map_err(|error| error.to_string()),
        expected.map_err(str::to_owned)
    );
}

fn many(count: usize) -> Vec<Value> {
    (0..count)
        .map(|index| json!({ "name": format!("web-{index}"), "type": "webservice" }))
        .collect()
}

#[test]
fn many_policies_are_refused() {
    let names = vec!["o"; 101];
    let step = DeployParameters::parse(&json!({ "policies": names })).unwrap();
    let policies = [policy("o", "override", json!({}))];
    let error = deployments(&[], &policies, &step, &SETTINGS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "101 policies exceed the limit of 100 in one deploy step; split the step or the application"
    );
}

#[test]
fn places_share_their_component() {
    let policies = [
        policy("t", "topology", json!({ "namespace": "one" })),
        policy("u", "topology", json!({ "namespace": "two" })),
    ];
    let placed = deploy(&web(), &policies, &SETTINGS).unwrap();
    assert!(Arc::ptr_eq(&placed[0].component, &placed[1].component));
}

use super::*;

fn replicated(policies: &[Value]) -> Result<Vec<String>, String> {
    let specs = ["web", "job", "db"].map(|name| json!({ "name": name, "type": "t" }));
    let policies: Vec<_> = policies
        .iter()
        .enumerate()
        .map(|(index, properties)| policy(&format!("r{index}"), "replication", properties.clone()))
        .collect();
    let placed = deploy(&specs, &policies, &SETTINGS);
    placed.map(|placed| keys(&placed)).map_err(|error| error.to_string())
}

#[rstest]
#[case::two(
    &[json!({ "keys": ["eu", "us"], "selector": ["db", "web", "lost"] })],
    &["local///job", "local//eu/web", "local//us/web", "local//eu/db", "local//us/db"]
)]
#[case::no_keys(&[json!({ "keys": [], "selector": ["db"] })], &["local///web", "local///job"])]
#[case::same_keys(&[json!({ "keys": ["a", "a"], "selector": ["web"] })], &["local///job", "local///db", "local//a/web"])]
#[case::several(
    &[json!({ "keys": ["a"], "selector": ["web"] }), json!({ "keys": ["a", "b"], "selector": ["web", "job"] })],
    &["local///db", "local//a/web", "local//b/web", "local//a/job", "local//b/job"]
)]
fn selected_components_are_replaced_by_a_replica_for_each_key(#[case] policies: &[Value], #[case] expected: &[&str]) {
    let expected = expected.iter().map(|key| (*key).to_owned()).collect();
    assert_eq!(replicated(policies), Ok(expected));
}

#[rstest]
#[case::unknown_component(
    json!({ "keys": ["a"], "selector": ["lost"] }),
    "failed to apply replicate policy r0: no component selected to replicate"
)]
#[case::no_selector(
    json!({ "keys": ["a"] }),
    "failed to apply replicate policy r0: no component selected to replicate"
)]
#[case::unknown_key(
    json!({ "key": ["a"] }),
    "failed to parse replicate policy r0: key: unknown field `key`, expected `keys` or `selector`"
)]
#[case::keys(
    json!({ "keys": { "a": 1 } }),
    "failed to parse replicate policy r0: keys: invalid type: map, expected a sequence"
)]
#[case::number(
    json!({ "keys": [1] }),
    "failed to parse replicate policy r0: keys[0]: invalid type: integer `1`, expected a string"
)]
fn invalid_replications_fail(#[case] properties: Value, #[case] expected: &str) {
    assert_eq!(replicated(&[properties]), Err(expected.to_owned()));
}

#[test]
fn many_replicas_are_refused_before_they_are_made() {
    let keys: Vec<_> = (0..100_000).map(|index| index.to_string()).collect();
    let names: Vec<_> = (0..1_000).map(|index| format!("web-{index}")).collect();
    let policies = [policy("r", "replication", json!({ "keys": keys, "selector": names }))];
    let error = deploy(&many(1_000), &policies, &SETTINGS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "100000000 replicas exceed the limit of 5000 in one deploy step; split the step or the application"
    );
}

#[test]
fn a_replication_without_properties_changes_nothing() {
    let empty = AppPolicy {
        properties: None,
        ..policy("r", "replication", json!(null))
    };
    assert_eq!(keys(&deploy(&web(), &[empty], &SETTINGS).unwrap()), ["local///web"]);
}

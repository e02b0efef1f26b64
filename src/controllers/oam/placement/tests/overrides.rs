use std::time::{Duration, Instant};

use super::*;

const UNANCHORED: PlacementSettings<'static> = PlacementSettings {
    unanchored_overrides: true,
    ..SETTINGS
};

/// Returns the components after an override, as JSON.
fn overridden(specs: &[Value], properties: Value, settings: &PlacementSettings<'_>) -> Result<Vec<Value>, String> {
    let placed = deploy(specs, &[policy("o", "override", properties)], settings).map_err(|error| error.to_string())?;
    Ok(placed.iter().map(|one| json!(*one.component)).collect())
}

/// Returns the names of the components that a pattern changes.
fn changed(names: &[&str], pattern: &str, settings: &PlacementSettings<'_>) -> Vec<String> {
    let specs: Vec<_> = names.iter().map(|name| json!({ "name": name, "type": "t" })).collect();
    let change = json!({ "components": [{ "name": pattern, "properties": { "changed": true } }] });
    let components = overridden(&specs, change, settings).unwrap();
    let changed = components.iter().filter(|one| one["properties"]["changed"] == true);
    changed.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[rstest]
#[case::exact("web", &["web"])]
#[case::prefix("web-*", &["web-1", "web-eu-2"])]
#[case::suffix("*-2", &["web-eu-2"])]
#[case::inner("w*b", &["web"])]
#[case::several("*e*-*2", &["web-eu-2"])]
#[case::all("*", &["web", "web-1", "web-eu-2", "my-web"])]
#[case::adjacent("**web", &["web", "my-web"])]
#[case::empty("", &["web", "web-1", "web-eu-2", "my-web"])]
#[case::overlapping("web*eb", &[])]
#[case::expression("we[b]*", &[])]
fn a_pattern_matches_whole_names(#[case] pattern: &str, #[case] expected: &[&str]) {
    assert_eq!(
        changed(&["web", "web-1", "web-eu-2", "my-web"], pattern, &SETTINGS),
        expected
    );
}

#[rstest]
#[case::part("web", &["web", "web-1", "my-web"])]
#[case::wildcard("web-*", &["web-1"])]
#[case::expression("^we[b]$", &["web"])]
#[case::alternatives("(1|my)", &["web-1", "my-web"])]
#[case::invalid("web(", &[])]
fn an_unanchored_pattern_is_searched_as_a_regular_expression(#[case] pattern: &str, #[case] expected: &[&str]) {
    assert_eq!(changed(&["web", "web-1", "my-web"], pattern, &UNANCHORED), expected);
}

#[test]
fn properties_merge_field_by_field_and_lists_are_replaced() {
    let specs = [
        json!({ "name": "web", "type": "webservice", "dependsOn": ["db"], "properties": {
        "image": "nginx:1", "env": [{ "name": "A" }], "probe": { "path": "/", "port": 80 }, "cpu": "1",
    } }),
    ];
    let change = json!({ "components": [{ "name": "web", "externalRevision": "r2", "properties": {
        "image": "nginx:2", "env": [], "probe": { "port": null, "scheme": "HTTP" }, "cpu": { "limit": 0 }, "new": false,
    } }] });
    let components = overridden(&specs, change, &SETTINGS).unwrap();
    let expected = json!({ "name": "web", "type": "webservice", "externalRevision": "r2", "dependsOn": ["db"], "properties": {
        "image": "nginx:2", "env": [], "probe": { "path": "/", "port": null, "scheme": "HTTP" },
        "cpu": { "limit": 0 }, "new": false,
    } });
    assert_eq!(components, [expected]);
}

#[test]
fn traits_merge_by_type() {
    let specs = [json!({ "name": "web", "type": "webservice", "traits": [
        { "type": "scaler", "properties": { "replicas": 1, "min": 1 } }, { "type": "labels" }, { "type": "expose" },
    ] })];
    let change = json!({ "components": [{ "traits": [
        { "type": "scaler", "properties": { "replicas": 3 } }, { "type": "labels", "properties": { "a": "b" } },
        { "type": "expose", "disable": true }, { "type": "hpa", "properties": { "max": 5 } },
        { "type": "gateway", "disable": true },
    ] }] });
    let components = overridden(&specs, change, &SETTINGS).unwrap();
    let expected = json!([
        { "type": "scaler", "properties": { "replicas": 3, "min": 1 } },
        { "type": "labels", "properties": { "a": "b" } },
        { "type": "hpa", "properties": { "max": 5 } },
    ]);
    assert_eq!(components[0]["traits"], expected);
}

#[test]
fn a_change_without_a_name_selects_components_of_its_type() {
    let specs = [
        json!({ "name": "web", "type": "webservice" }),
        json!({ "name": "job", "type": "task" }),
    ];
    let change = json!({ "components": [{ "type": "task", "properties": { "retries": 2 } }] });
    let components = overridden(&specs, change, &SETTINGS).unwrap();
    assert_eq!(components[0], specs[0]);
    assert_eq!(components[1]["properties"], json!({ "retries": 2 }));
}

#[test]
fn another_type_replaces_the_component_but_for_its_name() {
    let specs = [
        json!({ "name": "web-1", "type": "webservice", "dependsOn": ["db"], "properties": { "image": "nginx" },
            "traits": [{ "type": "scaler" }] }),
        json!({ "name": "db", "type": "statefulset" }),
    ];
    let change = json!({ "components": [{ "name": "web-*", "type": "worker", "properties": { "cmd": "run" }, "traits": [
        { "type": "labels", "properties": { "a": "b" } }, { "type": "expose", "disable": true },
    ] }] });
    let components = overridden(&specs, change, &SETTINGS).unwrap();
    let replaced = json!({ "name": "web-1", "type": "worker", "properties": { "cmd": "run" },
        "traits": [{ "type": "labels", "properties": { "a": "b" } }] });
    assert_eq!(components, [replaced, specs[1].clone()]);
}

#[test]
fn a_component_that_is_missing_is_added_with_its_type_or_else_an_error() {
    let added = json!({ "name": "cache", "type": "worker", "properties": { "image": "redis" } });
    let components = overridden(&web(), json!({ "components": [added] }), &SETTINGS).unwrap();
    assert_eq!(components[1], added);
    for (name, settings) in [("Wbe_1.x", SETTINGS), ("wbe", UNANCHORED), ("(web)", SETTINGS)] {
        let change = json!({ "components": [{ "name": name, "properties": { "replicas": 2 } }] });
        let error = overridden(&web(), change, &settings).unwrap_err();
        assert_eq!(
            error,
            format!("failed to apply override policy o: component {name} not found; set its type to add it")
        );
    }
}

#[test]
fn a_pattern_that_matches_nothing_adds_nothing() {
    let change = json!({ "components": [{ "name": "db-*", "type": "worker" }, { "name": "db-*" }] });
    assert_eq!(overridden(&web(), change, &SETTINGS).unwrap().len(), 1);
}

#[rstest]
#[case::absent(json!({}), &["a", "b", "c"])]
#[case::null(json!({ "selector": null, "components": null }), &["a", "b", "c"])]
#[case::named(json!({ "selector": ["c", "a", "lost"] }), &["a", "c"])]
#[case::empty(json!({ "selector": [] }), &[])]
#[case::after_changes(json!({ "components": [{ "name": "d", "type": "t" }], "selector": ["d"] }), &["d"])]
fn a_selector_keeps_the_named_components(#[case] properties: Value, #[case] expected: &[&str]) {
    let specs = ["a", "b", "c"].map(|name| json!({ "name": name, "type": "t" }));
    let kept = overridden(&specs, properties, &SETTINGS).unwrap();
    let names: Vec<_> = kept.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, expected);
}

#[test]
fn overrides_apply_one_after_the_other() {
    let change =
        |value: u32| json!({ "components": [{ "properties": { "value": value, (value.to_string()): true } }] });
    let policies = [
        policy("one", "override", change(1)),
        policy("two", "override", change(2)),
    ];
    let placed = deploy(&web(), &policies, &SETTINGS).unwrap();
    let expected = json!({ "value": 2, "1": true, "2": true });
    assert_eq!(placed[0].component.properties, Some(expected));
}

#[rstest]
#[case::null(json!(null), "override policy o must not have empty properties")]
#[case::unknown(json!({ "component": [] }), "failed to parse override policy o: component: unknown field `component`, ")]
#[case::unknown_inside(
    json!({ "components": [{ "image": "nginx" }] }),
    "failed to parse override policy o: components[0].image: unknown field `image`, "
)]
#[case::unknown_in_trait(
    json!({ "components": [{ "traits": [{ "disabled": true }] }] }),
    "failed to parse override policy o: components[0].traits[0].disabled: unknown field `disabled`, "
)]
#[case::properties(
    json!({ "components": [{ "properties": [1] }] }),
    "failed to parse override policy o: components[0].properties: invalid type: sequence, "
)]
#[case::disable(
    json!({ "components": [{ "traits": [{ "type": "a", "disable": "yes" }] }] }),
    "failed to parse override policy o: components[0].traits[0].disable: invalid type: string \"yes\", "
)]
#[case::selector(
    json!({ "selector": "web" }),
    "failed to parse override policy o: selector: invalid type: string \"web\", "
)]
#[case::pattern(
    json!({ "components": [{ "name": "*".repeat(254) }] }),
    "failed to apply override policy o: a name pattern of 254 bytes exceeds the limit of 253"
)]
fn invalid_overrides_say_where(#[case] properties: Value, #[case] expected: &str) {
    let error = overridden(&web(), properties, &SETTINGS).unwrap_err();
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn properties_that_are_no_object_are_not_merged() {
    let spec = json!({ "name": "web", "type": "t", "properties": ["a"], "traits": [{ "type": "x", "properties": 1 }] });
    let change = |change: Value| json!({ "components": [change] });
    let error = overridden(
        std::slice::from_ref(&spec),
        change(json!({ "properties": { "a": 1 } })),
        &SETTINGS,
    )
    .unwrap_err();
    assert_eq!(
        error,
        "failed to apply override policy o: properties of component web are not an object"
    );
    let mut with_properties = spec;
    with_properties["properties"] = json!({});
    let error = overridden(
        &[with_properties],
        change(json!({ "traits": [{ "type": "x" }] })),
        &SETTINGS,
    )
    .unwrap_err();
    assert_eq!(
        error,
        "failed to apply override policy o: properties of trait x of component web are not an object"
    );
}

#[test]
fn deeply_nested_properties_merge() {
    let nested = |leaf: Value| (0..120).fold(leaf, |inner, _| json!({ "a": inner }));
    let specs = [json!({ "name": "web", "type": "t", "properties": nested(json!({ "x": 1 })) })];
    let change = json!({ "components": [{ "properties": nested(json!({ "y": 2 })) }] });
    let components = overridden(&specs, change, &SETTINGS).unwrap();
    assert_eq!(components[0]["properties"], nested(json!({ "x": 1, "y": 2 })));
}

#[test]
fn a_change_that_would_fill_the_memory_is_refused() {
    let text = "x".repeat(100_000);
    let change = json!({ "components": [{ "properties": { "text": text } }] });
    let error = overridden(&many(1_000), change, &SETTINGS).unwrap_err();
    assert!(
        error.contains("exceed the limit of 33554432 for all deploy steps"),
        "{error}"
    );
}

#[test]
fn many_changes_and_components_are_refused() {
    let changes: Vec<_> = (0..501).map(|_| json!({ "name": "*" })).collect();
    let error = overridden(&web(), json!({ "components": changes }), &SETTINGS).unwrap_err();
    assert!(
        error.starts_with("501 changes of components exceed the limit of 500"),
        "{error}"
    );
    let added: Vec<_> = (0..2)
        .map(|index| json!({ "name": format!("new-{index}"), "type": "t" }))
        .collect();
    let error = overridden(&many(999), json!({ "components": added }), &SETTINGS).unwrap_err();
    assert!(error.starts_with("1001 components exceed the limit of 1000"), "{error}");
}

#[test]
fn expensive_patterns_take_little_time() {
    let specs: Vec<_> = (0..1_000)
        .map(|index| json!({ "name": format!("{}{index}", "a".repeat(200)), "type": "t" }))
        .collect();
    for (pattern, settings) in [
        ("*a".repeat(100) + "b", SETTINGS),
        ("(a*)*(a*)*$".repeat(10), UNANCHORED),
    ] {
        let changes: Vec<_> = (0..50).map(|_| json!({ "name": format!("{pattern}*x") })).collect();
        let start = Instant::now();
        overridden(&specs, json!({ "components": changes }), &settings).unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{pattern}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn types_that_overrides_name_are_found() {
    let properties = json!({ "components": [
        { "name": "web", "type": "worker", "traits": [{ "type": "scaler" }, { "type": "" }, 7] },
        { "type": "worker" }, { "type": 7 }, "text",
    ] });
    let types: Vec<_> = override_types(&properties).into_iter().collect();
    let expected = [
        NamedType::Component("worker".to_owned()),
        NamedType::Trait("scaler".to_owned()),
    ];
    assert_eq!(types, expected);
    assert!(override_types(&json!("components")).is_empty());
}

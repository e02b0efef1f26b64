use proptest::prelude::*;
use serde_json::json;

use super::*;

fn merged(base: Value, patch: &Value) -> Result<Value, String> {
    let mut result = base;
    merge(&mut result, patch).map_err(|error| error.to_string())?;
    Ok(result)
}

fn patched(base: Value, result: &Value) -> Result<Value, String> {
    let mut workload = base;
    let fields = result.as_object().unwrap();
    apply_patch(&mut workload, &result["patch"], fields).map_err(|error| error.to_string())?;
    Ok(workload)
}

#[test]
fn objects_are_unified_by_key() {
    let base = json!({"a": {"x": 1}, "b": "t"});
    assert_eq!(
        merged(base, &json!({"a": {"y": 2}, "c": [1]})),
        Ok(json!({"a": {"x": 1, "y": 2}, "b": "t", "c": [1]}))
    );
}

#[test]
fn equal_scalars_pass_and_different_ones_conflict() {
    let base = json!({"a": {"n": 1, "f": 2.0, "t": "x", "z": null, "o": {}}});
    for patch in [
        json!({"n": 1.0}),
        json!({"f": 2}),
        json!({"t": "x"}),
        json!({"z": null}),
    ] {
        assert_eq!(merged(base.clone(), &json!({"a": patch})), Ok(base.clone()));
    }
    for (patch, expected) in [
        (json!({"n": 2}), "a.n: conflicting values 1 and 2"),
        (
            json!({"t": 1}),
            "a.t: conflicting values \"x\" and 1 (mismatched types string and int)",
        ),
        (
            json!({"z": false}),
            "a.z: conflicting values null and false (mismatched types null and bool)",
        ),
        (
            json!({"o": []}),
            "a.o: conflicting values {...} and [...] (mismatched types struct and list)",
        ),
        (
            json!({"t": {"x": 1}}),
            "a.t: conflicting values \"x\" and {...} (mismatched types string and struct)",
        ),
    ] {
        assert_eq!(merged(base.clone(), &json!({"a": patch})), Err(expected.to_owned()));
    }
}

#[test]
fn a_long_value_is_shortened_in_a_conflict() {
    let error = merged(json!({"a": "x".repeat(1000)}), &json!({"a": 1})).unwrap_err();
    assert!(error.len() < 200, "{error}");
}

#[test]
fn lists_without_a_key_are_unified_by_position() {
    let base = json!({"l": [{"a": 1}, {"b": 2}]});
    assert_eq!(
        merged(base.clone(), &json!({"l": [{"c": 3}, {}, {"d": 4}]})),
        Ok(json!({"l": [{"a": 1, "c": 3}, {"b": 2}, {"d": 4}]}))
    );
    assert_eq!(
        merged(base.clone(), &json!({"l": [{"c": 3}]})),
        Err("l: incompatible list lengths (1 and 2)".to_owned())
    );
    assert_eq!(
        merged(base.clone(), &json!({"l": [{"c": 3}], "$+l": {"open": "true"}})),
        Ok(json!({"l": [{"a": 1, "c": 3}, {"b": 2}]}))
    );
    assert_eq!(
        merged(base, &json!({"l": [{}, {"b": 3}]})),
        Err("l.1.b: conflicting values 2 and 3".to_owned())
    );
}

#[test]
fn lists_with_a_key_are_aligned() {
    let base = json!({"l": [{"name": "a", "x": 1}, {"other": 1}, {"name": "b"}]});
    let patch = json!({
        "l": [{"name": "c"}, {"name": "b", "y": 2}, {"without": 1}, {"name": "d"}],
        "$+l": {"patchKey": "name"},
    });
    let expected =
        json!({"l": [{"name": "a", "x": 1}, {"other": 1}, {"name": "b", "y": 2}, {"name": "c"}, {"name": "d"}]});
    assert_eq!(merged(base, &patch), Ok(expected));
}

#[test]
fn an_element_that_matches_is_unified_and_not_replaced() {
    let base = json!({"l": [{"name": "a", "x": 1}]});
    let patch = json!({"l": [{"name": "a", "x": 2}], "$+l": {"patchKey": "name"}});
    assert_eq!(
        merged(base, &patch),
        Err("l.0.x: conflicting values 1 and 2".to_owned())
    );
}

#[test]
fn elements_with_retained_keys_are_replaced() {
    let base = json!({"l": [{"name": "a", "x": 1}, {"name": "b", "x": 1}]});
    let patch = json!({"l": [{"name": "b", "y": 2}], "$+l": {"patchKey": "name", "patchStrategy": "retainKeys"}});
    assert_eq!(
        merged(base, &patch),
        Ok(json!({"l": [{"name": "a", "x": 1}, {"name": "b", "y": 2}]}))
    );
}

#[test]
fn a_key_may_be_a_path_and_one_of_several() {
    let base = json!({"l": [{"secret": {"name": "a"}}, {"config": {"name": "a"}}]});
    let patch = json!({
        "l": [{"secret": {"name": "b"}}, {"config": {"name": "a"}, "optional": true}],
        "$+l": {"patchKey": "secret.name,config.name"},
    });
    let expected = json!({"l": [
        {"secret": {"name": "a"}},
        {"config": {"name": "a"}, "optional": true},
        {"secret": {"name": "b"}},
    ]});
    assert_eq!(merged(base, &patch), Ok(expected));
}

#[test]
fn a_key_that_no_element_has_falls_back_to_positions() {
    let base = json!({"l": [{"name": "a"}]});
    for key in ["id", "name,id"] {
        let patch = json!({"l": [{"name": "a", "x": 1}], "$+l": {"patchKey": key}});
        assert_eq!(
            merged(base.clone(), &patch),
            Ok(json!({"l": [{"name": "a", "x": 1}]})),
            "{key}"
        );
    }
    let patch = json!({"l": [{"name": {}}], "$+l": {"patchKey": "name"}});
    assert_eq!(
        merged(base, &patch),
        Err("l.0.name: conflicting values \"a\" and {...} (mismatched types string and struct)".to_owned())
    );
}

#[test]
fn an_empty_list_with_a_key_changes_nothing() {
    let base = json!({"l": [{"name": "a"}]});
    let patch = json!({"l": [], "$+l": {"patchKey": "name"}});
    assert_eq!(merged(base.clone(), &patch), Ok(base));
}

#[test]
fn keys_of_different_types_differ() {
    let base = json!({"l": [{"id": 1}]});
    let patch = json!({"l": [{"id": "1"}], "$+l": {"patchKey": "id"}});
    assert_eq!(merged(base, &patch), Ok(json!({"l": [{"id": 1}, {"id": "1"}]})));
}

#[test]
fn of_several_elements_with_one_key_the_last_counts() {
    let base = json!({"l": [{"name": "a"}, {"name": "a"}]});
    let patch = json!({"l": [{"name": "a", "x": 1}, {"name": "a", "x": 2}], "$+l": {"patchKey": "name"}});
    assert_eq!(
        merged(base, &patch),
        Ok(json!({"l": [{"name": "a", "x": 2}, {"name": "a"}]}))
    );
}

#[test]
fn deeper_lists_inherit_the_key_and_a_nearer_one_wins() {
    let base = json!({"c": [{"name": "a", "env": [{"name": "x"}], "ports": [{"port": 1}]}]});
    let patch = json!({
        "c": [{"name": "a", "env": [{"name": "y"}], "ports": [{"port": 2}], "$+ports": {"patchKey": "port"}}],
        "$+c": {"patchKey": "name"},
    });
    let expected =
        json!({"c": [{"name": "a", "env": [{"name": "x"}, {"name": "y"}], "ports": [{"port": 1}, {"port": 2}]}]});
    assert_eq!(merged(base, &patch), Ok(expected));
}

#[test]
fn a_strategy_is_not_inherited() {
    let base = json!({"a": {"b": [1], "c": 1}});
    let patch = json!({"a": {"b": [2], "c": 1}, "$+a": {"patchKey": "name"}});
    assert_eq!(
        merged(base, &patch),
        Err("a.b.0: conflicting values 1 and 2".to_owned())
    );
}

#[test]
fn a_list_or_field_may_be_replaced() {
    let base = json!({"l": [1, 2], "o": {"x": 1}, "s": 1});
    let patch = json!({
        "l": [3], "$+l": {"patchStrategy": "replace"},
        "o": {"y": [{"$+z": {"open": "true"}, "z": []}]}, "$+o": {"patchStrategy": "retainKeys"},
        "s": "x", "$+s": {"patchStrategy": "retainKeys"},
    });
    assert_eq!(
        merged(base, &patch),
        Ok(json!({"l": [3], "o": {"y": [{"z": []}]}, "s": "x"}))
    );
}

#[test]
fn a_list_in_the_place_of_another_value_conflicts() {
    let patch = json!({"s": [1], "$+s": {"patchStrategy": "retainKeys"}});
    assert_eq!(
        merged(json!({"s": 1}), &patch),
        Err("s: conflicting values 1 and [...] (mismatched types int and list)".to_owned())
    );
}

#[test]
fn markers_never_reach_the_object() {
    let patch =
        json!({"a": {"$+l": {"patchKey": "name"}, "l": [{"$+m": {"open": "true"}, "m": [1]}]}, "$+text": "kept"});
    let expected = json!({"a": {"l": [{"m": [1]}]}, "$+text": "kept"});
    assert_eq!(merged(json!({}), &patch), Ok(expected));
}

#[test]
fn a_merge_patch_removes_what_is_null() {
    let result = json!({"patch": {"a": null, "b": {"c": 1}}, "$+patch": {"patchStrategy": "jsonMergePatch"}});
    assert_eq!(
        patched(json!({"a": 1, "b": {"d": 2}}), &result),
        Ok(json!({"b": {"c": 1, "d": 2}}))
    );
}

#[test]
fn operations_of_a_json_patch_are_applied_in_order() {
    let operations = json!([
        {"op": "add", "path": "/l/-", "value": 3},
        {"op": "remove", "path": "/l/0"},
        {"op": "copy", "from": "/l", "path": "/m"},
    ]);
    let result = json!({"patch": {"operations": operations}, "$+patch": {"patchStrategy": "jsonPatch"}});
    assert_eq!(
        patched(json!({"l": [1, 2]}), &result),
        Ok(json!({"l": [2, 3], "m": [2, 3]}))
    );
}

#[test]
fn a_json_patch_that_fails_names_its_operation() {
    let patch =
        |operations: Value| json!({"patch": {"operations": operations}, "$+patch": {"patchStrategy": "jsonPatch"}});
    let error = patched(json!({}), &patch(json!([{"op": "remove", "path": "/a"}]))).unwrap_err();
    assert!(error.starts_with("operation 0 of the JSON patch: "), "{error}");
    let error = patched(json!({}), &patch(json!([{"op": "destroy"}]))).unwrap_err();
    assert!(error.starts_with("invalid operations of the JSON patch: "), "{error}");
}

#[test]
fn a_json_patch_can_not_grow_without_limit() {
    let operation = |path: String| json!({"op": "copy", "from": "", "path": path});
    let patch = |operations: Vec<Value>| json!({"patch": {"operations": operations}, "$+patch": {"patchStrategy": "jsonPatch"}});
    let doubled = (0..100).map(|index| operation(format!("/{index}"))).collect();
    let nested = (0..200).map(|_| operation("/a".to_owned())).collect();
    for operations in [doubled, nested] {
        let error = patched(json!({"text": "x".repeat(100)}), &patch(operations)).unwrap_err();
        assert_eq!(
            error,
            "the patched object is larger than 4 MiB or nested more than 128 deep"
        );
    }
    let many = (0..501)
        .map(|_| json!({"op": "test", "path": "", "value": {}}))
        .collect();
    let error = patched(json!({}), &patch(many)).unwrap_err();
    assert_eq!(error, "the JSON patch has more than 500 operations");
}

fn value() -> impl Strategy<Value = Value> {
    let scalar = prop::sample::select(vec![
        json!(1),
        json!(2),
        json!("a"),
        json!(null),
        json!(true),
        json!(1.5),
    ]);
    scalar.prop_recursive(4, 40, 4, |value| {
        let label = prop::sample::select(vec!["name", "a", "b", "$+a", "$+b"]);
        let marker = prop::sample::select(vec![
            json!({"patchKey": "name"}),
            json!({"patchStrategy": "retainKeys"}),
            json!({"patchStrategy": "replace", "open": "true"}),
        ]);
        let field = (label, value.clone(), marker)
            .prop_map(|(label, value, marker)| (label.to_owned(), if label.starts_with('$') { marker } else { value }));
        prop_oneof![
            prop::collection::vec(value, 0..4).prop_map(Value::Array),
            prop::collection::vec(field, 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_patch_that_was_applied_applies_again_without_change(base in value(), patch in value()) {
        let base = without_markers(&base);
        if let Ok(once) = merged(base, &patch) {
            // Elements without a key are appended only to a list that is missing.
            if let Ok(twice) = merged(once.clone(), &patch) {
                prop_assert_eq!(without_markers(&twice), twice.clone());
            }
            prop_assert_eq!(without_markers(&once), once);
        }
    }

    #[test]
    fn a_value_unified_with_itself_stays_equal(base in value()) {
        let base = without_markers(&base);
        prop_assert_eq!(merged(base.clone(), &base), Ok(base));
    }
}

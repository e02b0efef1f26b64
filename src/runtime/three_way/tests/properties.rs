use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::patch;
use super::{apply, custom, merged_pod_spec, pod_spec};

/// The leaves of an object and its empty objects, by path.
fn leaves(value: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                leaves(value, &format!("{path}/{name}"), found);
            }
        }
        leaf => found.push((path.to_owned(), leaf.clone())),
    }
}

fn is_within(path: &str, parent: &str) -> bool {
    path == parent || path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'))
}

fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{name}");
        paths(value, &path, found);
        found.push(path);
    }
}

/// Objects without lists.
fn object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![(0..3).prop_map(|number| json!(number)), Just(json!({}))];
    leaf.prop_recursive(3, 24, 3, |inner| {
        prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|fields| json!(fields))
    })
    .prop_filter("an object", Value::is_object)
}

/// Pod specs with containers and environment variables in any order.
fn containers() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[A-C]", 0..3, 0..3).prop_flat_map(|env| {
        let env: Vec<Value> = env
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        Just(env).prop_shuffle()
    });
    let container = (env, prop::option::of(0..3)).prop_map(|(env, image)| json!({"env": env, "image": image}));
    let named = prop::collection::btree_map("[a-d]", container, 0..4).prop_flat_map(|containers| {
        let named = containers.into_iter().map(|(name, mut container)| {
            container["name"] = name.into();
            container
                .as_object_mut()
                .unwrap()
                .retain(|_, value| !value.is_null() && *value != json!([]));
            container
        });
        Just(named.collect::<Vec<_>>()).prop_shuffle()
    });
    named.prop_map(|containers| json!({"containers": containers}))
}

fn names(list: &Value) -> Vec<String> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|item| item["name"].as_str().unwrap().to_owned())
        .collect()
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array().unwrap().iter().find(|item| item["name"] == *name)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// The result has the leaves of the manifest and those of the live object that no other rule removes.
    #[test]
    fn the_result_is_the_union_without_removed_fields(applied in object(), new in object(), live in object()) {
        let merged = apply(&[&custom(applied.clone())], &custom(new.clone()), &custom(live.clone()));
        let (mut ours, mut theirs, mut before, mut now) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        leaves(&new, "", &mut ours);
        leaves(&live, "", &mut theirs);
        paths(&applied, "", &mut before);
        paths(&new, "", &mut now);
        let removed = |path: &str| before.iter().any(|field| !now.contains(field) && is_within(path, field));
        // An object and a scalar can't be merged.
        let replaced = |path: &str, value: &Value| {
            ours.iter().any(|(field, ours)| {
                is_within(path, field) && !(ours.is_object() && (value.is_object() || path != field))
                    || path != field && is_within(field, path) && !value.is_object()
            })
        };
        let others = theirs.iter().filter(|(path, value)| !removed(path) && !replaced(path, value));
        let expected: Vec<(String, Value)> = ours.iter().chain(others).cloned().collect();
        let mut actual = Vec::new();
        leaves(&merged["spec"], "", &mut actual);
        for leaf in &actual {
            let is_emptied = leaf.1 == json!({});
            prop_assert!(expected.contains(leaf) || is_emptied, "unexpected {leaf:?} in {merged}");
        }
        for leaf in &expected {
            let is_filled = leaf.1 == json!({}) && merged["spec"].pointer(&leaf.0).is_some();
            prop_assert!(actual.contains(leaf) || is_filled, "{leaf:?} is missing in {merged}");
        }
    }

    #[test]
    fn an_applied_object_needs_no_patch(applied in object(), new in object(), live in object()) {
        let [applied, new, live] = [applied, new, live].map(custom);
        let merged = apply(&[&applied], &new, &live);
        prop_assert_eq!(patch(&[&applied], &new, &merged), Ok(None));
        prop_assert_eq!(patch(&[&new], &new, &merged), Ok(None));
    }

    #[test]
    fn elements_are_the_union_without_removed_ones(applied in containers(), new in containers(), live in containers()) {
        let merged = merged_pod_spec(applied.clone(), new.clone(), live.clone());
        let empty = json!([]);
        let list = |spec: &Value| spec.get("containers").unwrap_or(&empty).clone();
        let (applied, new, live, merged) = (list(&applied), list(&new), list(&live), list(&merged));
        let is_other = |name: &String| !names(&new).contains(name) && !names(&applied).contains(name);
        let others: Vec<String> = names(&live).into_iter().filter(is_other).collect();
        let (merged_ours, merged_others): (Vec<_>, Vec<_>) =
            names(&merged).into_iter().partition(|name| names(&new).contains(name));
        prop_assert_eq!(merged_ours, names(&new), "order of the manifest");
        prop_assert_eq!(merged_others, others.clone(), "order of the live object");
        for name in &others {
            prop_assert_eq!(named(&merged, name), named(&live, name));
        }
        for name in names(&new) {
            let (ours, result) = (named(&new, &name).unwrap(), named(&merged, &name).unwrap());
            let envs = |container: Option<&Value>| {
                container.and_then(|container| container.get("env")).unwrap_or(&empty).clone()
            };
            let [before, wanted, found, result_env] =
                [named(&applied, &name), Some(ours), named(&live, &name), Some(result)].map(envs);
            for env in wanted.as_array().unwrap() {
                prop_assert!(result_env.as_array().unwrap().contains(env));
            }
            for env in names(&result_env) {
                let is_theirs = named(&found, &env).is_some() && named(&before, &env).is_none();
                prop_assert!(named(&wanted, &env).is_some() || is_theirs);
            }
        }
    }

    #[test]
    fn applied_lists_need_no_patch(applied in containers(), new in containers(), live in containers()) {
        let [applied, new, live] = [applied, new, live].map(pod_spec);
        let merged = apply(&[&applied], &new, &live);
        prop_assert_eq!(patch(&[&new], &new, &merged), Ok(None));
    }
}

/// Values of any shape, below fields that have rules.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(false)),
        (0..2).prop_map(|number| json!(number)),
        Just(json!(0.5)),
        "(A|B|500m|)".prop_map(|text| json!(text)),
    ];
    let name = "(name|env|ports|containerPort|protocol|value|resources|limits|cpu|volumes|emptyDir|tolerations)";
    leaf.prop_recursive(4, 40, 4, move |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            list.prop_map(|list| json!(list)),
            prop::collection::btree_map(name, inner, 0..4).prop_map(|fields| json!(fields)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn values_of_any_shape_are_merged_once(applied in anything(), new in anything(), live in anything()) {
        let around = |value: Value| pod_spec(json!({"containers": [value.clone()], "volumes": value}));
        let [applied, new, live] = [applied, new, live].map(around);
        let merged = apply(&[&applied], &new, &live);
        prop_assert_eq!(patch(&[&new], &new, &merged), Ok(None), "{}", merged);
    }
}

use std::collections::BTreeMap;

use kube::Resource;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Map, Value, json};

use super::*;
use crate::api::crds;

fn read(spec: &Value) -> Application {
    serde_json::from_value(json!({
        "apiVersion": "app.k8s.io/v1beta1",
        "kind": "Application",
        "metadata": { "name": "shop", "namespace": "team-a" },
        "spec": spec,
    }))
    .unwrap()
}

#[test]
fn group_and_kind_are_those_of_upstream() {
    assert_eq!(Application::api_version(&()), "app.k8s.io/v1beta1");
    assert_eq!(Application::kind(&()), "Application");
    assert_eq!(Application::plural(&()), "applications");
}

#[rstest]
#[case::no_fields(json!({}))]
#[case::no_spec(Value::Null)]
#[case::nulls(json!({
    "componentKinds": null, "descriptor": null, "selector": null, "addOwnerRef": null, "info": null, "assemblyPhase": null,
}))]
#[case::zeros(json!({ "componentKinds": [null], "addOwnerRef": false, "info": [] }))]
#[case::informational_fields(json!({ "descriptor": "a shop", "info": [{ "name": 7 }] }))]
fn null_and_zero_values_mean_absent_fields(#[case] spec: Value) {
    assert_eq!(read(&spec), read(&json!({})));
    assert_eq!(read(&spec).spec, ApplicationSpec::default());
}

#[test]
fn a_missing_spec_or_an_invalid_status_does_not_fail_the_object() {
    let object = json!({ "metadata": { "name": "bare" } });
    let bare: Application = serde_json::from_value(object).unwrap();
    assert_eq!(bare.spec, ApplicationSpec::default());
    for status in [
        json!({ "conditions": null, "components": null, "observedGeneration": null, "componentsReady": null }),
        json!({ "conditions": [{ "type": ["Ready"] }], "components": "all", "observedGeneration": "x", "componentsReady": 1 }),
        json!({ "phase": "of another controller" }),
    ] {
        let object = json!({ "metadata": { "name": "bare" }, "status": status });
        let odd: Application = serde_json::from_value(object).unwrap();
        assert_eq!(odd.status, Some(ApplicationStatus::default()), "{status}");
    }
}

#[test]
fn invalid_conditions_are_skipped() {
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = json!({ "conditions": [null, { "type": 7 }, ready, "Error"] });
    let read: ApplicationStatus = serde_json::from_value(status).unwrap();
    assert_eq!(serde_json::to_value(read.conditions).unwrap(), json!([ready]));
}

#[test]
fn nulls_in_lists_and_references_are_skipped() {
    let application = read(&json!({
        "componentKinds": [{ "group": null, "kind": "Service" }, { "kind": "Pod" }],
        "descriptor": {
            "type": "shop", "version": null, "icons": [null, { "src": null, "size": "1x1" }], "maintainers": null,
            "owners": [{ "name": null, "email": "crew@example.com" }], "keywords": ["sea", null],
        },
        "info": [null, { "name": "password", "type": "Reference", "value": null, "valueFrom": {
            "type": "ServiceRef", "secretKeyRef": null, "serviceRef": { "name": "web", "port": null, "uid": null } } }],
    }));
    let written = json!({
        "componentKinds": [{ "group": "", "kind": "Service" }, { "group": "", "kind": "Pod" }],
        "descriptor": {
            "type": "shop", "icons": [{ "src": "", "size": "1x1" }],
            "owners": [{ "email": "crew@example.com" }], "keywords": ["sea"],
        },
        "info": [{ "name": "password", "type": "Reference",
            "valueFrom": { "type": "ServiceRef", "serviceRef": { "name": "web" } } }],
    });
    // A null does not affect its siblings.
    let expected: Vec<InfoItem> = serde_json::from_value(written["info"].clone()).unwrap();
    assert_eq!(application.spec.info, expected);
    assert_eq!(serde_json::to_value(&application.spec).unwrap(), written);
}

#[test]
fn a_null_in_a_selector_never_selects_more_objects() {
    let selector = |selector: Value| read(&json!({ "selector": selector })).spec.selector;
    assert_eq!(selector(Value::Null), None);
    assert_eq!(selector(json!({})), Some(LabelSelector::default()));
    let nulls = json!({ "matchLabels": null, "matchExpressions": null });
    assert_eq!(selector(nulls), Some(LabelSelector::default()));

    let odd = selector(json!({
        "matchLabels": { "app": null, "tier": "web" },
        "matchExpressions": [null, { "key": "app", "operator": "In", "values": [null, "a"] }, { "key": null, "operator": null }],
    }));
    let odd = odd.unwrap();
    let labels = [("app", ""), ("tier", "web")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(odd.match_labels, Some(BTreeMap::from(labels)));
    let requirements: Vec<_> = odd.match_expressions.unwrap();
    assert_eq!(requirements.len(), 3);
    assert_eq!(
        (requirements[0].key.as_str(), requirements[0].operator.as_str()),
        ("", "")
    );
    assert_eq!(requirements[1].values, Some(vec![String::new(), "a".to_owned()]));
}

#[rstest]
#[case(json!({ "selector": "app=shop" }))]
#[case(json!({ "selector": { "matchLabels": { "app": 7 } } }))]
#[case(json!({ "selector": { "matchExpressions": [{ "key": "app", "operator": "Exists", "values": "a" }] } }))]
#[case(json!({ "componentKinds": ["Deployment"] }))]
#[case(json!({ "addOwnerRef": "true" }))]
fn invalid_functional_fields_are_rejected(#[case] spec: Value) {
    assert!(serde_json::from_value::<Application>(json!({ "metadata": {}, "spec": spec })).is_err());
}

/// Generates valid values except empty ones and false, which are not serialized.
fn value_of(schema: &Value) -> BoxedStrategy<Value> {
    let text = || "[a-zé/ \"\\\\]{1,8}".prop_map(Value::from);
    match schema["type"].as_str().unwrap() {
        "string" if schema["format"] == "date-time" => (0..4_000_000_000_i64)
            .prop_map(|second| json!(jiff::Timestamp::from_second(second).unwrap().to_string()))
            .boxed(),
        "string" => text().boxed(),
        "boolean" => Just(json!(true)).boxed(),
        "integer" if schema["format"] == "int32" => any::<i32>().prop_map(Value::from).boxed(),
        "integer" => any::<i64>().prop_map(Value::from).boxed(),
        "array" => proptest::collection::vec(value_of(&schema["items"]), 1..3)
            .prop_map(Value::from)
            .boxed(),
        "object" if schema["additionalProperties"].is_object() => {
            let value = value_of(&schema["additionalProperties"]);
            proptest::collection::btree_map("[a-z]{1,4}", value, 0..3)
                .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into())
                .boxed()
        }
        "object" => {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let fields = schema["properties"].as_object().unwrap().iter();
            let fields: Vec<_> = fields
                .map(|(name, property)| {
                    let value = value_of(property);
                    let value = if required.contains(&json!(name)) {
                        value.prop_map(Some).boxed()
                    } else {
                        proptest::option::weighted(0.7, value).boxed()
                    };
                    (Just(name.clone()), value)
                })
                .collect();
            fields
                .prop_map(|fields| {
                    let present = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
                    present.collect::<Map<_, _>>().into()
                })
                .boxed()
        }
        other => panic!("no strategy for {other}"),
    }
}

fn part(name: &str) -> BoxedStrategy<Value> {
    let crd = serde_json::to_value(&crds()[1]).unwrap();
    value_of(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][name])
}

proptest! {
    #[test]
    fn valid_objects_survive_a_round_trip(spec in part("spec"), status in part("status")) {
        let object = json!({
            "apiVersion": "app.k8s.io/v1beta1", "kind": "Application",
            "metadata": { "name": "shop" }, "spec": spec, "status": status,
        });
        let read: Application = serde_json::from_value(object.clone()).unwrap();
        prop_assert_eq!(serde_json::to_value(&read).unwrap(), object);
    }
}

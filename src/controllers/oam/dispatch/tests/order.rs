use rstest::rstest;
use serde_json::{Value, json};

use super::super::order::{Stage, stages, waves};

fn object(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind})
}

#[test]
fn definitions_and_namespaces_come_first() {
    let objects = vec![
        object("apps/v1", "Deployment"),
        object("v1", "Namespace"),
        object("example.com/v1", "Widget"),
        object("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        object("example.com/v1", "Namespace"),
    ];
    let kinds = waves(objects, |object| object).map(|wave| {
        let kinds = wave.iter().map(|object| object["kind"].as_str().unwrap().to_owned());
        kinds.collect::<Vec<_>>()
    });
    assert_eq!(kinds[0], ["Namespace", "CustomResourceDefinition"]);
    assert_eq!(
        kinds[1],
        ["Deployment", "Widget", "Namespace"],
        "order of the component"
    );
}

#[rstest]
#[case("", Stage::DefaultDispatch)]
#[case("DefaultDispatch", Stage::DefaultDispatch)]
#[case("PreDispatch", Stage::PreDispatch)]
#[case("PostDispatch", Stage::PostDispatch)]
fn stages_are_named_as_in_trait_definitions(#[case] text: &str, #[case] stage: Stage) {
    assert_eq!(Stage::parse(text), Ok(stage));
}

#[test]
fn an_unknown_stage_is_an_error() {
    assert!(
        Stage::parse("Later")
            .unwrap_err()
            .starts_with("unknown stage type Later")
    );
}

#[test]
fn objects_are_grouped_by_stage() {
    let objects = [
        (Stage::PostDispatch, "hpa"),
        (Stage::DefaultDispatch, "deployment"),
        (Stage::PreDispatch, "claim"),
        (Stage::DefaultDispatch, "service"),
    ];
    let expected = vec![
        (Stage::PreDispatch, vec!["claim"]),
        (Stage::DefaultDispatch, vec!["deployment", "service"]),
        (Stage::PostDispatch, vec!["hpa"]),
    ];
    assert_eq!(stages(objects), expected);
}

#[test]
fn the_default_stage_has_a_place_without_objects() {
    let expected = vec![
        (Stage::PreDispatch, vec!["claim"]),
        (Stage::DefaultDispatch, Vec::new()),
    ];
    assert_eq!(stages([(Stage::PreDispatch, "claim")]), expected);
}

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::super::field_path::FieldPath;

fn object() -> Value {
    json!({
        "metadata": {"labels": {"app.oam.dev/name": "shop"}},
        "spec": {"replicas": 2, "containers": [{"image": "a"}, {"image": "b"}]},
    })
}

#[rstest]
#[case("spec.replicas", json!(2))]
#[case("spec.containers[1].image", json!("b"))]
#[case("metadata.labels[app.oam.dev/name]", json!("shop"))]
#[case("metadata.labels[\"app.oam.dev/name\"]", json!("shop"))]
#[case("metadata.labels['app.oam.dev/name']", json!("shop"))]
#[case("[spec].replicas", json!(2))]
fn a_path_finds_a_value(#[case] path: &str, #[case] expected: Value) {
    assert_eq!(FieldPath::parse(path).unwrap().get(&object()), Some(&expected));
}

#[rstest]
#[case("spec.paused")]
#[case("spec.containers[2].image")]
#[case("spec.replicas.x")]
#[case("spec[0]")]
fn a_path_can_lead_nowhere(#[case] path: &str) {
    assert_eq!(FieldPath::parse(path).unwrap().get(&object()), None);
}

#[rstest]
#[case("", "path is empty")]
#[case("spec.", "missing a field after a dot")]
#[case("spec..replicas", "missing a field after a dot")]
#[case(".spec", "empty field")]
#[case("spec[0", "missing a closing bracket")]
#[case("spec[]", "empty brackets")]
#[case("spec.containers[*].image", "wildcards are not supported")]
#[case("*", "wildcards are not supported")]
fn an_invalid_path_is_an_error(#[case] path: &str, #[case] cause: &str) {
    let error = FieldPath::parse(path).unwrap_err();
    assert!(error.contains(cause), "{error}");
}

#[test]
fn a_long_path_is_an_error() {
    assert!(FieldPath::parse(&"a".repeat(2_000)).is_err());
    assert!(FieldPath::parse(&vec!["a"; 100].join(".")).is_err());
}

#[test]
fn a_value_is_set_with_its_parents() {
    let mut object = object();
    FieldPath::parse("spec.template.x")
        .unwrap()
        .set(&mut object, Some(json!(1)));
    FieldPath::parse("spec.containers[0].image")
        .unwrap()
        .set(&mut object, Some(json!("c")));
    FieldPath::parse("spec.containers[5].image")
        .unwrap()
        .set(&mut object, Some(json!("d")));
    assert_eq!(object["spec"]["template"], json!({"x": 1}));
    assert_eq!(object["spec"]["containers"], json!([{"image": "c"}, {"image": "b"}]));
}

#[test]
fn an_absent_value_is_removed() {
    let mut changed = object();
    for path in ["spec.replicas", "spec.none.x", "spec.containers[0]"] {
        FieldPath::parse(path).unwrap().set(&mut changed, None);
    }
    let mut expected = object();
    expected["spec"].as_object_mut().unwrap().remove("replicas");
    assert_eq!(changed, expected);
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,40}", value in 0..2) {
        if let Ok(path) = FieldPath::parse(&text) {
            let mut object = object();
            path.set(&mut object, (value == 1).then(|| json!(value)));
        }
    }
}

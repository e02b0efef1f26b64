use std::time::Duration;

use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::immutable::ImmutableChecks;
use super::{FakeDefinitions, SYSTEM, app, shown};
use crate::controllers::oam::parse::tests::{Cluster, template};
use crate::controllers::oam::webhooks::inspect::InspectTemplate;
use crate::cue::{Error, Inspection};

/// Definitions whose templates hold the paths of their immutable parameters, separated by commas.
fn definitions() -> FakeDefinitions {
    let mut cluster = Cluster::default();
    for (kind, name, paths) in [
        ("ComponentDefinition", "web", "image,storage.class"),
        ("TraitDefinition", "scaler", "replicas"),
        ("PolicyDefinition", "quota", "limit"),
        ("WorkflowStepDefinition", "notify", "url"),
    ] {
        cluster.add(kind, SYSTEM, name, &template(&format!("// +immutable\n{paths}")));
    }
    cluster.add("ComponentDefinition", SYSTEM, "free", &template("image"));
    FakeDefinitions::of(cluster)
}

/// Reads such templates, and records them.
#[derive(Default)]
struct Reader {
    read: Mutex<Vec<String>>,
    is_failing: bool,
    is_slow: bool,
}

impl InspectTemplate for Reader {
    async fn inspect(&self, namespace: &str, template: &str, is_compiled: bool) -> Result<Inspection, Error> {
        assert_eq!((namespace, is_compiled), ("team", false));
        self.read.lock().push(template.to_owned());
        if self.is_slow {
            return std::future::pending().await;
        }
        if self.is_failing {
            return Err(Error::Crashed("exit status: 2".to_owned()));
        }
        let paths = template.lines().last().unwrap().split(',');
        Ok(Inspection {
            immutable: paths.map(str::to_owned).collect(),
            ..Inspection::default()
        })
    }
}

async fn checked_with(new: &Value, old: &Value, definitions: &FakeDefinitions, reader: &Reader) -> Vec<String> {
    let checks = ImmutableChecks {
        app: &app(new),
        old: &app(old),
        definition_namespace: SYSTEM,
        definitions,
        evaluator: reader,
        deadline: Instant::now() + Duration::from_secs(3),
    };
    shown(checks.run().await)
}

async fn checked(new: &Value, old: &Value) -> Vec<String> {
    checked_with(new, old, &definitions(), &Reader::default()).await
}

fn component(type_: &str, properties: &Value) -> Value {
    let components = json!([{ "name": "a", "type": type_, "properties": properties }]);
    json!({ "metadata": { "name": "app", "namespace": "team" }, "spec": { "components": components } })
}

#[rstest]
#[case::changed(
    json!({ "image": "a", "port": 1 }),
    json!({ "image": "b", "port": 2 }),
    &["spec.components[0].properties[image]\": immutable field cannot be changed (current: \"a\", new: \"b\")."]
)]
#[case::removed(
    json!({ "image": "a" }),
    json!({}),
    &["spec.components[0].properties[image]\": immutable field cannot be removed (current: \"a\")."]
)]
#[case::removed_with_all(
    json!({ "image": "a" }),
    Value::Null,
    &["spec.components[0].properties[image]\": immutable field cannot be removed (current: \"a\")."]
)]
#[case::nested(
    json!({ "storage": { "class": { "a": [1, "<"] }, "size": 1 } }),
    json!({ "storage": { "class": { "a": [2, "<"] }, "size": 2 } }),
    &["spec.components[0].properties[storage.class]\": immutable field cannot be changed (current: \
       {\"a\":[1,\"\\u003c\"]}, new: {\"a\":[2,\"\\u003c\"]})."]
)]
#[case::below_what_is_no_object(
    json!({ "storage": { "class": "a" } }),
    json!({ "storage": "b" }),
    &["spec.components[0].properties[storage.class]\": immutable field cannot be removed (current: \"a\")."]
)]
#[case::set_for_the_first_time(json!({ "port": 1 }), json!({ "image": "a" }), &[])]
#[case::others(json!({ "image": "a", "port": 1 }), json!({ "image": "a", "port": 2 }), &[])]
#[case::equal_numbers(json!({ "image": [1, { "a": 2.0 }] }), json!({ "image": [1.0, { "a": 2 }] }), &[])]
#[tokio::test]
async fn marked_parameters_can_be_set_once(#[case] old: Value, #[case] new: Value, #[case] expected: &[&str]) {
    let checked = checked(&component("web", &new), &component("web", &old)).await;
    let lines = expected.iter().enumerate();
    let lines: Vec<String> = lines
        .map(|(index, line)| format!("  {}) \"{line}", index + 1))
        .collect();
    assert_eq!(checked, lines);
}

#[tokio::test]
async fn traits_policies_and_steps_are_checked_too() {
    let of = |value: &str| {
        json!({
            "metadata": { "name": "app", "namespace": "team" },
            "spec": {
                "components": [{ "name": "a", "type": "free", "properties": { "image": value }, "traits": [
                    { "type": "other" }, { "type": "scaler", "properties": { "replicas": value } },
                ] }],
                "policies": [{ "name": "p", "type": "quota", "properties": { "limit": value } }],
                "workflow": { "steps": [
                    { "name": "s", "type": "notify", "properties": { "url": value } },
                    { "name": "g", "type": "group", "subSteps": [
                        { "name": "t", "type": "notify", "properties": { "url": value } },
                    ] },
                ] },
            },
        })
    };
    let checked = checked(&of("b"), &of("a")).await;
    let fields = [
        "spec.components[0].traits[1].properties[replicas]",
        "spec.policies[0].properties[limit]",
        "spec.workflow.steps[0].properties[url]",
    ];
    assert_eq!(checked.len(), fields.len(), "{checked:?}");
    for (line, field) in checked.iter().zip(fields) {
        assert!(line.contains(&format!("\"{field}\"")), "{line}");
    }
}

#[tokio::test]
async fn a_part_of_another_type_or_name_is_new() {
    let (old, new) = (json!({ "image": "a" }), json!({ "image": "b" }));
    let mut renamed = component("web", &new);
    renamed["spec"]["components"][0]["name"] = json!("b");
    assert!(checked(&renamed, &component("web", &old)).await.is_empty());
    assert!(
        checked(&component("web", &new), &component("free", &old))
            .await
            .is_empty()
    );
    assert!(
        checked(&component("gone", &new), &component("gone", &old))
            .await
            .is_empty()
    );
}

#[rstest]
#[case("true", true)]
#[case("yes", false)]
#[tokio::test]
async fn an_annotation_allows_changes(#[case] value: &str, #[case] is_allowed: bool) {
    let mut new = component("web", &json!({ "image": "b" }));
    new["metadata"]["annotations"] = json!({ "app.oam.dev/force-param-mutations": value });
    let checked = checked(&new, &component("web", &json!({ "image": "a" }))).await;
    assert_eq!(checked.is_empty(), is_allowed, "{checked:?}");
}

#[tokio::test]
async fn the_evaluator_reads_each_marked_template_once_and_only_after_a_change() {
    let component = |name: &str, value: &str| {
        json!({ "name": name, "type": "web", "properties": { "port": value }, "traits": [
            { "type": "scaler", "properties": { "max": value } },
        ] })
    };
    let of = |value: &str| {
        let components = [component("a", value), component("b", value), component("c", "same")];
        json!({ "metadata": { "name": "app", "namespace": "team" }, "spec": { "components": components } })
    };
    let reader = Reader::default();
    assert!(
        checked_with(&of("b"), &of("a"), &definitions(), &reader)
            .await
            .is_empty()
    );
    assert_eq!(reader.read.lock().len(), 2);
    assert!(
        checked_with(&of("b"), &of("b"), &definitions(), &reader)
            .await
            .is_empty()
    );
    assert_eq!(reader.read.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_outside_of_the_application_is_a_warning() {
    let (new, old) = (
        component("web", &json!({ "image": "b" })),
        component("web", &json!({ "image": "a" })),
    );
    let failing = Reader {
        is_failing: true,
        ..Reader::default()
    };
    let slow = Reader {
        is_slow: true,
        ..Reader::default()
    };
    for (reader, expected) in [
        (
            failing,
            "some immutable parameters were not checked: CUE evaluator failed: exit status: 2",
        ),
        (
            slow,
            "some immutable parameters were not checked: the evaluator did not answer in time",
        ),
    ] {
        assert_eq!(checked_with(&new, &old, &definitions(), &reader).await, [expected]);
    }
    let failing = FakeDefinitions {
        failure: Some("no memory left".to_owned()),
        ..definitions()
    };
    let checked = checked_with(&new, &old, &failing, &Reader::default()).await;
    assert_eq!(checked, ["immutable parameters were not checked: no memory left"]);
}

#[tokio::test]
async fn a_long_value_is_cut_in_errors() {
    let value = |letter: &str| component("web", &json!({ "image": letter.repeat(100_000) }));
    let checked = checked(&value("b"), &value("a")).await;
    assert!(checked[0].len() < 700, "{}", checked[0].len());
}

use std::collections::BTreeMap;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::super::{
    FailureReason, InvalidStore, State, StepResult, StepTask, ValueStore, WorkflowSettings, WorkflowTurn,
};
use super::{Run, START, context, failed, group, output, step, succeeded, waiting, with_input, with_output};
use crate::api::oam::WorkflowStatus;

#[test]
fn a_step_waits_for_its_inputs() {
    let mut run = Run::new([with_input(step("b", &[]), "ip.v4"), with_output(step("a", &[]), "ip")]);
    run.turn(|_| waiting());
    assert_eq!(run.state("b"), ("pending", "", "Pending on Input: ip.v4"));
    assert_eq!(run.turn(|_| output(json!({"v4": "10.0.0.1"}))).state, State::Succeeded);
    assert_eq!(run.store.get("ip.v4"), Some(&json!("10.0.0.1")));
    assert_eq!(run.ran, ["a", "b"]);
}

#[test]
fn inputs_are_values_of_steps_or_of_the_context() {
    let context = context(json!({"name": "app"}));
    let steps = [with_input(with_input(step("a", &[]), "context.name"), "x")];
    let data = BTreeMap::from([("vars".to_owned(), "x: [1,2]\n".to_owned())]);
    let store = ValueStore::parse(&data).unwrap();
    let now = Timestamp::from_second(START).unwrap();
    let mut turn = WorkflowTurn::begin(
        &steps,
        "DAG-DAG",
        WorkflowStatus::default(),
        store,
        &context,
        WorkflowSettings::default(),
        now,
        || "id".to_owned(),
    )
    .unwrap();
    assert_eq!(turn.next_round(), [StepTask::Run(0)]);
    assert_eq!(
        turn.run.inputs(0),
        Ok(vec![
            ("value.properties.x", json!("app")),
            ("value.properties.x", json!([1, 2]))
        ])
    );
}

#[test]
fn inputs_are_fields_of_the_context_and_of_the_properties() {
    let paths = [
        "context.appLabels[\"app.kubernetes.io/part\"]",
        "context.stepName",
        "context.stepGroupName",
        "parameter.list[1].x",
        "parameter",
    ];
    let mut last = step("a", &[]);
    last.properties = Some(json!({"list": [0, {"x": "y"}]}));
    let last = paths.into_iter().fold(last, with_input);
    let mut run = Run::new([group("g", [last, with_input(step("b", &[]), "context.appLabels.lost")])]);
    run.context = context(json!({"appLabels": {"app.kubernetes.io/part": "shop"}}));
    let mut turn = run.begin().unwrap();
    assert_eq!(turn.next_round(), [StepTask::Run(1)]);
    let values = turn.run.inputs(1).unwrap();
    let values: Vec<Value> = values.into_iter().map(|(_, value)| value).collect();
    let properties = json!({"list": [0, {"x": "y"}]});
    assert_eq!(values, [json!("shop"), json!("a"), json!("g"), json!("y"), properties]);
    drop(turn);
    run.turn(|_| waiting());
    assert_eq!(run.state("b").2, "Pending on Input: context.appLabels.lost");
}

#[test]
fn outputs_of_steps_without_success_are_null() {
    let steps = [
        with_output(step("a", &[]), "of-failed"),
        with_output(step("b", &["a"]), "of-skipped"),
        with_input(step("c", &[]), "of-failed"),
    ];
    let mut run = Run::new(steps);
    let outcome = run.turn(|name| {
        if name == "a" {
            failed(FailureReason::Input)
        } else {
            succeeded()
        }
    });
    assert_eq!(outcome.state, State::Failed);
    assert_eq!(run.store.get("of-failed"), Some(&Value::Null));
    assert_eq!(run.store.get("of-skipped"), Some(&Value::Null));
    assert_eq!(run.state("c").0, "succeeded");
    assert_eq!(run.state("a").2, "boom");
}

#[test]
fn an_output_that_cannot_be_evaluated_is_null_and_named() {
    let mut run = Run::new([with_output(step("a", &[]), "x")]);
    let outcome = run.turn(|_| StepResult::Succeeded {
        outputs: vec![Err("not found".to_owned())],
        message: "from the template".to_owned(),
    });
    assert_eq!(outcome.state, State::Succeeded);
    assert_eq!(
        run.state("a"),
        ("succeeded", "", "failed to get output from output.x: not found\n")
    );
    assert_eq!(run.store.get("x"), Some(&Value::Null));
}

#[test]
fn an_output_does_not_change_a_value() {
    let mut run = Run::new([with_output(step("a", &[]), "x"), with_output(step("b", &["a"]), "x")]);
    run.turn(|name| output(json!(name)));
    assert_eq!(run.store.get("x"), Some(&json!("a")));
    assert_eq!(
        run.state("b"),
        ("succeeded", "", "failed to set output x: conflicting values\n")
    );
}

#[test]
fn outputs_have_a_size_limit() {
    let mut run = Run::new([with_output(step("a", &[]), "x")]);
    run.turn(|_| output(json!("x".repeat(600_000))));
    assert_eq!(
        run.state("a").2,
        "failed to set output x: values of the workflow exceed 512 KiB\n"
    );
}

#[rstest]
#[case::many_fields("a.".repeat(64) + "a")]
#[case::long("a".repeat(1_025))]
#[case::endless("a.".repeat(1 << 20))]
fn outputs_have_short_names(#[case] name: String) {
    let mut run = Run::new([with_output(step("a", &[]), &name)]);
    assert_eq!(run.turn(|_| output(json!(1))).state, State::Succeeded);
    let message = run.state("a").2;
    assert!(
        message.ends_with(": path exceeds 1024 bytes or 64 fields\n"),
        "{message}"
    );
    assert!(message.len() < 1_200, "{} bytes", message.len());
    assert_eq!(run.store, ValueStore::default());
}

#[test]
fn the_longest_path_is_stored() {
    let path = "a.".repeat(63) + "a";
    let mut run = Run::new([with_output(step("a", &[]), &path)]);
    run.turn(|_| output(json!(1)));
    assert_eq!(run.store.get(&path), Some(&json!(1)));
    assert_eq!(ValueStore::parse(&run.store.to_data()), Ok(run.store.clone()));
}

#[test]
fn a_store_survives_its_config_map() {
    let mut run = Run::new([
        with_output(step("a", &[]), "x"),
        with_output(step("c", &[]), "a-b"),
        step("b", &["a"]),
    ]);
    run.turn(|name| match name {
        "b" => failed(FailureReason::Execute),
        name => output(json!({"name": name, "text": "a\nb: \"1\""})),
    });
    assert_eq!(ValueStore::parse(&run.store.to_data()), Ok(run.store.clone()));
    let values =
        "\"a-b\": {\"name\":\"c\",\"text\":\"a\\nb: \\\"1\\\"\"}\nx: {\"name\":\"a\",\"text\":\"a\\nb: \\\"1\\\"\"}\n";
    assert_eq!(run.store.to_data()["vars"], values);
    assert!(run.store.to_data().contains_key("portolan.attempts"));
}

#[test]
fn an_empty_store_is_that_of_kubevela() {
    let data = BTreeMap::from([("vars".to_owned(), "\n".to_owned())]);
    assert_eq!(ValueStore::default().to_data(), data);
    assert_eq!(ValueStore::parse(&data), Ok(ValueStore::default()));
    assert_eq!(ValueStore::parse(&BTreeMap::new()), Ok(ValueStore::default()));
}

#[test]
fn values_of_kubevela_need_the_evaluator() {
    for text in ["status: \"ok\"\n", "cpu:    null\n", "\"a-b\": 1\n"] {
        assert!(
            ValueStore::parse(&BTreeMap::from([("vars".to_owned(), text.to_owned())])).is_ok(),
            "{text}"
        );
    }
    for text in ["x: {\n\ta: 1\n}\n", "x: \"\"\"\n\ta\n\t\"\"\"\n", "x", "\"x\" 1", "{"] {
        let data = BTreeMap::from([("vars".to_owned(), text.to_owned())]);
        assert_eq!(ValueStore::parse(&data), Err(InvalidStore::Cue), "{text}");
        let values = json!({"x": 1}).as_object().unwrap().clone();
        assert_eq!(ValueStore::with_values(values, &data).get("x"), Some(&json!(1)));
    }
}

#[test]
fn a_step_whose_status_was_removed_provides_its_values_again() {
    let mut run = Run::new([
        with_output(step("a", &[]), "kept"),
        with_output(step("b", &["a"]), "new"),
        with_output(step("c", &["b"]), "kept.by-c"),
    ]);
    run.mode = "StepByStep-DAG";
    run.turn(|name| match name {
        "a" => output(json!({"of": "a"})),
        "b" => output(json!("old")),
        _ => waiting(),
    });
    // KubeVela's command removes the values later.
    run.status.steps.retain(|step| step.name == "a");
    run.turn(|name| match name {
        "b" => output(json!("new")),
        _ => output(json!(1)),
    });
    assert_eq!(run.ran, ["b", "c"]);
    assert_eq!(run.store.get("new"), Some(&json!("new")));
    assert_eq!(run.store.get("kept"), Some(&json!({"of": "a", "by-c": 1})));
    assert_eq!((run.state("b").2, run.state("c").2), ("", ""));
    // Nothing is removed once the steps are recorded.
    let before = run.store.clone();
    run.turn(|_| waiting());
    assert_eq!(run.store, before);
}

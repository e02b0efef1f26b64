//! Limits on what steps put into the status and the store.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use super::super::{FailureReason, State, StepResult, ValueStore};
use super::{Run, all, failed, output, step, succeeded, suspend, waiting, with_input, with_output};
use crate::api::oam::StepOutput;
use crate::text::is_control;

const HOSTILE: &str = "\u{1b}[31mred\u{202e}\r";

fn is_clean(message: &str, limit: usize) -> bool {
    message.len() <= limit && !message.contains(|c| is_control(c) && c != '\n') && !message.contains('\u{202e}')
}

#[rstest]
#[case::waiting(|message| StepResult::Waiting { message })]
#[case::suspended(|message| StepResult::Suspended { message, duration: None })]
#[case::succeeded(|message| StepResult::Succeeded { outputs: Vec::new(), message })]
#[case::failed(|message| StepResult::Failed { reason: FailureReason::Execute, message })]
fn messages_of_results_are_short_and_printable(#[case] result: fn(String) -> StepResult) {
    let mut run = Run::new([step("a", &[])]);
    run.turn(|_| result("first\nsecond\n".to_owned()));
    assert_eq!(run.state("a").2, "first\nsecond\n");
    let mut run = Run::new([step("a", &[])]);
    run.turn(|_| result(HOSTILE.repeat(10_000)));
    let message = run.state("a").2;
    assert!(message.len() > 1_000 && is_clean(message, 1_024), "{message:?}");
    let before = run.status.clone();
    run.turn_after(100, |_| result(HOSTILE.repeat(10_000)));
    assert_eq!(run.status, before, "the same message is no news");
}

#[test]
fn messages_of_pending_and_suspended_steps_are_short_and_printable() {
    let long = HOSTILE.repeat(10_000);
    let mut run = Run::new([
        step("a", &[&long]),
        with_input(step("b", &[]), &long),
        suspend("c", json!({ "message": long })),
        suspend("d", json!({ "duration": long })),
    ]);
    run.turn(|_| succeeded());
    run.turn(|_| succeeded());
    for (name, begin) in [
        ("a", "Pending on DependsOn:  [31mred"),
        ("b", "Pending on Input:  [31mred"),
        ("c", " [31mred"),
        ("d", "failed to parse duration  [31mred"),
    ] {
        let message = run.state(name).2;
        assert!(
            message.starts_with(begin) && is_clean(message, 1_024),
            "{name}: {message:?}"
        );
    }
    assert!(run.state("d").2.contains("time: invalid duration"));
}

#[test]
fn errors_of_many_outputs_are_one_short_message() {
    let mut a = step("a", &[]);
    a.outputs = (0..20_000)
        .map(|number| StepOutput {
            name: format!("out{number}"),
            value_from: format!("\u{1b}{}", "x".repeat(2_000)),
        })
        .collect();
    let mut run = Run::new([a]);
    let outcome = run.turn(|_| StepResult::Succeeded {
        outputs: vec![Err("not found".to_owned()); 20_000],
        message: String::new(),
    });
    assert_eq!(outcome.state, State::Succeeded);
    let message = run.state("a").2;
    assert!(is_clean(message, 1_024), "{} bytes", message.len());
    assert!(
        message.contains("x…: not found\nfailed to get output from"),
        "{message}"
    );
}

#[test]
fn messages_of_many_steps_fit_into_the_status() {
    let steps = (0..2_000).map(|number| step(&number.to_string(), &[]));
    let mut run = Run::new(steps);
    run.turn(|_| StepResult::Waiting {
        message: "x".repeat(10_000),
    });
    let bytes: usize = all(&run.status.steps).map(|status| status.message.len()).sum();
    assert!((200_000..=256 << 10).contains(&bytes), "{bytes}");
}

fn nested(levels: usize) -> Value {
    let lists = levels / 2;
    let value = (0..lists).fold(json!(1), |value, _| json!([value]));
    (lists..levels).fold(value, |value, _| json!({ "x": value }))
}

#[test]
fn values_have_a_depth_that_can_be_parsed_again() {
    for (name, most) in [("a", 63), ("a.b", 62), ("a.b.c.d", 60)] {
        let mut run = Run::new([with_output(step("a", &[]), name), step("b", &[])]);
        run.turn(|name| match name {
            "a" => output(nested(most)),
            _ => waiting(),
        });
        assert_eq!(
            ValueStore::parse(&run.store.to_data()).unwrap().get(name),
            Some(&nested(most))
        );
        for levels in [most + 1, 125] {
            let mut run = Run::new([with_output(step("a", &[]), name), step("b", &[])]);
            run.turn(|name| match name {
                "a" => output(nested(levels)),
                _ => waiting(),
            });
            let expected = format!("failed to set output {name}: value exceeds 64 levels with its path\n");
            assert_eq!(run.state("a"), ("succeeded", "", expected.as_str()));
            assert_eq!(run.store.get(name), None);
        }
    }
}

#[test]
fn counters_of_an_edited_config_map_are_tolerated() {
    let mut run = Run::new([step("a", &[])]);
    run.turn(|_| failed(FailureReason::Execute));
    let id = run.step("a").id.clone();
    let most = json!({ "failures": u32::MAX, "waits": u32::MAX, "message": "wait healthy" });
    let attempts = json!({ "steps": { id: most } }).to_string();
    let data = BTreeMap::from([("portolan.attempts".to_owned(), attempts)]);
    run.store = ValueStore::parse(&data).unwrap();
    run.now += 600;
    assert_eq!(run.turn(|_| waiting()).state, State::Executing);
    assert_eq!(run.turn(|_| failed(FailureReason::Execute)).state, State::Failed);
}

#[test]
fn the_size_of_the_values_follows_what_is_removed() {
    let mut store = ValueStore::default();
    let paths = ["a", "b.x", "b.y", "c.d.e.f", "c.d.g", "long name.\"x\"", "z.z.z"];
    for path in paths {
        store
            .add(path, &json!({ "text": "\u{1f}é\n", "list": [1, null] }))
            .unwrap();
    }
    store.add("c.d.empty", &json!({})).unwrap();
    let removals = [
        "b.x",
        "b.x",
        "missing",
        "a.text",
        "c.d.empty.x",
        "b",
        "c.d.g",
        "c.d.e.f.list",
        "c",
        "long name.\"x\"",
        "z.z.z",
        "a",
    ];
    for path in removals {
        store.remove([path]);
        let parsed = ValueStore::parse(&store.to_data()).unwrap();
        assert_eq!(store, parsed, "{path}");
    }
    assert_eq!(store, ValueStore::default());
}

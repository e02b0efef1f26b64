use rstest::rstest;
use serde_json::{Value, json};

use super::super::{FailureReason, State};
use super::{Run, context, failed, group, output, step, succeeded, waiting, when, with_input, with_output};

#[test]
fn a_condition_decides_whether_a_step_runs() {
    let mut run = Run::new([when("yes", step("a", &[])), when("no", step("b", &[]))]);
    run.conditions.extend([("yes", true), ("no", false)]);
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.ran, ["a"]);
    assert_eq!(run.state("a"), ("succeeded", "", ""));
    assert_eq!(run.state("b"), ("skipped", "Skip", ""));
    assert_eq!(run.scopes.len(), 2);
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.scopes.len(), 2, "not evaluated again");
}

#[test]
fn an_invalid_condition_skips_the_step() {
    let mut run = Run::new([with_output(when("x", step("a", &[])), "y")]);
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.state("a"), ("skipped", "Skip", "pre check error: undefined"));
    assert_eq!(run.store.get("y"), Some(&json!(null)));
}

#[test]
fn a_condition_is_evaluated_when_the_step_can_run() {
    let mut run = Run::new([step("a", &[]), when("yes", step("b", &["a"]))]);
    run.conditions.insert("yes", true);
    run.turn(|_| waiting());
    assert!(run.scopes.is_empty());
    run.turn(|name| if name == "a" { succeeded() } else { waiting() });
    assert_eq!(run.state("b").0, "running");
    run.conditions.insert("yes", false);
    run.turn(|_| waiting());
    assert_eq!(
        run.state("b").0,
        "skipped",
        "and again as long as it runs, as in KubeVela"
    );
}

#[test]
fn a_step_can_run_after_a_failure() {
    let steps = [
        step("a", &[]),
        when("status.a.failed", step("b", &["a"])),
        when("always", step("c", &["a"])),
    ];
    let mut run = Run::new(steps);
    run.conditions.insert("status.a.failed", true);
    let outcome = run.turn(|name| match name {
        "a" => failed(FailureReason::Action),
        _ => succeeded(),
    });
    assert_eq!(outcome.state, State::Failed);
    assert_eq!(run.ran, ["a", "b", "c"]);
}

#[test]
fn a_condition_names_statuses_inputs_and_the_context() {
    const ALL: &str = "[status, inputs, context, parameter]";
    let mut last = with_input(when(ALL, step("c", &["a-1", "b"])), "ip.v4");
    last.properties = Some(json!({"size": 3}));
    let mut deploy = step("b", &[]);
    deploy.properties = Some(json!({"component": "web"}));
    let mut run = Run::new([with_output(step("a-1", &[]), "ip"), deploy, last, step("d", &["c"])]);
    run.context = context(json!({"name": "app", "appLabels": {"env": "prod"}}));
    run.turn(|name| match name {
        "a-1" => output(json!({"v4": "10.0.0.1"})),
        _ => failed(FailureReason::Action),
    });
    let scope = &run.scopes["c"];
    let expected = json!({
        "name": "app", "appLabels": {"env": "prod"}, "stepName": "c", "stepSessionID": "id-2", "spanID": "id-2",
    });
    assert_eq!(scope["context"], expected);
    assert_eq!(scope["inputs"], json!({"ip.v4": "10.0.0.1"}));
    assert_eq!(scope["parameter"], json!({"size": 3}));
    let names: Vec<&String> = scope["status"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["a-1", "b", "d", "web"]);
    assert_eq!(scope["status"]["d"]["phase"], "pending");
    let status = |name: &str, field: &str| scope["status"][name][field].clone();
    assert_eq!(status("a-1", "phase"), json!("succeeded"));
    assert_eq!(
        (status("a-1", "succeeded"), status("a-1", "failed")),
        (json!(true), json!(false))
    );
    assert_eq!(
        (status("b", "failed"), status("b", "reason")),
        (json!(true), json!("Action"))
    );
    assert_eq!(
        (status("b", "skipped"), status("b", "message")),
        (json!(false), json!("boom"))
    );
    for flag in ["timeout", "failedAfterRetries", "terminate"] {
        assert_eq!(status("b", flag), json!(false), "{flag}");
    }
    assert_eq!(status("web", "id"), status("b", "id"));
}

#[test]
fn reasons_are_flags_of_conditions() {
    for (reason, flag) in [
        ("Timeout", "timeout"),
        ("FailedAfterRetries", "failedAfterRetries"),
        ("Terminate", "terminate"),
    ] {
        let mut run = Run::new([step("a", &[]), when("status.a.failed", step("b", &["a"]))]);
        run.turn(|_| waiting());
        "failed".clone_into(&mut run.step_mut("a").phase);
        reason.clone_into(&mut run.step_mut("a").reason);
        run.turn(|_| succeeded());
        assert_eq!(run.scopes["b"]["status"]["a"][flag], json!(true));
    }
}

#[test]
fn conditions_are_not_evaluated_if_failures_suspend() {
    let mut run = Run::new([when("no", step("a", &[]))]);
    run.settings.suspend_on_failure = true;
    run.conditions.insert("no", false);
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert!(run.scopes.is_empty());
}

#[rstest]
#[case::field("status.b.failed", &["b"])]
#[case::two_fields("!status.b.failed && status.c.phase==\"failed\"", &["b", "c"])]
#[case::index("status[\"a-1\"].failed", &["a-1"])]
#[case::quoted_field("status.\"a-1\".failed || status.b.failed", &["a-1", "b"])]
#[case::unknown("status.missing.failed", &[])]
#[case::other_values("context.name == \"app\"", &[])]
#[case::all("[for name, one in status if one.failed {name}] == []", &["a-1", "b", "c", "d"])]
#[case::computed_index("status[\"a-\" + \"1\"].failed", &["a-1", "b", "c", "d"])]
#[case::interpolated_index("status[\"a-\\(1)\"].failed", &["a-1", "b", "c", "d"])]
#[case::alias("let s = status\ns.b.failed", &["a-1", "b", "c", "d"])]
fn a_condition_gets_the_statuses_that_it_reads(#[case] condition: &str, #[case] names: &[&str]) {
    let mut run = Run::new([
        step("a-1", &[]),
        step("b", &[]),
        step("c", &["b"]),
        when(condition, step("d", &["c"])),
    ]);
    run.turn(|_| succeeded());
    let status = run.scopes["d"]["status"].as_object().unwrap();
    assert_eq!(Vec::from_iter(status.keys()), names);
}

#[rstest]
#[case::label("context.appLabels.env == \"prod\"", json!({"appLabels": {"env": "prod"}}))]
#[case::step("context.stepName == context.stepSessionID", json!({"stepName": "b", "stepSessionID": "id-1"}))]
#[case::nothing("parameter.size == 3", json!({}))]
fn a_condition_gets_the_fields_of_the_context_that_it_reads(#[case] condition: &str, #[case] expected: Value) {
    let mut run = Run::new([group("g", [when(condition, step("b", &[]))])]);
    run.context = context(json!({"name": "app", "appLabels": {"env": "prod"}, "appAnnotations": {"a": "b"}}));
    run.turn(|_| succeeded());
    assert_eq!(run.scopes["b"]["context"], expected);
}

#[test]
fn a_sub_step_knows_its_group() {
    let condition = "context.stepGroupName == \"g\"";
    let mut run = Run::new([when(condition, group("g", [when(condition, step("a", &[]))]))]);
    run.conditions.insert(condition, true);
    run.turn(|_| succeeded());
    assert_eq!(run.scopes["a"]["context"], json!({"stepGroupName": "g"}));
    assert_eq!(run.scopes["g"]["context"], json!({}));
}

#[test]
fn a_condition_names_the_results_of_the_steps_before_it() {
    for sub_mode in ["DAG", "StepByStep"] {
        let mut steps = group(
            "g",
            [
                step("a", &[]),
                when("status.a.failed", step("b", &[])),
                when("status.b.succeeded", step("c", &[])),
                when("always", step("d", &[])),
            ],
        );
        sub_mode.clone_into(&mut steps.mode);
        let mut run = Run::new([step("first", &[]), steps, step("last", &[])]);
        run.conditions
            .extend([("status.a.failed", true), ("status.b.succeeded", true)]);
        run.turn(|name| match name {
            "a" => failed(FailureReason::Action),
            _ => succeeded(),
        });
        assert_eq!(run.scopes["b"]["status"]["a"]["failed"], true, "{sub_mode}");
        assert_eq!(run.scopes["c"]["status"]["b"]["phase"], "succeeded", "{sub_mode}");
        let ran: Vec<&str> = run
            .ran
            .iter()
            .map(String::as_str)
            .filter(|name| *name != "last")
            .collect();
        assert_eq!(ran, ["first", "a", "b", "c", "d"], "{sub_mode}");
    }
}

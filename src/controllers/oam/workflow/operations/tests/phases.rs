use serde_json::json;

use super::{status, steps_of};
use crate::api::oam::ApplicationStatus;
use crate::controllers::oam::workflow::operations::{OperationEffect, OperationError, resume, suspend, terminate};

/// A group with a running and a succeeded sub-step, a running and a pending step.
fn running() -> ApplicationStatus {
    status(json!([
        { "id": "a", "name": "group", "type": "step-group", "phase": "running", "subSteps": [
            { "id": "b", "name": "build", "phase": "running", "reason": "Wait", "message": "wait healthy" },
            { "id": "c", "name": "check", "phase": "succeeded" },
        ] },
        { "id": "d", "name": "deploy", "phase": "running" },
        { "id": "e", "name": "end", "phase": "pending", "message": "Pending on DependsOn: deploy" },
    ]))
}

fn is_suspended(status: &ApplicationStatus) -> bool {
    status.workflow.as_ref().unwrap().suspend
}

#[test]
fn running_steps_are_suspended_and_resumed() {
    let mut status = running();
    assert_eq!(suspend(&mut status, None), Ok(OperationEffect::Changed));
    let suspended = [
        "group suspending",
        "build suspending Wait",
        "check succeeded",
        "deploy suspending",
        "end pending",
    ];
    assert_eq!(steps_of(&status), suspended);
    assert!(is_suspended(&status));
    assert_eq!(suspend(&mut status, None), Ok(OperationEffect::Unchanged));
    assert_eq!(resume(&mut status, None), Ok(OperationEffect::Changed));
    assert_eq!(status, running());
    assert_eq!(resume(&mut status, None), Ok(OperationEffect::Unchanged));
}

#[test]
fn one_step_or_sub_step_is_suspended_and_resumed() {
    let mut status = running();
    assert_eq!(suspend(&mut status, Some("build")), Ok(OperationEffect::Changed));
    assert_eq!(suspend(&mut status, Some("deploy")), Ok(OperationEffect::Changed));
    assert_eq!(steps_of(&status)[..2], ["group running", "build suspending Wait"]);
    assert_eq!(suspend(&mut status, Some("build")), Ok(OperationEffect::Unchanged));
    assert_eq!(resume(&mut status, Some("build")), Ok(OperationEffect::Changed));
    assert_eq!(steps_of(&status)[1], "build running Wait");
    assert_eq!(steps_of(&status)[3], "deploy suspending");
    assert!(!is_suspended(&status));
    // The other step suspends the workflow again.
    assert_eq!(resume(&mut status, Some("deploy")), Ok(OperationEffect::Changed));
    assert_eq!(status, running());
}

#[test]
fn a_workflow_that_was_suspended_after_failures_is_resumed() {
    let mut status = status(json!([{ "name": "a", "phase": "failed", "reason": "FailedAfterRetries" }]));
    status.workflow.as_mut().unwrap().suspend = true;
    assert_eq!(resume(&mut status, None), Ok(OperationEffect::Changed));
    assert!(!is_suspended(&status));
    assert_eq!(steps_of(&status), ["a failed FailedAfterRetries"]);
}

#[test]
fn a_step_in_another_phase_or_without_a_status_is_refused() {
    let mut status = running();
    let refusal = suspend(&mut status, Some("check")).unwrap_err();
    assert_eq!(refusal.to_string(), "step check is succeeded, not running");
    let refusal = suspend(&mut status, Some("nope")).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "step nope not found; the steps are: group, build, check, deploy, end"
    );
    assert_eq!(status, running());
    suspend(&mut status, Some("deploy")).unwrap();
    let before = status.clone();
    let refusal = resume(&mut status, Some("end")).unwrap_err();
    assert_eq!(refusal.to_string(), "step end is pending, not suspending");
    assert_eq!(status, before);
}

#[test]
fn termination_fails_all_steps_that_have_not_ended() {
    let mut status = status(json!([
        { "name": "group", "phase": "running", "subSteps": [
            { "name": "a", "phase": "suspending", "reason": "Suspend" },
            { "name": "b", "phase": "failed", "reason": "FailedAfterRetries" },
            { "name": "c", "phase": "failed", "reason": "Timeout" },
            { "name": "d", "phase": "failed", "reason": "Execute" },
            { "name": "e", "phase": "skipped", "reason": "Skip" },
        ] },
        { "name": "f", "phase": "pending" },
        { "name": "g", "phase": "succeeded" },
    ]));
    status.workflow.as_mut().unwrap().suspend = true;
    assert_eq!(terminate(&mut status), Ok(OperationEffect::Changed));
    let expected = [
        "group failed Terminate",
        "a failed Terminate",
        "b failed FailedAfterRetries",
        "c failed Timeout",
        "d failed Terminate",
        "e skipped Skip",
        "f pending",
        "g succeeded",
    ];
    assert_eq!(steps_of(&status), expected);
    let workflow = status.workflow.clone().unwrap();
    assert!(workflow.terminated && !workflow.suspend && !workflow.finished);
    assert_eq!(terminate(&mut status), Ok(OperationEffect::Unchanged));
    assert_eq!(suspend(&mut status, None), Err(OperationError::Terminated));
    assert_eq!(resume(&mut status, None), Err(OperationError::Terminated));
}

#[test]
fn a_workflow_that_has_not_started_or_has_ended_is_refused() {
    let mut none = ApplicationStatus::default();
    for refused in [suspend(&mut none, None), resume(&mut none, None), terminate(&mut none)] {
        assert_eq!(refused, Err(OperationError::NotStarted));
    }
    let mut ended = running();
    let workflow = ended.workflow.as_mut().unwrap();
    workflow.finished = true;
    workflow.phase = "succeeded".to_owned();
    for refused in [
        suspend(&mut ended, None),
        resume(&mut ended, None),
        terminate(&mut ended),
    ] {
        assert_eq!(refused, Err(OperationError::Finished("succeeded".to_owned())));
    }
}

#[test]
fn a_refusal_names_few_steps() {
    let steps: Vec<_> = (0..1000)
        .map(|step| json!({ "name": format!("s{step}"), "phase": "running" }))
        .collect();
    let mut status = status(json!(steps));
    let refusal = suspend(&mut status, Some("nope")).unwrap_err().to_string();
    assert!(refusal.ends_with("s19, …"), "{refusal}");
}

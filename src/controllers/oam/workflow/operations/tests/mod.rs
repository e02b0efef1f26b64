mod logs;
mod phases;
mod restart;
mod rollback;

use serde_json::{Value, json};

use crate::api::oam::{ApplicationStatus, StepStatus};

/// Returns a status with a running workflow of these steps.
fn status(steps: Value) -> ApplicationStatus {
    let workflow = json!({
        "appRevision": "web-v1", "mode": "StepByStep-DAG", "status": "executing", "suspend": false, "terminated": false,
        "finished": false, "steps": steps,
    });
    serde_json::from_value(json!({ "status": "runningWorkflow", "workflow": workflow })).unwrap()
}

/// Returns names, phases and reasons of all steps.
fn steps_of(status: &ApplicationStatus) -> Vec<String> {
    let text = |step: &StepStatus| {
        format!("{} {} {}", step.name, step.phase, step.reason)
            .trim_end()
            .to_owned()
    };
    super::all_steps(status.workflow.as_ref().unwrap()).map(text).collect()
}

//! The steps of a workflow as a tree, and what users can do about them.

use jiff::Timestamp;

use super::table;
use crate::api::NamespacedName;
use crate::api::oam::{ApplicationStatus, StepStatus, WorkflowStatus};
use crate::cmd::output;
use crate::cmd::output::cell;
use crate::controllers::oam::workflow::StepReason;
use crate::controllers::oam::workflow::operations::{SUSPENDING, all_steps};
use crate::text::printable;

const HEADER: [&str; 7] = ["STEP", "TYPE", "PHASE", "STARTED", "LAST RUN", "REASON", "MESSAGE"];
const INDENT: &str = "  ";

/// Formats the steps; sub-steps are indented below their group.
pub fn tree(status: &ApplicationStatus, now: Timestamp) -> String {
    let steps = status.workflow.iter().flat_map(|workflow| &workflow.steps);
    let rows = steps.flat_map(|step| {
        let sub_steps = step.sub_steps.iter().map(|step| row(step, INDENT, now));
        std::iter::once(row(step, "", now)).chain(sub_steps)
    });
    table(&HEADER, rows.collect())
}

fn row(step: &StepStatus, indent: &str, now: Timestamp) -> Vec<String> {
    let first = step.first_execute_time.as_ref().map(|time| time.0);
    let last = step.last_execute_time.as_ref().map(|time| time.0);
    vec![
        format!("{indent}{}", cell(&step.name)),
        cell(&step.type_),
        cell(&step.phase),
        output::distance(first, now),
        output::distance(last, now),
        cell(&step.reason),
        step.message.clone(),
    ]
}

/// Returns a sentence with the command that continues a workflow which waits for a user.
pub fn hint(name: &NamespacedName, status: &ApplicationStatus) -> Option<String> {
    let workflow = status.workflow.as_ref()?;
    let application = format!("{} -n {}", name.name, name.namespace);
    if workflow.suspend && !workflow.finished {
        return Some(format!(
            "the workflow is suspended{}; `portolan vela resume {application}` continues it{}",
            message(workflow),
            of_one_step(workflow)
        ));
    }
    let failed = all_steps(workflow).filter(|step| step.phase == "failed" && step.sub_steps.is_empty());
    let failed: Vec<_> = failed.collect();
    let first = failed.first().filter(|_| workflow.finished)?;
    let is_terminated = failed.iter().all(|step| step.reason == StepReason::Terminate.as_str());
    let (end, step) = if is_terminated {
        ("was terminated", "the step that it ended at")
    } else {
        ("has failed", "the step that failed")
    };
    Some(format!(
        "the workflow {end}{}; `portolan vela restart {application} --step {}` runs it again from {step}, \
         `portolan vela rollback {application}` returns to the last revision that has succeeded",
        message(workflow),
        shell_word(&first.name)
    ))
}

/// Quotes a name for a command to paste. Names of steps may have any characters.
fn shell_word(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        return name.to_owned();
    }
    format!("'{}'", printable(name).replace('\'', r"'\''"))
}

fn message(workflow: &WorkflowStatus) -> String {
    match workflow.message.as_str() {
        "" => String::new(),
        message => format!(": {message}"),
    }
}

/// Returns the end of the hint if several steps are suspended, which can be resumed one by one.
fn of_one_step(workflow: &WorkflowStatus) -> String {
    let suspended = all_steps(workflow).filter(|step| step.phase == SUSPENDING && step.sub_steps.is_empty());
    let names: Vec<_> = suspended.map(|step| shell_word(&step.name)).collect();
    match names.len() {
        0 | 1 => String::new(),
        _ => format!(", with `--step` one of the steps {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(workflow: Value) -> ApplicationStatus {
        serde_json::from_value(json!({ "workflow": workflow })).unwrap()
    }

    fn hint_of(workflow: Value) -> Option<String> {
        hint(&NamespacedName::new("shop", "web"), &status(workflow))
    }

    #[test]
    fn sub_steps_are_indented_below_their_group() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let text = tree(
            &status(json!({ "steps": [
                { "name": "group", "type": "step-group", "phase": "running", "subSteps": [
                    { "name": "build", "type": "apply-object", "phase": "running", "reason": "Wait",
                        "firstExecuteTime": "2026-01-02T03:03:05Z", "lastExecuteTime": "2026-01-02T03:04:00Z",
                        "message": "wait\u{1b}[2J healthy" },
                ] },
                { "name": "last", "type": "suspend", "phase": "pending", "message": "Pending on DependsOn: group" },
            ] })),
            now,
        );
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].starts_with("STEP"), "{text}");
        assert!(lines[2].starts_with("group "), "{text}");
        assert!(lines[3].starts_with("  build "), "{text}");
        assert!(lines[4].starts_with("last "), "{text}");
        let words: Vec<_> = lines[3].split_whitespace().collect();
        let expected = [
            "build",
            "apply-object",
            "running",
            "60s",
            "ago",
            "5s",
            "ago",
            "Wait",
            "wait",
            "[2J",
            "healthy",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_suspended_workflow_names_the_command_that_resumes_it() {
        let hint = hint_of(json!({ "suspend": true, "steps": [{ "name": "ask", "phase": "suspending" }] })).unwrap();
        assert!(
            hint.contains("`portolan vela resume web -n shop`") && !hint.contains("--step"),
            "{hint}"
        );
        let steps = json!([{ "name": "group", "phase": "suspending", "subSteps": [
            { "name": "a", "phase": "suspending" }, { "name": "b", "phase": "suspending" },
        ] }]);
        let hint = hint_of(json!({ "suspend": true, "message": "too often", "steps": steps })).unwrap();
        assert!(
            hint.contains("suspended: too often;") && hint.ends_with("`--step` one of the steps a, b"),
            "{hint}"
        );
    }

    #[test]
    fn a_failed_workflow_names_the_step_to_restart_from() {
        let steps = json!([{ "name": "group", "phase": "failed", "subSteps": [
            { "name": "a", "phase": "succeeded" }, { "name": "b", "phase": "failed" },
        ] }]);
        let hint = hint_of(json!({ "finished": true, "terminated": true, "steps": steps })).unwrap();
        assert!(hint.contains("restart web -n shop --step b`"), "{hint}");
        assert_eq!(hint_of(json!({ "terminated": true, "steps": steps })), None);
    }

    #[test]
    fn a_workflow_that_a_user_has_terminated_has_not_failed() {
        let steps = json!([{ "name": "a", "phase": "failed", "reason": "Terminate" }]);
        let status = json!({ "finished": true, "terminated": true, "steps": steps });
        let hint = hint_of(status).unwrap();
        assert!(hint.starts_with("the workflow was terminated;"), "{hint}");
        assert!(!hint.contains("failed"), "{hint}");
        let steps = json!([
            { "name": "a", "phase": "failed", "reason": "Execute" },
            { "name": "b", "phase": "failed", "reason": "Terminate" },
        ]);
        let hint = hint_of(json!({ "finished": true, "terminated": true, "steps": steps })).unwrap();
        assert!(hint.starts_with("the workflow has failed;"), "{hint}");
    }

    #[test]
    fn names_of_steps_are_quoted_in_commands() {
        let hint = hint_of(json!({ "finished": true, "steps": [{ "name": "a'; rm -r b", "phase": "failed" }] }));
        let hint = hint.unwrap();
        assert!(hint.contains(r"--step 'a'\''; rm -r b'`"), "{hint}");
        let steps = json!([{ "name": "$(b)", "phase": "suspending" }, { "name": "-c", "phase": "suspending" }]);
        let hint = hint_of(json!({ "suspend": true, "steps": steps })).unwrap();
        assert!(hint.ends_with("one of the steps '$(b)', '-c'"), "{hint}");
    }

    #[test]
    fn a_workflow_that_needs_no_user_has_no_hint() {
        assert_eq!(hint_of(json!({ "steps": [{ "name": "a", "phase": "running" }] })), None);
        assert_eq!(
            hint_of(json!({ "finished": true, "steps": [{ "name": "a", "phase": "succeeded" }] })),
            None
        );
        assert_eq!(
            hint(&NamespacedName::new("shop", "web"), &ApplicationStatus::default()),
            None
        );
    }
}

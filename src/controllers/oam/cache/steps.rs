use crate::api::oam::{StepStatus, WorkflowStatus};

/// Types with a word of their own: built-in types, and types of the starter set. Tenants define others.
const TYPES: [&str; 31] = [
    "apply-application",
    "apply-application-in-parallel",
    "apply-component",
    "apply-deployment",
    "apply-object",
    "apply-remaining",
    "apply-terraform-config",
    "apply-terraform-provider",
    "builtin-apply-component",
    "check-metrics",
    "clean-jobs",
    "collect-service-endpoints",
    "create-config",
    "delete-config",
    "depends-on-app",
    "deploy",
    "export-data",
    "export-service",
    "export2config",
    "export2secret",
    "generate-jdbc-connection",
    "list-config",
    "notification",
    "print-message-in-status",
    "read-config",
    "read-object",
    "request",
    "restart-workflow",
    "step-group",
    "suspend",
    "webhook",
];
const CUSTOM: &str = "custom";
const PHASES: [&str; 6] = ["succeeded", "failed", "skipped", "running", "pending", "suspending"];
const REASONS: [&str; 12] = [
    "Wait",
    "Skip",
    "Rendering",
    "Execute",
    "Suspend",
    "Terminate",
    "ProcessParameter",
    "Input",
    "Output",
    "FailedAfterRetries",
    "Timeout",
    "Action",
];
/// Different steps of an Application that are kept. They count toward no share of memory.
const MAX_OUTLINES: usize = 16;

/// A step in known words: users may write statuses, and other words must not become labels of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOutline {
    pub type_: &'static str,
    pub phase: &'static str,
    /// Empty if the step has none.
    pub reason: &'static str,
}

impl From<&StepStatus> for StepOutline {
    fn from(step: &StepStatus) -> Self {
        let find = |words: &[&'static str], text: &str| words.iter().find(|word| **word == text).copied();
        // A type may name a version.
        let type_ = step.type_.split('@').next().unwrap_or_default();
        Self {
            type_: find(&TYPES, type_).unwrap_or(CUSTOM),
            phase: find(&PHASES, &step.phase).unwrap_or("other"),
            reason: match step.reason.as_str() {
                "" => "",
                reason => find(&REASONS, reason).unwrap_or("other"),
            },
        }
    }
}

/// Returns the steps of a workflow, without sub-steps, with the number of each.
pub(super) fn step_counts(workflow: &WorkflowStatus) -> Box<[(StepOutline, usize)]> {
    let mut counts: Vec<(StepOutline, usize)> = Vec::new();
    for step in workflow.steps.iter().map(StepOutline::from) {
        if let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == step) {
            *count += 1;
        } else if counts.len() < MAX_OUTLINES {
            counts.push((step, 1));
        }
    }
    counts.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_steps_are_counted_and_different_ones_are_limited() {
        let step = |type_: &str, phase: &str| json!({ "id": "a", "type": type_, "phase": phase });
        let mut steps = vec![step("deploy@v1", "running"), step("deploy", "running")];
        for type_ in TYPES {
            steps.push(step(type_, "succeeded"));
        }
        let workflow: WorkflowStatus = serde_json::from_value(json!({ "steps": steps })).unwrap();
        let counts = step_counts(&workflow);
        let deploy = StepOutline {
            type_: "deploy",
            phase: "running",
            reason: "",
        };
        assert_eq!(counts[0], (deploy, 2));
        assert_eq!(counts.len(), MAX_OUTLINES);
    }

    #[test]
    fn all_types_of_the_starter_set_are_known() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/definitions/workflowsteps");
        for file in std::fs::read_dir(directory).unwrap() {
            let name = file.unwrap().path().with_extension("");
            let name = name.file_name().unwrap().to_str().unwrap();
            assert!(TYPES.contains(&name), "{name}");
        }
    }
}

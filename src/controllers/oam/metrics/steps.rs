use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::api::oam::{StepStatus, WorkflowStatus};
use crate::controllers::oam::workflow::operations::all_steps;

/// Types with a label of their own: built-in types, and types of the starter set. Tenants define others.
const TYPES: [&str; 30] = [
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
/// Times of a status are whole seconds; people may approve a step days later.
const BUCKETS: [f64; 9] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0];

/// Users may write statuses, so that other words must not become labels.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabels {
    r#type: &'static str,
    phase: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TypeLabel {
    r#type: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct StepMetrics {
    phases: Family<StepLabels, Counter>,
    seconds: Family<TypeLabel, Histogram, fn() -> Histogram>,
}

impl Default for StepMetrics {
    fn default() -> Self {
        Self {
            phases: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}

impl StepMetrics {
    pub fn register(&self, registry: &mut Registry) {
        // Without a first value, a rate would miss the first event.
        let first = StepLabels {
            r#type: "apply-component",
            phase: "succeeded",
            reason: "",
        };
        self.phases.get_or_create(&first).inc_by(0);
        drop(self.seconds.get_or_create(&TypeLabel { r#type: first.r#type }));
        let help = "Total number of workflow steps that have reached a phase, by type, phase and reason";
        registry.register("portolan_oam_workflow_steps", help, self.phases.clone());
        let help =
            "Duration of workflow steps that have succeeded or failed in seconds, from their first start, by type";
        registry.register("portolan_oam_workflow_step_seconds", help, self.seconds.clone());
    }

    pub fn count(&self, before: &WorkflowStatus, after: &WorkflowStatus) {
        let before: HashMap<&str, &StepStatus> = all_steps(before).map(|step| (step.id.as_str(), step)).collect();
        for step in all_steps(after) {
            let previous = before.get(step.id.as_str());
            if previous.is_some_and(|previous| (&previous.phase, &previous.reason) == (&step.phase, &step.reason)) {
                continue;
            }
            let labels = labels(step);
            let r#type = labels.r#type;
            self.phases.get_or_create(&labels).inc();
            if has_ended(step)
                && let Some(seconds) = seconds(step)
            {
                self.seconds.get_or_create(&TypeLabel { r#type }).observe(seconds);
            }
        }
    }
}

/// Returns true for a step that has run and does not run again.
fn has_ended(step: &StepStatus) -> bool {
    match step.phase.as_str() {
        "succeeded" => true,
        "failed" => !matches!(step.reason.as_str(), "" | "Execute"),
        _ => false,
    }
}

fn seconds(step: &StepStatus) -> Option<f64> {
    let (Time(first), Time(last)) = (step.first_execute_time.as_ref()?, step.last_execute_time.as_ref()?);
    let seconds = last.duration_since(*first).as_secs_f64();
    (seconds >= 0.0).then_some(seconds)
}

fn labels(step: &StepStatus) -> StepLabels {
    let find = |words: &[&'static str], text: &str| words.iter().find(|word| **word == text).copied();
    // A type may name a version.
    let r#type = step.type_.split('@').next().unwrap_or_default();
    StepLabels {
        r#type: find(&TYPES, r#type).unwrap_or(CUSTOM),
        phase: find(&PHASES, &step.phase).unwrap_or("other"),
        reason: match step.reason.as_str() {
            "" => "",
            reason => find(&REASONS, reason).unwrap_or("other"),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workflow(steps: Value) -> WorkflowStatus {
        serde_json::from_value(json!({ "steps": steps })).unwrap()
    }

    fn count(metrics: &StepMetrics, r#type: &'static str, phase: &'static str, reason: &'static str) -> u64 {
        metrics
            .phases
            .get_or_create(&StepLabels { r#type, phase, reason })
            .get()
    }

    #[test]
    fn steps_are_counted_when_they_reach_a_phase() {
        let metrics = StepMetrics::default();
        let waiting = workflow(json!([{
            "id": "a", "type": "step-group", "phase": "running",
            "subSteps": [{ "id": "b", "type": "apply-object@v2", "phase": "running", "reason": "Wait" }],
        }]));
        metrics.count(&WorkflowStatus::default(), &waiting);
        metrics.count(&waiting, &waiting);
        assert_eq!(count(&metrics, "step-group", "running", ""), 1);
        assert_eq!(count(&metrics, "apply-object", "running", "Wait"), 1);
        let done = workflow(json!([{
            "id": "a", "type": "step-group", "phase": "running",
            "subSteps": [{ "id": "b", "type": "apply-object@v2", "phase": "succeeded" }],
        }]));
        metrics.count(&waiting, &done);
        assert_eq!(count(&metrics, "step-group", "running", ""), 1);
        assert_eq!(count(&metrics, "apply-object", "succeeded", ""), 1);
        metrics.count(&done, &waiting);
        assert_eq!(count(&metrics, "apply-object", "running", "Wait"), 2);
    }

    #[test]
    fn steps_that_have_ended_are_measured_once() {
        let metrics = StepMetrics::default();
        let at = |phase: &str, reason: &str| {
            workflow(json!([{
                "id": "a", "type": "webhook", "phase": phase, "reason": reason,
                "firstExecuteTime": "2026-01-02T03:04:05Z", "lastExecuteTime": "2026-01-02T03:04:35Z",
            }]))
        };
        let (retried, failed) = (at("failed", "Execute"), at("failed", "FailedAfterRetries"));
        metrics.count(&WorkflowStatus::default(), &retried);
        metrics.count(&retried, &failed);
        metrics.count(&failed, &failed);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "portolan_oam_workflow_step_seconds_sum{type=\"webhook\"} 30.0",
            "portolan_oam_workflow_step_seconds_count{type=\"webhook\"} 1",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn all_types_of_the_starter_set_have_labels() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/definitions/workflowsteps");
        for file in std::fs::read_dir(directory).unwrap() {
            let name = file.unwrap().path().with_extension("");
            let name = name.file_name().unwrap().to_str().unwrap();
            assert!(TYPES.contains(&name), "{name}");
        }
    }

    #[test]
    fn words_of_users_do_not_become_labels() {
        let metrics = StepMetrics::default();
        let odd = workflow(json!([
            { "id": "a", "type": "of-a-tenant", "phase": "odd", "reason": "Odd" },
            { "id": "b", "phase": "failed" },
        ]));
        metrics.count(&WorkflowStatus::default(), &odd);
        assert_eq!(count(&metrics, CUSTOM, "other", "other"), 1);
        assert_eq!(count(&metrics, CUSTOM, "failed", ""), 1);
    }
}

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::compat;
use crate::api::oam::{StepStatus, WorkflowStatus};
use crate::controllers::oam::cache::StepOutline;
use crate::controllers::oam::workflow::operations::all_steps;

/// Times of a status are whole seconds; people may approve a step days later.
const BUCKETS: [f64; 9] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0];

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

/// KubeVela's labels.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CompatLabels {
    controller: &'static str,
    step_type: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct StepMetrics {
    phases: Family<StepLabels, Counter>,
    seconds: Family<TypeLabel, Histogram, fn() -> Histogram>,
    compat_seconds: Family<CompatLabels, Histogram, fn() -> Histogram>,
}

impl Default for StepMetrics {
    fn default() -> Self {
        Self {
            phases: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            compat_seconds: Family::new_with_constructor(compat::histogram),
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

    pub fn register_compat(&self, registry: &mut Registry) {
        drop(self.compat_seconds.get_or_create(&compat_labels("apply-component")));
        let help = "Duration of workflow steps from their first to their last execution in seconds, despite the name";
        registry.register("step_duration_ms", help, self.compat_seconds.clone());
    }

    pub fn count(&self, before: &WorkflowStatus, after: &WorkflowStatus) {
        let before: HashMap<&str, &StepStatus> = all_steps(before).map(|step| (step.id.as_str(), step)).collect();
        for step in all_steps(after) {
            let previous = before.get(step.id.as_str());
            if previous.is_some_and(|previous| (&previous.phase, &previous.reason) == (&step.phase, &step.reason)) {
                continue;
            }
            let outline = StepOutline::from(step);
            self.phases.get_or_create(&labels(outline)).inc();
            if has_ended(step)
                && let Some(seconds) = seconds(step)
            {
                let r#type = outline.type_;
                self.seconds.get_or_create(&TypeLabel { r#type }).observe(seconds);
                self.compat_seconds
                    .get_or_create(&compat_labels(r#type))
                    .observe(seconds);
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

fn labels(step: StepOutline) -> StepLabels {
    StepLabels {
        r#type: step.type_,
        phase: step.phase,
        reason: step.reason,
    }
}

fn compat_labels(step_type: &'static str) -> CompatLabels {
    CompatLabels {
        controller: compat::CONTROLLER,
        step_type,
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
        metrics.register_compat(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "portolan_oam_workflow_step_seconds_sum{type=\"webhook\"} 30.0",
            "portolan_oam_workflow_step_seconds_count{type=\"webhook\"} 1",
            "step_duration_ms_sum{controller=\"application\",step_type=\"webhook\"} 30.0",
        ] {
            assert!(text.contains(line), "{text}");
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
        assert_eq!(count(&metrics, "custom", "other", "other"), 1);
        assert_eq!(count(&metrics, "custom", "failed", ""), 1);
    }
}

use std::collections::BTreeMap;

use crate::api::oam::{ApplicationStatus, StepStatus};
use crate::cmd::vela::joined::suffix;

/// The parts of a status that users follow, as one line of text each, in the order of the status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusParts(Vec<(String, String)>);

impl StatusParts {
    pub fn of(status: &ApplicationStatus) -> Self {
        let mut parts = vec![("phase".to_owned(), or_none(&status.phase))];
        let latest = status.latest_revision.as_ref();
        parts.push(("revision".to_owned(), or_none(latest.map_or("", |latest| &latest.name))));
        for condition in status.conditions.iter().filter(|condition| condition.status == "False") {
            parts.push((
                format!("condition {}", condition.type_),
                join(&["False", &condition.reason, &condition.message]),
            ));
        }
        for service in &status.services {
            let health = |is_healthy| if is_healthy { "healthy" } else { "unhealthy" };
            let component = format!("component {}{}", service.name, suffix(&service.cluster));
            for status in &service.traits {
                let health = if status.pending {
                    "pending"
                } else {
                    health(status.healthy)
                };
                parts.push((
                    format!("{component} trait {}", status.type_),
                    join(&[health, &status.message]),
                ));
            }
            parts.push((component, join(&[health(service.healthy), &service.message])));
        }
        if let Some(workflow) = &status.workflow {
            parts.push(("workflow".to_owned(), join(&[&workflow.phase, &workflow.message])));
            for step in &workflow.steps {
                parts.push((format!("step {}", step.name), state(step)));
                let sub_steps = step.sub_steps.iter();
                parts.extend(sub_steps.map(|sub| (format!("step {}/{}", step.name, sub.name), state(sub))));
            }
        }
        Self(parts)
    }

    /// Returns a line for each part that differs from that of an earlier status.
    pub fn changes_since(&self, before: &Self) -> Vec<String> {
        let old: BTreeMap<_, _> = before.0.iter().map(|(name, text)| (name, text)).collect();
        let new: BTreeMap<_, _> = self.0.iter().map(|(name, text)| (name, text)).collect();
        let changed = self.0.iter().filter(|(name, text)| old.get(name) != Some(&text));
        let changed = changed.map(|(name, text)| format!("{name}: {text}"));
        let gone = before.0.iter().filter(|(name, _)| !new.contains_key(name));
        let gone = gone.map(|(name, _)| {
            let change = if name.starts_with("condition") {
                "recovered"
            } else {
                "removed"
            };
            format!("{name}: {change}")
        });
        changed.chain(gone).collect()
    }
}

fn state(step: &StepStatus) -> String {
    join(&[&step.phase, &step.reason, &step.message])
}

/// Joins the texts that are not empty.
fn join(texts: &[&str]) -> String {
    let texts = texts.iter().copied().filter(|text| !text.is_empty());
    or_none(&Vec::from_iter(texts).join(": "))
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parts(status: Value) -> StatusParts {
        StatusParts::of(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn only_parts_that_differ_are_changes() {
        let before = parts(json!({
            "status": "runningWorkflow",
            "services": [{ "name": "web", "healthy": false, "message": "Ready:0/1" }],
            "workflow": { "steps": [
                { "name": "group", "phase": "running", "subSteps": [{ "name": "a", "phase": "running", "reason": "Wait" }] },
            ] },
        }));
        assert_eq!(before.changes_since(&before), Vec::<String>::new());
        let after = parts(json!({
            "status": "runningWorkflow",
            "services": [{ "name": "web", "healthy": true, "traits": [{ "type": "scaler", "healthy": true }] }],
            "workflow": { "steps": [
                { "name": "group", "phase": "running", "subSteps": [{ "name": "a", "phase": "succeeded" }] },
                { "name": "b", "phase": "running", "reason": "Wait", "message": "wait healthy" },
            ] },
        }));
        let expected = [
            "component web trait scaler: healthy",
            "component web: healthy",
            "step group/a: succeeded",
            "step b: running: Wait: wait healthy",
        ];
        assert_eq!(after.changes_since(&before), expected);
    }

    #[test]
    fn a_component_changes_in_each_cluster_for_itself() {
        let web = |cluster: &str, healthy: bool| json!({ "name": "web", "cluster": cluster, "healthy": healthy });
        let before = parts(json!({ "services": [web("local", true), web("prod", false)] }));
        let after = parts(json!({ "services": [web("local", true), web("prod", true)] }));
        assert_eq!(after.changes_since(&before), ["component web in cluster prod: healthy"]);
    }

    #[test]
    fn a_condition_recovers_and_a_step_is_removed() {
        let before = parts(json!({
            "status": "running", "conditions": [{ "type": "Ready", "status": "False", "message": "no way" }],
            "workflow": { "steps": [{ "name": "a", "phase": "failed" }] },
        }));
        let after = parts(json!({ "conditions": [{ "type": "Ready", "status": "True" }], "workflow": {} }));
        let expected = ["phase: -", "condition Ready: recovered", "step a: removed"];
        assert_eq!(after.changes_since(&before), expected);
        assert_eq!(before.changes_since(&after)[1], "condition Ready: False: no way");
    }
}

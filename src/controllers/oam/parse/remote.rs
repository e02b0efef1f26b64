//! Policies and steps of an application as parsed that select clusters by labels.

use serde_json::Value;

use super::application::Parsed;
use crate::api::oam::AppPolicy;
use crate::controllers::oam::placement::cluster_selector;
use crate::controllers::oam::policies::TOPOLOGY;
use crate::controllers::oam::workflow::DEPLOY;

/// Returns the policies and steps that select clusters by labels which a joined cluster may have.
#[must_use]
pub fn cluster_selections(parsed: &Parsed) -> Vec<String> {
    let is_topology = |policy: &&AppPolicy| policy.type_ == TOPOLOGY;
    let policies = parsed.all_policies.iter().filter(is_topology);
    let policies = policies.filter(|policy| policy.properties.as_ref().is_some_and(may_select_joined));
    let mut selections: Vec<String> = policies.map(|policy| format!("policy {}", policy.name)).collect();
    let steps = parsed.all_steps();
    for step in steps.filter(|step| step.type_.split('@').next() == Some(DEPLOY)) {
        let inline = step.properties.as_ref().map(|properties| &properties["inlinePolicies"]);
        let mut inline = inline.and_then(Value::as_array).into_iter().flatten();
        if inline.any(|policy| policy["type"] == TOPOLOGY && may_select_joined(&policy["properties"])) {
            selections.push(format!("step {}", step.name));
        }
    }
    selections
}

fn may_select_joined(topology: &Value) -> bool {
    cluster_selector(topology).is_some_and(|selector| selector.may_select_joined())
}

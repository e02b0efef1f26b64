//! Dependencies and inputs that a step waits for, and conditions under which it is skipped.

use serde_json::{Map, Value, json};

use super::inputs::{CONTEXT, InputsTooLarge, PARAMETER, input_scope, inputs_by_origin};
use super::phase::{StepPhase, StepReason};
use super::run::WorkflowRun;
use crate::api::oam::StepStatus;

const ALWAYS: &str = "always";
/// Name of the statuses in a condition.
const STATUS: &str = "status";
const INPUTS: &str = "inputs";

/// The decision about a step that can run.
pub(super) enum StepVerdict {
    Run,
    Skip,
    /// The caller evaluates its condition.
    Ask,
}

impl WorkflowRun<'_> {
    /// Returns the values that the condition of a step can name. Leaves out large values that it doesn't name: the cost
    /// of all conditions would grow with their size otherwise.
    ///
    /// # Errors
    /// The inputs are too large.
    pub fn condition_scope(&self, step: usize) -> Result<Map<String, Value>, InputsTooLarge> {
        let condition = self.step(step).map_or("", |step| step.condition.as_str());
        let status_of = |(name, index): (&&str, &usize)| {
            let status = self.statuses.get(*index).filter(|status| !status.phase.is_empty())?;
            Some(((*name).to_owned(), condition_status(status)))
        };
        let names = &self.plan.names;
        let statuses = match named_statuses(condition) {
            Some(named) => {
                let named = named.into_iter().filter_map(|name| names.get_key_value(name));
                named.filter_map(status_of).collect()
            }
            None => names.iter().filter_map(status_of).collect(),
        };
        let inputs = if condition.contains(INPUTS) {
            inputs_by_origin(self, step)?
        } else {
            Map::new()
        };
        let properties = self.step(step).and_then(|step| step.properties.clone());
        let properties = properties.filter(|_| condition.contains(PARAMETER));
        let scope = [
            (STATUS, Value::Object(statuses)),
            (INPUTS, Value::Object(inputs)),
            (CONTEXT, Value::Object(self.context(step).named_in(condition))),
            (PARAMETER, properties.unwrap_or_else(|| json!({}))),
        ];
        let scope = scope.map(|(name, value)| (name.to_owned(), value));
        Ok(scope.into_iter().collect())
    }
}

/// Returns the cause if the step can't run yet. `fulfilled` counts what is there, so that it is looked at once.
pub(super) fn pending_on(run: &WorkflowRun<'_>, fulfilled: &mut [usize], step: usize) -> Option<String> {
    let planned = run.plan.get(step)?;
    let fulfilled = fulfilled.get_mut(step)?;
    let dependencies = planned.step.depends_on.iter().zip(&planned.dependencies);
    for (name, dependency) in dependencies.skip(*fulfilled) {
        // A terminated workflow ends, whatever its steps wait for.
        if !dependency.map_or(run.status.terminated, |dependency| run.is_finished(dependency)) {
            return Some(format!("Pending on DependsOn: {name}"));
        }
        *fulfilled += 1;
    }
    let scope = input_scope(run, step)?;
    let inputs = planned.step.inputs.iter();
    for input in inputs.skip(*fulfilled - planned.dependencies.len()) {
        if scope.get(&input.from).is_none() && !never_comes(run, &input.from) {
            return Some(format!("Pending on Input: {}", input.from));
        }
        *fulfilled += 1;
    }
    None
}

/// Returns true if no step provides the value at a path any more: a user has terminated the steps that could.
fn never_comes(run: &WorkflowRun<'_>, path: &str) -> bool {
    let mut providers = run.plan.providers(path).iter();
    run.status.terminated && providers.all(|provider| run.is_finished(*provider))
}

/// Returns true if a step can run only because an input never comes.
fn lacks_input(run: &WorkflowRun<'_>, step: usize) -> bool {
    let Some(scope) = input_scope(run, step) else {
        return false;
    };
    let mut inputs = run.step(step).into_iter().flat_map(|step| &step.inputs);
    inputs.any(|input| scope.get(&input.from).is_none())
}

/// Decides about a step that can run. The end of its group lets it run without its inputs.
pub(super) fn verdict(run: &WorkflowRun<'_>, succeeded: &mut [bool], step: usize, is_group_over: bool) -> StepVerdict {
    let condition = run.step(step).map_or("", |step| step.condition.as_str());
    let lacks_input = || !is_group_over && lacks_input(run, step);
    match condition {
        _ if run.settings.suspend_on_failure => StepVerdict::Run,
        ALWAYS => StepVerdict::Run,
        "" if follows_break(run, step) || lacks_input() || follows_failure(run, succeeded, step) => StepVerdict::Skip,
        "" => StepVerdict::Run,
        _ => StepVerdict::Ask,
    }
}

/// Returns true if a step has not begun, and another has ended the workflow.
fn follows_break(run: &WorkflowRun<'_>, step: usize) -> bool {
    let status = run.statuses.get(step);
    let has_begun = status.is_some_and(|status| !status.phase.is_empty() && !status.is(StepPhase::Pending));
    let has_ended_workflow =
        |status: &StepStatus| status.is(StepPhase::Succeeded) && status.has_reason(StepReason::Terminate);
    let mut statuses = (0..run.plan.len()).filter_map(|index| run.statuses.get(index));
    run.status.terminated && !has_begun && statuses.any(has_ended_workflow)
}

/// Returns true if the caller evaluates the condition of a step, or of a sub-step.
pub(super) fn is_conditional(run: &WorkflowRun<'_>, step: usize) -> bool {
    let asks = |step: usize| {
        let step = run.step(step);
        step.is_some_and(|step| !matches!(step.condition.as_str(), "" | ALWAYS))
    };
    let mut steps = std::iter::once(step).chain(run.plan.members(step).iter().copied());
    !run.settings.suspend_on_failure && steps.any(asks)
}

/// Returns true if a direct or indirect dependency of a step did not succeed. Without dependencies, a step depends
/// on the steps before it in the mode StepByStep; these may be skipped.
fn follows_failure(run: &WorkflowRun<'_>, succeeded: &mut [bool], step: usize) -> bool {
    let plan = &run.plan;
    if plan.get(step).is_none_or(|step| step.dependencies.is_empty()) {
        let (members, is_dag) = plan.level(step);
        let mut before = members.iter().take_while(|member| **member < step);
        return !is_dag && before.any(|member| !has_phase(run, *member, &[StepPhase::Succeeded, StepPhase::Skipped]));
    }
    let mut seen = vec![false; plan.len()];
    let mut remaining = vec![step];
    while let Some(step) = remaining.pop() {
        for dependency in plan.get(step).into_iter().flat_map(|step| &step.dependencies) {
            let Some(dependency) = dependency.filter(|step| has_phase(run, *step, &[StepPhase::Succeeded])) else {
                return true;
            };
            let has_succeeded = succeeded.get(dependency).is_none_or(|has_succeeded| *has_succeeded);
            if !has_succeeded
                && let Some(is_seen) = seen.get_mut(dependency)
                && !std::mem::replace(is_seen, true)
            {
                remaining.push(dependency);
            }
        }
    }
    for (has_succeeded, seen) in succeeded.iter_mut().zip(seen) {
        *has_succeeded |= seen;
    }
    false
}

fn has_phase(run: &WorkflowRun<'_>, step: usize, phases: &[StepPhase]) -> bool {
    let status = run.statuses.get(step);
    status.is_some_and(|status| phases.iter().any(|phase| status.is(*phase)))
}

/// Returns the names of the steps whose statuses a condition reads. `None` if it may read any: it names `status` in another
/// way than `status.name`, `status."name"` or `status["name"]`.
fn named_statuses(condition: &str) -> Option<Vec<&str>> {
    let is_identifier = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '#');
    let quoted = |text: &'_ str| {
        let end = text.find(['"', '\\', '\n'])?;
        text.get(end..)?.starts_with('"').then_some(end)
    };
    let mut names = Vec::new();
    for (at, word) in condition.match_indices(STATUS) {
        let rest = condition.get(at + word.len()..)?;
        let (name, end) = if let Some(text) = rest.strip_prefix("[\"").or_else(|| rest.strip_prefix(".\"")) {
            let end = quoted(text)?;
            (text.get(..end)?, text.get(end + 1..)?)
        } else {
            let text = rest.strip_prefix('.')?;
            let end = text.find(|c| !is_identifier(c)).unwrap_or(text.len());
            text.split_at_checked(end)?
        };
        if rest.starts_with('[') && !end.starts_with(']') {
            return None;
        }
        names.push(name);
    }
    Some(names)
}

/// Returns the status of a step as KubeVela's conditions name it.
fn condition_status(status: &StepStatus) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("subSteps");
        let flags = [
            ("failed", status.is(StepPhase::Failed)),
            ("succeeded", status.is(StepPhase::Succeeded)),
            ("skipped", status.is(StepPhase::Skipped)),
            ("timeout", status.has_reason(StepReason::Timeout)),
            ("failedAfterRetries", status.has_reason(StepReason::FailedAfterRetries)),
            ("terminate", status.has_reason(StepReason::Terminate)),
        ];
        fields.extend(flags.map(|(name, is_set)| (name.to_owned(), is_set.into())));
    }
    value
}

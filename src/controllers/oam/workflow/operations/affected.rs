//! Steps that a restart from a step affects: steps that come after it, or depend on it.

use std::collections::BTreeMap;

use crate::api::oam::WorkflowStep;
use crate::controllers::oam::workflow::TooManySteps;
use crate::controllers::oam::workflow::plan::{PlannedStep, WorkflowPlan, first_field};

/// The steps of a workflow by what they depend on.
struct Dependents<'a> {
    plan: WorkflowPlan<'a>,
    /// Steps that depend on a step directly.
    by_step: BTreeMap<usize, Vec<usize>>,
    /// Steps with the paths of their inputs, by the first field of the path.
    readers: BTreeMap<&'a str, Vec<(usize, &'a str)>>,
}

/// Returns the steps and sub-steps that must run again with a step, itself included.
///
/// `mode` is as in the status, such as `StepByStep-DAG`.
pub(super) fn find_affected<'a>(
    steps: &'a [WorkflowStep],
    mode: &str,
    name: &str,
) -> Result<Vec<&'a WorkflowStep>, TooManySteps> {
    let dependents = Dependents::new(WorkflowPlan::new(steps, mode)?);
    let plan = &dependents.plan;
    let mut is_affected = vec![false; plan.len()];
    let first = plan.steps().find(|(_, planned)| planned.step.name == name);
    let mut remaining: Vec<usize> = first.map(|(index, _)| index).into_iter().collect();
    while let Some(index) = remaining.pop() {
        if let Some(seen) = is_affected.get_mut(index)
            && !std::mem::replace(seen, true)
        {
            dependents.add_next(index, &mut remaining);
        }
    }
    let affected = plan.steps().zip(is_affected);
    Ok(affected
        .filter_map(|((_, planned), is_affected)| is_affected.then_some(planned.step))
        .collect())
}

impl<'a> Dependents<'a> {
    fn new(plan: WorkflowPlan<'a>) -> Self {
        let mut by_step: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut readers: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
        for (index, planned) in plan.steps() {
            for dependency in planned.dependencies.iter().flatten() {
                by_step.entry(*dependency).or_default().push(index);
            }
            let step: &'a WorkflowStep = planned.step;
            for input in &step.inputs {
                let path = input.from.as_str();
                readers.entry(first_field(path)).or_default().push((index, path));
            }
        }
        Self { plan, by_step, readers }
    }

    /// Adds the steps that a step affects directly.
    fn add_next(&self, index: usize, next: &mut Vec<usize>) {
        let Some(planned) = self.plan.get(index) else { return };
        self.add_dependents(index, planned, next);
        next.extend(&planned.members);
        // A group has not ended before its sub-steps, so what depends on the group depends on them.
        if let Some(group) = planned.group
            && let Some(planned) = self.plan.get(group)
        {
            self.add_dependents(group, planned, next);
        }
    }

    fn add_dependents(&self, index: usize, planned: &PlannedStep<'_>, next: &mut Vec<usize>) {
        next.extend(self.by_step.get(&index).into_iter().flatten());
        for output in &planned.step.outputs {
            let readers = self.readers.get(first_field(&output.name)).into_iter().flatten();
            let reads = readers.filter(|(_, path)| overlaps(path, &output.name));
            next.extend(reads.map(|(reader, _)| reader));
        }
        let (level, is_dag) = self.plan.level(index);
        if !is_dag {
            next.extend(level.iter().filter(|later| **later > index));
        }
    }
}

/// Returns true if a dotted path is the other, or lies within it, or the other way round.
fn overlaps(path: &str, other: &str) -> bool {
    let is_within = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    is_within(path, other) || is_within(other, path)
}

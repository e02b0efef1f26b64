//! The steps of a workflow, numbered flat: a step, then its sub-steps, then the next step.

use std::collections::BTreeMap;

use serde_json::Value;

use super::interface::{MAX_STEPS, TooManySteps};
use super::step_types::{deploys_many, is_apply_component};
use crate::api::oam::WorkflowStep;

const GROUP: &str = "step-group";
const SUSPEND: &str = "suspend";
const DAG: &str = "DAG";
const STEP_BY_STEP: &str = "StepByStep";

/// A step with its place.
#[derive(Debug)]
pub(super) struct PlannedStep<'a> {
    pub step: &'a WorkflowStep,
    /// Step group that it belongs to.
    pub group: Option<usize>,
    /// Sub-steps of a group.
    pub members: Vec<usize>,
    /// Mode of the sub-steps.
    pub is_dag: bool,
    /// The steps of `dependsOn`; `None` for a step that doesn't exist.
    pub dependencies: Vec<Option<usize>>,
}

#[derive(Debug)]
pub(super) struct WorkflowPlan<'a> {
    steps: Vec<PlannedStep<'a>>,
    pub top: Vec<usize>,
    pub is_dag: bool,
    /// Steps by the names that others refer to them by.
    pub names: BTreeMap<&'a str, usize>,
    /// Steps with outputs, by the first fields of their paths.
    providers: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> WorkflowPlan<'a> {
    /// Numbers the steps. `mode` is as in the status: `StepByStep-DAG`.
    ///
    /// A step whose name was seen before is left out: KubeVela takes it for the same step.
    pub fn new(steps: &'a [WorkflowStep], mode: &str) -> Result<Self, TooManySteps> {
        let count = steps.iter().map(|step| 1 + sub_steps(step).len()).sum::<usize>();
        if count > MAX_STEPS {
            return Err(TooManySteps);
        }
        let (top_mode, sub_mode) = mode.split_once('-').unwrap_or((mode, ""));
        let mut plan = Self {
            steps: Vec::with_capacity(count),
            top: Vec::new(),
            is_dag: top_mode == DAG,
            names: BTreeMap::new(),
            providers: BTreeMap::new(),
        };
        for step in steps {
            let mode = if step.mode.is_empty() { sub_mode } else { &step.mode };
            let group = plan.add(step, None, mode);
            let mut members = Vec::new();
            for sub_step in sub_steps(step) {
                let is_new = !plan.names.contains_key(sub_step.name.as_str());
                let member = plan.add(sub_step, Some(group), "");
                if is_new {
                    members.push(member);
                }
            }
            if let Some(planned) = plan.steps.get_mut(group) {
                planned.members = members;
            }
        }
        plan.add_aliases();
        plan.resolve_dependencies();
        Ok(plan)
    }

    fn add(&mut self, step: &'a WorkflowStep, group: Option<usize>, mode: &str) -> usize {
        let index = self.steps.len();
        for output in &step.outputs {
            let providers = self.providers.entry(first_field(&output.name)).or_default();
            if providers.last() != Some(&index) {
                providers.push(index);
            }
        }
        self.steps.push(PlannedStep {
            step,
            group,
            members: Vec::new(),
            is_dag: mode != STEP_BY_STEP,
            dependencies: Vec::new(),
        });
        if *self.names.entry(&step.name).or_insert(index) == index && group.is_none() {
            self.top.push(index);
        }
        index
    }

    /// Lets steps refer to others by the name or component in their properties, as in KubeVela: a component depends on
    /// components, whatever their steps are called.
    fn add_aliases(&mut self) {
        for (index, planned) in self.steps.iter().enumerate() {
            let text = |field| planned.step.properties.as_ref()?.get(field).and_then(Value::as_str);
            let alias = ["name", "component"]
                .into_iter()
                .filter_map(text)
                .find(|text| !text.is_empty());
            if let Some(alias) = alias {
                self.names.entry(alias).or_insert(index);
            }
        }
    }

    fn resolve_dependencies(&mut self) {
        for planned in &mut self.steps {
            let names = planned.step.depends_on.iter();
            planned.dependencies = names.map(|name| self.names.get(name.as_str()).copied()).collect();
        }
    }

    pub fn get(&self, index: usize) -> Option<&PlannedStep<'a>> {
        self.steps.get(index)
    }

    pub fn steps(&self) -> impl Iterator<Item = (usize, &PlannedStep<'a>)> {
        self.steps.iter().enumerate()
    }

    pub fn len(&self) -> usize {
        self.steps.len()
    }

    pub fn is_group(&self, index: usize) -> bool {
        self.get(index).is_some_and(|planned| planned.step.type_ == GROUP)
    }

    /// Returns the sub-steps of a group.
    pub fn members(&self, index: usize) -> &[usize] {
        let planned = self.get(index);
        planned.map(|planned| planned.members.as_slice()).unwrap_or_default()
    }

    pub fn is_suspend(&self, index: usize) -> bool {
        self.get(index).is_some_and(|planned| planned.step.type_ == SUSPEND)
    }

    /// Returns true for a step whose template may have effects each time that it runs. Steps that deploy components
    /// write only what has changed.
    pub fn has_effects(&self, index: usize) -> bool {
        let step = self.get(index).map(|planned| planned.step);
        step.is_some_and(|step| !deploys_many(step) && !is_apply_component(step))
    }

    /// Returns the steps that may provide the value at a path.
    pub fn providers(&self, path: &str) -> &[usize] {
        let providers = self.providers.get(first_field(path));
        providers.map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the steps that run in one order with a step, and true if their mode is DAG.
    pub fn level(&self, index: usize) -> (&[usize], bool) {
        let group = self.get(index).and_then(|planned| planned.group);
        match group.and_then(|group| self.get(group)) {
            Some(group) => (&group.members, group.is_dag),
            None => (&self.top, self.is_dag),
        }
    }
}

/// Returns the first field of a dotted path.
pub(super) fn first_field(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// Returns the sub-steps of a group. KubeVela ignores sub-steps of other types.
fn sub_steps(step: &WorkflowStep) -> &[WorkflowStep] {
    if step.type_ == GROUP { &step.sub_steps } else { &[] }
}

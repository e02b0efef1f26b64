mod backoff;
mod conditions;
mod effects;
mod failures;
mod groups;
mod hostile;
mod interrupted;
mod limits;
mod model;
mod modes;
mod order;
mod suspend;
mod terminated;
mod timers;
mod values;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    FailureReason, StepResult, StepTask, TooManySteps, TurnOutcome, ValueStore, WorkflowSettings, WorkflowTurn,
};
use crate::api::oam::{StepInput, StepOutput, StepStatus, WorkflowStatus, WorkflowStep};
use crate::controllers::oam::context::Context;

pub(super) const START: i64 = 1_700_000_000;

pub(super) fn step(name: &str, depends_on: &[&str]) -> WorkflowStep {
    WorkflowStep {
        name: name.to_owned(),
        type_: "apply-component".to_owned(),
        depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
        ..WorkflowStep::default()
    }
}

pub(super) fn group(name: &str, sub_steps: impl IntoIterator<Item = WorkflowStep>) -> WorkflowStep {
    WorkflowStep {
        type_: "step-group".to_owned(),
        sub_steps: sub_steps.into_iter().collect(),
        ..step(name, &[])
    }
}

pub(super) fn suspend(name: &str, properties: Value) -> WorkflowStep {
    WorkflowStep {
        type_: "suspend".to_owned(),
        properties: Some(properties),
        ..step(name, &[])
    }
}

pub(super) fn when(condition: &str, mut step: WorkflowStep) -> WorkflowStep {
    condition.clone_into(&mut step.condition);
    step
}

pub(super) fn with_timeout(timeout: &str, mut step: WorkflowStep) -> WorkflowStep {
    timeout.clone_into(&mut step.timeout);
    step
}

pub(super) fn with_input(mut step: WorkflowStep, from: &str) -> WorkflowStep {
    step.inputs.push(StepInput {
        from: from.to_owned(),
        parameter_key: "value.properties.x".to_owned(),
    });
    step
}

pub(super) fn with_output(mut step: WorkflowStep, name: &str) -> WorkflowStep {
    step.outputs.push(StepOutput {
        name: name.to_owned(),
        value_from: "output.x".to_owned(),
    });
    step
}

pub(super) fn succeeded() -> StepResult {
    StepResult::Succeeded {
        outputs: Vec::new(),
        message: String::new(),
    }
}

pub(super) fn output(value: Value) -> StepResult {
    StepResult::Succeeded {
        outputs: vec![Ok(value)],
        message: String::new(),
    }
}

pub(super) fn waiting() -> StepResult {
    StepResult::Waiting {
        message: "wait healthy".to_owned(),
    }
}

pub(super) fn failed(reason: FailureReason) -> StepResult {
    StepResult::Failed {
        reason,
        message: "boom".to_owned(),
    }
}

pub(super) fn context(fields: Value) -> Context {
    Context::from(fields.as_object().unwrap().clone())
}

/// A workflow over several turns.
pub(super) struct Run {
    pub steps: Vec<WorkflowStep>,
    pub mode: &'static str,
    pub settings: WorkflowSettings,
    pub context: Context,
    pub now: i64,
    pub status: WorkflowStatus,
    pub store: ValueStore,
    /// Steps that ran in the last turn.
    pub ran: Vec<String>,
    /// Values of conditions; others are errors.
    pub conditions: BTreeMap<&'static str, bool>,
    /// Scopes of the conditions of the last turn, by step.
    pub scopes: BTreeMap<String, Map<String, Value>>,
}

impl Run {
    pub fn new(steps: impl IntoIterator<Item = WorkflowStep>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            mode: "DAG-DAG",
            settings: WorkflowSettings::default(),
            context: context(json!({"name": "app"})),
            now: START,
            status: WorkflowStatus::default(),
            store: ValueStore::default(),
            ran: Vec::new(),
            conditions: BTreeMap::new(),
            scopes: BTreeMap::new(),
        }
    }

    /// Begins a turn that the test runs itself.
    pub fn begin(&self) -> Result<WorkflowTurn<'_>, TooManySteps> {
        let now = Timestamp::from_second(self.now).unwrap();
        let (status, store) = (self.status.clone(), self.store.clone());
        let id = || "id".to_owned();
        WorkflowTurn::begin(
            &self.steps,
            self.mode,
            status,
            store,
            &self.context,
            self.settings,
            now,
            id,
        )
    }

    pub fn turn(&mut self, result: impl Fn(&str) -> StepResult) -> TurnOutcome {
        self.turn_after(0, result)
    }

    /// Runs a turn some milliseconds after `now`.
    pub fn turn_after(&mut self, millis: u64, result: impl Fn(&str) -> StepResult) -> TurnOutcome {
        let now = Timestamp::from_second(self.now).unwrap() + Duration::from_millis(millis);
        let mut ids = 0..;
        let mut turn = WorkflowTurn::begin(
            &self.steps,
            self.mode,
            self.status.clone(),
            self.store.clone(),
            &self.context,
            self.settings,
            now,
            || format!("id-{}", ids.next().unwrap()),
        )
        .unwrap();
        self.ran.clear();
        loop {
            let round = turn.next_round();
            if round.is_empty() {
                break;
            }
            for task in round {
                match task {
                    StepTask::Check(index) => {
                        let step = turn.run.step(index).unwrap();
                        self.scopes
                            .insert(step.name.clone(), turn.run.condition_scope(index).unwrap());
                        let value = self.conditions.get(step.condition.as_str()).copied();
                        turn.record_check(index, value.ok_or_else(|| "undefined".to_owned()));
                    }
                    StepTask::Run(index) => {
                        let name = turn.run.step(index).unwrap().name.clone();
                        self.ran.push(name.clone());
                        turn.record(index, result(&name));
                    }
                }
            }
        }
        let outcome = turn.end();
        self.status = outcome.status.clone();
        self.store = outcome.store.clone();
        outcome
    }

    /// Restarts the process: all that is left is the status and the data of the ConfigMap.
    pub fn restart(&mut self) {
        let status = serde_json::to_string(&self.status).unwrap();
        self.status = serde_json::from_str(&status).unwrap();
        self.store = ValueStore::parse(&self.store.to_data()).unwrap();
    }

    /// Runs a turn whose values are stored and whose status is not: the process dies between the two writes.
    pub fn interrupted_turn(&mut self, result: impl Fn(&str) -> StepResult) {
        let before = self.status.clone();
        self.turn(result);
        self.status = before;
        self.restart();
    }

    pub fn step(&self, name: &str) -> &StepStatus {
        let mut steps = all(&self.status.steps);
        steps.find(|step| step.name == name).unwrap()
    }

    pub fn step_mut(&mut self, name: &str) -> &mut StepStatus {
        let steps = &mut self.status.steps;
        let at = steps
            .iter()
            .position(|step| all(std::slice::from_ref(step)).any(|step| step.name == name))
            .unwrap();
        let top = &mut steps[at];
        if top.name == name {
            return top;
        }
        top.sub_steps.iter_mut().find(|step| step.name == name).unwrap()
    }

    /// Resumes the workflow as KubeVela's command does.
    pub fn resume(&mut self) {
        self.status.suspend = false;
        change_phase(&mut self.status.steps, "suspending", "running");
    }

    /// Suspends the workflow as KubeVela's command does.
    pub fn suspend(&mut self) {
        self.status.suspend = true;
        change_phase(&mut self.status.steps, "running", "suspending");
    }

    /// Phase, reason and message of a step.
    pub fn state(&self, name: &str) -> (&str, &str, &str) {
        let step = self.step(name);
        (&step.phase, &step.reason, &step.message)
    }

    pub fn names(&self) -> Vec<&str> {
        self.status.steps.iter().map(|step| step.name.as_str()).collect()
    }
}

/// Statuses with those of sub-steps.
pub(super) fn all(steps: &[StepStatus]) -> impl Iterator<Item = &StepStatus> {
    steps.iter().flat_map(|step| [step].into_iter().chain(&step.sub_steps))
}

pub(super) fn change_phase(steps: &mut [StepStatus], from: &str, to: &str) {
    for step in steps {
        if step.phase == from {
            to.clone_into(&mut step.phase);
        }
        change_phase(&mut step.sub_steps, from, to);
    }
}

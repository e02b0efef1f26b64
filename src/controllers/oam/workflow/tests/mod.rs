mod backoff;
mod failures;
mod model;
mod order;
mod values;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{FailureReason, Outcome, Settings, StepResult, Store, Turn};
use crate::api::oam::{StepInput, StepOutput, StepStatus, WorkflowStatus, WorkflowStep};

pub(super) const START: i64 = 1_700_000_000;

pub(super) fn step(name: &str, depends_on: &[&str]) -> WorkflowStep {
    WorkflowStep {
        name: name.to_owned(),
        type_: "apply-component".to_owned(),
        depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
        ..WorkflowStep::default()
    }
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
    StepResult::Succeeded { outputs: Vec::new() }
}

pub(super) fn output(value: Value) -> StepResult {
    StepResult::Succeeded {
        outputs: vec![Ok(value)],
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

/// A workflow over several turns.
pub(super) struct Run {
    pub steps: Vec<WorkflowStep>,
    pub settings: Settings,
    pub context: Value,
    pub now: i64,
    pub status: WorkflowStatus,
    pub store: Store,
    /// Steps that ran in the last turn.
    pub ran: Vec<String>,
}

impl Run {
    pub fn new(steps: impl IntoIterator<Item = WorkflowStep>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            settings: Settings::default(),
            context: json!({"name": "app"}),
            now: START,
            status: WorkflowStatus::default(),
            store: Store::default(),
            ran: Vec::new(),
        }
    }

    pub fn turn(&mut self, result: impl Fn(&str) -> StepResult) -> Outcome {
        self.turn_after(0, result)
    }

    /// Runs a turn some milliseconds after `now`.
    pub fn turn_after(&mut self, millis: u64, result: impl Fn(&str) -> StepResult) -> Outcome {
        let now = Timestamp::from_second(self.now).unwrap() + Duration::from_millis(millis);
        let mut ids = 0..;
        let mut turn = Turn::begin(
            &self.steps,
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
            for step in round {
                self.ran.push(self.steps[step].name.clone());
                turn.record(step, result(&self.steps[step].name));
            }
        }
        let outcome = turn.end();
        self.status = outcome.status.clone();
        self.store = outcome.store.clone();
        outcome
    }

    pub fn step(&self, name: &str) -> &StepStatus {
        self.status.steps.iter().find(|step| step.name == name).unwrap()
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

//! The statuses of the steps, by number.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::phase::{StepReason, StepState};
use super::plan::WorkflowPlan;
use crate::api::oam::StepStatus;
use crate::text::{MAX_TEXT, sanitize_lines};

/// Bytes of all messages. The API server limits an Application with its spec and status to about 1.5 MiB.
const MAX_MESSAGES: usize = 256 << 10;

/// Index in the list of steps, and in the list of its sub-steps.
type StepIndex = (usize, Option<usize>);

/// The statuses as KubeVela orders them: by the first visit. Statuses of steps that don't exist are kept.
#[derive(Debug)]
pub(super) struct Statuses {
    steps: Vec<StepStatus>,
    places: Vec<Option<StepIndex>>,
    ids: Vec<String>,
    now: Timestamp,
    /// Bytes of a message. It depends on the number of steps alone, so that the same message is always cut alike.
    max_message: usize,
}

impl Statuses {
    pub fn new(
        plan: &WorkflowPlan<'_>,
        steps: Vec<StepStatus>,
        now: Timestamp,
        mut new_id: impl FnMut() -> String,
    ) -> Self {
        let by_name = by_name(&steps);
        let mut sub_steps: HashMap<usize, HashMap<&str, usize>> = HashMap::new();
        let mut places: Vec<Option<StepIndex>> = Vec::with_capacity(plan.len());
        for (_, planned) in plan.steps() {
            let name = planned.step.name.as_str();
            let place = match planned.group {
                None => by_name.get(name).map(|top| (*top, None)),
                Some(group) => places.get(group).copied().flatten().and_then(|(top, _)| {
                    let positions = sub_steps.entry(top).or_insert_with(|| {
                        steps
                            .get(top)
                            .map(|step| self::by_name(&step.sub_steps))
                            .unwrap_or_default()
                    });
                    positions.get(name).map(|sub| (top, Some(*sub)))
                }),
            };
            places.push(place);
        }
        let mut statuses = Self {
            places,
            ids: Vec::new(),
            now,
            max_message: (MAX_MESSAGES / plan.len().max(1)).min(MAX_TEXT),
            steps,
        };
        let ids = (0..plan.len()).map(|index| {
            let id = statuses.get(index).map(|status| status.id.clone());
            id.filter(|id| !id.is_empty()).unwrap_or_else(&mut new_id)
        });
        statuses.ids = ids.collect();
        for index in 0..plan.len() {
            let id = statuses.id(index).to_owned();
            if let Some(status) = statuses.get_mut(index) {
                // A user may have removed it.
                status.id = id;
            }
        }
        statuses
    }

    pub fn id(&self, index: usize) -> &str {
        self.ids.get(index).map(String::as_str).unwrap_or_default()
    }

    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// Returns the status of a step. It has no phase if the step was begun in this turn.
    pub fn get(&self, index: usize) -> Option<&StepStatus> {
        let (top, sub) = (*self.places.get(index)?)?;
        let status = self.steps.get(top)?;
        match sub {
            Some(sub) => status.sub_steps.get(sub),
            None => Some(status),
        }
    }

    /// Adds a status without a phase, unless there is one. Reserves its place, since steps may end in any order.
    pub fn begin(&mut self, plan: &WorkflowPlan<'_>, index: usize) {
        let Some(planned) = plan.get(index) else {
            return;
        };
        if self.places.get(index).is_none_or(Option::is_some) {
            return;
        }
        let status = StepStatus {
            id: self.id(index).to_owned(),
            name: planned.step.name.clone(),
            type_: planned.step.type_.clone(),
            first_execute_time: Some(Time(self.now)),
            ..StepStatus::default()
        };
        let place = match planned.group {
            None => {
                self.steps.push(status);
                Some((self.steps.len() - 1, None))
            }
            Some(group) => {
                self.begin(plan, group);
                self.places.get(group).copied().flatten().and_then(|(top, _)| {
                    let sub_steps = &mut self.steps.get_mut(top)?.sub_steps;
                    sub_steps.push(status);
                    Some((top, Some(sub_steps.len() - 1)))
                })
            }
        };
        if let Some(slot) = self.places.get_mut(index) {
            *slot = place;
        }
    }

    /// Sets the state of a step. The time of its last execution changes with it, so that a turn without news writes nothing.
    /// An attempt is news. The message is cut and cleaned here: parts of it come from templates, servers and users.
    pub fn update(
        &mut self,
        plan: &WorkflowPlan<'_>,
        index: usize,
        (phase, reason): StepState,
        message: &str,
        is_attempt: bool,
    ) {
        self.begin(plan, index);
        let message = sanitize_lines(message, self.max_message);
        let now = self.now;
        let Some(status) = self.get_mut(index) else {
            return;
        };
        let reason = reason.map(StepReason::as_str).unwrap_or_default();
        let is_same = status.is(phase) && status.reason == reason && status.message == message;
        if is_attempt || !is_same {
            status.last_execute_time = Some(Time(now));
        }
        phase.as_str().clone_into(&mut status.phase);
        reason.clone_into(&mut status.reason);
        status.message = message;
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut StepStatus> {
        let (top, sub) = (*self.places.get(index)?)?;
        let status = self.steps.get_mut(top)?;
        match sub {
            Some(sub) => status.sub_steps.get_mut(sub),
            None => Some(status),
        }
    }

    /// Returns the statuses of the steps that are in no group.
    pub fn top(&self) -> &[StepStatus] {
        &self.steps
    }

    /// Returns the statuses, but for steps that were begun and have no state.
    pub fn into_steps(mut self) -> Vec<StepStatus> {
        self.steps.retain(|step| !step.phase.is_empty());
        for step in &mut self.steps {
            step.sub_steps.retain(|sub_step| !sub_step.phase.is_empty());
        }
        self.steps
    }
}

fn by_name(steps: &[StepStatus]) -> HashMap<&str, usize> {
    // The first status counts, as for KubeVela's updates.
    let numbered = steps.iter().enumerate().rev();
    numbered.map(|(index, step)| (step.name.as_str(), index)).collect()
}

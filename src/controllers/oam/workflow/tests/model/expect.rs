//! The model: the end of each step, by the rules alone.
//!
//! Time has only epochs. All that does not hang takes place in one epoch; timeouts that begin in it pass before the next.

use super::flow::{Attempt, Condition, End, Flow, Kind};
use crate::controllers::oam::workflow::{FailureReason, State};

pub const MAX_RETRIES: usize = 2;
/// More than all steps can be late.
const MOST_EPOCHS: usize = 30;

type Ended = (&'static str, &'static str);

pub struct Expected {
    pub steps: Vec<ExpectedStep>,
    pub workflow: State,
    pub is_terminated: bool,
}

pub struct ExpectedStep {
    /// Phase and reason, if the step has a status.
    pub state: Option<Ended>,
    /// None if it depends on the time.
    pub attempts: Option<usize>,
}

const SKIPPED: Ended = ("skipped", "Skip");
const SUCCEEDED: Ended = ("succeeded", "");
const TIMEOUT: Ended = ("failed", "Timeout");

struct Model<'a> {
    flow: &'a Flow,
    epoch: usize,
    /// Epochs in which the steps got their status.
    first: Vec<Option<usize>>,
    ended: Vec<Option<Ended>>,
    /// Steps that run or hang, and groups that were entered.
    has_begun: Vec<bool>,
    attempts: Vec<usize>,
    has_changed: bool,
}

pub fn expect(flow: &Flow) -> Expected {
    let count = flow.nodes.len();
    let mut model = Model {
        flow,
        epoch: 0,
        first: vec![None; count],
        ended: vec![None; count],
        has_begun: vec![false; count],
        attempts: vec![0; count],
        has_changed: false,
    };
    for epoch in 0..MOST_EPOCHS {
        model.epoch = epoch;
        model.settle();
    }
    let top = flow.members(None);
    let has_failed = model.has_failed();
    Expected {
        steps: (0..count).map(|step| model.result(step)).collect(),
        workflow: match top.iter().all(|step| model.ended[*step].is_some()) {
            false => State::Executing,
            true if has_failed => State::Failed,
            true => State::Succeeded,
        },
        is_terminated: has_failed,
    }
}

impl Model<'_> {
    fn settle(&mut self) {
        loop {
            self.has_changed = false;
            self.visit_level(None);
            for group in 0..self.flow.nodes.len() {
                if self.has_begun[group] && self.ended[group].is_none() && self.is_group(group) {
                    self.visit_level(Some(group));
                    self.close(group);
                }
            }
            if !self.has_changed {
                return;
            }
        }
    }

    fn is_group(&self, step: usize) -> bool {
        matches!(self.flow.nodes[step].kind, Kind::Group { .. })
    }

    fn visit_level(&mut self, group: Option<usize>) {
        for step in self.flow.members(group) {
            if self.ended[step].is_some() {
                continue;
            }
            if self.first[step].is_none() {
                self.first[step] = Some(self.epoch);
                self.has_changed = true;
            }
            if !self.is_pending(step) {
                self.visit(step);
            }
            if self.ended[step].is_none() && !self.flow.is_dag(group) {
                return;
            }
        }
    }

    fn has_ended(&self, step: usize) -> bool {
        self.ended.get(step).is_some_and(Option::is_some)
    }

    fn is_pending(&self, step: usize) -> bool {
        let node = &self.flow.nodes[step];
        let mut others = node.dependencies.iter().chain(&node.input);
        // What doesn't exist never comes, and a workflow that has failed ends without it.
        !others.all(|other| self.has_ended(*other) || (self.has_failed() && *other >= self.ended.len()))
    }

    fn has_failed(&self) -> bool {
        self.ended.iter().flatten().any(|(phase, _)| *phase == "failed")
    }

    fn end(&mut self, step: usize, end: Ended) {
        self.ended[step] = Some(end);
        self.has_changed = true;
    }

    fn visit(&mut self, step: usize) {
        let node = &self.flow.nodes[step];
        let lacks_input = node.condition == Condition::None && node.input.is_some_and(|other| !self.has_ended(other));
        if lacks_input || !self.is_allowed(step) {
            for member in self.flow.members(Some(step)) {
                self.end_member(member, SKIPPED);
            }
            self.end(step, SKIPPED);
            return;
        }
        if node.has_timeout && self.first[step].is_some_and(|first| first < self.epoch) {
            for member in self.flow.members(Some(step)) {
                let end = if self.is_allowed(member) { TIMEOUT } else { SKIPPED };
                self.end_member(member, end);
            }
            self.end(step, TIMEOUT);
            return;
        }
        self.has_begun[step] = true;
        match &node.kind {
            Kind::Group { .. } => self.has_changed |= self.flow.members(Some(step)).is_empty(),
            Kind::Suspend { .. } => self.end(step, SUCCEEDED),
            Kind::Script { attempts, end } => self.run(step, attempts, *end),
        }
    }

    fn end_member(&mut self, member: usize, end: Ended) {
        if self.ended[member].is_none() {
            self.end(member, end);
        }
    }

    fn run(&mut self, step: usize, attempts: &[Attempt], end: End) {
        let mut failures = 0;
        for (at, attempt) in attempts.iter().enumerate() {
            failures = match attempt {
                Attempt::Fails => failures + 1,
                Attempt::Waits => failures,
                // A step that is resumed has all attempts again.
                Attempt::Suspends { .. } => 0,
            };
            if failures > MAX_RETRIES {
                self.attempts[step] = at + 1;
                return self.end(step, ("failed", "FailedAfterRetries"));
            }
        }
        self.attempts[step] = attempts.len() + 1;
        match end {
            End::Succeeds => self.end(step, SUCCEEDED),
            // A failure by the template itself keeps its reason.
            End::Fails(reason) if failures < MAX_RETRIES || reason == FailureReason::Action => {
                self.end(step, ("failed", reason.step_reason().as_str()));
            }
            End::Fails(_) => self.end(step, ("failed", "FailedAfterRetries")),
            End::Hangs => {}
        }
    }

    /// Returns true if the condition of a step holds.
    fn is_allowed(&self, step: usize) -> bool {
        let node = &self.flow.nodes[step];
        match node.condition {
            Condition::Always | Condition::Constant(true) => true,
            Condition::Constant(false) | Condition::Error => false,
            Condition::Failed(other) => matches!(self.ended.get(other), Some(Some(("failed", _)))),
            Condition::None if !node.dependencies.is_empty() => self.has_succeeded_before(step, &mut Vec::new()),
            Condition::None if self.flow.is_dag(node.group) => true,
            Condition::None => {
                let before = self
                    .flow
                    .members(node.group)
                    .into_iter()
                    .take_while(|other| *other < step);
                let is_good = |end: Option<Ended>| end.is_some_and(|(phase, _)| phase != "failed");
                before.into_iter().all(|other| is_good(self.ended[other]))
            }
        }
    }

    fn has_succeeded_before(&self, step: usize, seen: &mut Vec<usize>) -> bool {
        if seen.contains(&step) {
            return true;
        }
        seen.push(step);
        let succeeded = |other: usize| self.ended.get(other).copied().flatten() == Some(SUCCEEDED);
        let dependencies = &self.flow.nodes[step].dependencies;
        dependencies
            .iter()
            .all(|other| succeeded(*other) && self.has_succeeded_before(*other, seen))
    }

    /// Ends a group whose members have ended.
    fn close(&mut self, group: usize) {
        let members = self.flow.members(Some(group));
        let ends: Option<Vec<Ended>> = members.iter().map(|member| self.ended[*member]).collect();
        let Some(ends) = ends else {
            return;
        };
        let failed: Vec<&str> = ends.iter().filter(|end| end.0 == "failed").map(|end| end.1).collect();
        let first = ["FailedAfterRetries", "Timeout", "Action"]
            .into_iter()
            .find(|reason| failed.contains(reason));
        let end = match failed.first() {
            Some(reason) if first.is_none() && *reason == "Input" => ("failed", "Input"),
            Some(_) => ("failed", first.unwrap()),
            None if !ends.is_empty() && ends.iter().all(|end| *end == SKIPPED) => SKIPPED,
            None => SUCCEEDED,
        };
        self.end(group, end);
    }

    fn result(&self, step: usize) -> ExpectedStep {
        let is_hanging =
            self.has_begun[step] && matches!(self.flow.nodes[step].kind, Kind::Script { end: End::Hangs, .. });
        let has_ended_itself = self.ended[step].is_some_and(|end| end != TIMEOUT);
        ExpectedStep {
            state: self.state(step),
            attempts: (!is_hanging || has_ended_itself).then(|| self.attempts[step]),
        }
    }

    fn state(&self, step: usize) -> Option<Ended> {
        if let Some(end) = self.ended[step] {
            return Some(end);
        }
        self.first[step]?;
        Some(match (self.has_begun[step], self.is_group(step)) {
            (false, _) => ("pending", ""),
            (true, false) => ("running", "Wait"),
            (true, true) => {
                let members = self.flow.members(Some(step));
                let states: Vec<_> = members.iter().map(|member| self.state(*member)).collect();
                let is_pending = |state: &Option<Ended>| *state == Some(("pending", ""));
                let runs = |state: &Option<Ended>| state.is_none_or(|(phase, _)| phase == "running");
                if states.iter().any(is_pending) && !states.iter().any(runs) {
                    ("pending", "")
                } else {
                    ("running", "")
                }
            }
        })
    }
}

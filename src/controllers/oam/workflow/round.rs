//! The order of steps in a turn: which run next, at each level.

use std::collections::VecDeque;

use jiff::Timestamp;

use super::conditions::StepVerdict;
use super::interface::StepTask;
use super::phase::{StepPhase, StepReason};
use super::timers::Timeout;
use super::turn::WorkflowTurn;
use crate::api::oam::StepStatus;

/// State of a step in a turn.
#[derive(Clone, Debug)]
pub(super) enum Visit {
    Outstanding,
    /// The caller evaluates the condition.
    Checking(Timeout),
    /// The caller runs the step.
    Running,
    /// The sub-steps, at this level, are visited.
    Group(usize),
    Done,
}

/// Steps of one order: the steps without a group, or the steps of one group.
#[derive(Debug)]
pub(super) struct Level {
    group: Option<usize>,
    /// Steps that were not visited yet.
    members: Vec<usize>,
    /// Steps of the current round that were not begun.
    ready: VecDeque<usize>,
    /// Steps of the current round that have begun and are not done.
    open: Vec<usize>,
    /// The step that others of a level in the mode StepByStep come after.
    last: Option<usize>,
    is_first_round: bool,
    end: Option<GroupEnd>,
}

/// The end of a group that its sub-steps share.
#[derive(Clone, Debug)]
pub(super) enum GroupEnd {
    Skipped { message: String },
    TimedOut,
}

impl Level {
    pub fn new(group: Option<usize>, members: Vec<usize>) -> Self {
        Self {
            group,
            members,
            ready: VecDeque::new(),
            open: Vec::new(),
            last: None,
            is_first_round: true,
            end: None,
        }
    }
}

impl WorkflowTurn<'_> {
    /// Visits steps until the caller has tasks. Returns true if the level has none left.
    pub(super) fn run_level(&mut self, at: usize) -> bool {
        loop {
            let open = self.level(at).map(|level| std::mem::take(&mut level.open));
            let mut open = open.unwrap_or_default();
            open.retain(|step| !self.advance_to_end(*step));
            let batch = self.next_batch(at, &open);
            let is_round_over = open.is_empty() && batch.is_empty();
            for step in &batch {
                self.visit(*step);
            }
            self.has_run |= !batch.is_empty();
            open.extend(&batch);
            if let Some(level) = self.level(at) {
                level.open = open;
            }
            if is_round_over {
                // As in KubeVela, a round begins when the round before has ended, with the groups in it.
                let ready = self.next_members(at);
                if ready.is_empty() {
                    return true;
                }
                if let Some(level) = self.level(at) {
                    level.ready = ready.into();
                }
            } else if batch.is_empty() {
                return false;
            }
        }
    }

    /// Takes the steps that can begin beside the open steps of the round. A condition can name the results of all steps
    /// before it in the round, as in KubeVela, which runs them one after the other.
    fn next_batch(&mut self, at: usize, open: &[usize]) -> Vec<usize> {
        let mut batch = Vec::new();
        let is_checking = |step: &usize| matches!(self.visits.get(*step), Some(Visit::Checking(_)));
        if open.iter().any(is_checking) {
            return batch;
        }
        while let Some(next) = self.levels.get(at).and_then(|level| level.ready.front().copied()) {
            let is_conditional = self.is_conditional(next);
            if is_conditional && !(open.is_empty() && batch.is_empty()) {
                break;
            }
            batch.push(next);
            if let Some(level) = self.level(at) {
                level.ready.pop_front();
            }
            if is_conditional {
                break;
            }
        }
        batch
    }

    fn level(&mut self, at: usize) -> Option<&mut Level> {
        self.levels.get_mut(at)
    }

    fn advance_to_end(&mut self, step: usize) -> bool {
        match self.visits.get(step) {
            Some(Visit::Checking(_) | Visit::Running) => false,
            Some(Visit::Group(level)) => {
                let level = *level;
                let is_over = self.run_level(level);
                if is_over {
                    let end = self.levels.get(level).and_then(|level| level.end.clone());
                    self.close_group(step, end);
                    self.set_visit(step, Visit::Done);
                }
                is_over
            }
            _ => true,
        }
    }

    /// Takes the steps of the next round from a level.
    fn next_members(&mut self, at: usize) -> Vec<usize> {
        let Some(level) = self.level(at) else {
            return Vec::new();
        };
        let members = std::mem::take(&mut level.members);
        let Some(first) = members.first() else {
            return Vec::new();
        };
        if self.plan.level(*first).1 {
            self.ready_members(at, members)
        } else {
            self.next_member(at, members).into_iter().collect()
        }
    }

    /// Returns the steps that can run, in the mode DAG.
    fn ready_members(&mut self, at: usize, members: Vec<usize>) -> Vec<usize> {
        let has_ended = self.has_ended(at);
        let (mut pending, mut ready) = (Vec::new(), Vec::new());
        for step in members {
            if self.is_finished(step) || (!has_ended && self.is_held(step)) {
                continue;
            }
            match self.pending_on(step) {
                Some(cause) if !has_ended => pending.push((step, cause)),
                _ => ready.push(step),
            }
        }
        // As in KubeVela, steps pending at first come after running steps, and are not recorded after a suspension.
        let is_first_round = self.levels.get(at).is_none_or(|level| level.is_first_round);
        let is_recorded = (!is_first_round || ready.is_empty()) && !self.is_suspended_up_to(pending.last());
        for (step, cause) in &pending {
            self.set_pending(*step, is_recorded.then_some(cause));
        }
        if let Some(level) = self.level(at) {
            level.is_first_round = false;
            level.members = pending.into_iter().map(|(step, _)| step).collect();
        }
        ready
    }

    /// Returns true if a step up to the given one has suspended the workflow.
    fn is_suspended_up_to(&self, step: Option<&(usize, String)>) -> bool {
        let statuses = (0..=step.map_or(0, |(step, _)| *step)).filter_map(|index| self.statuses.get(index));
        statuses.into_iter().any(|status| status.is_suspended())
    }

    /// Returns the next step in the mode StepByStep, unless the step before has not finished.
    fn next_member(&mut self, at: usize, members: Vec<usize>) -> Option<usize> {
        let has_ended = self.has_ended(at);
        let last = self.levels.get(at).and_then(|level| level.last);
        if last.is_some_and(|last| !self.is_finished(last)) {
            return None;
        }
        let mut members = members.into_iter();
        let next = members.find(|step| !self.is_finished(*step))?;
        if !has_ended {
            if self.is_held(next) {
                return None;
            }
            if let Some(cause) = self.pending_on(next) {
                self.set_pending(next, Some(&cause));
                return None;
            }
        }
        if let Some(level) = self.level(at) {
            level.last = Some(next);
            level.members = members.collect();
        }
        Some(next)
    }

    fn has_ended(&self, level: usize) -> bool {
        self.levels.get(level).is_some_and(|level| level.end.is_some())
    }

    fn set_pending(&mut self, step: usize, cause: Option<&String>) {
        self.pending.insert(step);
        if let Some(cause) = cause {
            self.statuses
                .update(&self.plan, step, (StepPhase::Pending, None), cause, false);
        }
    }

    /// Returns true if a step must not be visited in this turn.
    fn is_held(&self, step: usize) -> bool {
        let Some(status) = self.statuses.get(step).filter(|_| !self.plan.is_group(step)) else {
            return false;
        };
        // The next attempt is not due. An event doesn't bring it forward, since a step may cause events itself.
        let is_postponed = (!self.is_due && status.is(StepPhase::Failed)) || self.next_run(status).is_some();
        // A user has suspended the step.
        let is_suspended =
            self.status.suspend && status.is(StepPhase::Suspending) && !status.has_reason(StepReason::Suspend);
        let has_timed_out = status.has_reason(StepReason::Timeout) || status.has_reason(StepReason::FailedAfterRetries);
        is_suspended || (is_postponed && (has_timed_out || !matches!(self.timeout(step), Timeout::Passed)))
    }

    /// Returns the time before which a step that waits must not run again. A template that applies an object and then waits
    /// would otherwise start itself without end by the event of its own write.
    pub(super) fn next_run(&self, status: &StepStatus) -> Option<Timestamp> {
        let next_run = || self.store.attempts.next_run(&status.id, self.now);
        status.is(StepPhase::Running).then(next_run).flatten()
    }

    fn visit(&mut self, step: usize) {
        let timeout = self.timeout(step);
        self.statuses.begin(&self.plan, step);
        if let Some(GroupEnd::Skipped { .. }) = self.group_end(step) {
            self.leave(step, String::new());
            return;
        }
        match self.verdict(step) {
            StepVerdict::Run => self.enter(step, timeout),
            StepVerdict::Skip => self.leave(step, String::new()),
            StepVerdict::Ask => {
                self.set_visit(step, Visit::Checking(timeout));
                self.tasks.push(StepTask::Check(step));
            }
        }
    }

    /// Returns the end of the group that the step is in.
    pub(super) fn group_end(&self, step: usize) -> Option<&GroupEnd> {
        let group = self.plan.get(step)?.group?;
        match self.visits.get(group)? {
            Visit::Group(level) => self.levels.get(*level)?.end.as_ref(),
            _ => None,
        }
    }

    /// Records the value of a step's condition, or the error of evaluating it.
    pub fn record_check(&mut self, step: usize, result: Result<bool, String>) {
        let Some(Visit::Checking(timeout)) = self.visits.get(step).cloned() else {
            return;
        };
        match result {
            Ok(true) => self.enter(step, timeout),
            Ok(false) => self.leave(step, String::new()),
            Err(error) => self.leave(step, format!("pre check error: {error}")),
        }
    }

    /// Skips a step, or a group with its sub-steps.
    fn leave(&mut self, step: usize, message: String) {
        if self.plan.is_group(step) {
            self.open_group(step, Some(GroupEnd::Skipped { message }));
        } else {
            self.skip(step, &message);
            self.set_visit(step, Visit::Done);
        }
    }

    /// Begins a step whose condition is true.
    fn enter(&mut self, step: usize, timeout: Timeout) {
        let has_group_timed_out = matches!(self.group_end(step), Some(GroupEnd::TimedOut));
        match timeout {
            Timeout::Passed if self.plan.is_group(step) => self.open_group(step, Some(GroupEnd::TimedOut)),
            timeout if has_group_timed_out || matches!(timeout, Timeout::Passed) => {
                self.fail(step, StepReason::Timeout, "");
                self.set_visit(step, Visit::Done);
            }
            Timeout::Invalid(error) => self.leave(step, format!("pre check error: {error}")),
            _ if self.plan.is_group(step) => self.open_group(step, None),
            _ if self.hold_or_resume(step) => self.set_visit(step, Visit::Done),
            _ if self.plan.is_suspend(step) => {
                self.run_suspend(step);
                self.set_visit(step, Visit::Done);
            }
            _ => {
                self.set_visit(step, Visit::Running);
                self.tasks.push(StepTask::Run(step));
            }
        }
    }

    fn open_group(&mut self, group: usize, end: Option<GroupEnd>) {
        let members = self.plan.get(group).map(|planned| planned.members.clone());
        let level = Level {
            end,
            ..Level::new(Some(group), members.unwrap_or_default())
        };
        self.set_visit(group, Visit::Group(self.levels.len()));
        self.levels.push(level);
    }

    pub(super) fn set_visit(&mut self, step: usize, visit: Visit) {
        if let Some(slot) = self.visits.get_mut(step) {
            *slot = visit;
        }
    }

    /// Returns the groups whose sub-steps are not done.
    pub(super) fn open_groups(&self) -> Vec<usize> {
        let groups = self.levels.iter().filter_map(|level| level.group);
        let is_open = |group: &usize| matches!(self.visits.get(*group), Some(Visit::Group(_)));
        groups.filter(is_open).collect()
    }
}

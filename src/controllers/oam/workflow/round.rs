//! The order of steps in a turn: which run next, at each level.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::conditions::{StepVerdict, is_conditional, pending_on, verdict};
use super::groups::{GroupEnd, close_group};
use super::interface::StepTask;
use super::phase::{StepPhase, StepReason};
use super::plan::WorkflowPlan;
use super::results::{apply_result, fail_step, skip_step};
use super::run::WorkflowRun;
use super::suspend::{hold_or_resume, suspend_result};
use super::timers::{Timeout, next_run, next_timer, timeout};
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
#[derive(Debug, Default)]
struct Level {
    group: Option<usize>,
    /// Steps that were not visited yet.
    members: Vec<usize>,
    /// Steps of the current round that were not begun.
    ready: VecDeque<usize>,
    /// Steps of the current round that have begun and are not done.
    open: Vec<usize>,
    /// The step that others of a level in the mode StepByStep come after.
    last: Option<usize>,
    is_past_first_round: bool,
    end: Option<GroupEnd>,
}

/// The states of all steps in a turn.
#[derive(Debug)]
pub(super) struct Visits {
    states: Vec<Visit>,
    /// The steps without a group, then the steps of the groups that were visited.
    levels: Vec<Level>,
    /// Numbers of dependencies and inputs of each step that are there: they are not looked at again.
    fulfilled: Vec<usize>,
    /// Steps that have succeeded, and all that they depend on.
    succeeded: Vec<bool>,
    /// Steps that could not run yet.
    pending: BTreeSet<usize>,
    pub tasks: Vec<StepTask>,
    pub has_run: bool,
}

impl Visits {
    pub fn new(plan: &WorkflowPlan<'_>) -> Self {
        let top = Level {
            members: plan.top.clone(),
            ..Level::default()
        };
        Self {
            states: vec![Visit::Outstanding; plan.len()],
            levels: vec![top],
            fulfilled: vec![0; plan.len()],
            succeeded: vec![false; plan.len()],
            pending: BTreeSet::new(),
            tasks: Vec::new(),
            has_run: false,
        }
    }

    pub fn get(&self, step: usize) -> Option<&Visit> {
        self.states.get(step)
    }

    pub fn set(&mut self, step: usize, visit: Visit) {
        if let Some(slot) = self.states.get_mut(step) {
            *slot = visit;
        }
    }

    fn is_outstanding(&self, step: usize) -> bool {
        matches!(self.get(step), Some(Visit::Outstanding))
    }

    /// Returns the time until the next step fails or is resumed, and zero if a step was pending and has become ready.
    pub fn next_timer(&mut self, run: &WorkflowRun<'_>) -> Option<Duration> {
        let mut pending = std::mem::take(&mut self.pending).into_iter();
        if pending.any(|step| self.is_outstanding(step) && pending_on(run, &mut self.fulfilled, step).is_none()) {
            return Some(Duration::ZERO);
        }
        next_timer(run, |step| self.is_outstanding(step))
    }

    /// Returns the groups whose sub-steps are not done.
    pub fn open_groups(&self) -> Vec<usize> {
        let groups = self.levels.iter().filter_map(|level| level.group);
        let is_open = |group: &usize| matches!(self.get(*group), Some(Visit::Group(_)));
        groups.filter(is_open).collect()
    }

    fn level(&mut self, at: usize) -> Option<&mut Level> {
        self.levels.get_mut(at)
    }

    fn has_ended(&self, level: usize) -> bool {
        self.levels.get(level).is_some_and(|level| level.end.is_some())
    }

    /// Returns the end of the group that the step is in.
    fn group_end(&self, plan: &WorkflowPlan<'_>, step: usize) -> Option<&GroupEnd> {
        let group = plan.get(step)?.group?;
        match self.get(group)? {
            Visit::Group(level) => self.levels.get(*level)?.end.as_ref(),
            _ => None,
        }
    }

    fn open_group(&mut self, plan: &WorkflowPlan<'_>, group: usize, end: Option<GroupEnd>) {
        let level = Level {
            group: Some(group),
            members: plan.members(group).to_vec(),
            end,
            ..Level::default()
        };
        self.set(group, Visit::Group(self.levels.len()));
        self.levels.push(level);
    }
}

/// Visits steps until the caller has tasks. Returns true if the level has none left.
pub(super) fn run_level(run: &mut WorkflowRun<'_>, visits: &mut Visits, at: usize) -> bool {
    loop {
        let open = visits.level(at).map(|level| std::mem::take(&mut level.open));
        let mut open = open.unwrap_or_default();
        open.retain(|step| !advance_to_end(run, visits, *step));
        let batch = next_batch(run, visits, at, &open);
        let is_round_over = open.is_empty() && batch.is_empty();
        for step in &batch {
            visit_step(run, visits, *step);
        }
        visits.has_run |= !batch.is_empty();
        open.extend(&batch);
        if let Some(level) = visits.level(at) {
            level.open = open;
        }
        if is_round_over {
            // As in KubeVela, a round begins when the round before has ended, with the groups in it.
            let ready = next_members(run, visits, at);
            if ready.is_empty() {
                return true;
            }
            if let Some(level) = visits.level(at) {
                level.ready = ready.into();
            }
        } else if batch.is_empty() {
            return false;
        }
    }
}

/// Takes the steps that can begin beside the open steps of the round. A condition can name the results of all steps
/// before it in the round, as in KubeVela, which runs them one after the other.
fn next_batch(run: &WorkflowRun<'_>, visits: &mut Visits, at: usize, open: &[usize]) -> Vec<usize> {
    let mut batch = Vec::new();
    let is_checking = |step: &usize| matches!(visits.get(*step), Some(Visit::Checking(_)));
    if open.iter().any(is_checking) {
        return batch;
    }
    let Some(level) = visits.level(at) else {
        return batch;
    };
    while let Some(next) = level.ready.front().copied() {
        let is_conditional = is_conditional(run, next);
        if is_conditional && !(open.is_empty() && batch.is_empty()) {
            break;
        }
        batch.push(next);
        level.ready.pop_front();
        if is_conditional {
            break;
        }
    }
    batch
}

fn advance_to_end(run: &mut WorkflowRun<'_>, visits: &mut Visits, step: usize) -> bool {
    match visits.get(step) {
        Some(Visit::Checking(_) | Visit::Running) => false,
        Some(Visit::Group(level)) => {
            let level = *level;
            let is_over = run_level(run, visits, level);
            if is_over {
                let end = visits.levels.get(level).and_then(|level| level.end.clone());
                close_group(run, step, end);
                visits.set(step, Visit::Done);
            }
            is_over
        }
        _ => true,
    }
}

/// Takes the steps of the next round from a level.
fn next_members(run: &mut WorkflowRun<'_>, visits: &mut Visits, at: usize) -> Vec<usize> {
    let members = visits.level(at).map(|level| std::mem::take(&mut level.members));
    let members = members.unwrap_or_default();
    match members.first().copied() {
        None => members,
        Some(first) if run.plan.level(first).1 => ready_members(run, visits, at, members),
        Some(_) => next_member(run, visits, at, members).into_iter().collect(),
    }
}

/// Returns the steps that can run, in the mode DAG.
fn ready_members(run: &mut WorkflowRun<'_>, visits: &mut Visits, at: usize, members: Vec<usize>) -> Vec<usize> {
    let has_ended = visits.has_ended(at);
    let (mut pending, mut ready) = (Vec::new(), Vec::new());
    for step in members {
        if run.is_finished(step) || (!has_ended && is_held(run, step)) {
            continue;
        }
        match pending_on(run, &mut visits.fulfilled, step) {
            Some(cause) if !has_ended => pending.push((step, cause)),
            _ => ready.push(step),
        }
    }
    // As in KubeVela, steps pending at first come after running steps, and are not recorded after a suspension.
    let is_first_round = visits.levels.get(at).is_none_or(|level| !level.is_past_first_round);
    let is_recorded = (!is_first_round || ready.is_empty()) && !is_suspended_up_to(run, pending.last());
    for (step, cause) in &pending {
        set_pending(run, visits, *step, is_recorded.then_some(cause));
    }
    if let Some(level) = visits.level(at) {
        level.is_past_first_round = true;
        level.members = pending.into_iter().map(|(step, _)| step).collect();
    }
    ready
}

/// Returns true if a step up to the given one has suspended the workflow.
fn is_suspended_up_to(run: &WorkflowRun<'_>, step: Option<&(usize, String)>) -> bool {
    let statuses = (0..=step.map_or(0, |(step, _)| *step)).filter_map(|index| run.statuses.get(index));
    statuses.into_iter().any(StepStatus::is_suspended)
}

/// Returns the next step in the mode StepByStep, unless the step before has not finished.
fn next_member(run: &mut WorkflowRun<'_>, visits: &mut Visits, at: usize, members: Vec<usize>) -> Option<usize> {
    let has_ended = visits.has_ended(at);
    let last = visits.levels.get(at).and_then(|level| level.last);
    if last.is_some_and(|last| !run.is_finished(last)) {
        return None;
    }
    let mut members = members.into_iter();
    let next = members.find(|step| !run.is_finished(*step))?;
    if !has_ended {
        if is_held(run, next) {
            return None;
        }
        if let Some(cause) = pending_on(run, &mut visits.fulfilled, next) {
            set_pending(run, visits, next, Some(&cause));
            return None;
        }
    }
    if let Some(level) = visits.level(at) {
        level.last = Some(next);
        level.members = members.collect();
    }
    Some(next)
}

fn set_pending(run: &mut WorkflowRun<'_>, visits: &mut Visits, step: usize, cause: Option<&String>) {
    visits.pending.insert(step);
    if let Some(cause) = cause {
        run.update(step, (StepPhase::Pending, None), cause, false);
    }
}

/// Returns true if a step must not be visited in this turn.
fn is_held(run: &WorkflowRun<'_>, step: usize) -> bool {
    let Some(status) = run.statuses.get(step).filter(|_| !run.plan.is_group(step)) else {
        return false;
    };
    // The next attempt is not due. An event doesn't bring it forward, since a step may cause events itself.
    let is_postponed = (!run.is_due && status.is(StepPhase::Failed)) || next_run(run, status).is_some();
    // A user has suspended the step.
    let is_suspended =
        run.status.suspend && status.is(StepPhase::Suspending) && !status.has_reason(StepReason::Suspend);
    let has_timed_out = status.has_reason(StepReason::Timeout) || status.has_reason(StepReason::FailedAfterRetries);
    is_suspended || (is_postponed && (has_timed_out || !matches!(timeout(run, step), Timeout::Passed)))
}

fn visit_step(run: &mut WorkflowRun<'_>, visits: &mut Visits, step: usize) {
    let timeout = timeout(run, step);
    run.statuses.begin(&run.plan, step);
    let group_end = visits.group_end(&run.plan, step);
    let is_group_over = group_end.is_some();
    if let Some(GroupEnd::Skipped { .. }) = group_end {
        leave_step(run, visits, step, String::new());
        return;
    }
    match verdict(run, &mut visits.succeeded, step, is_group_over) {
        StepVerdict::Run => enter_step(run, visits, step, timeout),
        StepVerdict::Skip => leave_step(run, visits, step, String::new()),
        StepVerdict::Ask => {
            visits.set(step, Visit::Checking(timeout));
            visits.tasks.push(StepTask::Check(step));
        }
    }
}

/// Skips a step, or a group with its sub-steps.
pub(super) fn leave_step(run: &mut WorkflowRun<'_>, visits: &mut Visits, step: usize, message: String) {
    if run.plan.is_group(step) {
        visits.open_group(&run.plan, step, Some(GroupEnd::Skipped { message }));
    } else {
        skip_step(run, step, &message);
        visits.set(step, Visit::Done);
    }
}

/// Begins a step whose condition is true.
pub(super) fn enter_step(run: &mut WorkflowRun<'_>, visits: &mut Visits, step: usize, timeout: Timeout) {
    let is_group = run.plan.is_group(step);
    let has_group_timed_out = matches!(visits.group_end(&run.plan, step), Some(GroupEnd::TimedOut));
    match timeout {
        Timeout::Passed if is_group => visits.open_group(&run.plan, step, Some(GroupEnd::TimedOut)),
        timeout if has_group_timed_out || matches!(timeout, Timeout::Passed) => {
            fail_step(run, step, StepReason::Timeout, "");
            visits.set(step, Visit::Done);
        }
        Timeout::Invalid(error) => leave_step(run, visits, step, format!("pre check error: {error}")),
        _ if is_group => visits.open_group(&run.plan, step, None),
        _ if hold_or_resume(run, step) => visits.set(step, Visit::Done),
        _ if run.plan.is_suspend(step) => {
            let result = suspend_result(run, step);
            apply_result(run, step, result);
            visits.set(step, Visit::Done);
        }
        _ => {
            visits.set(step, Visit::Running);
            visits.tasks.push(StepTask::Run(step));
        }
    }
}

//! Plays a workflow in turns, with events, processes that die, and a user who suspends and resumes it.

use std::time::Duration;

use jiff::{Timestamp, ToSpan};

use super::super::{START, all, change_phase};
use super::expect::MAX_RETRIES;
use super::flow::{Attempt, Condition, End, Flow, Kind, Random, TIMEOUT_HOURS};
use crate::api::oam::{StepStatus, WorkflowStatus, WorkflowStep};
use crate::controllers::oam::context::Context;
use crate::controllers::oam::workflow::{State, StepTask, TurnOutcome, ValueStore, WorkflowSettings, WorkflowTurn};

/// Turns without news after which only a timeout changes anything.
const QUIET_TURNS: usize = 4;
/// Longer than all delays but those of timeouts.
const LONG: Duration = Duration::from_secs(5);
const MOST_TURNS: usize = 2_000;

pub struct Played {
    pub state: State,
    pub status: WorkflowStatus,
    pub attempts: Vec<usize>,
}

struct Player<'a> {
    flow: &'a Flow,
    steps: Vec<WorkflowStep>,
    random: &'a mut Random,
    now: Timestamp,
    status: WorkflowStatus,
    store: ValueStore,
    attempts: Vec<usize>,
    ids: usize,
}

pub fn play(flow: &Flow, random: &mut Random) -> Played {
    let mut player = Player {
        flow,
        steps: flow.steps(),
        random,
        now: Timestamp::from_second(START).unwrap(),
        status: WorkflowStatus::default(),
        store: ValueStore::default(),
        attempts: vec![0; flow.nodes.len()],
        ids: 0,
    };
    let (mut quiet, mut has_news) = (0, true);
    for _ in 0..MOST_TURNS {
        let before = player.news();
        let attempts = player.attempts.clone();
        let outcome = player.turn();
        if player.may_be_interrupted() && player.random.one_in(8) {
            player.attempts = attempts;
            player.lose_status(&outcome);
            continue;
        }
        let is_early = player.follow(&outcome);
        if before != player.news() {
            (quiet, has_news) = (0, true);
        } else if outcome.state != State::Suspending && !is_early {
            quiet += 1;
        }
        if quiet > QUIET_TURNS {
            if !has_news {
                return Played {
                    state: outcome.state,
                    status: player.status,
                    attempts: player.attempts,
                };
            }
            (quiet, has_news) = (0, false);
            player.now += (TIMEOUT_HOURS + 1).hours();
        }
    }
    panic!("a workflow does not end: {flow:#?}\n{:#?}", player.status);
}

impl Player<'_> {
    /// Returns what changes unless the workflow stands still.
    fn news(&self) -> (Vec<StepStatus>, Vec<usize>) {
        let hangs = |step: usize| matches!(self.flow.nodes[step].kind, Kind::Script { end: End::Hangs, .. });
        let attempts = self.attempts.iter().enumerate();
        let attempts = attempts.map(|(step, attempts)| if hangs(step) { 0 } else { *attempts });
        (self.status.steps.clone(), attempts.collect())
    }

    fn turn(&mut self) -> TurnOutcome {
        let settings = WorkflowSettings {
            max_retries: u32::try_from(MAX_RETRIES).unwrap(),
            max_wait_backoff: Duration::from_secs(2),
            max_failed_backoff: Duration::from_secs(3),
            suspend_on_failure: false,
        };
        let new_id = || {
            self.ids += 1;
            format!("id{}", self.ids)
        };
        let (status, store, context) = (self.status.clone(), self.store.clone(), Context::default());
        let mode = self.flow.mode();
        let turn = WorkflowTurn::begin(&self.steps, &mode, status, store, &context, settings, self.now, new_id);
        let mut turn = turn.unwrap();
        let mut ran = vec![false; self.flow.nodes.len()];
        loop {
            let mut round = turn.next_round();
            if round.is_empty() {
                break;
            }
            if self.random.one_in(2) {
                round.reverse();
            }
            for task in round {
                match task {
                    StepTask::Check(step) => turn.record_check(step, self.check(step, &turn)),
                    StepTask::Run(step) => {
                        assert!(!std::mem::replace(&mut ran[step], true), "a step runs once a turn");
                        let attempt = self.attempts[step];
                        self.attempts[step] += 1;
                        turn.record(step, self.flow.nodes[step].kind.result(attempt));
                    }
                }
            }
        }
        let outcome = turn.end();
        assert_order(&self.status.steps, &outcome.status.steps);
        assert!(outcome.retry_in.is_some() || outcome.state != State::Executing);
        outcome
    }

    /// Evaluates the condition of a step.
    fn check(&self, step: usize, turn: &WorkflowTurn<'_>) -> Result<bool, String> {
        match self.flow.nodes[step].condition {
            Condition::Constant(value) => Ok(value),
            Condition::Failed(other) => {
                let scope = turn.run.condition_scope(step).unwrap();
                let value = &scope["status"][Flow::name(other)]["failed"];
                value.as_bool().ok_or_else(|| "undefined".to_owned())
            }
            _ => Err("error".to_owned()),
        }
    }

    /// Takes the outcome over, and goes to the next turn. Returns true if an event starts it early.
    fn follow(&mut self, outcome: &TurnOutcome) -> bool {
        self.status = outcome.status.clone();
        self.store = outcome.store.clone();
        if self.random.one_in(4) {
            let status = serde_json::to_string(&self.status).unwrap();
            self.status = serde_json::from_str(&status).unwrap();
            self.store = ValueStore::parse(&self.store.to_data()).unwrap();
        }
        let retry_in = outcome.retry_in.map(|delay| delay.min(LONG));
        match (outcome.state, retry_in) {
            (State::Suspending, Some(delay)) if self.random.one_in(2) => self.now += delay,
            (State::Suspending, _) => self.resume(),
            (State::Executing, _) if self.random.one_in(10) && !self.has_limit() => self.suspend_for_a_while(),
            (_, Some(delay)) => match self.random.below(4) {
                0 => {
                    self.now += delay / 3;
                    return true;
                }
                1 => self.now += LONG,
                _ => self.now += delay,
            },
            (_, None) => self.now += LONG,
        }
        false
    }

    fn resume(&mut self) {
        self.status.suspend = false;
        change_phase(&mut self.status.steps, "suspending", "running");
    }

    /// Returns true if a step fails as often as it may: a user who suspends the workflow gives it all attempts again.
    fn has_limit(&self) -> bool {
        self.most_failures(true) > MAX_RETRIES
    }

    /// Returns true if no step is tried again after a failure: one whose status is lost counts twice.
    fn may_be_interrupted(&self) -> bool {
        self.most_failures(false) == 0
    }

    fn most_failures(&self, with_last: bool) -> usize {
        let failures = self.flow.nodes.iter().map(|node| match &node.kind {
            Kind::Script { attempts, end } => {
                let last = with_last && matches!(end, End::Fails(_));
                attempts.iter().filter(|attempt| **attempt == Attempt::Fails).count() + usize::from(last)
            }
            _ => 0,
        });
        failures.max().unwrap_or_default()
    }

    /// Lets the process die after it has stored the values, and before it has written the status.
    fn lose_status(&mut self, outcome: &TurnOutcome) {
        self.store = ValueStore::parse(&outcome.store.to_data()).unwrap();
        self.now += Duration::from_millis(100);
    }

    fn suspend_for_a_while(&mut self) {
        self.status.suspend = true;
        change_phase(&mut self.status.steps, "running", "suspending");
        let before = (self.status.steps.clone(), self.attempts.clone());
        self.now += LONG;
        let outcome = self.turn();
        assert_eq!(outcome.state, State::Suspending);
        assert_eq!(
            (outcome.status.steps, &self.attempts),
            (before.0, &before.1),
            "nothing runs"
        );
        self.store = outcome.store;
        self.resume();
    }
}

/// Asserts that no status has moved or got another id.
fn assert_order(before: &[StepStatus], after: &[StepStatus]) {
    for (old, new) in before.iter().zip(after) {
        assert_eq!((&old.name, &old.id), (&new.name, &new.id));
        assert_eq!(old.first_execute_time, new.first_execute_time);
        assert_order(&old.sub_steps, &new.sub_steps);
    }
    assert!(before.len() <= after.len());
    assert!(all(after).all(|status| !status.phase.is_empty()));
}

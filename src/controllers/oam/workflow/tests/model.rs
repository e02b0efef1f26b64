//! Compares whole runs of random graphs with a model that knows no turns.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::Value;

use super::super::{FailureReason, Settings, State, StepResult, Store, Turn};
use crate::api::oam::{WorkflowStatus, WorkflowStep};

const MAX_RETRIES: u32 = 2;

/// The behavior of a step: attempts that don't end it, then its end.
#[derive(Clone, Debug)]
struct Script {
    attempts: Vec<Attempt>,
    succeeds: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Attempt {
    Waits,
    Fails,
}

impl Script {
    fn result(&self, attempt: usize) -> StepResult {
        match self.attempts.get(attempt) {
            Some(Attempt::Waits) => StepResult::Waiting {
                message: "wait".to_owned(),
            },
            Some(Attempt::Fails) => failure(FailureReason::Execute),
            None if self.succeeds => StepResult::Succeeded { outputs: Vec::new() },
            None => failure(FailureReason::Input),
        }
    }

    /// Phase and number of attempts when the step has ended.
    fn end(&self) -> (&'static str, usize) {
        let mut failures = 0;
        for (at, attempt) in self.attempts.iter().enumerate() {
            failures += u32::from(*attempt == Attempt::Fails);
            if failures > MAX_RETRIES {
                return ("failed", at + 1);
            }
        }
        (
            if self.succeeds { "succeeded" } else { "failed" },
            self.attempts.len() + 1,
        )
    }
}

fn failure(reason: FailureReason) -> StepResult {
    StepResult::Failed {
        reason,
        message: "failed".to_owned(),
    }
}

/// Steps by number, with the numbers of those they depend on. Any graph, with cycles and missing steps.
#[derive(Clone, Debug)]
struct Graph {
    dependencies: Vec<Vec<usize>>,
    scripts: Vec<Script>,
}

impl Graph {
    /// Phases and numbers of attempts at the end.
    fn model(&self) -> Vec<(&'static str, usize)> {
        let mut ends: BTreeMap<usize, (&'static str, usize)> = BTreeMap::new();
        // As many passes as steps reach every step that can end.
        for _ in 0..self.scripts.len() {
            for (step, script) in self.scripts.iter().enumerate() {
                let phases = self.dependencies[step]
                    .iter()
                    .map(|other| ends.get(other).map(|end| end.0));
                let phases: Option<Vec<_>> = phases.collect();
                if let Some(phases) = phases {
                    let is_ready = phases.iter().all(|phase| *phase == "succeeded");
                    ends.insert(step, if is_ready { script.end() } else { ("skipped", 0) });
                }
            }
        }
        let steps = 0..self.scripts.len();
        steps
            .map(|step| ends.get(&step).copied().unwrap_or(("pending", 0)))
            .collect()
    }

    fn steps(&self) -> Vec<WorkflowStep> {
        let steps = self
            .dependencies
            .iter()
            .enumerate()
            .map(|(number, others)| WorkflowStep {
                name: format!("s{number}"),
                depends_on: others.iter().map(|other| format!("s{other}")).collect(),
                ..WorkflowStep::default()
            });
        steps.collect()
    }
}

fn graph() -> impl Strategy<Value = Graph> {
    (1..7_usize).prop_flat_map(|count| {
        let acyclic: Vec<_> = (0..count)
            .map(|step| prop::collection::vec(0..step.max(1), 0..=step.min(3)))
            .collect();
        let any = prop::collection::vec(prop::collection::vec(0..count + 1, 0..3), count);
        let dependencies = prop_oneof![4 => acyclic, 1 => any];
        let attempt = prop_oneof![2 => Just(Attempt::Waits), 3 => Just(Attempt::Fails)];
        let script = (prop::collection::vec(attempt, 0..6), prop::bool::weighted(0.8))
            .prop_map(|(attempts, succeeds)| Script { attempts, succeeds });
        let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
        (dependencies, prop::collection::vec(script, count), order).prop_map(|(dependencies, scripts, order)| {
            // Steps stand in any order.
            let place = |step: usize| order.get(step).copied().unwrap_or(step);
            let mut shuffled = vec![Vec::new(); order.len()];
            for (step, others) in dependencies.into_iter().enumerate() {
                shuffled[place(step)] = others.into_iter().map(place).collect();
            }
            Graph {
                dependencies: shuffled,
                scripts,
            }
        })
    })
}

/// The end of a run.
#[derive(Debug)]
struct End {
    state: State,
    status: WorkflowStatus,
    attempts: Vec<usize>,
}

/// Runs turns until one changes nothing. `restart` sends the store through its ConfigMap.
fn run(graph: &Graph, restart: bool) -> Result<End, TestCaseError> {
    let steps = graph.steps();
    let settings = Settings {
        max_retries: MAX_RETRIES,
        ..Settings::default()
    };
    let mut now = Timestamp::from_second(1_700_000_000).unwrap();
    let (mut status, mut store) = (WorkflowStatus::default(), Store::default());
    let mut attempts = vec![0; steps.len()];
    loop {
        let before = (status.clone(), attempts.clone());
        let mut ids = 0..;
        let id = || format!("{now}-{}", ids.next().unwrap());
        let context = Value::Null;
        let mut turn = Turn::begin(&steps, status, store, &context, settings, now, id).unwrap();
        let mut seen = vec![false; steps.len()];
        loop {
            let round = turn.next_round();
            if round.is_empty() {
                break;
            }
            // Results come in another order.
            for step in round.into_iter().rev() {
                prop_assert!(!seen[step], "a step runs once a turn");
                seen[step] = true;
                turn.record(step, graph.scripts[step].result(attempts[step]));
                attempts[step] += 1;
            }
        }
        let outcome = turn.end();
        (status, store) = (outcome.status, outcome.store);
        for (old, new) in before.0.steps.iter().zip(&status.steps) {
            prop_assert_eq!(&old.name, &new.name, "the order of the status is stable");
            prop_assert_eq!(&old.id, &new.id);
        }
        prop_assert_eq!(outcome.retry_in.is_some(), outcome.state == State::Executing);
        if before == (status.clone(), attempts.clone()) {
            return Ok(End {
                state: outcome.state,
                status,
                attempts,
            });
        }
        if restart {
            store = Store::parse(&store.to_data()).unwrap();
        }
        now += outcome.retry_in.unwrap_or_default();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn a_run_ends_as_the_model(graph in graph(), restart in any::<bool>()) {
        let expected = graph.model();
        let end = run(&graph, restart)?;
        for (step, (phase, attempts)) in expected.iter().enumerate() {
            let name = format!("s{step}");
            let status = end.status.steps.iter().find(|status| status.name == name);
            prop_assert_eq!(status.map(|status| status.phase.as_str()), Some(*phase), "{}", name);
            prop_assert_eq!(end.attempts[step], *attempts, "attempts of {}", name);
        }
        let has = |phase| expected.iter().any(|(other, _)| *other == phase);
        let state = match () {
            () if has("pending") => State::Executing,
            () if has("failed") => State::Failed,
            () => State::Succeeded,
        };
        prop_assert_eq!(end.state, state);
        prop_assert_eq!(end.status.terminated, has("failed"));
        prop_assert_eq!(end.status.phase.as_str(), state.as_str());
    }
}

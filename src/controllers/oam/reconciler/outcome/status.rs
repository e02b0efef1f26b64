use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::conditions::{find, upsert};
use crate::api::oam::{ApplicationStatus, Condition};
use crate::controllers::oam::parse::Unsupported;
use crate::controllers::oam::reconciler::conditions::{self, PARSED, POLICY, READY, RENDER, REVISION, phase};
use crate::controllers::oam::reconciler::failure::Failure;
use crate::controllers::oam::reconciler::outcome::{Outcome, OutcomeChange};
use crate::runtime::events::Event;

const AVAILABLE: &str = "Available";
const SUCCESS: &str = "ReconcileSuccess";
const ERROR: &str = "ReconcileError";
const DELETING: &str = "Deleting";

/// A status, and the events that announce what is new in it.
#[derive(Debug)]
pub struct Built {
    pub status: ApplicationStatus,
    pub events: Vec<Event>,
}

pub fn build(outcome: &Outcome, now: Timestamp) -> Built {
    let mut status = ApplicationStatus {
        observed_generation: outcome.observed_generation,
        latest_revision: outcome.latest_revision.clone(),
        workflow: outcome.workflow.clone(),
        workflow_restart_scheduled_at: outcome.restart_at.map(Time),
        services: outcome.services.shown().to_vec(),
        applied_resources: outcome.applied_resources.clone(),
        ..outcome.before.clone()
    };
    let mut events = Vec::new();
    for change in &outcome.changes {
        apply(&mut status, change, now, &mut events);
    }
    Built { status, events }
}

pub fn build_failed(outcome: &Outcome, failure: &Failure, generation: Option<i64>, now: Timestamp) -> Built {
    let mut built = build(outcome, now);
    fail(&mut built.status, failure, now);
    built.status.observed_generation = generation;
    built
}

/// Returns the status of a pass that gave its worker back.
pub fn build_deferred(outcome: &Outcome, now: Timestamp) -> Built {
    let mut built = build(outcome, now);
    start(&mut built.status);
    built
}

/// The Application is left alone. All else stays, unless it is of another generation, which would seem to run.
pub fn build_refused(
    before: &ApplicationStatus,
    generation: Option<i64>,
    unsupported: &[Unsupported],
    now: Timestamp,
) -> Built {
    let mut status = before.clone();
    let texts: BTreeSet<String> = unsupported.iter().map(ToString::to_string).collect();
    let texts: Vec<String> = texts.into_iter().collect();
    let failure = Failure::parse(format!("not supported by this controller: {}", texts.join(", ")));
    let parsed = find(&status.conditions, PARSED);
    let is_known = parsed.is_some_and(|parsed| parsed.status == "False" && parsed.message == failure.message);
    if status.observed_generation == generation && !status.phase.is_empty() {
        set(&mut status, PARSED, "False", ERROR, &failure.message, now);
    } else {
        fail(&mut status, &failure, now);
    }
    status.observed_generation = generation;
    let events = (!is_known).then(|| Event::warning("FailedParse", &failure.message));
    Built {
        status,
        events: events.into_iter().collect(),
    }
}

fn apply(status: &mut ApplicationStatus, change: &OutcomeChange, now: Timestamp, events: &mut Vec<Event>) {
    match change {
        OutcomeChange::Succeeded {
            condition,
            reason,
            note,
        } => {
            let available = if *condition == READY { SUCCESS } else { AVAILABLE };
            if set(status, condition, "True", available, "", now) {
                events.push(Event::normal(reason, *note));
            }
        }
        OutcomeChange::Failed { condition, message } => {
            set(status, condition, "False", ERROR, message, now);
        }
        OutcomeChange::Deleting(message) => {
            set(status, READY, "False", DELETING, message, now);
        }
        OutcomeChange::Removed(type_) => status.conditions.retain(|condition| condition.type_ != *type_),
        OutcomeChange::Restarted => {
            let stays = |condition: &Condition| [PARSED, REVISION, POLICY, RENDER].contains(&condition.type_.as_str());
            status.conditions.retain(stays);
        }
        OutcomeChange::Phase(phase) => (*phase).clone_into(&mut status.phase),
    }
}

fn fail(status: &mut ApplicationStatus, failure: &Failure, now: Timestamp) {
    set(status, failure.kind.condition(), "False", ERROR, &failure.message, now);
    set(status, conditions::READY, "False", ERROR, &failure.message, now);
    if let Some(phase) = failure.phase {
        phase.clone_into(&mut status.phase);
    }
    start(status);
}

/// Shows that the first pass has begun. Without a phase, `vela up --wait` would never end.
fn start(status: &mut ApplicationStatus) {
    if status.phase.is_empty() {
        phase::STARTING.clone_into(&mut status.phase);
    }
}

/// Sets a condition. Returns true if its value is new.
fn set(status: &mut ApplicationStatus, type_: &str, value: &str, reason: &str, message: &str, now: Timestamp) -> bool {
    let condition = Condition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: None,
    };
    upsert(&mut status.conditions, condition, Time(now))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::controllers::oam::reconciler::failure::FailureKind;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// Returns the phase, and the values of the conditions by their types.
    fn shown(status: &ApplicationStatus) -> (&str, Vec<(&str, &str)>) {
        let conditions = status.conditions.iter();
        let conditions = conditions.map(|condition| (condition.type_.as_str(), condition.status.as_str()));
        (status.phase.as_str(), conditions.collect())
    }

    fn running() -> ApplicationStatus {
        let mut outcome = Outcome::of(&ApplicationStatus {
            observed_generation: Some(1),
            ..ApplicationStatus::default()
        });
        outcome.in_phase(phase::RUNNING);
        outcome.succeeded(READY, "Deployed", "Deployed successfully");
        build(&outcome, NOW).status
    }

    const PARSED_NOW: OutcomeChange = OutcomeChange::Succeeded {
        condition: PARSED,
        reason: "Parsed",
        note: "",
    };
    const DEPLOYED: OutcomeChange = OutcomeChange::Succeeded {
        condition: READY,
        reason: "Deployed",
        note: "",
    };

    #[rstest]
    #[case::nothing_found(vec![], (phase::RUNNING, vec![(READY, "True")]), vec![])]
    #[case::known_success(vec![DEPLOYED], (phase::RUNNING, vec![(READY, "True")]), vec![])]
    #[case::news(vec![PARSED_NOW], (phase::RUNNING, vec![(READY, "True"), (PARSED, "True")]), vec!["Parsed"])]
    #[case::a_new_run_deploys_again(
        vec![PARSED_NOW, OutcomeChange::Restarted, OutcomeChange::Phase(phase::RUNNING_WORKFLOW), DEPLOYED],
        (phase::RUNNING_WORKFLOW, vec![(PARSED, "True"), (READY, "True")]),
        vec!["Parsed", "Deployed"],
    )]
    #[case::a_collection_waits(
        vec![OutcomeChange::Deleting("Waiting for Service web".to_owned())],
        (phase::RUNNING, vec![(READY, "False")]),
        vec![],
    )]
    #[case::a_state_that_is_not_kept(
        vec![OutcomeChange::Failed { condition: conditions::STATE_KEEP, message: "no".to_owned() }, DEPLOYED],
        (phase::RUNNING, vec![(READY, "True"), (conditions::STATE_KEEP, "False")]),
        vec![],
    )]
    fn a_status_follows_from_what_the_stages_found(
        #[case] changes: Vec<OutcomeChange>,
        #[case] expected: (&str, Vec<(&str, &str)>),
        #[case] announced: Vec<&str>,
    ) {
        let outcome = Outcome {
            changes,
            ..Outcome::of(&running())
        };
        let built = build(&outcome, NOW);
        assert_eq!(shown(&built.status), expected);
        let reasons: Vec<&str> = built.events.iter().map(|event| event.reason.as_str()).collect();
        assert_eq!(reasons, announced);
        assert_eq!(built.status.observed_generation, Some(1));
    }

    #[test]
    fn a_status_that_was_stored_within_the_pass_is_the_same_at_its_end() {
        let mut outcome = Outcome::of(&ApplicationStatus::default());
        outcome.changes.push(PARSED_NOW);
        let stored = build(&outcome, NOW);
        let end = build(&outcome, NOW);
        assert_eq!(stored.status, end.status);
        assert_eq!(
            end.events.len(),
            1,
            "the end of the pass publishes what is new since its begin"
        );
    }

    #[test]
    fn a_generation_that_is_not_supported_does_not_seem_to_run() {
        let unsupported = [Unsupported::Policy {
            name: "old".to_owned(),
            type_: "env-binding".to_owned(),
        }];
        let running = running();

        // Another controller runs what this one does not support.
        let elsewhere = build_refused(&running, Some(1), &unsupported, NOW);
        assert_eq!(elsewhere.events.len(), 1);
        let expected = (phase::RUNNING, vec![(READY, "True"), (PARSED, "False")]);
        assert_eq!(shown(&elsewhere.status), expected);

        let expected = (phase::RENDERING, vec![(READY, "False"), (PARSED, "False")]);
        let first = build_refused(&running, Some(2), &unsupported, NOW);
        assert_eq!(
            (shown(&first.status), first.status.observed_generation),
            (expected.clone(), Some(2))
        );
        assert_eq!(first.events.len(), 1);
        let second = build_refused(&first.status, Some(2), &unsupported, NOW);
        assert_eq!(shown(&second.status), expected);
        assert!(second.events.is_empty());
    }

    #[test]
    fn an_application_whose_first_pass_fails_early_is_starting() {
        let no_rights = Failure::new(FailureKind::Apply, "no rights");
        let no_type = Failure::parse("no such type");
        let fail_from = |before: &ApplicationStatus, failure: &Failure| {
            build_failed(&Outcome::of(before), failure, None, NOW).status
        };
        let first = fail_from(&ApplicationStatus::default(), &no_rights);
        assert_eq!(first.phase, phase::STARTING);
        let second = fail_from(&first, &no_type);
        let third = fail_from(&second, &no_rights);
        assert_eq!(third.phase, phase::RENDERING);
    }
}

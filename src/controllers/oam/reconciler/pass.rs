//! The sequence of a pass over an Application.
//!
//! ```text
//!  observe ─► declare ─► follow shard ─► revise ─► apply policies ─► run the workflow ─► assess ─► keep ─► collect
//!                                          │                                                                  │
//!                                      checkpoint                              status::build ◄────────────────┘
//! ```
//! A stage takes what it needs and returns what it found, or adds it to the outcome. A pass may end after any stage.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::apply::keep::keep_objects;
use super::apply::{AppObjects, Ledger, TAKEN_RETRY};
use super::cluster::Cluster;
use super::collect::{self, collect_after_failure, collect_undeclared, collect_unmarked};
use super::conditions::{self, phase};
use super::declare::{declare, declare_recorded};
use super::env::Env;
use super::failure::{Failure, FailureKind, Stop};
use super::observed::read::{read_latest, read_trackers};
use super::observed::requests::{RESTART, RestartRequest};
use super::observed::{Observed, TRACKER_FINALIZER};
use super::outcome::status::{self, Built};
use super::outcome::{Outcome, OutcomeChange};
use super::policies::{apply_policies, policies_without_effect};
use super::references::resolve_references;
use super::reschedule::follow_shard;
use super::revise::{Current, Revision, application_of, choose_revision, current_of, published_revision};
use super::rollout::Rollout;
use super::rollout::assess::{DeclaredObjects, assess_services, declare_all, show_phase};
use super::rollout::render::Target;
use super::run::lifecycle::{end_run, restart_if_due};
use super::run::run_workflow;
use super::values::StepValues;
use crate::api::oam::{Application, WorkflowStatus, labels};
use crate::controllers::oam::parse::{
    Parsed, Unsupported, unsupported_application, unsupported_definitions, unsupported_overrides, unsupported_trackers,
};
use crate::controllers::oam::trackers::Inventory;
use crate::controllers::oam::workflow::State;
use crate::runtime::watch::{MAX_DECODED_BYTES, too_large};

/// Delay after objects could not be restored, if no event comes first.
const KEEP_RETRY: Duration = Duration::from_mins(1);
/// Delay after an Application was refused. Its change comes first.
const REFUSED_RETRY: Duration = Duration::from_mins(10);

pub(super) enum PassEnd {
    /// The Application waits for events, and for the time that the pass asks for.
    Waiting,
    /// The finalizers are removed.
    Gone,
}

pub(super) async fn stages(env: &Env<'_>, observed: &mut Observed, outcome: &mut Outcome) -> Result<PassEnd, Stop> {
    let inventory = read_trackers(env, observed).await?;
    check_support(&observed.app, &inventory)?;
    read_latest(env, observed).await?;
    let ledger = Ledger::new(env, observed, inventory);
    ledger.subscribe().await?;
    let cluster = Cluster::of(env, observed, &ledger.inventory).await?;
    let mut objects = AppObjects::new(cluster, ledger);
    if observed.is_deleting() {
        return collect::delete(observed, &mut objects, outcome).await;
    }
    deploy(env, observed, outcome, &mut objects).await?;
    Ok(PassEnd::Waiting)
}

async fn deploy(
    env: &Env<'_>,
    observed: &mut Observed,
    outcome: &mut Outcome,
    objects: &mut AppObjects<'_>,
) -> Result<(), Stop> {
    check_size(observed)?;
    let mut latest = observed.latest_revision()?;
    let parsed = Stop::split(declare(env, observed, latest.as_ref()).await)?;
    if let Ok(parsed) = &parsed {
        check_declared(parsed)?;
    }
    write_metadata(env, observed, outcome).await?;
    outcome.observed_generation = observed.app.metadata.generation;
    let mut parsed = parsed?;
    if follow_shard(env, observed, &mut objects.ledger.inventory).await? {
        // Its version may be another now.
        read_latest(env, observed).await?;
        latest = observed.latest_revision()?;
    }
    let restarts = outcome.is_restart_due(env.now);
    let components = resolve_references(&objects.cluster, observed, latest.as_ref(), restarts, &mut parsed);
    let components = components.await?;
    outcome.succeeded(conditions::PARSED, "Parsed", "Parsed successfully");
    outcome
        .notices
        .insert("PolicySkipped", policies_without_effect(&parsed));
    let (current, mut parsed) = revise(env, observed, outcome, latest, parsed).await?;
    if let Some(components) = components {
        parsed.replace_components(components);
    }
    let target = Target {
        env,
        current: &current,
        parsed: &parsed,
    };
    let values = StepValues::new(env, observed.app.uid());
    let mut rollout = Rollout {
        target,
        objects,
        outcome,
        values,
    };
    wait_for_name(&mut rollout, observed).await?;
    rollout.objects.ledger.remove_creators().await?;
    apply_policies(rollout.objects, &current, &parsed).await?;
    rollout
        .outcome
        .succeeded(conditions::POLICY, "PolicyGenerated", "Policy generated successfully");
    restart_if_due(env, &current, &rollout.objects.ledger, rollout.outcome).await?;
    let state = run_workflow(&mut rollout).await?;
    follow(state, &mut rollout, observed).await
}

/// Makes the revision of what is declared now current. Returns it with the Application as parsed from it.
async fn revise(
    env: &Env<'_>,
    observed: &mut Observed,
    outcome: &mut Outcome,
    latest: Option<Revision>,
    parsed: Parsed,
) -> Result<(Current, Parsed), Stop> {
    const REVISED: (&str, &str) = ("Revisioned", "Revisioned successfully");
    if let Some(release) = published_revision(observed, latest.as_ref()) {
        outcome.succeeded(conditions::REVISION, REVISED.0, REVISED.1);
        let number = outcome.latest_revision.as_ref();
        let current = current_of(env, application_of(release), release.clone(), number);
        return Ok((current.await, parsed));
    }
    let contents = parsed.contents(&observed.app);
    let number = outcome.latest_revision.as_ref();
    let chosen = choose_revision(env, observed, latest, contents, number).await?;
    if let Some(latest) = chosen.latest {
        outcome.latest_revision = Some(latest);
        outcome.in_phase(phase::RENDERING);
        // A crash later must know the revision.
        checkpoint(env, observed, outcome).await?;
    }
    outcome.succeeded(conditions::REVISION, REVISED.0, REVISED.1);
    let parsed = declare_recorded(env, observed, &chosen.revision).await?;
    let number = outcome.latest_revision.as_ref();
    let current = current_of(env, observed.app.clone(), chosen.revision, number);
    Ok((current.await, parsed))
}

async fn checkpoint(env: &Env<'_>, observed: &mut Observed, outcome: &Outcome) -> Result<(), Stop> {
    let Built { status, .. } = status::build(outcome, env.now);
    let before = observed.identity(env);
    let written = observed.write_status(env, &status).await;
    written.map_err(|error| Stop::of_write(&error))?;
    // The write may have met another generation, which this pass has not parsed.
    if observed.identity(env) == before {
        Ok(())
    } else {
        Err(Stop::Stale)
    }
}

fn check_size(observed: &Observed) -> Result<(), Failure> {
    let Some(bytes) = observed.too_large else {
        return Ok(());
    };
    let message = format!("the Application {}", too_large(bytes, MAX_DECODED_BYTES));
    Err(Failure::parse(message).retried_after(REFUSED_RETRY))
}

/// Adds the finalizer, and takes a requested restart into the status.
async fn write_metadata(env: &Env<'_>, observed: &mut Observed, outcome: &mut Outcome) -> Result<(), Stop> {
    let app = &observed.app;
    let (mut metadata, mut annotations) = (Map::new(), Map::new());
    if !app.finalizers().iter().any(|finalizer| finalizer == TRACKER_FINALIZER) {
        let mut finalizers = app.finalizers().to_vec();
        finalizers.push(TRACKER_FINALIZER.to_owned());
        metadata.insert("finalizers".to_owned(), json!(finalizers));
        if !app.annotations().contains_key(labels::KUBEVELA_VERSION) {
            let version = &env.options().compat_version;
            annotations.insert(labels::KUBEVELA_VERSION.to_owned(), json!(version));
        }
    }
    let is_taken = take_restart(env, observed, outcome);
    if is_taken {
        annotations.insert(RESTART.to_owned(), Value::Null);
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), annotations.into());
    }
    if metadata.is_empty() {
        return Ok(());
    }
    if is_taken {
        // Recorded before the request is removed.
        checkpoint(env, observed, outcome).await?;
    }
    let patched = observed.patch_metadata(env, metadata.into()).await;
    patched.map_err(|error| Stop::of_write(&error))
}

/// Reads the annotation for a restart. Returns true if it must be removed.
fn take_restart(env: &Env<'_>, observed: &Observed, outcome: &mut Outcome) -> bool {
    let Some(text) = observed.app.annotations().get(RESTART) else {
        return false;
    };
    let workflow = outcome.workflow.as_ref();
    let end = workflow.and_then(|workflow| workflow.end_time.as_ref());
    let Some(restart) = RestartRequest::parse(text, env.now, end.map(|Time(end)| *end)) else {
        return false;
    };
    let (RestartRequest::Once(time) | RestartRequest::AfterEachRun(time)) = restart;
    outcome.restart_at = Some(time);
    matches!(restart, RestartRequest::Once(_))
}

/// Waits until a tracker that is being deleted, and has the name of the current one, is gone.
async fn wait_for_name(rollout: &mut Rollout<'_, '_>, observed: &Observed) -> Result<(), Stop> {
    let ledger = &rollout.objects.ledger;
    let Some(tracker) = ledger.inventory.blocking(&ledger.identity) else {
        return Ok(());
    };
    let name = tracker.name();
    let message = format!("resourcetracker {name} of this version is still being deleted");
    collect_unmarked(rollout, observed).await?;
    Err(Failure::new(FailureKind::Apply, message)
        .retried_after(TAKEN_RETRY)
        .into())
}

async fn follow(state: State, rollout: &mut Rollout<'_, '_>, observed: &Observed) -> Result<(), Stop> {
    let Target { env, current, parsed } = rollout.target;
    match state {
        State::Executing => {
            rollout.outcome.in_phase(phase::RUNNING_WORKFLOW);
            rollout.apply_post_traits().await?;
            collect_unmarked(rollout, observed).await?;
        }
        State::Suspending => {
            rollout.outcome.in_phase(phase::SUSPENDING);
            rollout.apply_post_traits().await?;
            if !is_suspended_by_failure(rollout) {
                keep_objects(rollout.objects, &parsed.rules, rollout.outcome).await?;
            }
            collect_unmarked(rollout, observed).await?;
        }
        State::Terminated => {
            rollout.outcome.in_phase(phase::TERMINATED);
            end_run(env, current, rollout.outcome, false).await?;
            collect_unmarked(rollout, observed).await?;
        }
        State::Failed => {
            rollout.outcome.in_phase(phase::FAILED);
            end_run(env, current, rollout.outcome, false).await?;
            if parsed.rules.garbage_collect.continue_on_failure {
                let declared = declare_all(rollout).await?;
                collect_after_failure(rollout, observed, &declared).await?;
            } else {
                collect_unmarked(rollout, observed).await?;
            }
        }
        State::Succeeded => {
            end_run(env, current, rollout.outcome, true).await?;
            rollout
                .outcome
                .succeeded(conditions::WORKFLOW, "Applied", "Workflow finished");
            return keep_and_collect(rollout, observed).await;
        }
    }
    rollout.outcome.applied_resources = rollout.objects.applied();
    Ok(())
}

async fn keep_and_collect(rollout: &mut Rollout<'_, '_>, observed: &Observed) -> Result<(), Stop> {
    let status = observed.app.status.as_ref();
    let shown = status.map(|status| status.services.as_slice()).unwrap_or_default();
    let mut declared = assess_services(rollout, shown).await?;
    if let Some(cause) = rollout.apply_post_traits().await? {
        declared = DeclaredObjects::Unknown { cause };
    }
    show_phase(rollout);
    rollout.outcome.applied_resources = rollout.objects.applied();
    let rules = &rollout.target.parsed.rules;
    let kept = keep_objects(rollout.objects, rules, rollout.outcome).await;
    collect_undeclared(rollout, observed, &declared).await?;
    let outcome = &mut *rollout.outcome;
    match Stop::split(kept)? {
        Ok(()) => outcome.changes.push(OutcomeChange::Removed(conditions::STATE_KEEP)),
        Err(failure) => {
            outcome.warn_of(&failure);
            outcome.look_again_in(KEEP_RETRY);
            outcome.changes.push(OutcomeChange::Failed {
                condition: conditions::STATE_KEEP,
                message: failure.message,
            });
        }
    }
    outcome.changes.push(OutcomeChange::Removed(conditions::SYNCED));
    outcome.is_complete = true;
    if !outcome.is_waiting_for_deletion {
        outcome.succeeded(conditions::READY, "Deployed", "Deployed successfully");
    }
    Ok(())
}

/// Returns true if a failed step, and not a user, has suspended the workflow. Its objects may be half changed.
fn is_suspended_by_failure(rollout: &Rollout<'_, '_>) -> bool {
    let workflow = rollout.outcome.workflow.as_ref();
    let has_failed = workflow.is_some_and(WorkflowStatus::has_failed_after_retries);
    has_failed && rollout.env().options().workflow.suspend_on_failure
}

fn check_support(app: &Application, inventory: &Inventory) -> Result<(), Stop> {
    let mut unsupported = unsupported_application(app);
    unsupported.extend(unsupported_trackers(inventory));
    refuse(unsupported)
}

fn check_declared(parsed: &Parsed) -> Result<(), Stop> {
    let mut unsupported = unsupported_definitions(&parsed.components);
    unsupported.extend(unsupported_overrides(&parsed.overrides));
    refuse(unsupported)
}

fn refuse(unsupported: Vec<Unsupported>) -> Result<(), Stop> {
    if unsupported.is_empty() {
        Ok(())
    } else {
        Err(Stop::Unsupported(unsupported))
    }
}

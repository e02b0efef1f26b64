use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::oam::{WorkflowStatus, labels};
use crate::controllers::oam::reconciler::apply::Ledger;
use crate::controllers::oam::reconciler::env::Env;
use crate::controllers::oam::reconciler::evaluations::RenderAnswers;
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::reconciler::outcome::{Outcome, OutcomeChange};
use crate::controllers::oam::reconciler::revise::{Current, record_run};
use crate::controllers::oam::revisions::names::is_revision_of;
use crate::controllers::oam::trackers::ResourceKey;
use crate::controllers::oam::workflow::State;

/// Begins a new run for a new revision or published version, or if a restart is due.
pub async fn restart_if_due(
    env: &Env<'_>,
    current: &Current,
    ledger: &Ledger<'_>,
    outcome: &mut Outcome,
) -> Result<(), Stop> {
    let version = current.app.annotations().get(labels::PUBLISH_VERSION);
    let wanted = version.cloned().unwrap_or_else(|| current.name());
    let workflow = outcome.workflow.as_ref();
    // Old versions of KubeVela add a hash.
    let is_current = workflow.is_some_and(|workflow| {
        workflow.app_revision == wanted || workflow.app_revision.starts_with(&format!("{wanted}:"))
    });
    let is_due = outcome.is_restart_due(env.now);
    if let Some(time) = outcome.scheduled_restart().filter(|time| *time > env.now) {
        let wait = time.duration_since(env.now).try_into().unwrap_or_default();
        outcome.look_again_in(wait);
    }
    if is_current && !is_due && !claim_recording_run(env, ledger, outcome) {
        return Ok(());
    }
    record_cut_off(env, outcome.workflow.as_ref()).await?;
    outcome.services.clear();
    outcome.applied_resources.clear();
    outcome.changes.push(OutcomeChange::Restarted);
    if is_due {
        outcome.restart_at = None;
    }
    // Components and traits call their functions again.
    *env.render_answers.lock() = RenderAnswers::default();
    {
        let mut memory = env.memory.lock();
        memory.call_round += 1;
        memory.values = None;
    }
    outcome.workflow = Some(WorkflowStatus {
        app_revision: wanted,
        ..WorkflowStatus::default()
    });
    Ok(())
}

/// Steps have succeeded, but nothing records their objects for this generation: the spec was changed without a new
/// revision, or changed back before its deployment. Another run applies what it finds, and records it. It takes place
/// once, since all objects may stand in other trackers.
fn claim_recording_run(env: &Env<'_>, ledger: &Ledger<'_>, outcome: &Outcome) -> bool {
    let inventory = &ledger.inventory;
    let Some(workflow) = &outcome.workflow else {
        return false;
    };
    let has_succeeded = if workflow.finished {
        finished_state(workflow) == Some(State::Succeeded)
    } else {
        workflow.steps.iter().any(|step| step.phase == "succeeded")
    };
    let root = inventory.root.iter().flat_map(|tracker| &tracker.entries);
    let in_root: HashSet<ResourceKey> = root.map(ResourceKey::of).collect();
    let history = inventory.history.iter().filter(|tracker| !tracker.is_deleting());
    let mut entries = history.flat_map(|tracker| &tracker.entries);
    let lacks_tracker = has_succeeded
        && inventory.current.is_none()
        && entries.any(|entry| !entry.skip_gc && !in_root.contains(&ResourceKey::of(entry)));
    let generation = Some(ledger.identity.generation);
    lacks_tracker && std::mem::replace(&mut env.memory.lock().restarted, generation) != generation
}

/// Records a run that a new run replaces, in the revision that it belongs to.
async fn record_cut_off(env: &Env<'_>, workflow: Option<&WorkflowStatus>) -> Result<(), Stop> {
    let Some(workflow) = workflow.filter(|workflow| !workflow.finished && !workflow.app_revision.is_empty()) else {
        return Ok(());
    };
    let mut workflow = workflow.clone();
    workflow.terminated = true;
    workflow.finished = true;
    workflow.end_time.get_or_insert(Time(env.now));
    let name = workflow.app_revision.split(':').next().unwrap_or_default().to_owned();
    if !is_revision_of(&env.name.name, &name) {
        // A published version has no revision of its name.
        return Ok(());
    }
    record_run(env, &name, false, &workflow).await
}

/// Records the end of a run, once.
pub async fn end_run(env: &Env<'_>, current: &Current, outcome: &mut Outcome, has_succeeded: bool) -> Result<(), Stop> {
    let Some(mut workflow) = outcome.workflow.clone().filter(|workflow| !workflow.finished) else {
        return Ok(());
    };
    workflow.finished = true;
    workflow.end_time = Some(Time(env.now));
    record_run(env, &current.name(), has_succeeded, &workflow).await?;
    env.reconciler.metrics.count_workflow(&workflow, has_succeeded);
    // Only now: a run that has finished is not recorded again.
    outcome.workflow = Some(workflow);
    Ok(())
}

pub(super) fn finished_state(workflow: &WorkflowStatus) -> Option<State> {
    if !workflow.finished {
        return None;
    }
    Some(match workflow.phase.as_str() {
        "failed" => State::Failed,
        "terminated" => State::Terminated,
        // `Finished` in statuses of old versions.
        _ if !workflow.terminated => State::Succeeded,
        _ => State::Terminated,
    })
}

//! Runs the workflow: one turn of the engine, with the components that its steps deploy.

mod configs;
mod endpoints;
mod functions;
pub(super) mod lifecycle;
mod metrics;
mod restart;
mod template;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::conditions::{self, phase};
use super::failure::{Failure, Stop};
use super::new_id;
use super::rollout::policies::unreachable;
use super::rollout::render::{Placed, with_inputs};
use super::rollout::{ComponentDeployment, Rollout, Steps, completed_steps};
use crate::api::oam::{WorkflowStatus, WorkflowStep};
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::parse::place_of;
use crate::controllers::oam::workflow::{
    FailureReason, InputUsage, State, StepResult, StepTask, ValueStore, WorkflowRun, WorkflowTurn, is_apply_component,
};
use lifecycle::finished_state;
use template::{check_condition, run_template};

pub(super) async fn run_workflow(rollout: &mut Rollout<'_, '_>) -> Result<State, Stop> {
    let env = rollout.env();
    let _timer = env.reconciler.metrics.time(PassStage::Workflow);
    let parsed = rollout.target.parsed;
    let steps = completed_steps(parsed, env.placement_settings())?;
    let workflow = rollout.outcome.workflow.as_mut();
    if let Some(workflow) = workflow.filter(|workflow| workflow.mode.is_empty()) {
        workflow.mode.clone_from(&parsed.workflow.mode);
    }
    rollout
        .outcome
        .succeeded(conditions::RENDER, "Rendered", "Rendered successfully");
    drop_services(rollout).await?;
    let workflow = rollout.outcome.workflow.clone().unwrap_or_default();
    if let Some(state) = finished_state(&workflow) {
        return Ok(state);
    }
    run_turn(rollout, &steps, workflow).await
}

async fn drop_services(rollout: &mut Rollout<'_, '_>) -> Result<(), Stop> {
    if rollout.outcome.services.shown().is_empty() {
        return Ok(());
    }
    let all = rollout.placed(Steps::All).await?;
    let names: BTreeSet<String> = all.placed.iter().map(|placed| placed.name().to_owned()).collect();
    rollout.outcome.services.retain(|name| names.contains(name));
    Ok(())
}

async fn run_turn(
    rollout: &mut Rollout<'_, '_>,
    steps: &[WorkflowStep],
    workflow: WorkflowStatus,
) -> Result<State, Stop> {
    let store = rollout.load_values().await?;
    if workflow.context_backend.is_none() {
        // Steps would run again and again if their values could not be stored.
        store_values(rollout, &store).await?;
    }
    let context = rollout.target.current.release.step_context();
    let settings = rollout.env().options().workflow;
    let now = Timestamp::now();
    let mode = workflow.mode.clone();
    let mut turn = WorkflowTurn::begin(steps, &mode, workflow, store, &context, settings, now, new_id)
        .map_err(|error| Failure::workflow(error.to_string()))?;
    if let Some(store) = turn.store_without_removed_values() {
        store_values(rollout, store).await?;
    }
    // The results of steps are recorded even if the pass ends: steps that have ended must not run again.
    let result = run_rounds(rollout, &mut turn).await;
    let end = turn.end();
    if let Some(delay) = end.retry_in {
        rollout.outcome.look_again_in(delay);
    }
    store_values(rollout, &end.store).await?;
    let outcome = &mut *rollout.outcome;
    let before = outcome.workflow.take();
    outcome.workflow = Some(WorkflowStatus {
        context_backend: before.and_then(|workflow| workflow.context_backend),
        ..end.status
    });
    if end.state == State::Executing {
        outcome.in_phase(phase::RUNNING_WORKFLOW);
    }
    result.map(|()| end.state)
}

async fn store_values(rollout: &mut Rollout<'_, '_>, store: &ValueStore) -> Result<(), Stop> {
    let Rollout { values, outcome, .. } = rollout;
    values.store(store, outcome).await
}

async fn run_rounds(rollout: &mut Rollout<'_, '_>, turn: &mut WorkflowTurn<'_>) -> Result<(), Stop> {
    // A pass that exceeds its timeout records nothing.
    let end = Instant::now() + rollout.env().options().pass_timeout / 2;
    loop {
        let round = turn.next_round();
        if round.is_empty() {
            return Ok(());
        }
        let mut to_run = Vec::new();
        for task in round {
            match task {
                StepTask::Run(step) => to_run.push(step),
                StepTask::Check(step) => {
                    let result = check_condition(rollout.env(), &turn.run, step).await?;
                    turn.record_check(step, result);
                }
            }
        }
        let mut results = Vec::new();
        let result = run_steps(rollout, &mut turn.run, &to_run, end, &mut results).await;
        for (step, result) in results {
            turn.record(step, result);
        }
        result?;
        if Instant::now() >= end {
            rollout.outcome.look_again_in(Duration::ZERO);
            return Ok(());
        }
    }
}

/// The steps are independent, and run until `end`. Their objects are recorded at once. If the pass ends meanwhile,
/// `results` has the results of the steps that have run.
async fn run_steps(
    rollout: &mut Rollout<'_, '_>,
    run: &mut WorkflowRun<'_>,
    round: &[usize],
    end: Instant,
    results: &mut Vec<(usize, StepResult)>,
) -> Result<(), Stop> {
    let (mut deployments, mut usage) = (Vec::new(), InputUsage::default());
    for step in round.iter().copied() {
        if !(results.is_empty() && deployments.is_empty()) && Instant::now() >= end {
            break;
        }
        if !run.step(step).is_some_and(is_apply_component) {
            results.push((step, run_template(rollout, run, step).await?));
            continue;
        }
        match prepare_step(rollout, run, step, &mut usage).await? {
            ControlFlow::Continue(deployment) => deployments.push(deployment),
            ControlFlow::Break(result) => results.push((step, result)),
        }
    }
    for (deployment, result) in rollout.deploy(deployments, None).await? {
        let outputs = run
            .step(deployment.index)
            .map(|step| step.outputs.as_slice())
            .unwrap_or_default();
        let result = match result {
            Ok(service) => {
                let is_healthy = service.healthy;
                rollout.outcome.services.set(&deployment.component, service);
                let values = if is_healthy {
                    rollout.outputs(&deployment, outputs).await?
                } else {
                    None
                };
                match values {
                    Some(outputs) => StepResult::Succeeded {
                        outputs,
                        message: String::new(),
                    },
                    None => StepResult::Waiting {
                        message: "wait healthy".to_owned(),
                    },
                }
            }
            Err(message) => execute_failure(message),
        };
        results.push((deployment.index, result));
    }
    rollout.outcome.applied_resources = rollout.objects.applied();
    Ok(())
}

/// Breaks with the result of a step that deploys nothing.
async fn prepare_step(
    rollout: &mut Rollout<'_, '_>,
    run: &WorkflowRun<'_>,
    step: usize,
    usage: &mut InputUsage,
) -> Result<ControlFlow<StepResult, ComponentDeployment>, Stop> {
    let Some(declared) = run.step(step) else {
        return Ok(ControlFlow::Break(execute_failure("the step is missing".to_owned())));
    };
    let properties = declared.properties.as_ref().unwrap_or(&Value::Null);
    let name = properties["component"].as_str().unwrap_or_default();
    let mut components = rollout.target.parsed.components.iter();
    let Some(component) = components.find(|parsed| parsed.component.name == name) else {
        return Ok(ControlFlow::Break(execute_failure(format!(
            "component {name} not found"
        ))));
    };
    let inputs = run.inputs(step).map_err(|error| error.to_string());
    let completed = inputs.and_then(|inputs| {
        usage.add(&inputs)?;
        with_inputs(component, &inputs)
    });
    let component = match completed {
        Ok(component) => component,
        Err(message) => {
            return Ok(ControlFlow::Break(StepResult::Failed {
                reason: FailureReason::Input,
                message,
            }));
        }
    };
    let component = Placed {
        component,
        place: place_of(declared),
    };
    let env = rollout.env();
    env.use_clusters([component.place.cluster.as_str()]).await?;
    if let Some(problem) = unreachable(env, &component.place) {
        let message = crate::text::sanitize(&problem);
        return Ok(ControlFlow::Break(StepResult::Waiting { message }));
    }
    Ok(match rollout.render_or_stop(&component).await? {
        Ok(objects) => ControlFlow::Continue(ComponentDeployment {
            index: step,
            component,
            objects,
        }),
        Err(message) => ControlFlow::Break(execute_failure(message)),
    })
}

fn execute_failure(message: String) -> StepResult {
    StepResult::Failed {
        reason: FailureReason::Execute,
        message: crate::text::sanitize(&message),
    }
}

//! Runs the workflow: one turn of the engine, with the components that its steps deploy.

mod configs;
mod deploy;
mod functions;
mod outputs;
mod placed;
mod runs;
mod template;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::components::{Placed, RenderError, with_inputs};
use super::conditions::{self, Failure, phase};
use super::dispatch::{Creator, ToApply};
use super::health::{PostTraits, evaluator_failure};
use super::new_id;
use super::pass::{End, Pass, Stop};
use super::revision::Current;
use crate::api::oam::{ServiceStatus, WorkflowStatus, WorkflowStep};
use crate::controllers::oam::dispatch::order::{Stage, stages};
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::parse::{Parsed, place_of};
use crate::controllers::oam::render::release::ComponentObjects;
use crate::controllers::oam::trackers::is_local;
use crate::controllers::oam::workflow::{FailureReason, InputUsage, State, StepResult, Task, Turn, is_apply_component};
pub(super) use placed::Steps;
use placed::completed_steps;
use runs::finished_state;

/// Delay after a template was stopped at a limit: it will probably be stopped again.
const STOPPED_RETRY: Duration = Duration::from_mins(1);

/// The message of a component whose traits are applied once more.
const OTHER_STATUS: &str = "waiting for traits to see the status of the workload";

/// A component that a step deploys.
struct Deployment {
    step: usize,
    component: Placed,
    objects: ComponentObjects,
}

impl Pass<'_> {
    /// Runs what is left of the workflow, and continues by its state.
    pub(super) async fn run_workflow(&mut self, current: &Current, parsed: &Parsed) -> Result<End, Stop> {
        let timer = self.reconciler.metrics.time(PassStage::Workflow);
        self.restart_if_due(current).await?;
        let steps = completed_steps(parsed)?;
        if let Some(workflow) = self
            .status
            .workflow
            .as_mut()
            .filter(|workflow| workflow.mode.is_empty())
        {
            workflow.mode.clone_from(&parsed.workflow.mode);
        }
        self.set_true(conditions::RENDER, "Rendered", "Rendered successfully");
        self.drop_services(current, parsed).await?;
        let workflow = self.status.workflow.clone().unwrap_or_default();
        let state = match finished_state(&workflow) {
            Some(state) => state,
            None => {
                let unsupported = self.unsupported_clusters(parsed).await?;
                if !unsupported.is_empty() {
                    return Err(Stop::Unsupported(unsupported));
                }
                self.turn(current, parsed, &steps, workflow).await?
            }
        };
        drop(timer);
        self.finish(state, current, parsed).await
    }

    /// Runs one turn of the engine. Returns the state that it reached.
    async fn turn(
        &mut self,
        current: &Current,
        parsed: &Parsed,
        steps: &[WorkflowStep],
        workflow: WorkflowStatus,
    ) -> Result<State, Stop> {
        let store = self.load_values().await?;
        if workflow.context_backend.is_none() {
            // Steps would run again and again if their values could not be stored.
            self.store_values(&store).await?;
        }
        let context = current.release.step_context();
        let settings = self.reconciler.options.workflow;
        let failed = |message: String| {
            let failure = Failure::new(conditions::WORKFLOW, "FailedWorkflow", message);
            Stop::from(failure.in_phase(phase::RUNNING_WORKFLOW))
        };
        let now = Timestamp::now();
        let mode = workflow.mode.clone();
        let before = workflow.steps.clone();
        let turn = Turn::begin(steps, &mode, workflow, store, &context, settings, now, new_id);
        let mut turn = turn.map_err(|error| failed(error.to_string()))?;
        if let Some(store) = turn.store_without_removed_values() {
            self.store_values(store).await?;
        }
        // What steps have done is recorded even if the pass ends: those that have ended must not run again.
        let stop = self.run_rounds(current, parsed, &mut turn).await.err();
        let outcome = turn.end();
        if let Some(delay) = outcome.retry_in {
            self.look_again_in(delay);
        }
        self.store_values(&outcome.store).await?;
        let workflow = self.status.workflow.take();
        self.status.workflow = Some(WorkflowStatus {
            context_backend: workflow.and_then(|workflow| workflow.context_backend),
            ..outcome.status
        });
        if outcome.state == State::Executing {
            phase::RUNNING_WORKFLOW.clone_into(&mut self.status.phase);
        }
        match stop {
            None => Ok(outcome.state),
            Some(stop) => {
                let has_news = self.status.workflow.as_ref().map(|workflow| &workflow.steps) != Some(&before);
                if has_news && matches!(stop, Stop::Stale | Stop::NeedsMemory(_)) {
                    // Such a pass writes no status. If this write fails, steps run again.
                    if let Err(error) = self.write_status().await {
                        tracing::debug!(application = %self.name, %error, "failed to record what steps have done");
                    }
                }
                Err(stop)
            }
        }
    }

    /// Runs the steps that can run, round by round.
    async fn run_rounds(&mut self, current: &Current, parsed: &Parsed, turn: &mut Turn<'_>) -> Result<(), Stop> {
        // A pass that exceeds its timeout records nothing.
        let end = Instant::now() + self.reconciler.options.pass_timeout / 2;
        loop {
            let round = turn.next_round();
            if round.is_empty() {
                return Ok(());
            }
            let mut to_run = Vec::new();
            for task in round {
                match task {
                    Task::Run(step) => to_run.push(step),
                    Task::Check(step) => {
                        let result = self.check(turn, step).await?;
                        turn.record_check(step, result);
                    }
                }
            }
            let mut results = Vec::new();
            let run = self.run_steps(current, parsed, turn, &to_run, end, &mut results).await;
            for (step, result) in results {
                turn.record(step, result);
            }
            run?;
            if Instant::now() >= end {
                self.look_again_in(Duration::ZERO);
                return Ok(());
            }
        }
    }

    /// Drops the services of components that the workflow no longer deploys.
    async fn drop_services(&mut self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        if self.status.services.is_empty() {
            return Ok(());
        }
        let placed = self.placed(current, parsed, Steps::All).await?;
        let names: BTreeSet<String> = placed.iter().map(|one| one.name().to_owned()).collect();
        self.status.services.retain(|service| names.contains(&service.name));
        Ok(())
    }

    /// Runs steps that don't depend on each other, until `end`. The objects of all their components are recorded at once.
    /// If the pass ends meanwhile, `results` has those of the steps that have run.
    async fn run_steps(
        &mut self,
        current: &Current,
        parsed: &Parsed,
        turn: &Turn<'_>,
        round: &[usize],
        end: Instant,
        results: &mut Vec<(usize, StepResult)>,
    ) -> Result<(), Stop> {
        let (mut deployments, mut usage) = (Vec::new(), InputUsage::default());
        for step in round.iter().copied() {
            if !(results.is_empty() && deployments.is_empty()) && Instant::now() >= end {
                break;
            }
            if !turn.step(step).is_some_and(is_apply_component) {
                results.push((step, self.run_template(current, parsed, turn, step).await?));
                continue;
            }
            match self.prepare(current, parsed, turn, step, &mut usage).await? {
                Ok(deployment) => deployments.push(deployment),
                Err(result) => results.push((step, result)),
            }
        }
        for (deployment, result) in self.deploy(current, parsed, deployments, None).await? {
            let outputs = turn
                .step(deployment.step)
                .map(|step| step.outputs.as_slice())
                .unwrap_or_default();
            let result = match result {
                Ok(service) => {
                    let is_healthy = service.healthy;
                    self.set_service(&deployment.component, service);
                    let values = match is_healthy {
                        true => self.outputs(current, &deployment, outputs).await?,
                        false => None,
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
            results.push((deployment.step, result));
        }
        self.list_applied();
        Ok(())
    }

    /// Renders the component of a step.
    async fn prepare(
        &mut self,
        current: &Current,
        parsed: &Parsed,
        turn: &Turn<'_>,
        step: usize,
        usage: &mut InputUsage,
    ) -> Result<Result<Deployment, StepResult>, Stop> {
        let Some(declared) = turn.step(step) else {
            return Ok(Err(execute_failure("the step is missing".to_owned())));
        };
        let properties = declared.properties.as_ref().unwrap_or(&Value::Null);
        let name = properties["component"].as_str().unwrap_or_default();
        let component = parsed.components.iter().find(|one| one.component.name == name);
        let Some(component) = component else {
            return Ok(Err(execute_failure(format!("component {name} not found"))));
        };
        let inputs = turn.inputs(step).map_err(|error| error.to_string());
        let with_inputs = inputs.and_then(|inputs| {
            usage.add(&inputs)?;
            with_inputs(component, &inputs)
        });
        let component = match with_inputs {
            Ok(component) => component,
            Err(message) => {
                return Ok(Err(StepResult::Failed {
                    reason: FailureReason::Input,
                    message,
                }));
            }
        };
        let place = place_of(declared);
        if !is_local(&place.cluster) {
            let message = format!("this controller does not serve the cluster {}", place.cluster);
            return Ok(Err(execute_failure(message)));
        }
        let component = Placed { component, place };
        let rendered = self.render_or_stop(current, parsed, &component).await?;
        Ok(rendered.map_err(execute_failure).map(|objects| Deployment {
            step,
            component,
            objects,
        }))
    }

    /// Dispatches components stage by stage, `parallelism` of them at the same time; each needs the stage before to be
    /// healthy. Returns their health.
    async fn deploy(
        &mut self,
        current: &Current,
        parsed: &Parsed,
        deployments: Vec<Deployment>,
        parallelism: Option<usize>,
    ) -> Result<Vec<(Deployment, Result<ServiceStatus, String>)>, Stop> {
        let mut results = Vec::new();
        let mut remaining = deployments;
        for stage in [Stage::PreDispatch, Stage::DefaultDispatch] {
            let batches = remaining.iter().map(|deployment| batch(deployment, stage)).collect();
            let dispatched = self.dispatch(current, &parsed.rules, batches, parallelism).await?;
            let mut accepted = Vec::new();
            for (deployment, result) in remaining.into_iter().zip(dispatched) {
                if let Err(message) = result {
                    results.push((deployment, Err(format!("Dispatch: {message}"))));
                    continue;
                }
                let waiting = match stage {
                    Stage::PreDispatch => self.waiting_service(&deployment.component, &deployment.objects).await,
                    _ => Ok(None),
                };
                match waiting.map_err(|error| evaluator_failure(&error))? {
                    Some(service) => results.push((deployment, Ok(service))),
                    None => accepted.push(deployment),
                }
            }
            remaining = accepted;
        }
        for deployment in remaining {
            let service = self
                .service(&deployment.component, &deployment.objects, PostTraits::Unknown)
                .await;
            let mut service = service.map_err(|error| evaluator_failure(&error))?;
            // Nothing would render the traits again after the last step.
            if service.healthy && self.has_other_status(&deployment.objects).await {
                service.healthy = false;
                OTHER_STATUS.clone_into(&mut service.message);
            }
            results.push((deployment, Ok(service)));
        }
        Ok(results)
    }

    /// Returns true if the workload has another status than the one that its traits have seen.
    async fn has_other_status(&self, objects: &ComponentObjects) -> bool {
        objects.reads_status && self.live_status(&objects.workload).await != objects.output_status
    }

    /// Dispatches traits of the last stage, for components whose workload is healthy.
    pub(super) async fn dispatch_post_traits(&mut self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        for placed in self.placed(current, parsed, Steps::Run).await? {
            let mut traits = placed.component.traits.iter();
            let has_post = traits.any(|one| current.release.settings.is_post_dispatch(one));
            if !has_post || !self.is_workload_healthy(&placed) {
                continue;
            }
            let name = placed.name();
            let failed = |message: String| {
                let message = format!("failed to dispatch PostDispatch traits for component {name}: {message}");
                Failure::synced("FailedApply", message)
            };
            let rendered = self.render(current, parsed, &placed).await;
            let mut objects = rendered.map_err(|error| render_failure(error, failed))?;
            let live = self.live_context(&objects).await;
            let post = self.render_post_traits(current, &placed, &objects, &live).await;
            objects
                .objects
                .extend(post.map_err(|error| render_failure(error, failed))?);
            let deployment = Deployment {
                step: 0,
                component: placed.clone(),
                objects,
            };
            let batches = vec![batch(&deployment, Stage::PostDispatch)];
            for result in self.dispatch(current, &parsed.rules, batches, None).await? {
                result.map_err(failed)?;
            }
            let service = self.service(&placed, &deployment.objects, PostTraits::Applied).await;
            let service = service.map_err(|error| evaluator_failure(&error))?;
            self.set_service(&placed, service);
        }
        Ok(())
    }
}

fn render_failure(error: RenderError, failed: impl Fn(String) -> Failure) -> Stop {
    match error {
        RenderError::Evaluator(error) => evaluator_failure(&error),
        RenderError::Template { message, .. } => failed(message).into(),
    }
}

/// Returns the objects of a component in one stage.
fn batch(deployment: &Deployment, stage: Stage) -> Vec<ToApply> {
    let objects = deployment.objects.objects.iter().map(|object| (object.stage, object));
    let of_stage = stages(objects).into_iter().find(|(one, _)| *one == stage);
    let objects = of_stage.map(|(_, objects)| objects).unwrap_or_default();
    let to_apply = objects.into_iter().map(|object| ToApply {
        manifest: object.manifest.clone(),
        component: deployment.component.name().to_owned(),
        trait_: object.trait_.clone(),
        cluster: deployment.component.place.cluster.clone(),
        creator: Creator::Workflow,
    });
    to_apply.collect()
}

/// Returns the end of a pass in which a template was stopped at a limit.
fn stopped(message: String) -> Stop {
    let failure = Failure::new(conditions::WORKFLOW, "FailedWorkflow", message);
    failure
        .in_phase(phase::RUNNING_WORKFLOW)
        .retried_after(STOPPED_RETRY)
        .into()
}

fn execute_failure(message: String) -> StepResult {
    StepResult::Failed {
        reason: FailureReason::Execute,
        message: crate::text::sanitize(&message),
    }
}

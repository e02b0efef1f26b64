//! Runs the workflow: one turn of the engine, with the components that its steps deploy.

mod runs;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::components::{Placed, RenderError, with_inputs};
use super::conditions::{self, Failure, phase};
use super::dispatch::ToApply;
use super::health::{PostTraits, evaluator_failure};
use super::new_id;
use super::pass::{End, Pass, Stop};
use super::revision::Current;
use crate::api::oam::{ServiceStatus, WorkflowStatus, WorkflowStep};
use crate::controllers::oam::dispatch::order::{Stage, stages};
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::parse::{Parsed, ParsedComponent, component_step};
use crate::controllers::oam::render::evaluate::Evaluate;
use crate::controllers::oam::render::release::ComponentObjects;
use crate::controllers::oam::workflow::{FailureReason, State, StepResult, Turn};
use crate::cue;
use runs::finished_state;

const CREATOR: &str = "workflow";
/// Delay after a template was stopped at a limit: it will probably be stopped again.
const STOPPED_RETRY: std::time::Duration = std::time::Duration::from_mins(1);

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
        self.restart_if_due(current, parsed).await?;
        let steps = parsed.workflow.steps.iter();
        let steps: Result<Vec<WorkflowStep>, _> = steps
            .map(|step| component_step(step, &parsed.spec.components))
            .collect();
        let steps = steps.map_err(|error| {
            let failure = Failure::new(conditions::WORKFLOW, "FailedWorkflow", error.to_string());
            failure.in_phase(phase::FAILED)
        })?;
        self.set_true(conditions::RENDER, "Rendered", "Rendered successfully");
        let names: Vec<&str> = parsed.spec.components.iter().map(|one| one.name.as_str()).collect();
        self.status
            .services
            .retain(|service| names.contains(&service.name.as_str()));
        let workflow = self.status.workflow.clone().unwrap_or_default();
        let state = match finished_state(&workflow) {
            Some(state) => state,
            None => self.turn(current, parsed, &steps, workflow).await?,
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
        let context = json!({
            "context": { "name": self.name.name, "namespace": self.name.namespace, "appRevision": current.name() },
        });
        let settings = self.reconciler.options.workflow;
        let failed = |message: String| {
            let failure = Failure::new(conditions::WORKFLOW, "FailedWorkflow", message);
            Stop::from(failure.in_phase(phase::RUNNING_WORKFLOW))
        };
        let now = Timestamp::now();
        let turn = Turn::begin(steps, workflow, store, &context, settings, now, new_id);
        let mut turn = turn.map_err(|error| failed(error.to_string()))?;
        loop {
            let round = turn.next_round();
            if round.is_empty() {
                break;
            }
            for (step, result) in self.run_steps(current, parsed, steps, &turn, &round).await? {
                turn.record(step, result);
            }
        }
        let outcome = turn.end();
        if let Some(delay) = outcome.retry_in {
            self.look_again_in(delay);
        }
        let context_backend = self
            .status
            .workflow
            .as_ref()
            .and_then(|workflow| workflow.context_backend.clone());
        self.status.workflow = Some(WorkflowStatus {
            context_backend,
            ..outcome.status
        });
        self.store_values(&outcome.store).await?;
        if outcome.state == State::Executing {
            phase::RUNNING_WORKFLOW.clone_into(&mut self.status.phase);
        }
        Ok(outcome.state)
    }

    /// Deploys the components of steps that don't depend on each other: all objects are recorded at once.
    async fn run_steps(
        &mut self,
        current: &Current,
        parsed: &Parsed,
        steps: &[WorkflowStep],
        turn: &Turn<'_>,
        round: &[usize],
    ) -> Result<Vec<(usize, StepResult)>, Stop> {
        let mut results = Vec::new();
        let mut deployments = Vec::new();
        for step in round.iter().copied() {
            match self.prepare(current, parsed, steps, turn, step).await? {
                Ok(deployment) => deployments.push(deployment),
                Err(result) => results.push((step, result)),
            }
        }
        for (deployment, result) in self.deploy(current, parsed, deployments).await? {
            let outputs = steps
                .get(deployment.step)
                .map(|step| step.outputs.as_slice())
                .unwrap_or_default();
            let result = match result {
                Ok(service) => {
                    let is_healthy = service.healthy;
                    self.set_service(service);
                    match is_healthy {
                        true => StepResult::Succeeded {
                            outputs: self.outputs(outputs, &deployment.objects).await?,
                        },
                        false => StepResult::Waiting {
                            message: "wait healthy".to_owned(),
                        },
                    }
                }
                Err(message) => execute_failure(message),
            };
            results.push((deployment.step, result));
        }
        let applied = self.applied_resources(false);
        self.status.applied_resources = applied;
        Ok(results)
    }

    /// Renders the component of a step.
    async fn prepare(
        &mut self,
        current: &Current,
        parsed: &Parsed,
        steps: &[WorkflowStep],
        turn: &Turn<'_>,
        step: usize,
    ) -> Result<Result<Deployment, StepResult>, Stop> {
        let properties = steps.get(step).and_then(|step| step.properties.as_ref());
        let name = properties
            .and_then(|properties| properties["component"].as_str())
            .unwrap_or_default();
        let component = parsed.components.iter().find(|one| one.component.name == name);
        let Some(component) = component else {
            return Ok(Err(execute_failure(format!("component {name} not found"))));
        };
        let component = match with_inputs(component, &turn.inputs(step)) {
            Ok(component) => component,
            Err(message) => {
                return Ok(Err(StepResult::Failed {
                    reason: FailureReason::Input,
                    message,
                }));
            }
        };
        let component = Placed::of(component);
        match self.render(current, parsed, &component).await {
            Ok(objects) => Ok(Ok(Deployment {
                step,
                component,
                objects,
            })),
            Err(RenderError::Evaluator(error)) => Err(evaluator_failure(&error).into()),
            Err(RenderError::Template { message, is_stopped }) => {
                if is_stopped {
                    let failure = Failure::new(conditions::WORKFLOW, "FailedWorkflow", message);
                    let failure = failure.in_phase(phase::RUNNING_WORKFLOW).retried_after(STOPPED_RETRY);
                    return Err(failure.into());
                }
                Ok(Err(execute_failure(format!("GenerateComponentManifest: {message}"))))
            }
        }
    }

    /// Dispatches components stage by stage; each needs the stage before to be healthy. Returns their health.
    async fn deploy(
        &mut self,
        current: &Current,
        parsed: &Parsed,
        deployments: Vec<Deployment>,
    ) -> Result<Vec<(Deployment, Result<ServiceStatus, String>)>, Stop> {
        let mut results = Vec::new();
        let mut remaining = deployments;
        for stage in [Stage::PreDispatch, Stage::DefaultDispatch] {
            let batches = remaining.iter().map(|deployment| batch(deployment, stage)).collect();
            let dispatched = self.dispatch(current, &parsed.rules, batches).await?;
            let mut accepted = Vec::new();
            for (deployment, result) in remaining.into_iter().zip(dispatched) {
                match result {
                    Err(message) => results.push((deployment, Err(format!("Dispatch: {message}")))),
                    Ok(()) => accepted.push(deployment),
                }
            }
            remaining = accepted;
        }
        for deployment in remaining {
            let service = self
                .service(&deployment.component, &deployment.objects, PostTraits::Unknown)
                .await;
            let service = service.map_err(|error| evaluator_failure(&error))?;
            results.push((deployment, Ok(service)));
        }
        Ok(results)
    }

    /// Evaluates the outputs of a component.
    async fn outputs(
        &self,
        outputs: &[crate::api::oam::StepOutput],
        objects: &ComponentObjects,
    ) -> Result<Vec<Result<Value, String>>, Stop> {
        let mut values = Vec::new();
        if outputs.is_empty() {
            return Ok(values);
        }
        let mut scope = self.live_context(objects).await;
        for output in outputs {
            let context = objects.context.named_in(&output.value_from);
            scope.insert("context".to_owned(), Value::Object(context));
            values.push(
                match self.evaluator().evaluate(expression(&output.value_from, &scope)).await {
                    Ok(mut result) => Ok(result["value"].take()),
                    Err(cue::Error::Failed { text, .. }) => Err(text),
                    Err(error) => return Err(evaluator_failure(&error).into()),
                },
            );
        }
        Ok(values)
    }

    /// Returns the components in the places where the workflow deploys them, with the inputs that they have taken.
    pub(super) async fn placed(&self, parsed: &Parsed) -> Result<Vec<Placed>, Stop> {
        let mut placed = Vec::new();
        for component in &parsed.components {
            placed.push(Placed::of(self.with_stored_inputs(component).await?));
        }
        Ok(placed)
    }

    /// Returns a component with the inputs that its step has taken, if they are still stored.
    async fn with_stored_inputs(&self, component: &ParsedComponent) -> Result<ParsedComponent, Stop> {
        if component.component.inputs.is_empty() {
            return Ok(component.clone());
        }
        let store = self.load_values().await?;
        let step = WorkflowStep {
            properties: Some(json!({ "component": component.component.name })),
            type_: crate::controllers::oam::parse::APPLY_COMPONENT.to_owned(),
            ..WorkflowStep::default()
        };
        let own = std::slice::from_ref(&component.component);
        let mut without_dependencies = own.to_vec();
        without_dependencies.iter_mut().for_each(|one| one.depends_on.clear());
        let step = component_step(&step, &without_dependencies).unwrap_or(step);
        let inputs = step.inputs.iter();
        let values: Vec<(&str, Value)> = inputs
            .filter_map(|input| Some((input.parameter_key.as_str(), store.get(&input.from)?.clone())))
            .collect();
        with_inputs(component, &values)
            .map_err(|message| Failure::new(conditions::WORKFLOW, "FailedWorkflow", message).into())
    }

    /// Dispatches traits of the last stage, for components whose workload is healthy.
    pub(super) async fn dispatch_post_traits(&mut self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        for placed in self.placed(parsed).await? {
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
            for result in self.dispatch(current, &parsed.rules, batches).await? {
                result.map_err(failed)?;
            }
            let service = self.service(&placed, &deployment.objects, PostTraits::Applied).await;
            self.set_service(service.map_err(|error| evaluator_failure(&error))?);
        }
        Ok(())
    }
}

fn render_failure(error: RenderError, failed: impl Fn(String) -> Failure) -> Failure {
    match error {
        RenderError::Evaluator(error) => evaluator_failure(&error),
        RenderError::Template { message, .. } => failed(message),
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
        creator: CREATOR,
    });
    to_apply.collect()
}

fn execute_failure(message: String) -> StepResult {
    StepResult::Failed {
        reason: FailureReason::Execute,
        message: crate::text::sanitize(&message),
    }
}

/// Returns the source of an expression over live objects.
fn expression(text: &str, scope: &Map<String, Value>) -> String {
    let fields: Vec<String> = scope.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!(
        "_vela: {{\n{}\n\"$value\": {text}\n}}\n\"value\": _vela.\"$value\"\n",
        fields.join("\n")
    )
}

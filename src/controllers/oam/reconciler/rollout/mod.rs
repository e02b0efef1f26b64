//! Deploys components in the places that the workflow gives them, and computes their health.

pub(super) mod assess;
mod calls;
mod components;
mod health;
mod outputs;
mod placed;
pub(super) mod policies;
pub(super) mod render;

use super::apply::{AppObjects, Creator, ToApply};
use super::env::Env;
use super::failure::{Failure, FailureKind, Stop};
use super::outcome::Outcome;
use super::values::StepValues;
use crate::api::oam::ServiceStatus;
use crate::controllers::oam::dispatch::order::{Stage, stages};
use crate::controllers::oam::parse::calls_functions;
use crate::controllers::oam::render::release::ComponentObjects;
use crate::controllers::oam::workflow::ValueStore;
use health::{Assessor, PostTraits};
pub(super) use placed::{PlacedComponents, Steps, completed_steps};
use render::{Placed, RenderError, Target};

/// Delay after a template was stopped at a limit: it will probably be stopped again.
const STOPPED_RETRY: std::time::Duration = std::time::Duration::from_mins(1);

/// Delay after a component that calls functions could not be rendered: a call may succeed later.
const CALL_RETRY: std::time::Duration = std::time::Duration::from_mins(1);
/// Delay after a call had to wait.
const WAITING_RETRY: std::time::Duration = std::time::Duration::from_secs(5);

/// The message of a component whose traits are applied once more.
const OTHER_STATUS: &str = "waiting for traits to see the status of the workload";

pub(super) struct ComponentDeployment {
    /// The step, or the place among the components of a step.
    pub(super) index: usize,
    pub(super) component: Placed,
    pub(super) objects: ComponentObjects,
}

pub(super) struct Rollout<'x, 'p> {
    pub(super) target: Target<'x>,
    pub(super) objects: &'x mut AppObjects<'p>,
    pub(super) outcome: &'x mut Outcome,
    pub(super) values: StepValues<'x>,
}

impl<'x> Rollout<'x, '_> {
    pub(super) fn env(&self) -> &'x Env<'x> {
        self.target.env
    }

    pub(super) fn assessor(&self) -> Assessor<'_> {
        Assessor {
            target: self.target,
            objects: self.objects,
        }
    }

    pub(super) async fn load_values(&self) -> Result<ValueStore, Stop> {
        self.values.load(self.outcome.workflow.as_ref()).await
    }

    /// Applies objects of the version. Returns the error of each batch, if any.
    pub(super) async fn apply(
        &mut self,
        batches: Vec<Vec<ToApply>>,
        parallelism: Option<usize>,
    ) -> Result<Vec<Result<(), String>>, Stop> {
        let Target { current, parsed, .. } = self.target;
        let revision = current.name();
        let applied = self.objects.apply(&revision, &parsed.rules, batches, parallelism);
        applied.await
    }

    /// Deploys stage by stage, `parallelism` components at the same time; each needs the stage before to be healthy.
    pub(super) async fn deploy(
        &mut self,
        deployments: Vec<ComponentDeployment>,
        parallelism: Option<usize>,
    ) -> Result<Vec<(ComponentDeployment, Result<ServiceStatus, String>)>, Stop> {
        let mut results = Vec::new();
        let mut remaining = deployments;
        for stage in [Stage::PreDispatch, Stage::DefaultDispatch] {
            let batches = remaining.iter().map(|deployment| batch(deployment, stage)).collect();
            let applied = self.apply(batches, parallelism).await?;
            let mut accepted = Vec::new();
            for (deployment, result) in remaining.into_iter().zip(applied) {
                if let Err(message) = result {
                    results.push((deployment, Err(format!("Dispatch: {message}"))));
                    continue;
                }
                let waiting = if stage == Stage::PreDispatch {
                    let assessor = self.assessor();
                    let waiting = assessor.waiting_service(&deployment.component, &deployment.objects);
                    waiting.await?
                } else {
                    None
                };
                match waiting {
                    Some(service) => results.push((deployment, Ok(service))),
                    None => accepted.push(deployment),
                }
            }
            remaining = accepted;
        }
        for deployment in remaining {
            let assessor = self.assessor();
            let mut service = assessor
                .service(&deployment.component, &deployment.objects, PostTraits::Unknown)
                .await?;
            // Nothing would render the traits again after the last step.
            if service.healthy && self.has_other_status(&deployment.objects).await {
                service.healthy = false;
                OTHER_STATUS.clone_into(&mut service.message);
            }
            results.push((deployment, Ok(service)));
        }
        Ok(results)
    }

    async fn has_other_status(&self, objects: &ComponentObjects) -> bool {
        objects.reads_status
            && self
                .objects
                .live_status(&objects.place.cluster, &objects.workload)
                .await
                != objects.output_status
    }

    /// For components whose workload is healthy. Returns the reason why there may be more components.
    pub(super) async fn apply_post_traits(&mut self) -> Result<Option<String>, Stop> {
        let PlacedComponents { placed, mut unknown } = self.placed(Steps::Run).await?;
        for placed in placed {
            let mut traits = placed.component.traits.iter();
            let settings = self.target.current.release.settings;
            let has_post = traits.any(|trait_| settings.is_post_dispatch(trait_));
            let namespace = &self.env().name.namespace;
            if !has_post || !self.outcome.services.is_workload_healthy(&placed, namespace) {
                continue;
            }
            let name = placed.name();
            let failed = |message: String| {
                let message = format!("failed to dispatch PostDispatch traits for component {name}: {message}");
                Failure::new(FailureKind::Apply, message)
            };
            let objects = match self.render_with_post_traits(&placed).await {
                Ok(objects) => objects,
                // The pass goes on: it keeps the objects of all components.
                // The cluster wakes the Application.
                Err(RenderError::Unreachable(message)) => {
                    unknown = Some(unknown_cause(name, &message));
                    continue;
                }
                Err(RenderError::Waiting(message)) => {
                    self.outcome.look_again_in(WAITING_RETRY);
                    unknown = Some(unknown_cause(name, &message));
                    continue;
                }
                Err(RenderError::Template { message, .. }) if calls_functions(&placed.component) => {
                    self.outcome.look_again_in(CALL_RETRY);
                    unknown = Some(unknown_cause(name, &message));
                    self.outcome.warn_of(&failed(message));
                    continue;
                }
                Err(error) => return Err(error.into_stop(failed)),
            };
            let deployment = ComponentDeployment {
                index: 0,
                component: placed.clone(),
                objects,
            };
            let batches = vec![batch(&deployment, Stage::PostDispatch)];
            for result in self.apply(batches, None).await? {
                result.map_err(failed)?;
            }
            let assessor = self.assessor();
            let service = assessor.service(&placed, &deployment.objects, PostTraits::Applied);
            let service = service.await?;
            self.outcome.services.set(&placed, service);
        }
        Ok(unknown)
    }

    async fn render_with_post_traits(&self, placed: &Placed) -> Result<ComponentObjects, RenderError> {
        let mut objects = self.target.render(self.objects, placed).await?;
        let live = self.assessor().live_context(&objects).await;
        let post = self.target.render_post_traits(self.objects, placed, &objects, &live);
        let post = post.await?;
        objects.objects.extend(post);
        Ok(objects)
    }

    /// Renders a component. The inner error comes from its template.
    pub(super) async fn render_or_stop(&self, placed: &Placed) -> Result<Result<ComponentObjects, String>, Stop> {
        match self.target.render(self.objects, placed).await {
            Ok(objects) => Ok(Ok(objects)),
            Err(RenderError::Evaluator(error)) => Err(error.into()),
            // A step that deploys waits with its pass.
            Err(RenderError::Waiting(_)) => Err(Stop::NeedsEvaluator),
            Err(RenderError::Template {
                message,
                is_stopped: true,
            }) => Err(stopped(message)),
            Err(RenderError::Template { message, .. }) => Ok(Err(format!("GenerateComponentManifest: {message}"))),
            // Its place fails alone.
            Err(RenderError::Unreachable(message)) => Ok(Err(message)),
        }
    }
}

fn unknown_cause(component: &str, message: &str) -> String {
    format!("component {component} can't be rendered: {message}")
}

fn batch(deployment: &ComponentDeployment, stage: Stage) -> Vec<ToApply> {
    let objects = deployment.objects.objects.iter().map(|object| (object.stage, object));
    let of_stage = stages(objects).into_iter().find(|(name, _)| *name == stage);
    let objects = of_stage.map(|(_, objects)| objects).unwrap_or_default();
    let to_apply = objects.into_iter().map(|object| ToApply {
        manifest: object.manifest.clone(),
        component: deployment.component.name().to_owned(),
        trait_: object.trait_.clone(),
        cluster: object.cluster(&deployment.component.place).to_owned(),
        creator: Creator::Workflow,
    });
    to_apply.collect()
}

pub(super) fn stopped(message: String) -> Stop {
    Failure::workflow(message).retried_after(STOPPED_RETRY).into()
}

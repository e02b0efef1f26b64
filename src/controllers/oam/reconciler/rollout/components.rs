//! Functions of `vela/oam`, with which templates of steps deploy components.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::policies::{are_recorded, deploy_placed, place_component, unreachable};
use super::render::Placed;
use super::{ComponentDeployment, Rollout};
use crate::controllers::oam::functions::components::{ComponentCall, component_call, listed, named, without_values};
use crate::controllers::oam::placement::{DeployEnd, Deployer, PlacedComponent, RemainingParameters};
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::render::release::ComponentObjects;
use crate::controllers::oam::steps::Answer;
use crate::controllers::oam::workflow::APPLY_IN_PARALLEL;

/// In KubeVela's words.
const WAIT_HEALTHY: &str = "wait healthy";

impl Rollout<'_, '_> {
    pub async fn call_oam(&mut self, function: &str, params: &Value) -> Result<Answer, Stop> {
        let parsed = self.target.parsed;
        let spec = &parsed.spec;
        match function {
            "component-apply" => self.apply_component(params).await,
            "component-render" => self.render_component(params).await,
            "load" => Ok(self.load(params, || {
                let components = spec.components.iter();
                named(components.map(|component| (component.name.as_str(), without_values(component))))
            })),
            "load-comps-in-order" => Ok(self.load(params, || listed(spec.components.iter().map(without_values)))),
            "load-policies" => Ok(self.load(params, || {
                let policies = spec.policies.iter();
                named(policies.map(|policy| (policy.name.as_str(), policy.clone())))
            })),
            function => self.deploy_remaining(function, params).await,
        }
    }

    /// Returns a part of the spec. Another Application may belong to a tenant who must not be read.
    fn load(&self, params: &Value, part: impl FnOnce() -> Result<Value, String>) -> Answer {
        let app = params["app"].as_str().unwrap_or_default();
        if !app.is_empty() && app != self.env().name.name {
            return Answer::failed("$params.app names another application, which is not supported");
        }
        part().map(|value| json!({ "value": value })).into()
    }

    /// Deploys all components but for exceptions. In parallel, only components that others depend on must be healthy.
    async fn deploy_remaining(&mut self, function: &str, params: &Value) -> Result<Answer, Stop> {
        let parsed = self.target.parsed;
        let settings = self.env().placement_settings();
        let mut deployer = Deployer::new(&parsed.spec.components, &parsed.all_policies, settings);
        let placed = RemainingParameters::parse(params).and_then(|parameters| deployer.remaining(&parameters));
        let placed = match placed {
            Ok(placed) => placed,
            Err(error) => return Ok(Answer::failed(error.to_string())),
        };
        let (end, is_last) = deploy_placed(self, &placed, None).await?;
        Ok(match end {
            DeployEnd::Failed(message) => Answer::failed(message),
            DeployEnd::Waiting(_) if !(function == APPLY_IN_PARALLEL && is_last) => {
                Answer::Waiting(WAIT_HEALTHY.to_owned())
            }
            DeployEnd::Waiting(_) | DeployEnd::Succeeded => Answer::Returned(json!({})),
        })
    }

    /// Applies a component as the template of a step gives it.
    async fn apply_component(&mut self, params: &Value) -> Result<Answer, Stop> {
        let (component, objects, waits) = match self.prepare_component(params).await? {
            ControlFlow::Continue(prepared) => prepared,
            ControlFlow::Break(answer) => return Ok(answer),
        };
        let deployment = ComponentDeployment {
            index: 0,
            component,
            objects,
        };
        let deployed = self.deploy(vec![deployment], None).await?;
        let Some((deployment, result)) = deployed.into_iter().next() else {
            return Ok(Answer::failed("the component was not deployed"));
        };
        let service = match result {
            Ok(service) => service,
            Err(message) => return Ok(Answer::failed(message)),
        };
        let is_healthy = service.healthy;
        self.outcome.services.set(&deployment.component, service);
        // The traits before the workload may keep it from being applied.
        if !is_healthy && (waits || !are_recorded(self.objects, &deployment.objects, false).await) {
            return Ok(Answer::Waiting(WAIT_HEALTHY.to_owned()));
        }
        let live = self.assessor().live_context(&deployment.objects).await;
        Ok(Answer::Returned(live.into()))
    }

    async fn render_component(&self, params: &Value) -> Result<Answer, Stop> {
        let (_, objects, _) = match self.prepare_component(params).await? {
            ControlFlow::Continue(prepared) => prepared,
            ControlFlow::Break(answer) => return Ok(answer),
        };
        let outputs = objects.objects.into_iter().filter(|object| !object.key.is_empty());
        let outputs: Map<String, Value> = outputs.map(|object| (object.key, object.manifest)).collect();
        Ok(Answer::Returned(
            json!({ "output": objects.workload, "outputs": outputs }),
        ))
    }

    /// Renders a component. True beside it if the call waits until it is healthy. Otherwise breaks with the answer to the
    /// call.
    async fn prepare_component(
        &self,
        params: &Value,
    ) -> Result<ControlFlow<Answer, (Placed, ComponentObjects, bool)>, Stop> {
        let ComponentCall {
            component,
            place,
            waits,
        } = match component_call(params) {
            Ok(call) => call,
            Err(message) => return Ok(ControlFlow::Break(Answer::failed(message))),
        };
        if let Some(problem) = unreachable(self.env(), &place) {
            return Ok(ControlFlow::Break(Answer::Waiting(crate::text::sanitize(&problem))));
        }
        let placed = PlacedComponent {
            component: Arc::new(component),
            place,
        };
        let component = match place_component(self.target, &placed, &[]).await? {
            Ok(component) => component,
            Err(message) => return Ok(ControlFlow::Break(Answer::failed(message))),
        };
        Ok(match self.render_or_stop(&component).await? {
            Ok(objects) => ControlFlow::Continue((component, objects, waits)),
            Err(message) => ControlFlow::Break(Answer::failed(message)),
        })
    }
}

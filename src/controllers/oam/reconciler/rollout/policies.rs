use serde_json::{Value, json};

use super::health::PostTraits;
use super::render::{Placed, Target, with_inputs};
use super::{ComponentDeployment, Rollout};
use crate::api::oam::Component;
use crate::controllers::oam::clusters::ClusterError;
use crate::controllers::oam::parse::{Definitions, calls_functions};
use crate::controllers::oam::placement::{
    Applied, DeployEnd, DeployParameters, Place, PlacedComponent, PlacementCheck, PlacementProgress, deployments,
};
use crate::controllers::oam::reconciler::apply::AppObjects;
use crate::controllers::oam::reconciler::env::Env;
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::reconciler::outcome::services::unknown_service;
use crate::controllers::oam::references::REF_OBJECTS;
use crate::controllers::oam::render::release::ComponentObjects;
use crate::controllers::oam::steps::Answer;
use crate::controllers::oam::trackers::is_local;

/// Does a call of `multicluster.#Deploy`: applies the components whose dependencies are healthy.
pub async fn deploy_policies(rollout: &mut Rollout<'_, '_>, params: &Value) -> Result<Answer, Stop> {
    let (env, parsed) = (rollout.env(), rollout.target.parsed);
    let parameters = match DeployParameters::parse(params) {
        Ok(parameters) => parameters,
        Err(error) => return Ok(Answer::failed(error.to_string())),
    };
    let placed = match parsed.deployments(env.placement_settings()).deploy(&parameters) {
        Ok(placed) => placed,
        Err(error) => return Ok(Answer::failed(error.to_string())),
    };
    let parallelism = Some(parameters.parallelism.get());
    Ok(match deploy_placed(rollout, &placed, parallelism).await?.0 {
        DeployEnd::Succeeded => Answer::Returned(json!({})),
        DeployEnd::Waiting(message) => Answer::Waiting(message),
        DeployEnd::Failed(message) => Answer::failed(message),
    })
}

/// Applies the components whose dependencies are healthy. Returns true beside the end if no component, or stage of
/// one, is left to apply.
pub(super) async fn deploy_placed(
    rollout: &mut Rollout<'_, '_>,
    placed: &[PlacedComponent],
    parallelism: Option<usize>,
) -> Result<(DeployEnd, bool), Stop> {
    let clusters = placed.iter().map(|component| component.place.cluster.as_str());
    rollout.env().use_clusters(clusters).await?;
    let progress = check_all(rollout, placed).await?;
    let mut is_last = !progress.has_waiting();
    let mut applied = Vec::new();
    let mut to_deploy = Vec::new();
    for index in progress.to_apply() {
        let Some(component) = placed.get(index) else { continue };
        if let Some(problem) = unreachable(rollout.env(), &component.place) {
            is_last = false;
            applied.push((index, Applied::Unreachable(problem)));
            continue;
        }
        match place_with_inputs(rollout.target, component, &progress, index).await? {
            Err(message) => applied.push((index, Applied::Failed(message))),
            Ok(component) => match rollout.render_or_stop(&component).await? {
                Err(message) => applied.push((index, Applied::Failed(message))),
                Ok(objects) => to_deploy.push(ComponentDeployment {
                    index,
                    component,
                    objects,
                }),
            },
        }
    }
    for (deployment, result) in rollout.deploy(to_deploy, parallelism).await? {
        let result = match result {
            Ok(service) => {
                let is_healthy = service.healthy;
                rollout.outcome.services.set(&deployment.component, service);
                // Without a healthy stage before, the workload is not applied.
                is_last &= are_recorded(rollout.objects, &deployment.objects, false).await;
                if is_healthy {
                    Applied::Healthy
                } else {
                    Applied::Unhealthy
                }
            }
            Err(message) => match unreachable(rollout.env(), &deployment.component.place) {
                // It can't be reached any more.
                Some(problem) => {
                    is_last = false;
                    Applied::Unreachable(problem)
                }
                None => Applied::Failed(message),
            },
        };
        applied.push((deployment.index, result));
    }
    Ok((progress.finish(applied), is_last))
}

pub fn placements(target: Target<'_>, params: &Value) -> Answer {
    let named = json!({ "policies": params["policies"] });
    let components = [Component::default()];
    let policies = &target.parsed.all_policies;
    let settings = target.env.placement_settings();
    let placed = DeployParameters::parse(&named)
        .and_then(|parameters| deployments(&components, policies, &parameters, &settings));
    match placed {
        Ok(placed) => {
            let placements = placed
                .iter()
                .map(|component| json!({ "cluster": component.place.cluster, "namespace": component.place.namespace }));
            let placements: Vec<Value> = placements.collect();
            Answer::Returned(json!({ "placements": placements }))
        }
        Err(error) => Answer::failed(error.to_string()),
    }
}

/// Checks components in the order of their dependencies, as far as these are healthy.
pub(super) async fn check_all<'c>(
    rollout: &mut Rollout<'_, '_>,
    placed: &'c [PlacedComponent],
) -> Result<PlacementProgress<'c>, Stop> {
    let mut progress = PlacementProgress::new(placed);
    loop {
        let checks = progress.next_checks();
        if checks.is_empty() {
            return Ok(progress);
        }
        for index in checks {
            let Some(component) = placed.get(index) else { continue };
            if let Some(problem) = unreachable(rollout.env(), &component.place) {
                show_unreachable(rollout, component, &problem).await?;
                progress.record(index, PlacementCheck::Unreachable);
                continue;
            }
            let check = match place_with_inputs(rollout.target, component, &progress, index).await? {
                Ok(component) => check_component(rollout, &component).await?,
                Err(message) => PlacementCheck::Failed(message),
            };
            progress.record(index, check);
        }
    }
}

/// Returns why the cluster of a place can't be reached now. What is deployed there waits.
pub fn unreachable(env: &Env<'_>, place: &Place) -> Option<String> {
    if is_local(&place.cluster) {
        return None;
    }
    match env.reconciler.objects.clusters().connection(&place.cluster) {
        // It may never be joined: the step fails.
        Ok(_) | Err(ClusterError::NotJoined { .. }) => None,
        Err(error) => Some(error.to_string()),
    }
}

async fn show_unreachable(rollout: &mut Rollout<'_, '_>, placed: &PlacedComponent, problem: &str) -> Result<(), Stop> {
    if let Ok(placed) = place_component(rollout.target, placed, &[]).await? {
        let service = unknown_service(&placed, &rollout.env().name.namespace, problem);
        rollout.outcome.services.set(&placed, service);
    }
    Ok(())
}

/// Returns the health of a component that is recorded in this version. Another version applies its objects again.
async fn check_component(rollout: &mut Rollout<'_, '_>, placed: &Placed) -> Result<PlacementCheck, Stop> {
    let objects = match rollout.render_or_stop(placed).await? {
        Ok(objects) => objects,
        Err(message) => return Ok(PlacementCheck::Failed(message)),
    };
    // References stay the same when their objects change, traits when they see another status, and calls when they
    // are answered otherwise.
    let with_manifests =
        objects.reads_status || placed.component.component.type_ == REF_OBJECTS || calls_functions(&placed.component);
    if !are_recorded(rollout.objects, &objects, with_manifests).await {
        return Ok(PlacementCheck::Unhealthy);
    }
    let service = rollout
        .assessor()
        .service(placed, &objects, PostTraits::Unknown)
        .await?;
    let is_healthy = service.healthy;
    rollout.outcome.services.set(placed, service);
    if !is_healthy {
        return Ok(PlacementCheck::Unhealthy);
    }
    let outputs = &placed.component.component.outputs;
    let deployment = ComponentDeployment {
        index: 0,
        component: placed.clone(),
        objects,
    };
    // Components that take them wait.
    let values = rollout.outputs(&deployment, outputs).await?.unwrap_or_default();
    let values = outputs.iter().zip(values).map(|(output, value)| {
        let value = value.map_err(|error| format!("output {}: {error}", output.name))?;
        Ok((output.name.clone(), value))
    });
    Ok(PlacementCheck::Healthy {
        outputs: values.collect(),
    })
}

/// Returns true if the trackers of this version record all objects of a component, but for those of the last stage.
pub(super) async fn are_recorded(objects: &AppObjects<'_>, component: &ComponentObjects, with_manifests: bool) -> bool {
    for object in &component.objects {
        let cluster = object.cluster(&component.place);
        let is_recorded = if with_manifests {
            objects.records_manifest(cluster, &object.manifest).await
        } else {
            objects.is_recorded(cluster, &object.manifest).await
        };
        if !is_recorded {
            return false;
        }
    }
    true
}

async fn place_with_inputs(
    target: Target<'_>,
    placed: &PlacedComponent,
    progress: &PlacementProgress<'_>,
    index: usize,
) -> Result<Result<Placed, String>, Stop> {
    match progress.inputs(index) {
        Ok(inputs) => place_component(target, placed, &inputs).await,
        Err(error) => Ok(Err(error.to_string())),
    }
}

pub(super) async fn place_component(
    target: Target<'_>,
    placed: &PlacedComponent,
    inputs: &[(String, Value)],
) -> Result<Result<Placed, String>, Stop> {
    let Target { env, current, parsed } = target;
    let (name, contents) = (current.name(), &current.revision.contents);
    let (namespace, shared) = (&env.name.namespace, &env.options().definition_namespace);
    let component = env.with_definitions(|lookup| {
        let live = Definitions::live(lookup, namespace, shared, false);
        parsed.resolve(&placed.component, &live.recorded_first(&name, contents))
    });
    let component = match component.await? {
        Ok(component) => component,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let inputs: Vec<(&str, Value)> = inputs
        .iter()
        .map(|(path, value)| (path.as_str(), value.clone()))
        .collect();
    let component = if inputs.is_empty() {
        Ok(component)
    } else {
        with_inputs(&component, &inputs)
    };
    Ok(component.map(|component| Placed {
        component,
        place: placed.place.clone(),
    }))
}

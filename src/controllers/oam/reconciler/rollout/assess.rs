use std::collections::HashSet;

use super::health::PostTraits;
use super::render::RenderError;
use super::{CALL_RETRY, PlacedComponents, Rollout, Steps, WAITING_RETRY, unknown_cause};
use crate::api::oam::ServiceStatus;
use crate::controllers::oam::parse::calls_functions;
use crate::controllers::oam::reconciler::apply::AppObjects;
use crate::controllers::oam::reconciler::conditions::phase;
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::reconciler::outcome::services::{service_shown, unknown_service};
use crate::controllers::oam::render::release::ComponentObjects;
use crate::controllers::oam::trackers::ResourceKey;

/// The objects that the components of a version consist of. It decides what may be deleted.
#[derive(Debug)]
pub enum DeclaredObjects {
    Complete(HashSet<ResourceKey>),
    /// Nothing may be deleted: an object that seems to be dropped may belong to a component that could not be rendered.
    Unknown {
        cause: String,
    },
}

impl DeclaredObjects {
    fn of(placed: &PlacedComponents) -> Self {
        match &placed.unknown {
            Some(cause) => Self::Unknown { cause: cause.clone() },
            None => Self::Complete(HashSet::new()),
        }
    }

    async fn add(&mut self, objects: &AppObjects<'_>, component: &ComponentObjects) {
        if let Self::Complete(declared) = self {
            for object in &component.objects {
                let cluster = object.cluster(&component.place);
                let id = objects.cluster.id_of(cluster, &object.manifest).await;
                declared.insert(id.key());
            }
        }
    }

    fn set_unknown(&mut self, component: &str, message: &str) {
        *self = Self::Unknown {
            cause: unknown_cause(component, message),
        };
    }
}

/// `shown` are the services in their known order.
pub async fn assess_services(rollout: &mut Rollout<'_, '_>, shown: &[ServiceStatus]) -> Result<DeclaredObjects, Stop> {
    let all = rollout.placed(Steps::Run).await?;
    let mut declared = DeclaredObjects::of(&all);
    let mut services = Vec::new();
    let namespace = &rollout.env().name.namespace;
    for placed in &all.placed {
        let service = match rollout.target.render(rollout.objects, placed).await {
            Ok(objects) => {
                declared.add(rollout.objects, &objects).await;
                let assessor = rollout.assessor();
                assessor.service(placed, &objects, PostTraits::Unknown).await?
            }
            Err(RenderError::Evaluator(error)) => return Err(error.into()),
            // Objects are kept and collected meanwhile.
            Err(RenderError::Waiting(message)) => {
                declared.set_unknown(placed.name(), &message);
                rollout.outcome.look_again_in(WAITING_RETRY);
                service_shown(shown, placed, namespace).unwrap_or_else(|| unknown_service(placed, namespace, &message))
            }
            Err(RenderError::Unreachable(message)) => {
                declared.set_unknown(placed.name(), &message);
                unknown_service(placed, namespace, &message)
            }
            Err(RenderError::Template { message, .. }) => {
                declared.set_unknown(placed.name(), &message);
                if calls_functions(&placed.component) {
                    rollout.outcome.look_again_in(CALL_RETRY);
                }
                unknown_service(placed, namespace, &message)
            }
        };
        services.push((placed, service));
    }
    let is_component = |name: &str| all.placed.iter().any(|placed| placed.name() == name);
    let env = rollout.env();
    env.reconciler.memories.retain_components(env.name, is_component);
    rollout.outcome.services.replace(services, shown);
    show_phase(rollout);
    Ok(declared)
}

pub fn show_phase(rollout: &mut Rollout<'_, '_>) {
    let mut policies = rollout.target.parsed.policies.iter();
    let is_managed = policies.any(|policy| policy.definition.spec.manage_health_check);
    let is_running = is_managed || rollout.outcome.services.are_healthy();
    let phase = if is_running { phase::RUNNING } else { phase::UNHEALTHY };
    rollout.outcome.in_phase(phase);
}

pub async fn declare_all(rollout: &mut Rollout<'_, '_>) -> Result<DeclaredObjects, Stop> {
    let all = rollout.placed(Steps::All).await?;
    let mut declared = DeclaredObjects::of(&all);
    for placed in &all.placed {
        match rollout.target.render(rollout.objects, placed).await {
            Ok(objects) => declared.add(rollout.objects, &objects).await,
            Err(RenderError::Template { message, .. }) => declared.set_unknown(placed.name(), &message),
            Err(RenderError::Waiting(message)) => {
                declared.set_unknown(placed.name(), &message);
                rollout.outcome.look_again_in(WAITING_RETRY);
            }
            Err(RenderError::Unreachable(message)) => declared.set_unknown(placed.name(), &message),
            Err(RenderError::Evaluator(error)) => return Err(error.into()),
        }
    }
    Ok(declared)
}

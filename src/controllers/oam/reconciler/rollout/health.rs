//! Health of components, as `status.services` shows it.

use serde_json::{Map, Value};

use super::render::{Placed, Target};
use crate::api::oam::{Definition, ServiceStatus, StatusTemplates, TraitStatus, WorkloadKind};
use crate::controllers::oam::dispatch::order::Stage;
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::parse::{ParsedComponent, ParsedTrait, Workload};
use crate::controllers::oam::reconciler::apply::AppObjects;
use crate::controllers::oam::reconciler::outcome::services::service_of;
use crate::controllers::oam::render::cache_key::health_key;
use crate::controllers::oam::render::health::{self, Health, evaluate_health};
use crate::controllers::oam::render::identity::AUXILIARY_WORKLOAD;
use crate::controllers::oam::render::release::{ComponentObjects, ReleaseObject};
use crate::controllers::oam::render::terraform::configuration_health;
use crate::cue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostTraits {
    /// Not applied in this pass, so not shown.
    Unknown,
    Pending,
    Applied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traits {
    All(PostTraits),
    PreDispatch,
}

struct Live<'o> {
    /// As templates see them, by `output` and `outputs`.
    context: Map<String, Value>,
    /// The first of `outputs` that does not exist.
    missing: Option<&'o ReleaseObject>,
}

const WAITING: &str = "waiting for previous stage healthy";
const PENDING: &str = "⏳ Waiting for component to be healthy";

#[derive(Clone, Copy)]
pub struct Assessor<'x> {
    pub target: Target<'x>,
    pub objects: &'x AppObjects<'x>,
}

impl Assessor<'_> {
    pub async fn service(
        &self,
        placed: &Placed,
        objects: &ComponentObjects,
        post_traits: PostTraits,
    ) -> Result<ServiceStatus, cue::Error> {
        let component = &placed.component;
        let Live { context: live, missing } = self.live_objects(objects, |trait_| trait_ == AUXILIARY_WORKLOAD).await;
        let is_applied = objects.objects.iter().any(|object| object.trait_.is_empty());
        let workload = match (live.get("output"), missing) {
            (None, _) if is_applied => not_found(&objects.workload),
            (_, Some(missing)) => not_found(&missing.manifest),
            // A trait creates the workload.
            (None, None) => Health {
                is_healthy: true,
                ..Health::default()
            },
            (Some(configuration), None) if component.definition.terraform().is_some() => {
                configuration_health(&objects.workload, configuration)
            }
            (Some(_), None) => {
                let properties = component.component.properties.as_ref();
                let templates = component.definition.status_templates();
                self.health("", placed, templates, properties, objects, &live).await?
            }
        };
        let post_traits = if workload.is_healthy {
            post_traits
        } else {
            PostTraits::Pending
        };
        let traits = self.trait_statuses(placed, objects, Traits::All(post_traits)).await?;
        let is_healthy = workload.is_healthy && traits.iter().all(|trait_| trait_.healthy || trait_.pending);
        let of_trait = || {
            traits
                .iter()
                .map(|trait_| trait_.message.as_str())
                .find(|message| !message.is_empty())
        };
        let message = if workload.message.is_empty() {
            of_trait().unwrap_or_default().to_owned()
        } else {
            workload.message
        };
        Ok(ServiceStatus {
            workload_definition: Some(workload_kind(component, &objects.workload)),
            healthy: is_healthy,
            workload_healthy: workload.is_healthy,
            details: workload.details,
            message,
            traits,
            ..service_of(placed, &self.target.env.name.namespace)
        })
    }

    /// Returns the status of a component that waits for the traits before its workload; none if they are healthy.
    pub async fn waiting_service(
        &self,
        placed: &Placed,
        objects: &ComponentObjects,
    ) -> Result<Option<ServiceStatus>, cue::Error> {
        if !objects.objects.iter().any(|object| object.stage == Stage::PreDispatch) {
            return Ok(None);
        }
        let traits = self.trait_statuses(placed, objects, Traits::PreDispatch).await?;
        let Some(waiting) = traits.iter().find(|trait_| !trait_.healthy) else {
            return Ok(None);
        };
        let message = if waiting.message.is_empty() {
            WAITING.to_owned()
        } else {
            waiting.message.clone()
        };
        Ok(Some(ServiceStatus {
            workload_definition: Some(workload_kind(&placed.component, &objects.workload)),
            message,
            traits,
            ..service_of(placed, &self.target.env.name.namespace)
        }))
    }

    async fn trait_statuses(
        &self,
        placed: &Placed,
        objects: &ComponentObjects,
        which: Traits,
    ) -> Result<Vec<TraitStatus>, cue::Error> {
        let mut statuses = Vec::new();
        for (index, trait_) in placed.component.traits.iter().enumerate() {
            let stage = self.target.env.template_settings().stage(trait_);
            let post_traits = match which {
                Traits::All(post_traits) => post_traits,
                Traits::PreDispatch if stage == Stage::PreDispatch => PostTraits::Unknown,
                Traits::PreDispatch => continue,
            };
            let is_post = stage == Stage::PostDispatch;
            if is_post && post_traits == PostTraits::Unknown {
                continue;
            }
            if is_post && post_traits == PostTraits::Pending {
                statuses.push(TraitStatus {
                    type_: trait_.type_label.clone(),
                    pending: true,
                    message: PENDING.to_owned(),
                    ..TraitStatus::default()
                });
                continue;
            }
            let health = self.trait_health(index, trait_, placed, objects).await?;
            statuses.push(TraitStatus {
                type_: trait_.type_label.clone(),
                healthy: health.is_healthy,
                details: health.details,
                message: health.message,
                ..TraitStatus::default()
            });
        }
        Ok(statuses)
    }

    /// Computes the health of a trait, which sees its own objects only. They must exist.
    async fn trait_health(
        &self,
        index: usize,
        trait_: &ParsedTrait,
        placed: &Placed,
        objects: &ComponentObjects,
    ) -> Result<Health, cue::Error> {
        let is_own = |type_: &str| type_ == trait_.type_label;
        let Live {
            context: mut live,
            missing,
        } = self.live_objects(objects, is_own).await;
        if let Some(missing) = missing {
            return Ok(not_found(&missing.manifest));
        }
        live.remove("output");
        let (templates, properties) = (trait_.definition.status_templates(), trait_.trait_.properties.as_ref());
        let part = format!("{index}/{}", trait_.type_label);
        self.health(&part, placed, templates, properties, objects, &live).await
    }

    /// Evaluates the templates of a component, or of a trait, unless nothing has changed since.
    async fn health(
        &self,
        part: &str,
        placed: &Placed,
        templates: Option<&StatusTemplates>,
        properties: Option<&Value>,
        objects: &ComponentObjects,
        live: &Map<String, Value>,
    ) -> Result<Health, cue::Error> {
        let Some(templates) = templates.filter(|templates| has_text(templates)) else {
            return Ok(Health {
                is_healthy: true,
                ..Health::default()
            });
        };
        let component_type = &placed.component.component.type_;
        let templates = health::HealthTemplates {
            definition: part
                .split_once('/')
                .map_or(component_type, |(_, trait_type)| trait_type),
            details: text(&templates.details),
            health_policy: text(&templates.health_policy),
            custom_status: text(&templates.custom_status),
        };
        let context = objects.context.with(live);
        let outputs = live
            .get("outputs")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::values);
        let key = health_key(
            templates,
            properties,
            &context,
            live.get("output").into_iter().chain(outputs),
        );
        let name = format!("{}/{part}", placed.memory_name());
        let cached = self.target.env.memory.lock().health.get(&name).cloned();
        if let Some((_, health)) = cached.filter(|(cached_key, _)| *cached_key == key) {
            return Ok(health);
        }
        let health = evaluate_health(&self.target.env.evaluator(), templates, properties, &context).await?;
        self.target.env.memory.lock().health.insert(name, (key, health.clone()));
        Ok(health)
    }

    /// Returns the live objects of a component, as `output` and `outputs` of the context.
    pub async fn live_context(&self, objects: &ComponentObjects) -> Map<String, Value> {
        self.live_objects(objects, |_| true).await.context
    }

    /// Returns the live objects of a component. `is_shown` chooses the traits.
    async fn live_objects<'o>(&self, objects: &'o ComponentObjects, is_shown: impl Fn(&str) -> bool) -> Live<'o> {
        let mut context = Map::new();
        let (mut outputs, mut missing) = (Map::new(), None);
        if let Some(live) = self.objects.live(&objects.place.cluster, &objects.workload).await {
            context.insert("output".to_owned(), live);
        }
        let shown = objects.objects.iter();
        for object in shown.filter(|object| !object.key.is_empty() && is_shown(&object.trait_)) {
            match self
                .objects
                .live(object.cluster(&objects.place), &object.manifest)
                .await
            {
                Some(live) => drop(outputs.insert(object.key.clone(), live)),
                None => missing = missing.or(Some(object)),
            }
        }
        if !outputs.is_empty() {
            context.insert("outputs".to_owned(), outputs.into());
        }
        Live { context, missing }
    }
}

/// Returns the kind of a workload that its definition declares; it may be empty.
fn workload_kind(component: &ParsedComponent, workload: &Value) -> WorkloadKind {
    match &component.definition {
        Workload::Component(definition) => definition.spec.workload.definition.clone(),
        Workload::Workload(_) => {
            let ObjectId { api_version, kind, .. } = ObjectId::of(workload);
            WorkloadKind { api_version, kind }
        }
    }
}

fn has_text(templates: &StatusTemplates) -> bool {
    !(templates.details.is_empty() && templates.health_policy.is_empty() && templates.custom_status.is_empty())
}

fn text(template: &str) -> Option<&str> {
    (!template.is_empty()).then_some(template)
}

fn not_found(object: &Value) -> Health {
    let id = ObjectId::of(object);
    Health::not_found(&id.kind, &id.name)
}

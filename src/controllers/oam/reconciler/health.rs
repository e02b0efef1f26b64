//! Health of components, as `status.services` shows it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::components::{Placed, RenderError};
use super::conditions::{self, Failure, phase};
use super::pass::{Pass, Stop};
use super::revision::Current;
use super::workflow::Steps;
use crate::api::oam::{Definition, ServiceStatus, StatusTemplates, TraitStatus, WorkloadKind};
use crate::controllers::oam::dispatch::order::Stage;
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::parse::{Parsed, ParsedComponent, ParsedTrait, Workload};
use crate::controllers::oam::placement::{merge_replicas, place_service, service_key};
use crate::controllers::oam::render::cache_key::health_key;
use crate::controllers::oam::render::health::{self, Health, evaluate_health};
use crate::controllers::oam::render::identity::AUXILIARY_WORKLOAD;
use crate::controllers::oam::render::release::{ComponentObjects, ReleaseObject};
use crate::cue;

/// The traits that are applied after the workload is healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostTraits {
    /// Not applied in this pass, so not shown.
    Unknown,
    Pending,
    Applied,
}

/// The traits whose statuses are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traits {
    All(PostTraits),
    PreDispatch,
}

/// The live objects of a component.
struct Live<'o> {
    /// As templates see them, by `output` and `outputs`.
    context: Map<String, Value>,
    /// The first of `outputs` that does not exist.
    missing: Option<&'o ReleaseObject>,
}

const WAITING: &str = "waiting for previous stage healthy";
const PENDING: &str = "⏳ Waiting for component to be healthy";

impl Pass<'_> {
    /// Computes the health of all components, and the phase that follows from it.
    pub(super) async fn set_health(&mut self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        let mut services = Vec::new();
        let all = self.placed(current, parsed, Steps::Run).await?;
        for placed in &all {
            let objects = self.render(current, parsed, placed).await;
            let service = match objects {
                Ok(objects) => {
                    self.declare(&objects).await;
                    let service = self.service(placed, &objects, PostTraits::Unknown).await;
                    service.map_err(|error| evaluator_failure(&error))?
                }
                Err(RenderError::Evaluator(error)) => return Err(evaluator_failure(&error)),
                Err(RenderError::Template { message, .. }) => {
                    self.declared = None;
                    ServiceStatus {
                        message: crate::text::sanitize(&message),
                        ..self.service_of(placed)
                    }
                }
            };
            self.replicas_of(&service)
                .insert(placed.place.replica_key.clone(), service.clone());
            services.push((placed.place.replica_key.as_str(), service));
        }
        let services = merge_replicas(services);
        let is_component = |name: &str| all.iter().any(|placed| placed.name() == name);
        self.reconciler.memories.retain_components(self.name, is_component);
        let before = self.app.status.as_ref().map(|status| status.services.as_slice());
        self.status.services = in_known_order(services, before.unwrap_or_default());
        self.set_phase(parsed);
        Ok(())
    }

    /// Sets the phase that follows from the health of the components.
    pub(super) fn set_phase(&mut self, parsed: &Parsed) {
        let is_healthy = self.status.services.iter().all(|service| service.healthy);
        let mut policies = parsed.policies.iter();
        let is_managed = policies.any(|policy| policy.definition.spec.manage_health_check);
        let phase = if is_healthy || is_managed {
            phase::RUNNING
        } else {
            phase::UNHEALTHY
        };
        phase.clone_into(&mut self.status.phase);
    }

    /// Returns the statuses of the replicas of a component, as found in this pass.
    fn replicas_of(&mut self, service: &ServiceStatus) -> &mut BTreeMap<String, ServiceStatus> {
        self.replicas.entry(service_key(service)).or_default()
    }

    /// Replaces the status of one component at its place.
    pub(super) fn set_service(&mut self, placed: &Placed, service: ServiceStatus) {
        let replicas = self.replicas_of(&service);
        replicas.insert(placed.place.replica_key.clone(), service);
        let replicas = replicas.iter().map(|(key, service)| (key.as_str(), service.clone()));
        for service in merge_replicas(replicas.collect()) {
            self.show_service(service);
        }
    }

    fn show_service(&mut self, service: ServiceStatus) {
        let mut services = self.status.services.iter_mut();
        match services.find(|known| identity(known) == identity(&service)) {
            Some(known) => *known = service,
            None => self.status.services.push(service),
        }
    }

    /// Computes the health of a component from its live objects.
    pub(super) async fn service(
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
            (Some(_), None) => {
                let properties = component.component.properties.as_ref();
                let templates = component.definition.status_templates();
                self.health("", placed, templates, properties, objects, &live).await?
            }
        };
        let post_traits = match workload.is_healthy {
            true => post_traits,
            false => PostTraits::Pending,
        };
        let traits = self.trait_statuses(placed, objects, Traits::All(post_traits)).await?;
        let is_healthy = workload.is_healthy && traits.iter().all(|one| one.healthy || one.pending);
        let of_trait = || {
            traits
                .iter()
                .map(|one| one.message.as_str())
                .find(|message| !message.is_empty())
        };
        let message = match workload.message.is_empty() {
            true => of_trait().unwrap_or_default().to_owned(),
            false => workload.message,
        };
        Ok(ServiceStatus {
            workload_definition: Some(workload_kind(component, &objects.workload)),
            healthy: is_healthy,
            workload_healthy: workload.is_healthy,
            details: workload.details,
            message,
            traits,
            ..self.service_of(placed)
        })
    }

    /// Returns the status of a component that waits for the traits before its workload; none if they are healthy.
    pub(super) async fn waiting_service(
        &self,
        placed: &Placed,
        objects: &ComponentObjects,
    ) -> Result<Option<ServiceStatus>, cue::Error> {
        if !objects.objects.iter().any(|object| object.stage == Stage::PreDispatch) {
            return Ok(None);
        }
        let traits = self.trait_statuses(placed, objects, Traits::PreDispatch).await?;
        let Some(waiting) = traits.iter().find(|one| !one.healthy) else {
            return Ok(None);
        };
        let message = match waiting.message.is_empty() {
            true => WAITING.to_owned(),
            false => waiting.message.clone(),
        };
        Ok(Some(ServiceStatus {
            workload_definition: Some(workload_kind(&placed.component, &objects.workload)),
            message,
            traits,
            ..self.service_of(placed)
        }))
    }

    /// Returns true if the workload is healthy, as this pass has found it or else as the status shows it.
    pub(super) fn is_workload_healthy(&self, placed: &Placed) -> bool {
        let own = self.service_of(placed);
        let replicas = self.replicas.get(&service_key(&own));
        if let Some(replica) = replicas.and_then(|replicas| replicas.get(&placed.place.replica_key)) {
            return replica.workload_healthy;
        }
        let mut services = self.status.services.iter();
        let service = services.find(|service| identity(service) == identity(&own));
        service.is_some_and(|service| service.workload_healthy)
    }

    /// Returns a status that says where a component is.
    fn service_of(&self, placed: &Placed) -> ServiceStatus {
        let mut service = ServiceStatus {
            name: placed.name().to_owned(),
            ..ServiceStatus::default()
        };
        place_service(&mut service, &placed.place, &self.name.namespace);
        service
    }

    async fn trait_statuses(
        &self,
        placed: &Placed,
        objects: &ComponentObjects,
        which: Traits,
    ) -> Result<Vec<TraitStatus>, cue::Error> {
        let mut statuses = Vec::new();
        for (index, one) in placed.component.traits.iter().enumerate() {
            let stage = self.template_settings().stage(one);
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
                    type_: one.type_label.clone(),
                    pending: true,
                    message: PENDING.to_owned(),
                    ..TraitStatus::default()
                });
                continue;
            }
            let health = self.trait_health(index, one, placed, objects).await?;
            statuses.push(TraitStatus {
                type_: one.type_label.clone(),
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
        one: &ParsedTrait,
        placed: &Placed,
        objects: &ComponentObjects,
    ) -> Result<Health, cue::Error> {
        let is_own = |trait_: &str| trait_ == one.type_label;
        let Live {
            context: mut live,
            missing,
        } = self.live_objects(objects, is_own).await;
        if let Some(missing) = missing {
            return Ok(not_found(&missing.manifest));
        }
        live.remove("output");
        let (templates, properties) = (one.definition.status_templates(), one.trait_.properties.as_ref());
        let part = format!("{index}/{}", one.type_label);
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
        let templates = health::StatusTemplates {
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
        let known = self.memory.lock().health.get(&name).cloned();
        if let Some((_, health)) = known.filter(|(known, _)| *known == key) {
            return Ok(health);
        }
        let health = evaluate_health(&self.evaluator(), templates, properties, &context).await?;
        self.memory.lock().health.insert(name, (key, health.clone()));
        Ok(health)
    }

    /// Returns the live objects of a component, as `output` and `outputs` of the context.
    pub(super) async fn live_context(&self, objects: &ComponentObjects) -> Map<String, Value> {
        self.live_objects(objects, |_| true).await.context
    }

    /// Returns the live objects of a component. `is_shown` chooses the traits.
    async fn live_objects<'o>(&self, objects: &'o ComponentObjects, is_shown: impl Fn(&str) -> bool) -> Live<'o> {
        let mut context = Map::new();
        let (mut outputs, mut missing) = (Map::new(), None);
        if let Some(live) = self.live(&objects.workload).await {
            context.insert("output".to_owned(), live);
        }
        let shown = objects.objects.iter();
        for object in shown.filter(|object| !object.key.is_empty() && is_shown(&object.trait_)) {
            match self.live(&object.manifest).await {
                Some(live) => drop(outputs.insert(object.key.clone(), live)),
                None => missing = missing.or(Some(object)),
            }
        }
        if !outputs.is_empty() {
            context.insert("outputs".to_owned(), outputs.into());
        }
        Live { context, missing }
    }

    /// Finds the objects that all components consist of.
    pub(super) async fn declare_all(&mut self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        for placed in self.placed(current, parsed, Steps::All).await? {
            match self.render(current, parsed, &placed).await {
                Ok(objects) => self.declare(&objects).await,
                Err(RenderError::Template { .. }) => self.declared = None,
                Err(RenderError::Evaluator(error)) => return Err(evaluator_failure(&error)),
            }
        }
        Ok(())
    }

    /// Adds the objects of a component to what is declared.
    pub(super) async fn declare(&mut self, objects: &ComponentObjects) {
        let mut keys = Vec::new();
        for object in &objects.objects {
            keys.push(self.id_of(&object.manifest).await.key());
        }
        if let Some(declared) = &mut self.declared {
            declared.extend(keys);
        }
    }

    /// Returns true if the trackers of this version record an object.
    pub(super) async fn is_recorded(&self, manifest: &Value) -> bool {
        let id = self.id_of(manifest).await;
        let trackers = self.inventory.current.iter().chain(&self.inventory.root);
        let mut entries = trackers.flat_map(|tracker| &tracker.entries);
        entries.any(|entry| !entry.deleted && id.is_of(entry))
    }

    /// Returns the identity of an object, without a namespace if its kind has none.
    pub(super) async fn id_of(&self, manifest: &Value) -> ObjectId {
        let mut id = ObjectId::of(manifest);
        if self.objects.is_namespaced(&id).await == Ok(false) {
            id.namespace.clear();
        }
        id
    }

    /// Returns the live object of a manifest; none if it is missing, or its kind is.
    pub(super) async fn live(&self, manifest: &Value) -> Option<Value> {
        let objects = &self.objects;
        let id = self.id_of(manifest).await;
        // A template could name any object.
        let mut entries = self.inventory.in_order().flat_map(|tracker| &tracker.entries);
        if !entries.any(|entry| id.is_of(entry)) {
            return None;
        }
        let live = match self.written.get(&id) {
            // The watch may be behind our own write, or ahead of it.
            Some(written) => Some(objects.newer(&id, written.clone())),
            None => objects.get(&id).await.ok().flatten(),
        };
        live.map(|live| self.without_foreign_data(&id, live))
    }
}

/// Returns the services in the order of `before`: KubeVela lists them as they were deployed, and an order alone is not
/// written.
fn in_known_order(mut services: Vec<ServiceStatus>, before: &[ServiceStatus]) -> Vec<ServiceStatus> {
    services.sort_by_cached_key(|service| {
        let own = identity(service);
        let position = before.iter().position(|known| identity(known) == own);
        position.unwrap_or(before.len())
    });
    services
}

/// Returns what tells a service from others.
fn identity(service: &ServiceStatus) -> (&str, &str, &str) {
    (&service.name, &service.namespace, &service.cluster)
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

/// Shows that the evaluator is missing or failed. Nothing is applied or deleted because of it.
pub(super) fn evaluator_failure(error: &cue::Error) -> Stop {
    match error {
        cue::Error::Deferred => Stop::NeedsEvaluator,
        cue::Error::Missing => {
            let failure = Failure::new(conditions::PARSED, "FailedParse", error.to_string());
            failure.in_phase(phase::RENDERING).into()
        }
        error => Failure::new(conditions::WORKFLOW, "FailedWorkflow", error.to_string()).into(),
    }
}

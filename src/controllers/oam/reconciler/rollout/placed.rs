use std::collections::HashSet;

use serde_json::Value;

use super::Rollout;
use super::policies::{are_recorded, check_all, place_component};
use super::render::{Placed, with_inputs};
use crate::api::oam::{Definition as _, StepStatus, WorkflowStep};
use crate::controllers::oam::parse::{Parsed, component_step, place_of};
use crate::controllers::oam::placement::{
    ByPlace, Place, PlacedComponent, PlacementError, PlacementSettings, ServiceKey, service_key,
};
use crate::controllers::oam::reconciler::conditions::phase;
use crate::controllers::oam::reconciler::failure::{Failure, FailureKind, Stop};
use crate::controllers::oam::reconciler::outcome::services::service_of;
use crate::controllers::oam::steps;
use crate::controllers::oam::trackers::is_local;
use crate::controllers::oam::workflow::{
    InputScope, InputUsage, ValueStore, copy_inputs, deploys_many, is_apply_component,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    All,
    /// Steps that were not skipped.
    Run,
}

/// The components that a step deploys; `None` if they are not known.
type StepDeployments<'s> = (&'s WorkflowStep, Option<Vec<PlacedComponent>>);

/// Adds the inputs, outputs and dependencies of components. Fails if steps deploy too much together.
pub fn completed_steps(parsed: &Parsed, settings: PlacementSettings<'_>) -> Result<Vec<WorkflowStep>, Failure> {
    let steps = convert_steps(parsed)?;
    // The settings may allow less. The run of a step tells what is not allowed.
    let settings = PlacementSettings::permissive(settings.clusters);
    deployments(&mut steps.iter().flat_map(with_sub_steps), parsed, settings)?;
    Ok(steps)
}

fn convert_steps(parsed: &Parsed) -> Result<Vec<WorkflowStep>, Failure> {
    let complete = |step: &WorkflowStep| {
        let completed = component_step(step, &parsed.spec.components);
        completed.map_err(|error| {
            let message = format!("convert step: convert [{}]: {error}", step.type_);
            Failure::new(FailureKind::Workflow, message).in_phase(phase::FAILED)
        })
    };
    let steps = parsed.workflow.steps.iter().map(|step| {
        let mut step = complete(step)?;
        step.sub_steps = step.sub_steps.iter().map(complete).collect::<Result<_, _>>()?;
        Ok(step)
    });
    steps.collect()
}

/// Returns what steps deploy. Fails if it is too much for one Application, before anything is rendered.
fn deployments<'s>(
    steps: &mut dyn Iterator<Item = &'s WorkflowStep>,
    parsed: &Parsed,
    settings: PlacementSettings<'_>,
) -> Result<Vec<StepDeployments<'s>>, Failure> {
    let mut deployments = parsed.deployments(settings);
    let deployed = steps.map(|step| match deployments.of(step) {
        Err(error @ PlacementError::TooLarge { .. }) => {
            let failure = Failure::new(FailureKind::Workflow, error.to_string());
            Err(failure.in_phase(phase::FAILED))
        }
        deployed => Ok((step, deployed.ok())),
    });
    deployed.collect()
}

pub struct PlacedComponents {
    pub placed: Vec<Placed>,
    pub(super) unknown: Option<String>,
}

impl Rollout<'_, '_> {
    /// Includes the values that components have taken. Components whose values are not known now are left out.
    pub async fn placed(&mut self, which: Steps) -> Result<PlacedComponents, Stop> {
        let parsed = self.target.parsed;
        let steps = convert_steps(parsed)?;
        let chosen = steps.iter().flat_map(with_sub_steps);
        let mut chosen = chosen.filter(|step| which == Steps::All || self.has_run(step));
        let settings = PlacementSettings {
            // What is recorded in a cluster that was removed since is shown, and not collected.
            accepts_any_cluster: true,
            ..self.env().placement_settings()
        };
        let deployments = deployments(&mut chosen, parsed, settings)?;
        let store = if deployments.iter().any(|(step, _)| !step.inputs.is_empty()) {
            self.load_values().await?
        } else {
            ValueStore::default()
        };
        let context = self.target.current.release.step_context();
        let (mut placed, mut usage) = (ByPlace::default(), InputUsage::default());
        let mut unknown = None;
        for (step, deployed) in &deployments {
            let of_step = match deployed {
                Some(deployed) if deploys_many(step) => self.place_all(deployed, &mut usage).await?,
                Some(_) if is_apply_component(step) => {
                    let (status, group) = self.status_of(step);
                    let id = status.map_or("", |status| status.id.as_str());
                    let scope = InputScope::new(&store, &context, step, id, group);
                    vec![component_of(parsed, step, &scope, &mut usage)]
                }
                Some(_) => Vec::new(),
                None => vec![None],
            };
            for component in of_step {
                match component {
                    Some(component) => placed.insert(component.name().to_owned(), component.place.clone(), component),
                    None => unknown = Some(format!("the values of step {} are not known", step.name)),
                }
            }
        }
        let mut placed = placed.into_vec();
        if which == Steps::Run {
            self.leave_out_new_clusters(&mut placed);
        }
        let clusters = placed.iter().map(|one| one.place.cluster.as_str());
        self.env().use_clusters(clusters).await?;
        if deployments.iter().any(|(step, _)| self.applies_components(step)) {
            self.add_applied(&mut placed).await?;
        }
        // The components of other types of steps are found by their properties.
        let is_hidden = |step: &WorkflowStep| !deploys_many(step) && self.applies_components(step);
        if which == Steps::All && deployments.iter().any(|(step, _)| is_hidden(step)) {
            unknown.get_or_insert_with(|| {
                "components that templates of steps apply are not known before they run".to_owned()
            });
        }
        Ok(PlacedComponents { placed, unknown })
    }

    /// Leaves out places in joined clusters where nothing of the component is recorded. A cluster that was joined since, or
    /// has other labels, may match a topology whose step has run; the next run deploys there.
    fn leave_out_new_clusters(&self, placed: &mut Vec<Placed>) {
        if placed.iter().all(|one| is_local(&one.place.cluster)) {
            return;
        }
        let inventory = &self.objects.ledger.inventory;
        let entries = inventory.in_order().flat_map(|tracker| &tracker.entries);
        let recorded = entries.map(|entry| (entry.cluster.as_str(), entry.component.as_str()));
        let recorded: HashSet<_> = recorded.collect();
        placed.retain(|one| {
            let cluster = one.place.cluster.as_str();
            is_local(cluster) || recorded.contains(&(cluster, one.name()))
        });
    }

    /// Returns true if the template of a step calls a function that applies components.
    fn applies_components(&self, step: &WorkflowStep) -> bool {
        let definition = self.target.parsed.workflow.definitions.get(&step.type_);
        let template = definition.and_then(|definition| definition.template());
        template.is_some_and(steps::applies_components)
    }

    /// Adds components that templates of steps have applied. Only the run knows their places, so that the status tells
    /// them afterwards. A call may have applied another component than the spec has under its name.
    async fn add_applied(&self, placed: &mut Vec<Placed>) -> Result<(), Stop> {
        let namespace = &self.env().name.namespace;
        let known: HashSet<ServiceKey> = placed
            .iter()
            .map(|one| service_key(&service_of(one, namespace)))
            .collect();
        for service in self.outcome.services.shown() {
            let mut components = self.target.parsed.components.iter();
            let component = components.find(|one| one.component.name == service.name);
            let Some(component) = component.filter(|_| !known.contains(&service_key(service))) else {
                continue;
            };
            let is_inside = service.namespace == *namespace;
            let candidate = Placed {
                component: component.clone(),
                place: Place {
                    cluster: service.cluster.clone(),
                    namespace: if is_inside {
                        String::new()
                    } else {
                        service.namespace.clone()
                    },
                    replica_key: String::new(),
                },
            };
            self.env().use_clusters([candidate.place.cluster.as_str()]).await?;
            let is_applied = match self.render_or_stop(&candidate).await? {
                Ok(objects) => are_recorded(self.objects, &objects, false).await,
                Err(_) => true,
            };
            if is_applied {
                placed.push(candidate);
            }
        }
        Ok(())
    }

    /// Returns the components of a step with the values that they take; `None` if values of a component are not known.
    async fn place_all(
        &mut self,
        deployments: &[PlacedComponent],
        usage: &mut InputUsage,
    ) -> Result<Vec<Option<Placed>>, Stop> {
        let needs_values = |deployment: &PlacedComponent| !deployment.component.inputs.is_empty();
        let mut inputs: Vec<Vec<(String, Value)>> = vec![Vec::new(); deployments.len()];
        if deployments.iter().any(needs_values) {
            let progress = check_all(self, deployments).await?;
            // Inputs that are too large count as unknown; the step says so.
            let of_component = |index| {
                let inputs = progress.inputs(index).ok().filter(|inputs| usage.add(inputs).is_ok());
                inputs.unwrap_or_default()
            };
            inputs = (0..deployments.len()).map(of_component).collect();
        }
        let mut placed = Vec::new();
        for (deployment, inputs) in deployments.iter().zip(&inputs) {
            let is_complete = inputs.len() == deployment.component.inputs.len();
            let component = place_component(self.target, deployment, inputs).await?.ok();
            placed.push(component.filter(|_| is_complete));
        }
        Ok(placed)
    }

    fn has_run(&self, step: &WorkflowStep) -> bool {
        let (status, _) = self.status_of(step);
        status.is_some_and(|status| !matches!(status.phase.as_str(), "" | "pending" | "skipped"))
    }

    /// Returns the status of a step, with the name of the group that it is in.
    fn status_of(&self, step: &WorkflowStep) -> (Option<&StepStatus>, Option<&str>) {
        let workflow = self.outcome.workflow.as_ref();
        for status in workflow.into_iter().flat_map(|workflow| &workflow.steps) {
            if status.name == step.name {
                return (Some(status), None);
            }
            if let Some(sub_step) = status.sub_steps.iter().find(|status| status.name == step.name) {
                return (Some(sub_step), Some(status.name.as_str()));
            }
        }
        (None, None)
    }
}

fn with_sub_steps(step: &WorkflowStep) -> impl Iterator<Item = &WorkflowStep> {
    std::iter::once(step).chain(&step.sub_steps)
}

/// `None` if a value can't be set. The step fails then, and the others run.
fn component_of(
    parsed: &Parsed,
    step: &WorkflowStep,
    scope: &InputScope<'_>,
    usage: &mut InputUsage,
) -> Option<Placed> {
    let properties = step.properties.as_ref().unwrap_or(&Value::Null);
    let name = properties["component"].as_str().unwrap_or_default();
    let component = parsed.components.iter().find(|one| one.component.name == name)?;
    let inputs = step.inputs.iter();
    let values = inputs.filter_map(|input| Some((input.parameter_key.as_str(), scope.get(&input.from)?)));
    let values = copy_inputs(values).ok()?;
    usage.add(&values).ok()?;
    Some(Placed {
        component: with_inputs(component, &values).ok()?,
        place: place_of(step),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::oam::context::Context;
    use crate::controllers::oam::parse::{OverrideDefinitions, ParsedComponent, ParsedWorkflow, Workload};
    use crate::controllers::oam::policies::Policies;

    const SETTINGS: PlacementSettings<'static> = PlacementSettings {
        namespace: "team",
        allow_cross_namespace: true,
        unanchored_overrides: false,
        clusters: Ok(&[]),
        accepts_any_cluster: false,
    };

    fn parsed(components: Value, policies: Value, steps: Value) -> Parsed {
        let spec = json!({ "components": components, "policies": policies });
        let spec: crate::api::oam::ApplicationSpec = serde_json::from_value(spec).unwrap();
        let definition = json!({ "metadata": { "name": "worker" }, "spec": { "workload": {} } });
        let components = spec.components.iter().map(|component| ParsedComponent {
            component: component.clone(),
            type_label: component.type_.clone(),
            definition: Workload::Component(serde_json::from_value(definition.clone()).unwrap()),
            traits: Vec::new(),
        });
        Parsed {
            components: components.collect(),
            workflow: ParsedWorkflow {
                mode: "DAG-DAG".to_owned(),
                steps: serde_json::from_value(steps).unwrap(),
                external: None,
                definitions: Default::default(),
            },
            policies: Vec::new(),
            rules: Policies::default(),
            all_policies: spec.policies.clone(),
            external_policies: Default::default(),
            overrides: OverrideDefinitions::default(),
            referred_objects: Vec::new(),
            skipped_policies: Vec::new(),
            spec,
        }
    }

    fn step(component: &str, input: Value) -> WorkflowStep {
        let step = json!({ "name": "a", "type": "apply-component", "inputs": [input],
            "properties": { "component": component } });
        serde_json::from_value(step).unwrap()
    }

    #[test]
    fn a_component_whose_input_cannot_be_set_is_left_out() {
        let components = json!([{ "name": "web", "type": "worker", "properties": { "image": "nginx" } }]);
        let parsed = parsed(components, json!([]), json!([]));
        let values = json!({ "tag": "1" });
        let store = ValueStore::with_values(values.as_object().unwrap().clone(), &Default::default());
        let placed = |component: &str, key: &str| {
            let input = json!({ "from": "tag", "parameterKey": key });
            let step = step(component, input);
            let scope = InputScope::new(&store, &Context::default(), &step, "id", None);
            component_of(&parsed, &step, &scope, &mut InputUsage::default())
        };
        let set = placed("web", "value.properties.image").unwrap();
        assert_eq!(set.component.component.properties, Some(json!({ "image": "1" })));
        assert!(placed("web", "value.properties.image.tag").is_none());
        assert!(placed("lost", "value.properties.image").is_none());
    }

    #[test]
    fn steps_that_deploy_too_much_together_are_refused_and_one_that_is_invalid_is_not_known() {
        let components: Vec<_> = (0..1_000)
            .map(|index| json!({ "name": format!("web-{index}"), "type": "worker" }))
            .collect();
        let deploy = |name: String| json!({ "name": name, "type": "deploy" });
        let steps = |count: usize| -> Vec<_> { (0..count).map(|index| deploy(index.to_string())).collect() };
        let failed = |count: usize| {
            let parsed = parsed(json!(components), json!([]), json!(steps(count)));
            completed_steps(&parsed, SETTINGS).map(drop)
        };
        assert_eq!(failed(5), Ok(()));
        let message = failed(6).unwrap_err().message;
        assert!(
            message.starts_with("6000 components and placements exceed the limit of 5000 for all deploy steps"),
            "{message}"
        );
        let lost = json!({ "name": "lost", "type": "deploy", "properties": { "policies": ["lost"] } });
        let parsed = parsed(
            json!([{ "name": "web", "type": "worker" }]),
            json!([]),
            json!([lost, deploy("a".to_owned())]),
        );
        let deployed = deployments(&mut parsed.workflow.steps.iter(), &parsed, SETTINGS).unwrap();
        let counts = deployed.iter().map(|(_, placed)| placed.as_ref().map(Vec::len));
        assert_eq!(counts.collect::<Vec<_>>(), [None, Some(1)]);
    }
}

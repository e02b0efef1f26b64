//! The components that the steps of a workflow deploy, as far as this is known before the run.

use kube::ResourceExt;

use crate::api::oam::{Application, ManagedResource, ServiceStatus, WorkflowStep};
use crate::cmd::Error;
use crate::cmd::vela::joined::suffix;
use crate::controllers::oam::clusters::JoinedCluster;
use crate::controllers::oam::parse::{
    Definitions, Deployments, Parsed, ParsedComponent, cluster_selections, component_step,
};
use crate::controllers::oam::placement::{
    ByPlace, Place, PlacedComponent, PlacementSettings, place_service, service_key,
};
use crate::controllers::oam::workflow::{deploys_many, is_apply_component};

/// Types of steps that make no objects by a template.
const NATIVE: [&str; 3] = ["restart-workflow", "step-group", "suspend"];

/// The components in the order in which the steps deploy them.
pub struct RenderPlan {
    pub components: Vec<PlannedComponent>,
    /// Steps that make objects at run time, as `<name> (<type>)`.
    steps: Vec<String>,
    /// Policies and steps that select clusters by labels, if these are not looked up.
    cluster_selections: Vec<String>,
}

/// A component in one of its places.
pub struct PlannedComponent {
    pub component: ParsedComponent,
    pub place: Place,
    /// True if steps provide values for its parameters, which are not known.
    pub has_inputs: bool,
}

impl RenderPlan {
    /// Plans with the default flags of the controller. `joined` are the joined clusters, or the reason why they are not known;
    /// if they are not looked up, each name counts as a cluster.
    pub fn new(
        application: &Application,
        parsed: &Parsed,
        definitions: &Definitions<'_>,
        joined: Option<Result<&[JoinedCluster], &str>>,
    ) -> Result<Self, Error> {
        let namespace = application.namespace().unwrap_or_default();
        let settings = PlacementSettings {
            namespace: &namespace,
            allow_cross_namespace: true,
            unanchored_overrides: false,
            clusters: joined.unwrap_or(Ok(&[])),
            accepts_any_cluster: joined.is_none(),
        };
        let selections = joined.is_none().then(|| cluster_selections(parsed));
        let mut plan = Self {
            components: Vec::new(),
            steps: Vec::new(),
            cluster_selections: selections.unwrap_or_default(),
        };
        let mut components = ByPlace::default();
        let mut deployments = parsed.deployments(settings);
        for step in parsed.all_steps() {
            let planned = plan.add_step(step, parsed, definitions, &mut deployments, &mut components);
            planned.map_err(|message| {
                let (application, step) = (application.name_any(), &step.name);
                Error::Failed(format!("Application {application}: step {step}: {message}"))
            })?;
        }
        plan.components = components.into_vec();
        Ok(plan)
    }

    fn add_step(
        &mut self,
        step: &WorkflowStep,
        parsed: &Parsed,
        definitions: &Definitions<'_>,
        deployments: &mut Deployments<'_>,
        components: &mut ByPlace<PlannedComponent>,
    ) -> Result<(), String> {
        let step = component_step(step, &parsed.spec.components).map_err(|error| error.to_string())?;
        let placed = deployments.of(&step).map_err(|error| error.to_string())?;
        for instance in placed {
            let has_inputs = !step.inputs.is_empty() || !instance.component.inputs.is_empty();
            let planned = PlannedComponent::new(&instance, has_inputs, parsed, definitions)?;
            components.insert(instance.component.name.clone(), instance.place, planned);
        }
        let has_template = !is_apply_component(&step) && !deploys_many(&step) && !NATIVE.contains(&step.type_.as_str());
        if has_template {
            self.steps.push(format!("{} ({})", step.name, step.type_));
        }
        Ok(())
    }

    /// Returns a line for each part that is not known before the run.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let with_inputs = self.components.iter().filter(|planned| planned.has_inputs);
        let inputs = with_inputs.map(|planned| format!("{planned}: values of its inputs are known at run time only"));
        let steps = self.steps.iter();
        let steps = steps.map(|step| format!("objects made by step {step} at run time"));
        let clusters = self.cluster_selections.iter();
        let clusters =
            clusters.map(|place| format!("{place}: joined clusters are not looked up, only the local one is shown"));
        inputs.chain(steps).chain(clusters)
    }

    /// Returns true for an object that the run may apply again, although it is not rendered.
    pub fn may_apply(&self, entry: &ManagedResource) -> bool {
        entry.component.is_empty() && !self.steps.is_empty()
    }
}

impl PlannedComponent {
    fn new(
        placed: &PlacedComponent,
        has_inputs: bool,
        parsed: &Parsed,
        definitions: &Definitions<'_>,
    ) -> Result<Self, String> {
        let component = parsed.resolve(&placed.component, definitions);
        Ok(Self {
            component: component.map_err(|error| error.to_string())?,
            place: placed.place.clone(),
            has_inputs,
        })
    }

    pub fn name(&self) -> &str {
        &self.component.component.name
    }

    /// Returns the identity of its status.
    pub fn service_key(&self, application_namespace: &str) -> [String; 4] {
        let mut service = ServiceStatus {
            name: self.name().to_owned(),
            ..ServiceStatus::default()
        };
        place_service(&mut service, &self.place, application_namespace);
        service_key(&service)
    }
}

impl std::fmt::Display for PlannedComponent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "component {}", self.name())?;
        if !self.place.replica_key.is_empty() {
            write!(f, " (replica {})", self.place.replica_key)?;
        }
        if !self.place.namespace.is_empty() {
            write!(f, " in namespace {}", self.place.namespace)?;
        }
        f.write_str(&suffix(&self.place.cluster))
    }
}

//! The components that steps deploy, with their places.

use serde_json::{Value, json};

use super::application::{ComponentsError, Parsed, ParsedComponent, parse_placed};
use super::definitions::Definitions;
use crate::api::oam::{Component, WorkflowStep};
use crate::controllers::oam::placement::{
    DeployParameters, Deployer, Place, PlacedComponent, PlacementError, PlacementSettings, RemainingParameters,
};
use crate::controllers::oam::workflow::{DEPLOY, deploys_without_policies, is_apply_component};

#[must_use]
pub fn place_of(step: &WorkflowStep) -> Place {
    let properties = step.properties.as_ref().unwrap_or(&Value::Null);
    let text = |field: &str| properties[field].as_str().unwrap_or_default().to_owned();
    Place {
        cluster: text("cluster"),
        namespace: text("namespace"),
        replica_key: String::new(),
    }
}

impl Parsed {
    /// Returns the steps, each followed by its sub-steps.
    pub fn all_steps(&self) -> impl Iterator<Item = &WorkflowStep> {
        let steps = self.workflow.steps.iter();
        steps.flat_map(|step| std::iter::once(step).chain(&step.sub_steps))
    }

    /// Returns the means to find what steps deploy, within limits for all steps together.
    #[must_use]
    pub fn deployments<'a>(&'a self, settings: PlacementSettings<'a>) -> Deployments<'a> {
        let components = self.components.iter();
        let terraform = components.filter(|component| component.definition.terraform().is_some());
        let terraform = terraform.map(|component| component.component.name.as_str()).collect();
        let deployer = Deployer::new(&self.spec.components, &self.all_policies, settings);
        Deployments(deployer.with_terraform(terraform))
    }

    /// Policies may have changed the component, or added it.
    pub fn resolve(
        &self,
        component: &Component,
        definitions: &Definitions<'_>,
    ) -> Result<ParsedComponent, ComponentsError> {
        match self.components.iter().find(|parsed| parsed.component == *component) {
            Some(parsed) => Ok(parsed.clone()),
            None => parse_placed(component, definitions),
        }
    }
}

pub struct Deployments<'a>(Deployer<'a>);

impl Deployments<'_> {
    /// Returns the components in order; none for steps of other types.
    pub fn of(&mut self, step: &WorkflowStep) -> Result<Vec<PlacedComponent>, PlacementError> {
        let none = json!({});
        let properties = step.properties.as_ref().unwrap_or(&none);
        if step.type_ == DEPLOY {
            return self.deploy(&DeployParameters::parse(properties)?);
        }
        if deploys_without_policies(step) {
            return self.0.remaining(&RemainingParameters::parse(properties)?);
        }
        let name = properties["component"].as_str();
        match name.filter(|_| is_apply_component(step)) {
            Some(name) => Ok(Vec::from_iter(self.0.component(name, place_of(step))?)),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the components of a `deploy` step.
    pub fn deploy(&mut self, parameters: &DeployParameters) -> Result<Vec<PlacedComponent>, PlacementError> {
        self.0.deployments(parameters)
    }
}

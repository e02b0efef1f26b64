//! Progress of a `deploy` step: which components may be applied, by the health of their dependencies.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::PlacedComponent;
use crate::controllers::oam::workflow::{InputValue, InputsTooLarge, copy_inputs};
use crate::text;

/// Cluster, namespace and replica.
type PlaceKey<'a> = (&'a str, &'a str, &'a str);

#[derive(Clone, Debug, PartialEq)]
pub enum PlacementCheck {
    Healthy {
        /// Values of the component's outputs, or the reason why a value is missing.
        outputs: Result<Vec<(String, Value)>, String>,
    },
    Unhealthy,
    /// The cluster can't be reached. The component waits for it.
    Unreachable,
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    Healthy,
    Unhealthy,
    /// The cluster can't be reached, with the reason.
    Unreachable(String),
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeployEnd {
    Succeeded,
    Waiting(String),
    Failed(String),
}

/// The known health of a step's components. All are checked first: a healthy component is not applied again.
///
/// A component depends on others, and takes their values, at its own place only: on its replica there, or on a
/// component without replicas.
pub struct PlacementProgress<'a> {
    components: &'a [PlacedComponent],
    is_checked: Vec<bool>,
    healthy: HashSet<(PlaceKey<'a>, &'a str)>,
    outputs: HashMap<PlaceKey<'a>, HashMap<String, Value>>,
    errors: Vec<String>,
}

impl<'a> PlacementProgress<'a> {
    #[must_use]
    pub fn new(components: &'a [PlacedComponent]) -> Self {
        Self {
            components,
            is_checked: vec![false; components.len()],
            healthy: HashSet::new(),
            outputs: HashMap::new(),
            errors: Vec::new(),
        }
    }

    /// Returns the components to check next. When there are none, the rest waits for what is to apply.
    #[must_use]
    pub fn next_checks(&self) -> Vec<usize> {
        let unchecked = self.components.iter().zip(&self.is_checked).enumerate();
        let ready = unchecked.filter(|(_, (component, is_checked))| !**is_checked && self.is_ready(component));
        ready.map(|(index, _)| index).collect()
    }

    pub fn record(&mut self, index: usize, check: PlacementCheck) {
        let (Some(component), Some(is_checked)) = (self.components.get(index), self.is_checked.get_mut(index)) else {
            return;
        };
        *is_checked = true;
        let place = place_key(component);
        let error = match check {
            PlacementCheck::Unhealthy | PlacementCheck::Unreachable => None,
            PlacementCheck::Failed(error) => Some(error),
            PlacementCheck::Healthy { outputs } => {
                self.healthy.insert((place, component.component.name.as_str()));
                match outputs {
                    Ok(values) => {
                        self.outputs.entry(place).or_default().extend(values);
                        None
                    }
                    Err(error) => Some(error),
                }
            }
        };
        let error = error.map(|error| format!("error health check from {}: {error}", component.key()));
        self.errors.extend(error);
    }

    /// Returns values with the paths to set in the component.
    pub fn inputs(&self, index: usize) -> Result<Vec<(String, Value)>, InputsTooLarge> {
        let Some(component) = self.components.get(index) else {
            return Ok(Vec::new());
        };
        let inputs = component.component.inputs.iter();
        copy_inputs(inputs.filter_map(|input| {
            let value = InputValue::Value(self.value(component, &input.from)?);
            Some((format!("properties.{}", input.parameter_key.trim()), value))
        }))
    }

    /// Returns the components to apply, which are not healthy and wait for nothing.
    #[must_use]
    pub fn to_apply(&self) -> Vec<usize> {
        let components = self.components.iter().enumerate();
        let ready = components.filter(|(_, one)| !self.is_healthy(one) && self.is_ready(one));
        ready.map(|(index, _)| index).collect()
    }

    /// Returns true if a component that is not healthy waits for another.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        let mut components = self.components.iter();
        components.any(|one| !self.is_healthy(one) && !self.is_ready(one))
    }

    #[must_use]
    pub fn finish(mut self, applied: Vec<(usize, Applied)>) -> DeployEnd {
        let mut reasons = Vec::new();
        for (index, applied) in applied {
            let Some(component) = self.components.get(index) else {
                continue;
            };
            match applied {
                Applied::Healthy => {}
                Applied::Unhealthy => reasons.push(format!("{} is not healthy", component.key())),
                // As often as it takes: a failed step would be given up after some attempts.
                Applied::Unreachable(problem) => {
                    reasons.push(format!("{} is not deployed: {problem}", component.key()));
                }
                Applied::Failed(error) => {
                    let cluster = &component.place.cluster;
                    self.errors
                        .push(format!("error encountered in cluster {cluster}: {error}"));
                }
            }
        }
        let components = self.components.iter();
        let waiting = components.filter(|one| !self.is_healthy(one) && !self.is_ready(one));
        reasons.extend(waiting.map(|component| format!("{} is waiting dependents", component.key())));
        if !self.errors.is_empty() {
            let errors = self.errors.join("), (");
            let message = format!("Found {} errors. [({errors})]", self.errors.len());
            return DeployEnd::Failed(text::sanitize(&message));
        }
        if reasons.is_empty() {
            DeployEnd::Succeeded
        } else {
            DeployEnd::Waiting(text::sanitize(&reasons.join(",")))
        }
    }

    fn is_healthy(&self, component: &PlacedComponent) -> bool {
        let name = component.component.name.as_str();
        self.healthy.contains(&(place_key(component), name))
    }

    fn is_ready(&self, component: &PlacedComponent) -> bool {
        let places = places(component);
        let is_healthy = |name: &String| {
            places
                .iter()
                .any(|place| self.healthy.contains(&(*place, name.as_str())))
        };
        component.component.depends_on.iter().all(is_healthy)
            && component
                .component
                .inputs
                .iter()
                .all(|input| self.value(component, &input.from).is_some())
    }

    fn value<'s>(&'s self, component: &'s PlacedComponent, name: &str) -> Option<&'s Value> {
        let places = places(component);
        places.iter().find_map(|place| self.outputs.get(place)?.get(name))
    }
}

fn place_key(component: &PlacedComponent) -> PlaceKey<'_> {
    let place = &component.place;
    (&place.cluster, &place.namespace, &place.replica_key)
}

/// Returns where a component finds what it depends on, its own place first.
fn places(component: &PlacedComponent) -> [PlaceKey<'_>; 2] {
    let place = place_key(component);
    [place, (place.0, place.1, "")]
}

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::limits::{PlacementUsage, check_limit, json_bytes};
use super::replication::Replica;
use super::{Place, PlacedComponent, PlacementError, overrides, replication, topology};
use crate::api::lenient::list;
use crate::api::oam::{AppPolicy, Component};
use crate::controllers::oam::clusters::JoinedCluster;
use crate::text;

const MAX_POLICIES: usize = 100;

/// Parameters of `multicluster.#Deploy`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeployParameters {
    #[serde(deserialize_with = "list")]
    pub policies: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub inline_policies: Vec<AppPolicy>,
    pub parallelism: Parallelism,
    /// Unless it is false, Terraform components are left out.
    ignore_terraform_component: Option<bool>,
}

/// Number of components that are applied at the same time; 5 unless the step says otherwise, as in KubeVela.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Option<i64>")]
pub struct Parallelism(i64);

impl Default for Parallelism {
    fn default() -> Self {
        Self(5)
    }
}

impl From<Option<i64>> for Parallelism {
    fn from(number: Option<i64>) -> Self {
        number.map_or_else(Self::default, Self)
    }
}

impl Parallelism {
    #[must_use]
    pub fn get(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl DeployParameters {
    /// Fails if types are wrong, or nothing may be deployed at once.
    pub fn parse(parameters: &Value) -> Result<Self, PlacementError> {
        let decoded: Self = decode(parameters)?;
        match decoded.parallelism {
            Parallelism(..1) => Err(PlacementError::Parallelism),
            Parallelism(_) => Ok(decoded),
        }
    }
}

/// Parameters of `op.#ApplyRemaining`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RemainingParameters {
    #[serde(deserialize_with = "list")]
    exceptions: Vec<String>,
}

impl RemainingParameters {
    /// Fails if types are wrong.
    pub fn parse(parameters: &Value) -> Result<Self, PlacementError> {
        decode(parameters)
    }
}

fn decode<T: DeserializeOwned>(parameters: &Value) -> Result<T, PlacementError> {
    serde_path_to_error::deserialize(parameters)
        .map_err(|error| PlacementError::InvalidParameters(text::sanitize(&error.to_string())))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementSettings<'a> {
    pub namespace: &'a str,
    pub allow_cross_namespace: bool,
    /// Overrides change all components whose name contains theirs, as in KubeVela.
    pub unanchored_overrides: bool,
    /// The joined clusters by name, or the reason why they are not known.
    pub clusters: Result<&'a [JoinedCluster], &'a str>,
    /// Each name that a topology has counts as a cluster.
    pub accepts_any_cluster: bool,
}

impl<'a> PlacementSettings<'a> {
    /// Returns settings that allow everything, to count what would be placed.
    #[must_use]
    pub const fn permissive(clusters: Result<&'a [JoinedCluster], &'a str>) -> Self {
        Self {
            namespace: "",
            allow_cross_namespace: true,
            unanchored_overrides: false,
            clusters,
            accepts_any_cluster: true,
        }
    }
}

/// Components keep their order, each with all its placements. `policies` are the policies of the application, then
/// external policies that its workflow names.
pub fn deployments(
    components: &[Component],
    policies: &[AppPolicy],
    step: &DeployParameters,
    settings: &PlacementSettings<'_>,
) -> Result<Vec<PlacedComponent>, PlacementError> {
    Deployer::new(components, policies, *settings).deployments(step)
}

/// Finds what the steps of an application deploy, within limits for all of them together.
pub struct Deployer<'a> {
    components: Vec<Arc<Component>>,
    terraform: HashSet<&'a str>,
    policies: HashMap<&'a str, &'a AppPolicy>,
    settings: PlacementSettings<'a>,
    usage: PlacementUsage,
}

impl<'a> Deployer<'a> {
    #[must_use]
    pub fn new(components: &[Component], policies: &'a [AppPolicy], settings: PlacementSettings<'a>) -> Self {
        Self {
            components: components.iter().cloned().map(Arc::new).collect(),
            terraform: HashSet::new(),
            // Of two policies with one name, KubeVela takes the later.
            policies: policies.iter().map(|policy| (policy.name.as_str(), policy)).collect(),
            settings,
            usage: PlacementUsage::default(),
        }
    }

    /// Names the Terraform components.
    #[must_use]
    pub fn with_terraform(self, terraform: HashSet<&'a str>) -> Self {
        Self { terraform, ..self }
    }

    pub fn deployments(&mut self, step: &DeployParameters) -> Result<Vec<PlacedComponent>, PlacementError> {
        let policies = self.select_policies(step)?;
        let placements = topology::placements(&policies, &self.settings)?;
        let mut components = self.components.clone();
        // As in KubeVela, before overrides, which may add some.
        if step.ignore_terraform_component != Some(false) {
            components.retain(|component| !self.terraform.contains(component.name.as_str()));
        }
        let components = overrides::apply(&policies, components, &self.settings, &mut self.usage)?;
        let replicas = replication::replicate(&policies, components)?;
        self.usage.add_placed(replicas.len().saturating_mul(placements.len()))?;
        add_bytes(&mut self.usage, &replicas, placements.len())?;
        let placed = replicas.iter().flat_map(|(component, replica_key)| {
            placements.iter().map(move |placement| PlacedComponent {
                component: Arc::clone(component),
                place: Place {
                    cluster: placement.cluster.clone(),
                    namespace: placement.namespace.clone(),
                    replica_key: replica_key.clone(),
                },
            })
        });
        Ok(placed.collect())
    }

    pub fn component(&mut self, name: &str, place: Place) -> Result<Option<PlacedComponent>, PlacementError> {
        let Some(component) = self.components.iter().find(|component| component.name == name) else {
            return Ok(None);
        };
        self.usage.add_placed(1)?;
        self.usage.add_bytes(json_bytes(&**component))?;
        Ok(Some(PlacedComponent {
            component: Arc::clone(component),
            place,
        }))
    }

    /// Returns the components but for the exceptions, in the namespace of the application.
    pub fn remaining(&mut self, parameters: &RemainingParameters) -> Result<Vec<PlacedComponent>, PlacementError> {
        let exceptions: HashSet<&str> = parameters.exceptions.iter().map(String::as_str).collect();
        let is_remaining = |component: &&Arc<Component>| !exceptions.contains(component.name.as_str());
        let components: Vec<_> = self.components.iter().filter(is_remaining).cloned().collect();
        self.usage.add_placed(components.len())?;
        let place = |component: Arc<Component>| {
            self.usage.add_bytes(json_bytes(&*component))?;
            Ok(PlacedComponent {
                component,
                place: Place::default(),
            })
        };
        components.into_iter().map(place).collect()
    }

    /// Returns the policies that a step names, then its inline policies.
    fn select_policies<'s>(&mut self, step: &'s DeployParameters) -> Result<Vec<Cow<'s, AppPolicy>>, PlacementError>
    where
        'a: 's,
    {
        let count = step.policies.len() + step.inline_policies.len();
        check_limit(count, "policies", MAX_POLICIES)?;
        let mut selected = Vec::new();
        for name in &step.policies {
            let policy = self.policies.get(name.as_str()).copied();
            let policy = policy.ok_or_else(|| PlacementError::PolicyNotFound(name.clone()))?;
            // Each step decodes it again.
            self.usage.add_bytes(json_bytes(&policy.properties))?;
            selected.push(Cow::Borrowed(policy));
        }
        for (index, policy) in step.inline_policies.iter().enumerate() {
            let mut policy = Cow::Borrowed(policy);
            if policy.name.is_empty() {
                policy.to_mut().name = format!("inline-{}-policy-{index}", policy.type_);
            }
            selected.push(policy);
        }
        Ok(selected)
    }
}

/// Counts the size of components at their placements: each is rendered there.
fn add_bytes(usage: &mut PlacementUsage, replicas: &[Replica], placements: usize) -> Result<(), PlacementError> {
    let mut last: Option<(&Arc<Component>, usize)> = None;
    for (component, _) in replicas.iter().filter(|_| placements > 0) {
        // Replicas of one component follow each other.
        let counted = last.filter(|(last, _)| Arc::ptr_eq(last, component));
        let (_, bytes) = *last.insert(counted.unwrap_or_else(|| (component, json_bytes(&**component))));
        usage.add_bytes(bytes.saturating_mul(placements))?;
    }
    Ok(())
}

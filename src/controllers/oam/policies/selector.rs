use serde::Deserialize;
use serde_json::Value;

use crate::api::lenient;
use crate::api::oam::labels;

/// The parts of a rendered object that rules select by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyTarget<'a> {
    pub component: &'a str,
    pub component_type: &'a str,
    /// `WORKLOAD` or `TRAIT`.
    pub oam_type: &'a str,
    pub trait_type: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
}

impl<'a> PolicyTarget<'a> {
    /// Reads the labels, kind and name of a manifest. Absent fields are empty, and match nothing.
    #[must_use]
    pub fn of(manifest: &'a Value) -> Self {
        let metadata = &manifest["metadata"];
        let label = |name: &str| metadata["labels"][name].as_str().unwrap_or_default();
        Self {
            component: label(labels::COMPONENT),
            component_type: label(labels::WORKLOAD_TYPE),
            oam_type: label(labels::RESOURCE_TYPE),
            trait_type: label(labels::TRAIT_TYPE),
            kind: manifest["kind"].as_str().unwrap_or_default(),
            name: metadata["name"].as_str().unwrap_or_default(),
        }
    }
}

/// A selector of objects: a value of each list must match. Without any list, nothing matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    #[serde(deserialize_with = "lenient::list")]
    pub component_names: Vec<String>,
    #[serde(deserialize_with = "lenient::list")]
    pub component_types: Vec<String>,
    #[serde(deserialize_with = "lenient::list")]
    pub oam_types: Vec<String>,
    #[serde(deserialize_with = "lenient::list")]
    pub trait_types: Vec<String>,
    /// Kinds.
    #[serde(deserialize_with = "lenient::list")]
    pub resource_types: Vec<String>,
    #[serde(deserialize_with = "lenient::list")]
    pub resource_names: Vec<String>,
}

impl Selector {
    #[must_use]
    pub fn matches(&self, target: &PolicyTarget<'_>) -> bool {
        let conditions = [
            (&self.component_names, target.component),
            (&self.component_types, target.component_type),
            (&self.oam_types, target.oam_type),
            (&self.trait_types, target.trait_type),
            (&self.resource_types, target.kind),
            (&self.resource_names, target.name),
        ];
        let mut conditions = conditions.iter().filter(|(values, _)| !values.is_empty()).peekable();
        conditions.peek().is_some()
            && conditions.all(|(values, value)| !value.is_empty() && values.iter().any(|one| one == value))
    }
}

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::OverrideError;
use super::limits::{PlacementUsage, check_limit, json_bytes};
use super::pattern::{NamePattern, is_exact};
use super::properties::decode;
use super::{PlacementError, PlacementSettings};
use crate::api::lenient::{list, null_as_default};
use crate::api::oam::{AppPolicy, Component, Trait};
use crate::controllers::oam::policies::OVERRIDE;

/// Maximum number of components of a step, as of an application.
pub(super) const MAX_COMPONENTS: usize = 1_000;
/// Maximum number of changes in all overrides of a step. Each is compared with all components.
const MAX_CHANGES: usize = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Override {
    #[serde(deserialize_with = "list")]
    components: Vec<ComponentChange>,
    /// An empty list keeps nothing, unlike an absent list.
    selector: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ComponentChange {
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    type_: String,
    #[serde(deserialize_with = "null_as_default")]
    properties: Map<String, Value>,
    #[serde(deserialize_with = "list")]
    traits: Vec<TraitChange>,
    #[serde(deserialize_with = "null_as_default")]
    external_revision: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct TraitChange {
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    type_: String,
    properties: Option<Map<String, Value>>,
    #[serde(deserialize_with = "null_as_default")]
    disable: bool,
}

pub(super) fn apply(
    policies: &[Cow<'_, AppPolicy>],
    components: Vec<Arc<Component>>,
    settings: &PlacementSettings<'_>,
    usage: &mut PlacementUsage,
) -> Result<Vec<Arc<Component>>, PlacementError> {
    let mut overrides = Vec::new();
    for policy in policies.iter().filter(|policy| policy.type_ == OVERRIDE) {
        overrides.push((policy, decode::<Override>(policy, OVERRIDE)?));
    }
    let changes = overrides.iter().map(|(_, override_)| override_.components.len()).sum();
    check_limit(changes, "changes of components", MAX_CHANGES)?;
    let mut changed = ChangedComponents {
        components,
        usage,
        is_unanchored: settings.unanchored_overrides,
    };
    for (policy, override_) in overrides {
        for change in &override_.components {
            changed.apply(policy, change)?;
        }
        if let Some(selector) = override_.selector {
            let selected: HashSet<String> = selector.into_iter().collect();
            changed
                .components
                .retain(|component| selected.contains(&component.name));
        }
    }
    Ok(changed.components)
}

struct ChangedComponents<'u> {
    components: Vec<Arc<Component>>,
    usage: &'u mut PlacementUsage,
    is_unanchored: bool,
}

impl ChangedComponents<'_> {
    fn apply(&mut self, policy: &AppPolicy, change: &ComponentChange) -> Result<(), PlacementError> {
        let failed = |cause| PlacementError::Override {
            policy: policy.name.clone(),
            cause,
        };
        self.usage.add_comparisons(self.components.len())?;
        let selected = self.select(change).map_err(failed)?;
        // A selector may drop the components later, but the work is done.
        self.usage
            .add_bytes(json_bytes(change).saturating_mul(selected.len()))?;
        if selected.is_empty() && is_exact(&change.name, self.is_unanchored) {
            if change.type_.is_empty() {
                return Err(failed(OverrideError::ComponentNotFound(change.name.clone())));
            }
            check_limit(self.components.len() + 1, "components", MAX_COMPONENTS)?;
            self.components.push(Arc::new(change.component(&change.name)));
        }
        for index in selected {
            if let Some(component) = self.components.get_mut(index) {
                if Arc::get_mut(component).is_none() {
                    self.usage.add_bytes(json_bytes(&**component))?;
                }
                change.apply(Arc::make_mut(component)).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn select(&self, change: &ComponentChange) -> Result<Vec<usize>, OverrideError> {
        let pattern = NamePattern::new(&change.name, self.is_unanchored)?;
        let is_selected = |component: &Component| {
            if change.name.is_empty() {
                change.type_.is_empty() || change.type_ == component.type_
            } else {
                pattern.matches(&component.name)
            }
        };
        let components = self.components.iter().enumerate();
        let selected = components.filter(|(_, component)| is_selected(component));
        Ok(selected.map(|(index, _)| index).collect())
    }
}

impl ComponentChange {
    /// Changes a component. A component of another type is replaced, and loses its dependencies, inputs and outputs.
    fn apply(&self, component: &mut Component) -> Result<(), OverrideError> {
        if !self.type_.is_empty() && self.type_ != component.type_ {
            *component = self.component(&component.name);
            return Ok(());
        }
        if !self.external_revision.is_empty() {
            component.external_revision.clone_from(&self.external_revision);
        }
        let Some(properties) = object(&mut component.properties) else {
            return Err(OverrideError::Properties(component.name.clone()));
        };
        merge(properties, &self.properties);
        for change in &self.traits {
            change.apply(component)?;
        }
        Ok(())
    }

    fn component(&self, name: &str) -> Component {
        let mut component = Component {
            name: name.to_owned(),
            type_: self.type_.clone(),
            properties: Some(Value::Object(self.properties.clone())),
            ..Component::default()
        };
        let traits = self.traits.iter().filter(|change| !change.disable);
        component.traits = traits.map(TraitChange::to_trait).collect();
        component
    }
}

impl TraitChange {
    /// Changes the traits of the same type, or else adds a trait.
    fn apply(&self, component: &mut Component) -> Result<(), OverrideError> {
        if self.disable {
            component.traits.retain(|trait_| trait_.type_ != self.type_);
            return Ok(());
        }
        let mut is_new = true;
        for trait_ in component.traits.iter_mut().filter(|trait_| trait_.type_ == self.type_) {
            is_new = false;
            let Some(properties) = object(&mut trait_.properties) else {
                return Err(OverrideError::TraitProperties {
                    component: component.name.clone(),
                    type_: self.type_.clone(),
                });
            };
            if let Some(changes) = &self.properties {
                merge(properties, changes);
            }
        }
        if is_new {
            component.traits.push(self.to_trait());
        }
        Ok(())
    }

    fn to_trait(&self) -> Trait {
        Trait {
            type_: self.type_.clone(),
            properties: self.properties.clone().map(Value::Object),
            ..Trait::default()
        }
    }
}

/// Returns the fields of properties. Absent properties become an empty object.
fn object(properties: &mut Option<Value>) -> Option<&mut Map<String, Value>> {
    let properties = properties.get_or_insert(Value::Null);
    if properties.is_null() {
        *properties = Value::Object(Map::new());
    }
    properties.as_object_mut()
}

/// Merges objects field by field. Other values, lists too, are replaced.
fn merge(base: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (key, change) in changes {
        match (base.get_mut(key), change) {
            (Some(Value::Object(base)), Value::Object(changes)) => merge(base, changes),
            (Some(base), change) => base.clone_from(change),
            (None, change) => {
                base.insert(key.clone(), change.clone());
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamedType {
    Component(String),
    Trait(String),
}

/// Returns the types that an override names. Invalid properties name none; the step that uses them fails.
#[must_use]
pub fn override_types(properties: &Value) -> BTreeSet<NamedType> {
    let mut types = BTreeSet::new();
    let type_ = |value: &Value| {
        value["type"]
            .as_str()
            .filter(|type_| !type_.is_empty())
            .map(str::to_owned)
    };
    for component in properties["components"].as_array().into_iter().flatten() {
        types.extend(type_(component).map(NamedType::Component));
        let traits = component["traits"].as_array().into_iter().flatten();
        types.extend(traits.filter_map(type_).map(NamedType::Trait));
    }
    types
}

use std::sync::Arc;

use super::definitions::{DefinitionError, Definitions, Workload};
use super::policies::PoliciesError;
use crate::api::oam::{AppPolicy, TraitDefinition};
use crate::controllers::oam::placement::{NamedType, override_types};
use crate::controllers::oam::policies::OVERRIDE;

/// Recorded by the revision, so that what a step adds doesn't change with its definition.
#[derive(Clone, Debug, Default)]
pub struct OverrideDefinitions {
    pub components: Vec<(String, Workload)>,
    pub traits: Vec<(String, Arc<TraitDefinition>)>,
}

pub(super) fn parse_overrides(
    policies: &[AppPolicy],
    definitions: &Definitions<'_>,
) -> Result<OverrideDefinitions, PoliciesError> {
    let mut overrides = OverrideDefinitions::default();
    for policy in policies.iter().filter(|policy| policy.type_ == OVERRIDE) {
        let properties = policy.properties.iter();
        for named in properties.flat_map(override_types) {
            // What a published revision lacks comes from the cluster, once a step needs it.
            if let Err(cause) = overrides.add(&named, definitions)
                && !definitions.is_frozen()
            {
                return Err(not_found(&named, policy, cause));
            }
        }
    }
    Ok(overrides)
}

impl OverrideDefinitions {
    fn add(&mut self, named: &NamedType, definitions: &Definitions<'_>) -> Result<(), DefinitionError> {
        match named {
            NamedType::Component(type_) if self.components.iter().all(|(added, _)| added != type_) => {
                self.components.push((type_.clone(), definitions.component(type_)?));
            }
            NamedType::Trait(type_) if self.traits.iter().all(|(added, _)| added != type_) => {
                self.traits.push((type_.clone(), definitions.trait_(type_)?));
            }
            NamedType::Component(_) | NamedType::Trait(_) => {}
        }
        Ok(())
    }
}

fn not_found(named: &NamedType, policy: &AppPolicy, cause: DefinitionError) -> PoliciesError {
    let (kind, type_) = match named {
        NamedType::Component(type_) => ("component", type_),
        NamedType::Trait(type_) => ("trait", type_),
    };
    PoliciesError::Override {
        kind,
        type_: type_.clone(),
        policy: policy.name.clone(),
        cause: Box::new(cause),
    }
}

//! KubeVela's group `core.oam.dev`. Unknown fields of specs are kept, because revisions record them. An invalid status
//! never fails its object.

mod application;
pub mod compression;
mod crds;
mod definition;
mod definition_revision;
mod external;
pub mod labels;
mod revision;
mod schema;
mod status;
#[cfg(test)]
mod tests;
mod tracker;
mod workflow;

pub use application::{AppPolicy, Application, ApplicationSpec, Component, Trait};
pub use crds::crds;
pub use definition::{
    ComponentDefinition, ComponentDefinitionSpec, Cue, Definition, DefinitionKind, DefinitionReference,
    DefinitionStatus, PolicyDefinition, PolicyDefinitionSpec, Schematic, StatusTemplates, TraitDefinition,
    TraitDefinitionSpec, WorkflowStepDefinition, WorkflowStepDefinitionSpec, WorkloadDefinition,
    WorkloadDefinitionSpec, WorkloadDescriptor, WorkloadKind,
};
pub use definition_revision::{DefinitionRevision, DefinitionRevisionSpec};
pub use external::{Policy, PolicyFields, Workflow, WorkflowFields};
pub use revision::{ApplicationRevision, ApplicationRevisionSpec, ApplicationRevisionStatus};
pub use status::{
    ApplicationStatus, AppliedResource, Condition, LatestRevision, PARSED, ServiceStatus, StepStatus, TraitStatus,
    WorkflowStatus,
};
pub use tracker::{ManagedResource, RawManifest, ResourceTracker, ResourceTrackerSpec};
pub use workflow::{StepInput, StepMeta, StepOutput, WorkflowMode, WorkflowSource, WorkflowStep};

pub const GROUP: &str = "core.oam.dev";

/// For a type with `#[serde(remote = "Self")]`: null and an absent field decode as the default.
macro_rules! absent_as_default {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                // Calls the inherent function that the remote derive generates, not the trait's.
                Self::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Wrapper($type);

                impl<'de> serde::Deserialize<'de> for Wrapper {
                    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        $type::deserialize(deserializer).map(Wrapper)
                    }
                }

                // serde treats an absent optional field as null.
                let spec = <Option<Wrapper> as serde::Deserialize>::deserialize(deserializer)?;
                Ok(spec.map(|Wrapper(spec)| spec).unwrap_or_default())
            }
        }
    };
}
use absent_as_default;

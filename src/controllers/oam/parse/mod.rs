//! Parses an Application: components, policies and steps. Pure: definitions come from a [`Lookup`] or a revision.

mod application;
mod definitions;
mod lookup;
mod overrides;
mod placed;
mod policies;
mod remote;
mod steps;
mod strict;
#[cfg(test)]
pub mod tests;
mod type_name;
mod unsupported;

pub use application::{ComponentsError, ParseError, Parsed, ParsedComponent, ParsedTrait, parse};
pub use definitions::{Definitions, Workload};
pub use lookup::Lookup;
pub use overrides::OverrideDefinitions;
pub use placed::{Deployments, place_of};
pub use policies::ParsedPolicy;
pub use remote::cluster_selections;
pub use steps::{ParsedWorkflow, component_step, is_built_in_step, workflow_steps};
pub use strict::strict_violations;
pub use type_name::{TypeName, type_label};
pub use unsupported::{
    FUNCTIONS, Unsupported, calls_functions, release_of, unsupported_application, unsupported_definitions,
    unsupported_import, unsupported_overrides, unsupported_trackers,
};

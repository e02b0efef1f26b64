//! From an Application to parsed components, policies and steps with their definitions.
//!
//! Pure: definitions come from a [`Lookup`], or from a revision.

mod application;
mod definitions;
mod lookup;
mod policies;
mod steps;
mod strict;
#[cfg(test)]
mod tests;
mod type_name;
mod unsupported;

pub use application::{ParseError, Parsed, ParsedComponent, ParsedTrait, parse};
pub use definitions::{Definitions, Workload};
pub use lookup::Lookup;
pub use policies::ParsedPolicy;
pub use steps::{APPLY_COMPONENT, ParsedWorkflow, component_step};
pub use strict::strict_violations;
pub use type_name::{TypeName, type_label};
pub use unsupported::{Unsupported, unsupported_application, unsupported_definitions, unsupported_trackers};

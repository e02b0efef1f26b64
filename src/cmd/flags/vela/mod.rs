//! Flags of KubeVela's controller, so that its Deployment's arguments work unchanged.
//!
//! Its chart has changed flags with every release. Therefore a flag or feature gate that is unknown is a warning, and
//! these flags are separated from those of `portolan run`, which fails on unknown flags.

mod arguments;
mod flags;
mod gates;
mod inert;
mod table;
#[cfg(test)]
mod tests;
mod to_options;
mod values;
mod webhooks;

pub use arguments::{Arity, Extracted, extract, find};
pub use flags::VelaFlags;
pub use gates::{FeatureGates, Gate};
pub use inert::FlagEffect;
pub use table::{FlagEntry, flag_entries, gate_entries};
pub use values::{Bytes, NameList};

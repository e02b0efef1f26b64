//! Flags of KubeVela's controller, so that its Deployment's arguments work unchanged.
//!
//! Its chart has changed flags with every release. Therefore a flag or feature gate that is unknown is a warning, and
//! these flags are parsed before those of `portolan run`, which fails on unknown flags.

mod arguments;
mod effects;
mod gates;
mod options;
#[cfg(test)]
mod tests;
mod to_options;
mod words;

pub use arguments::{Arity, Extracted, extract};
pub use gates::{FeatureGates, Gate};
pub use options::{Bytes, OamFlags};

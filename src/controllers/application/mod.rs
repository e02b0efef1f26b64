//! Aggregates the readiness of components and sets owner references. Condition types, reasons, messages, readiness
//! rules and owner references are compatible with kubernetes-sigs/application. The README lists the differences.

pub mod cached;
pub mod components;
pub mod event_handler;
pub mod index;
pub mod kinds;
pub mod metrics;
pub mod owners;
pub mod readiness;
pub mod reconciler;
mod report;
pub mod selector;
mod setup;
pub mod spec;
pub mod status;

pub use setup::{Options, setup};

pub const NAME: &str = "application";

#[cfg(test)]
mod tests;

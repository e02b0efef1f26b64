//! Applications of `app.k8s.io/v1beta1`: the objects that belong to an Application, and how ready they are together.
//!
//! What is compatible is kubernetes-sigs/application's controller: its condition types, reasons and texts, its readiness
//! rules, and its owner references. Where Portolan differs, the README says so.

//!
//! ```text
//!  Application ──EventHandler──► Index, WatchManager::need          component changes ──ComponentEventHandler──► Index: whom it concerns
//!                    └────► queue ◄───────────────────────────────────────────────┘
//!                             │
//!                         Reconciler: judge ──► assess ──► status, event
//!                             └──► adopt: owner references
//! ```

pub mod cached;
pub mod components;
pub mod event_handler;
pub mod index;
pub mod metrics;
pub mod owner_apply;
pub mod owner_plan;
pub mod readiness;
pub mod reconciler;
mod report;
pub mod selector;
mod setup;
pub mod spec;
pub mod status;

pub use setup::{Options, setup};

/// The name of the controller, and of its class of keys.
pub const NAME: &str = "application";

#[cfg(test)]
mod tests;

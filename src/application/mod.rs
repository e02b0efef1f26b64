//! Applications of `app.k8s.io/v1beta1`: the objects that belong to an Application, and how ready they are together.
//!
//! What is compatible is kubernetes-sigs/application's controller: its condition types, reasons and texts, its readiness
//! rules, and its owner references. Where Portolan differs, the README says so.

//!
//! ```text
//!  Application ──Trigger──► Index, Watches::need          component changes ──ComponentTrigger──► Index: whom it concerns
//!                    └────► queue ◄───────────────────────────────────────────────┘
//!                             │
//!                         Reconciler: judge ──► assess ──► status, event
//!                             └──► adopt: owner references
//! ```

pub mod adopt;
pub mod assess;
pub mod components;
pub mod declared;
pub mod index;
pub mod judge;
pub mod known;
pub mod metrics;
pub mod ownership;
pub mod reconciler;
mod report;
pub mod select;
pub mod trigger;

#[cfg(test)]
mod tests;

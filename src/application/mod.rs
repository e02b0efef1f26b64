//! Applications of `app.k8s.io/v1beta1`: the objects that belong to an Application, and how ready they are together.
//!
//! What is compatible is kubernetes-sigs/application's controller: its condition types, reasons and texts, its readiness
//! rules, and its owner references. Where Portolan differs, the README says so.

pub mod judge;

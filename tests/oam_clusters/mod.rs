//! Applications that deploy to clusters joined to the controller's own: two or three real control planes side by side.
//!
//! All tests share the control planes. Each has a namespace of the same name in each of them, a namespace for its
//! definitions and the Secrets of its clusters, and a process.

mod contexts;
mod crash;
mod credentials;
mod drift;
pub mod fleet;
mod gateway;
mod health;
mod hostile;
mod identity;
mod isolation;
mod joining;
mod placement;
mod policies;
mod removal;
mod rest;
mod steps;
mod topology;
mod versions;

//! The webhooks of Applications and definitions, called by a real API server.
//!
//! It reaches them by a Service of the type ExternalName, and calls them for the namespace of their test only.

mod applications;
mod certificates;
mod definitions;
mod faults;
mod hostile;
mod identity;
pub mod site;

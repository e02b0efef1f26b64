//! The start of the controller: its parts, and what it needs of the cluster and of this process.

pub mod authentication;
pub mod prerequisites;
mod setup;
pub mod webhooks;

pub use setup::{ProcessParts, setup};

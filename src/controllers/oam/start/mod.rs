//! The start of the controller: its options and parts, and what it needs of the cluster and of this process.

pub mod authentication;
mod options;
pub mod prerequisites;
mod setup;
pub mod webhooks;

pub use options::{ApplyOnceMode, ControllerVersions, MASTER_SHARD, Options, Shard};
pub use setup::setup;

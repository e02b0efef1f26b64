//! The controller of KubeVela's Applications.

mod cache;
pub mod collect;
pub mod definitions;
pub mod dispatch;
pub mod metrics;
pub mod objects;
mod options;
pub mod parse;
pub mod policies;
mod reconciler;
pub mod render;
pub mod revisions;
mod setup;
pub mod start;
pub mod trackers;
pub mod workflow;

pub use options::{ControllerVersions, Options, Shard};
pub use reconciler::CONFIRMED;
pub use setup::setup;

pub const NAME: &str = "oam";

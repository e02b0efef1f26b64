//! The controller of KubeVela's Applications.

mod cache;
pub mod collect;
pub mod definitions;
pub mod dispatch;
pub mod objects;
mod options;
pub mod parse;
pub mod policies;
mod reconciler;
pub mod render;
pub mod revisions;
pub mod trackers;
pub mod workflow;

pub use options::{ControllerVersions, Options, Shard};

pub const NAME: &str = "oam";

//! The controller of KubeVela's Applications.

mod cache;
pub mod clusters;
pub mod collect;
pub mod compression;
pub mod definitions;
pub mod dispatch;
pub mod functions;
pub mod metrics;
pub mod objects;
pub mod parse;
pub mod placement;
pub mod policies;
mod reconciler;
pub mod references;
pub mod render;
pub mod revisions;
pub mod rights;
pub mod start;
pub mod steps;
pub mod trackers;
pub mod workflow;

pub use reconciler::{CONFIRMED, PARSED, TRACKER_FINALIZER as APPLICATION_FINALIZER};
pub use start::{ApplyOnceMode, ControllerVersions, Options, Shard, setup};

pub const NAME: &str = "oam";

/// Number of times that a pass holds what it parses: as it was read, and as it is recorded.
const PASS_COPIES: u64 = 2;

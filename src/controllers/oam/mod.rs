//! The controller of KubeVela's Applications.

pub mod dispatch;
pub mod parse;
pub mod policies;
pub mod render;
pub mod revisions;
pub mod trackers;
pub mod workflow;

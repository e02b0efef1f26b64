//! The controller of KubeVela's Applications.

pub mod parse;
pub mod policies;
pub mod revisions;
pub mod trackers;

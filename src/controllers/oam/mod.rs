//! The controller of KubeVela's Applications.

pub mod policies;
pub mod trackers;

//! The controller of KubeVela's Applications.

pub mod trackers;

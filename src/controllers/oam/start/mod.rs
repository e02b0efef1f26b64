//! The start of the controller: what it needs of the cluster and of this process.

pub mod prerequisites;
pub mod webhooks;

//! Controller machinery that is independent of our own kinds.

pub mod events;
pub mod kube_client;

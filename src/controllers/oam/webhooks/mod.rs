//! Webhooks for Applications and definitions, at the paths of KubeVela.

pub mod applications;
pub mod review;

//! Webhooks for Applications and definitions, at the paths of KubeVela.

pub mod certificates;
pub mod review;

//! Webhooks for Applications and definitions, at the paths of KubeVela.

pub mod convert;
pub mod definitions;
pub mod review;

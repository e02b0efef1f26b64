//! Applications of KubeVela (`core.oam.dev`).

pub mod dispatch;

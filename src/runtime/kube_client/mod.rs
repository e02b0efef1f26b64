//! Calls to the Kubernetes API server.

mod call;

pub use call::{ApiError, DEADLINE, call};

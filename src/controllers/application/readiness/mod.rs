//! Readiness rules: pure functions of an object's generation, spec and status.
//!
//! The rules follow kubernetes-sigs/application with four differences, listed in the README: a Deployment with pods of
//! an old template is in progress, a load balancer may have a hostname instead of an IP, a Job is ready when it
//! completes, and malformed conditions never crash the process.

mod always;
mod claim;
mod decode;
mod disruption;
mod generic;
mod job;
mod pod;
mod select;
mod service;
mod workload;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::value::RawValue;

pub use always::AlwaysReady;
pub use claim::PersistentVolumeClaim;
pub use disruption::PodDisruptionBudget;
pub use generic::Generic;
pub use job::Job;
pub use pod::Pod;
pub use select::{Visitor, with_rule};
pub use service::Service;
pub use workload::{DaemonSet, Deployment, ReplicaSet, ReplicationController, StatefulSet};

use crate::runtime::watch::FieldSet;
use crate::text::{printable, truncate};

/// Maximum length of [`Readiness::message`] in bytes. A condition message contains many of them.
pub const MAX_MESSAGE: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentState {
    Ready,
    /// In progress or failed: the API has a single word for both.
    InProgress,
    Unknown,
}

impl fmt::Display for ComponentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "Ready",
            Self::InProgress => "InProgress",
            Self::Unknown => "Unknown",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    pub state: ComponentState,
    /// Describes the missing part or the unreadable field. Printable, at most [`MAX_MESSAGE`] bytes, none if ready.
    pub message: Option<Box<str>>,
}

impl Readiness {
    pub const READY: Self = Self {
        state: ComponentState::Ready,
        message: None,
    };

    fn with_message(state: ComponentState, message: &str) -> Self {
        // Replacing unprintable characters never makes the text longer.
        let message = printable(&truncate(message, MAX_MESSAGE));
        Self {
            state,
            message: Some(message.into()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// In progress; the text names what is missing.
    Missing(String),
    /// A field has the wrong type.
    Unreadable(String),
}

impl NotReady {
    fn missing(message: impl Into<String>) -> Self {
        Self::Missing(message.into())
    }
}

impl From<Result<(), NotReady>> for Readiness {
    fn from(checked: Result<(), NotReady>) -> Self {
        match checked {
            Ok(()) => Self::READY,
            Err(NotReady::Missing(message)) => Self::with_message(ComponentState::InProgress, &message),
            Err(NotReady::Unreadable(message)) => Self::with_message(ComponentState::Unknown, &message),
        }
    }
}

pub trait ReadinessRule: Send + Sync + 'static {
    /// The fields that [`ReadinessRule::check`] reads; others may be absent.
    const FIELDS: FieldSet;

    /// Returns the first reason for which the object is not ready. `generation` is `metadata.generation`, 0 if absent.
    /// Never panics, whatever `spec` and `status` contain.
    fn check(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady>;

    #[must_use]
    fn readiness(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Readiness {
        Self::check(generation, spec, status).into()
    }
}

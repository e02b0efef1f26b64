//! Readiness rules: how a component stands, judged by nothing but its generation, its spec and its status.
//!
//! ```text
//!  (group, kind) ──with_rule──► Rule ── READS: how much of an object is kept at all
//!                                │
//!   generation, spec, status ──judge──► Ready | InProgress, and what is missing | Unknown, and what can't be read
//! ```
//!
//! The rules are those of kubernetes-sigs/application, kind by kind, with four differences that the README lists: a
//! Deployment whose pods are not all of the new template is in progress, a load balancer may have a hostname in place of
//! an IP, a Job is ready when it is complete and not when it starts, and odd conditions end no process.

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

use crate::runtime::watch::Reads;
use crate::text::{printable, truncate};

/// The longest [`Readiness::why`] in bytes. It stands in the message of a condition next to many others.
pub const WHY_LIMIT: usize = 256;

/// How a component stands: the word that the Application's status shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentState {
    /// It is as its spec wants it.
    Ready,
    /// It is on its way, or failed: the peer has one word for both.
    InProgress,
    /// It can't be judged.
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

/// How a component stands, and why if it is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The word in the status.
    pub state: ComponentState,
    /// For people: what is missing (in progress) or what can't be read (unknown). Printable, of at most [`WHY_LIMIT`] bytes,
    /// and absent if the component is ready.
    pub why: Option<Box<str>>,
}

impl Readiness {
    /// The component is as its spec wants it.
    pub const READY: Self = Self {
        state: ComponentState::Ready,
        why: None,
    };

    fn with_reason(state: ComponentState, why: &str) -> Self {
        // What is cut stays within the limit: no character is replaced by a longer one.
        let why = printable(&truncate(why, WHY_LIMIT));
        Self {
            state,
            why: Some(why.into()),
        }
    }
}

/// Why a component can't be called ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// It was read, and this is missing.
    Missing(String),
    /// It can't be read, as said here.
    Unreadable(String),
}

impl NotReady {
    fn missing(what: impl Into<String>) -> Self {
        Self::Missing(what.into())
    }
}

impl From<Result<(), NotReady>> for Readiness {
    fn from(checked: Result<(), NotReady>) -> Self {
        match checked {
            Ok(()) => Self::READY,
            Err(NotReady::Missing(what)) => Self::with_reason(ComponentState::InProgress, &what),
            Err(NotReady::Unreadable(what)) => Self::with_reason(ComponentState::Unknown, &what),
        }
    }
}

/// The readiness rule of a kind, or of many.
pub trait Rule: Send + Sync + 'static {
    /// What [`Rule::check`] looks at; of the rest it may be given nothing.
    const READS: Reads;

    /// Whether the component is ready, and otherwise the first thing that stands against it.
    ///
    /// `generation` is `metadata.generation`, 0 if there is none. Nothing that `spec` and `status` may hold makes it panic.
    ///
    /// # Errors
    /// [`NotReady::Missing`] if the component is on its way, [`NotReady::Unreadable`] if a field is not of its type.
    fn check(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady>;

    /// [`Rule::check`] as the Application's status shows it.
    #[must_use]
    fn judge(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Readiness {
        Self::check(generation, spec, status).into()
    }
}

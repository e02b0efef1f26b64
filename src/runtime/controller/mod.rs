//! The worker pool: hands each key of the queue to the reconciler of its class, and requeues the key by the result.
//!
//! ```text
//!            ┌──────────────── worker, one of a fixed number ────────────────┐
//!  queue ──► │ get ──► reconciler of the key's class, panics caught ─► result │
//!    ▲       └───────────────────────────────────────────────────────┬───────┘
//!    │   Done: forget   RequeueAfter, Terminal: forget, add_after     │
//!    │   Requeue, Transient, panic: add_rate_limited                  │
//!    │   Outage: add_after                                            │
//!    └────────────────────────────────────────────────────────────────┘
//! ```

mod metrics;
mod workers;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

pub use metrics::WorkerMetrics;
pub use workers::WorkerPool;

use super::workqueue::{Backoff, Item, Priority};
use crate::api::NamespacedName;

/// The object to reconcile. It carries no event: reconcilers compare the current state only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The name of its [`Class`].
    pub class: &'static str,
    pub name: NamespacedName,
}

impl Item for Key {
    fn class(&self) -> &'static str {
        self.class
    }

    fn namespace(&self) -> &str {
        &self.name.namespace
    }
}

/// Keys that share a reconciler and a limit of workers.
pub struct Class {
    /// The controller's name, or `controller/part`: the label of metrics and logs.
    pub name: &'static str,
    pub workers: usize,
    pub reconciler: Arc<dyn Reconcile>,
}

pub trait Reconcile: Send + Sync + 'static {
    /// Brings the state closer to the spec. Called at any time, also for objects that are unchanged or gone, but never
    /// concurrently for one key.
    fn reconcile<'a>(&'a self, key: &'a Key, priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>>;
}

/// The next step after a successful reconcile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Done,
    /// Requeues with exponential backoff, although nothing failed.
    Requeue,
    RequeueAfter {
        delay: Duration,
        /// The priority of the next reconcile; `None` keeps the priority of this reconcile.
        priority: Option<Priority>,
    },
}

impl Action {
    #[must_use]
    pub fn requeue_after(delay: Duration) -> Self {
        Self::RequeueAfter { delay, priority: None }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReconcileError {
    Transient {
        message: String,
        backoff: Backoff,
        /// Lower bound of the delay, such as `Retry-After`.
        at_least: Duration,
    },
    /// The object has changed since it was read, which is no fault. The reconcile is repeated.
    Conflict { message: String },
    /// A fault of this process, such as an unreachable database. It counts no failure of the key, which the reconciler
    /// enqueues when the fault is over.
    Outage {
        message: String,
        /// The time to the next reconcile if nothing enqueues the key before.
        at_most: Duration,
    },
    /// Only a change of the object, of its references, or time helps. The reconciler has reported it to the user.
    Terminal {
        message: String,
        /// The time to the next reconcile, at [`Priority::LOW`]; without it, only an event causes a reconcile.
        retry_after: Option<Duration>,
    },
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Transient { message, .. }
        | Self::Conflict { message }
        | Self::Outage { message, .. }
        | Self::Terminal { message, .. }) = self;
        f.write_str(message)
    }
}

impl ReconcileError {
    #[must_use]
    pub fn transient(message: impl Into<String>, backoff: Backoff) -> Self {
        Self::Transient {
            message: message.into(),
            backoff,
            at_least: Duration::ZERO,
        }
    }
}

//! The worker pool: hands each key of the queue to the reconciler of its class, and requeues the key by the result.
//!
//! ```text
//!            ┌──────────────── worker, one of a fixed number ────────────────┐
//!  queue ──► │ get ──► reconciler of the key's class, panics caught ─► result │
//!    ▲       └───────────────────────────────────────────────────────┬───────┘
//!    │   Done: forget   RequeueAfter, Terminal: forget, add_after     │
//!    │   Requeue, Transient, panic: add_rate_limited                  │
//!    └────────────────────────────────────────────────────────────────┘
//! ```

mod metrics;
mod workers;

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

pub use metrics::Metrics;
pub use workers::WorkerPool;

use super::workqueue::{Backoff, Item, Priority};
use crate::api::NamespacedName;

/// The object to reconcile. It does not say what happened to the object: the reconciler finds that out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The name of its [`Class`].
    pub class: &'static str,
    /// Its namespace and name.
    pub name: NamespacedName,
}

/// A key that names its class and its object. The class is its lane in the queue.
pub trait ObjectKey: Item<Lane = &'static str> {
    /// Returns the namespace of the object.
    fn namespace(&self) -> impl Display;
    /// Returns the name of the object.
    fn name(&self) -> impl Display;
}

impl ObjectKey for Key {
    fn namespace(&self) -> impl Display {
        &self.name.namespace
    }

    fn name(&self) -> impl Display {
        &self.name.name
    }
}

impl Item for Key {
    type Lane = &'static str;

    fn lane(&self) -> &'static str {
        self.class
    }

    fn label(class: &&'static str) -> Option<&'static str> {
        Some(class)
    }
}

/// Keys that share a reconciler and a limit of workers.
pub struct Class<K = Key> {
    /// The controller's name, or `controller/part`: the label of metrics and log lines.
    pub name: &'static str,
    /// The maximum number of its keys that are reconciled concurrently.
    pub workers: usize,
    /// Reconciles its keys.
    pub reconciler: Arc<dyn Reconcile<K>>,
}

/// What brings objects of one kind a step nearer to what they declare.
pub trait Reconcile<K = Key>: Send + Sync + 'static {
    /// Looks at the object and at the world, and moves the world one step. It may be called at any time, for an object that
    /// needs nothing or is gone too, and never for the same key twice at once.
    ///
    /// # Errors
    ///
    /// A [`ReconcileError`] says whether another try may help.
    fn reconcile<'a>(&'a self, key: &'a K, priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>>;
}

/// How a reconcile ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing more to do until somebody asks.
    Done,
    /// Not there yet, although nothing failed: look again soon, ever later if it goes on.
    Requeue,
    /// Requeue after a delay.
    RequeueAfter {
        /// The delay.
        delay: Duration,
        /// The priority of the next reconcile; that of this one if `None`.
        priority: Option<Priority>,
    },
}

impl Action {
    /// Requeues after `delay` at the priority of this reconcile.
    #[must_use]
    pub fn requeue_after(delay: Duration) -> Self {
        Self::RequeueAfter { delay, priority: None }
    }
}

/// How a reconcile failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReconcileError {
    /// Another try may help.
    Transient {
        /// A sentence for the log.
        message: String,
        /// How long to wait before it.
        backoff: Backoff,
        /// Wait at least as long, whatever the back-off says: a server may have asked for it.
        at_least: Duration,
        /// Wait no longer, whatever the others say: the next turn by the clock may be nearer.
        at_most: Duration,
    },
    /// Only a change of the object, of what it refers to, or time helps. The reconciler has told the user.
    Terminal {
        /// A sentence for the log.
        message: String,
        /// The time to the next reconcile, at [`Priority::LOW`]; without it, only an event causes one.
        retry_after: Option<Duration>,
    },
}

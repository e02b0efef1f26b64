//! The worker pool: hands each key of the queue to the reconciler of its kind, and does with the key what came out of it.
//!
//! ```text
//!            ┌──────────────── worker, one of a fixed number ────────────────┐
//!  queue ──► │ get ──► reconciler of the key's kind, panics caught ──► result │
//!    ▲       └───────────────────────────────────────────────────────┬───────┘
//!    │   Done: forget   RequeueAfter, Terminal: forget, add_after     │
//!    │   Requeue, Transient, panic: add_rate_limited                  │
//!    └────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The pool knows of a key only its kind, which is its lane in the queue, and how to name its object.

mod metrics;
mod workers;

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::time::Duration;

use futures::future::BoxFuture;

pub use metrics::Metrics;
pub use workers::Controller;

use super::workqueue::{Backoff, Item, Priority};
use crate::api::NamespacedName;

/// What sort of object a key names. Each has its own lane in the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// An AppRepository of `kubeapps.com`.
    Repository,
    /// The chart files of an AppRepository.
    ChartFiles,
    /// An Application of `app.k8s.io`.
    Application,
}

/// The object that is to be looked at. It says nothing of what happened to it: that is found by looking.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// What sort of object it is.
    pub kind: Kind,
    /// Its namespace and name.
    pub name: NamespacedName,
}

/// A key whose object log lines can name.
pub trait ObjectKey: Item {
    /// Returns the controller, and the queue class where it has several.
    fn controller(&self) -> &'static str;
    /// Returns the namespace of the object.
    fn namespace(&self) -> impl Display;
    /// Returns the name of the object.
    fn name(&self) -> impl Display;
}

impl ObjectKey for Key {
    fn controller(&self) -> &'static str {
        match self.kind {
            Kind::Repository => "apprepository",
            Kind::ChartFiles => "apprepository/chart-files",
            Kind::Application => "application",
        }
    }

    fn namespace(&self) -> impl Display {
        &self.name.namespace
    }

    fn name(&self) -> impl Display {
        &self.name.name
    }
}

impl Item for Key {
    type Lane = Kind;

    fn lane(&self) -> Kind {
        self.kind
    }
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

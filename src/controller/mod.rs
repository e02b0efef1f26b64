//! The worker pool: hands each key of the queue to the reconciler of its kind, and does with the key what came out of it.
//!
//! ```text
//!            ┌──────────────── worker, one of a fixed number ────────────────┐
//!  queue ──► │ get ──► reconciler of the key's kind, panics caught ──► result │
//!    ▲       └───────────────────────────────────────────────────────┬───────┘
//!    │   Done: forget   RequeueAfter: forget, add_after               │
//!    │   Requeue, Transient, panic: add_rate_limited  Terminal: forget│
//!    └────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The pool knows of a key only its kind, which is its lane in the queue, and how to print it.

mod metrics;
mod pool;

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

pub use metrics::Metrics;
pub use pool::Controller;

use crate::api::NamespacedName;
use crate::queue::{Backoff, Item, Priority};

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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repository => "AppRepository",
            Self::ChartFiles => "ChartFiles",
            Self::Application => "Application",
        })
    }
}

/// The object that is to be looked at. It says nothing of what happened to it: that is found by looking.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// What sort of object it is.
    pub kind: Kind,
    /// Its namespace and name.
    pub name: NamespacedName,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
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
    /// A [`Failure`] says whether another try may help.
    fn reconcile<'a>(&'a self, key: &'a K, priority: Priority) -> BoxFuture<'a, Result<Outcome, Failure>>;
}

/// How a reconcile ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing more to do until somebody asks.
    Done,
    /// Not there yet, although nothing failed: look again soon, ever later if it goes on.
    Requeue,
    /// Look again after this time.
    RequeueAfter(Duration),
}

/// How a reconcile failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
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
    },
}

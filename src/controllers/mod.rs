//! The controllers, one directory each. They never import each other.

pub mod application;
pub mod apprepository;
pub mod oam;

use std::path::PathBuf;

use futures::future::BoxFuture;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::budget::Budgets;
use crate::runtime::controller::{Class, Key};
use crate::runtime::workqueue::Queue;

/// The field manager of our writes to the API server, and the reporting controller of our events.
pub const FIELD_MANAGER: &str = "portolan";

/// The source of objects.
#[derive(Clone)]
pub enum Source {
    /// The API server of a cluster.
    Cluster(Client),
    /// A directory of manifests.
    Directory(PathBuf),
}

/// The parts that all controllers share.
pub struct SetupContext {
    pub source: Source,
    /// Shared by all controllers.
    pub queue: Queue<Key>,
    pub budgets: Budgets,
    /// Canceled at shutdown; keys that are still in the queue are then skipped.
    pub stopping: CancellationToken,
}

/// A background task; it never returns.
pub type Task = BoxFuture<'static, ()>;

/// A controller that is set up and not started.
pub struct Controller {
    /// The name in flags, metrics and logs.
    pub name: &'static str,
    /// The classes of keys that it reconciles.
    pub classes: Vec<Class>,
    /// Watches. They run on every replica and write nothing.
    pub sources: Vec<Task>,
    /// Tasks that write, or that enqueue keys by the clock. They run on the leader only.
    pub leader_tasks: Vec<Task>,
    /// Enqueues all cached objects, when this replica becomes the leader.
    pub enqueue_all: Box<dyn Fn() + Send + Sync>,
    /// Returns true once the caches that readiness depends on are complete.
    pub has_synced: Box<dyn Fn() -> bool + Send + Sync>,
}

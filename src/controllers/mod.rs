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
use crate::runtime::ownership::OwnershipFilter;
use crate::runtime::workqueue::Queue;

/// The field manager of our writes to the API server, and the reporting controller of our events.
pub const FIELD_MANAGER: &str = "portolan";

#[derive(Clone)]
pub enum Source {
    Cluster(Client),
    Directory(PathBuf),
}

pub struct SetupContext {
    pub source: Source,
    pub queue: Queue<Key>,
    pub budgets: Budgets,
    /// The objects that this process watches and reconciles.
    pub ownership: OwnershipFilter,
    /// Canceled at shutdown; keys that are still in the queue are then skipped.
    pub stopping: CancellationToken,
}

/// A background task; it never returns.
pub type Task = BoxFuture<'static, ()>;

/// A server of requests. The task ends after the token is canceled and the last responses are sent.
pub type Serve = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// A controller that is set up and not started.
pub struct Controller {
    /// The name in flags, metrics and logs.
    pub name: &'static str,
    pub classes: Vec<Class>,
    /// Watches. They run on every replica and write nothing.
    pub sources: Vec<Task>,
    /// Servers of requests of others. They run on every replica, and end after its work.
    pub servers: Vec<Serve>,
    /// Tasks for all objects, which write. They run on one replica, the holder of the first shard.
    pub leader_tasks: Vec<Task>,
    /// Tasks that enqueue keys by the clock, and others that each leader of a shard needs.
    pub shard_tasks: Vec<Task>,
    /// Enqueues all cached objects, when this replica becomes the leader of a shard.
    pub enqueue_all: Box<dyn Fn() + Send + Sync>,
    /// Returns true once the caches that readiness depends on are complete.
    pub has_synced: Box<dyn Fn() -> bool + Send + Sync>,
}

//! Runs syncs as Kubernetes Jobs, as Kubeapps does: a CronJob per repository, a Job per request, a Job for the clean-up.
//!
//! ```text
//!  AppRepository ─► JobRunner ─► CronJob (ticks) ─┐
//!                       │                         ├─► Job, suspended ─► admission (limits) ─► pod: portolan sync ─► catalog
//!                       └─► Job of a request ─────┘                                                │
//!  status ◄── progress (Job, pod, record) ◄── watches of CronJobs, Jobs and pods ◄─────────────────┘
//! ```
//!
//! The catalog stays the source of truth: a pod writes the record of its sync, and the reconciler reads it. Jobs and
//! pods only tell why no record was written.

pub mod admission;
mod blocked;
mod cleanup;
mod client;
mod executor;
mod expansion;
mod leftovers;
mod metrics;
pub mod names;
mod objects;
mod progress;
mod runner;
mod secrets;
mod template;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::SecretKeyRef;
use crate::http::Proxies;

pub use blocked::Blocked;
pub use cleanup::Cleanup;
pub use executor::{EXECUTOR, Execution, Executor};
pub use leftovers::remove_leftovers;
pub use metrics::JobMetrics;
pub use runner::{Declared, DueSync, JobRunner, LaterSync};
pub use template::{Resources, TemplatePolicy};
pub use watch::Jobs;

#[derive(Clone, Debug)]
pub struct JobSettings {
    pub executor: Executor,
    /// Obeys the annotation [`EXECUTOR`].
    pub allow_annotation: bool,
    /// Portolan's namespace, of all CronJobs and Jobs.
    pub namespace: String,
    pub image: String,
    pub command: String,
    pub pull_secrets: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub successful_history: u32,
    pub failed_history: u32,
    pub ttl_seconds: Option<u64>,
    pub deadline_seconds: Option<u64>,
    pub concurrency_policy: &'static str,
    pub resources: Resources,
    pub template: TemplatePolicy,
    /// Maximum size of a template, in bytes.
    pub template_limit: usize,
    pub limits: JobLimits,
    pub database: DatabaseAccess,
    /// Proxies of this process.
    pub proxies: Proxies,
    /// Flags of the operator that also apply to `portolan sync`, without dashes, and their values.
    pub sync_flags: Vec<(String, String)>,
    pub index_max_bytes: u64,
    pub fetch_timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLimits {
    pub total: usize,
    pub per_namespace: usize,
}

/// Access of Jobs to the database. It contains no password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseAccess {
    pub url: String,
    pub user: String,
    pub name: String,
    /// The Secret with the password; `None` if the database needs none.
    pub secret: Option<SecretKeyRef>,
}

impl JobSettings {
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        matches!(self.executor, Executor::Job) || self.allow_annotation
    }
}

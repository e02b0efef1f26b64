//! Settings of the controller, by the flags of the same names.

use std::path::PathBuf;
use std::time::Duration;

use super::jobs::TemplatePolicy;
use super::running_syncs::RunningSyncs;
use super::secrets::source::CredentialSource;
use super::spec::Defaults;
use super::sync::SyncContext;
use super::sync::filter_process::FilterProcesses;
use super::sync::location::FileAccess;
use super::sync::object_limits::ObjectLimits;
use super::{CHART_FILES, CLEANUP, CLEANUP_WORKERS, NAME, SLOW, chart_files, jobs};
use crate::budget::Budgets;
use crate::catalog::Catalog;
use crate::helm::index::DecodeLimits;
use crate::http::{FetchLimits, Fetcher};
use crate::runtime::workqueue::ClassLimits;

#[derive(Clone)]
pub struct Options {
    pub workers: usize,
    pub files_workers: usize,
    /// The namespace to watch; all namespaces if `None`.
    pub namespace: Option<String>,
    /// Kubeapps' namespace, with its copies of Secrets and its CronJobs.
    pub kubeapps_namespace: String,
    pub defaults: Defaults,
    pub sync: SyncOptions,
    pub chart_files: chart_files::FilesSettings,
    /// Enqueues the import of chart files after a sync.
    pub import_after_sync: bool,
    /// Directories besides the manifests' own that `file:` URLs may name.
    pub allowed_directories: Vec<PathBuf>,
    pub confirm_removals: bool,
    pub gc_interval: Duration,
    /// The namespace of the Leases. Expired Leases are collected.
    pub lease_namespace: String,
    pub watch_secrets: bool,
    /// Allows sinks of news at addresses that are not public.
    pub news_private_networks: bool,
    pub adopt_kubeapps: bool,
    pub running: RunningSyncs,
    /// Settings of Jobs; `None` without a cluster.
    pub jobs: Option<jobs::JobSettings>,
}

impl Options {
    #[must_use]
    pub const fn slow_workers(&self) -> usize {
        self.workers.div_ceil(4)
    }

    /// Returns the maximum size of a pod template that is kept: only Jobs use more of it than proxies.
    #[must_use]
    pub fn template_limit(&self) -> usize {
        let uses = |jobs: &&jobs::JobSettings| jobs.is_enabled() && jobs.template != TemplatePolicy::None;
        let jobs = self.jobs.as_ref().filter(uses);
        jobs.map_or(0, |jobs| jobs.template_limit)
    }

    #[must_use]
    pub fn classes(&self) -> [(&'static str, ClassLimits); 4] {
        [
            (NAME, sync_limits(self.workers)),
            (SLOW, sync_limits(self.slow_workers())),
            (CHART_FILES, with_reserve(self.files_workers)),
            (CLEANUP, with_reserve(CLEANUP_WORKERS)),
        ]
    }
}

/// A namespace has at most an eighth of the workers, and the last sixteenth takes only namespaces without a running sync:
/// slow servers of one tenant, or of a few, never delay the others. A few workers are shared by halves.
fn sync_limits(workers: usize) -> ClassLimits {
    ClassLimits {
        workers,
        per_namespace: (workers / 8).max(workers.min(8).div_ceil(2)),
        reserve: if workers > 1 { workers.div_ceil(16) } else { 0 },
    }
}

/// The last worker takes only namespaces that hold none.
fn with_reserve(workers: usize) -> ClassLimits {
    ClassLimits {
        reserve: usize::from(workers > 1),
        ..ClassLimits::workers(workers)
    }
}

/// Settings of syncs, also of one-shot commands. See [`SyncContext`].
#[derive(Clone)]
pub struct SyncOptions {
    pub fetcher: Fetcher,
    pub fetch_limits: FetchLimits,
    pub verify_delta: bool,
    pub check_digests: Duration,
    pub keep_removed: Option<Duration>,
    pub spool_dir: Option<PathBuf>,
    pub budgets: Budgets,
    pub objects: ObjectLimits,
    pub filters: FilterProcesses,
}

impl SyncOptions {
    #[must_use]
    pub fn context(
        self,
        catalog: Catalog,
        credentials: CredentialSource,
        files: FileAccess,
        origin: String,
    ) -> SyncContext {
        SyncContext {
            catalog,
            fetcher: self.fetcher,
            credentials,
            fetch_limits: self.fetch_limits,
            decode_limits: DecodeLimits::within(self.objects.index),
            budgets: self.budgets,
            index_memory: self.objects.index,
            filters: self.filters,
            verify_delta: self.verify_delta,
            check_digests: self.check_digests,
            keep_removed: self.keep_removed,
            spool_dir: self.spool_dir,
            files,
            origin,
        }
    }
}

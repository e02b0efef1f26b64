//! The settings of the controller and of syncs.

use std::path::PathBuf;
use std::time::Duration;

use super::running_syncs::RunningSyncs;
use super::secrets::source::CredentialSource;
use super::spec::Defaults;
use super::sync::SyncContext;
use super::sync::location::FileAccess;
use super::{CHART_FILES, NAME, chart_files};
use crate::catalog::Catalog;
use crate::helm::index::DecodeLimits;
use crate::http::{Fetcher, Limits};
use crate::jq;

/// The settings of the controller.
#[derive(Clone)]
pub struct Options {
    /// The maximum number of concurrent syncs.
    pub workers: usize,
    /// The maximum number of concurrent imports of chart files.
    pub files_workers: usize,
    /// The namespace to watch; all namespaces if `None`.
    pub namespace: Option<String>,
    /// Kubeapps' namespace, with its copies of Secrets and its CronJobs.
    pub kubeapps_namespace: String,
    /// Settings of repositories that declare none.
    pub defaults: Defaults,
    /// Settings of syncs.
    pub sync: SyncOptions,
    /// Settings of imports.
    pub chart_files: chart_files::Settings,
    /// Enqueues the import of chart files after a sync.
    pub import_after_sync: bool,
    /// Directories besides the manifests' own that `file:` URLs may name.
    pub allowed_directories: Vec<PathBuf>,
    /// Lets the first comparison remove any number of repositories.
    pub confirm_removals: bool,
    /// Syncs repositories when one of their Secrets changes.
    pub watch_secrets: bool,
    /// Deletes Kubeapps' CronJobs of repositories that were synced.
    pub adopt_kubeapps: bool,
    /// The syncs in progress, for display.
    pub running: RunningSyncs,
}

impl Options {
    /// Returns each class of keys and its number of workers.
    #[must_use]
    pub fn classes(&self) -> [(&'static str, usize); 2] {
        [(NAME, self.workers), (CHART_FILES, self.files_workers)]
    }
}

/// The settings of syncs, from one-shot commands too.
#[derive(Clone)]
pub struct SyncOptions {
    /// The HTTP client.
    pub fetcher: Fetcher,
    /// Limits of one download.
    pub fetch_limits: Limits,
    /// Verifies incremental decodes against a full decode.
    pub verify_delta: bool,
    /// The interval at which the digests of all tags of an OCI repository are checked.
    pub check_digests: Duration,
    /// The time that removed versions are kept; they are deleted at once if `None`.
    pub keep_removed: Option<Duration>,
    /// The directory for temporary files; the system's own if `None`.
    pub spool_dir: Option<PathBuf>,
}

impl SyncOptions {
    /// Returns the context of syncs that write to `catalog` for `origin`.
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
            decode_limits: DecodeLimits::default(),
            filter_limits: jq::Limits::default(),
            verify_delta: self.verify_delta,
            check_digests: self.check_digests,
            keep_removed: self.keep_removed,
            spool_dir: self.spool_dir,
            files,
            origin,
        }
    }
}

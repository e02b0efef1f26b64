//! The AppRepository controller: syncs repositories into the catalog and reports their status.
//!
//! [`spec`], [`decision`], [`plan`], [`status`], [`events`] and [`news`] are pure. [`sync`], [`jobs`], [`garbage`] and
//! [`origin`] do the I/O, and [`reconciler`] acts on the plan.

mod cached;
pub mod chart_files;
pub mod database_faults;
pub mod decision;
pub mod event_handler;
pub mod events;
pub mod garbage;
pub mod jobs;
pub mod kubeapps_cronjobs;
pub mod metrics;
pub mod news;
pub mod news_delivery;
mod options;
pub mod origin;
pub mod plan;
pub mod reconciler;
pub mod running_syncs;
pub mod secrets;
mod setup;
pub mod spec;
pub mod state;
pub mod status;
pub mod sync;
pub mod sync_summary;
pub mod tombstones;

pub use cached::{CachedRepository, RepositoryCache};
pub use options::{Options, SyncOptions};
pub use setup::{AppRepositoryMetrics, Parts, data_url, setup};

/// The name of the controller, and of the class of keys that it syncs.
pub const NAME: &str = "apprepository";
/// The class of keys that it syncs with few workers, since the servers of their last syncs did not respond.
pub const SLOW: &str = "apprepository/slow";
pub const CHART_FILES: &str = "apprepository/chart-files";
/// The class of keys whose charts it removes: a deletion waits for no sync of others.
pub const CLEANUP: &str = "apprepository/cleanup";
const CLEANUP_WORKERS: usize = 4;

pub const SHRINK_REFUSED: &str = "ShrinkRefused";

#[cfg(test)]
mod tests {
    pub(super) mod samples;
    mod schedule;
    mod slow;
}

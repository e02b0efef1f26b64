//! The AppRepository controller: decide, sync, clean up, report.
//!
//! ```text
//!  trigger: change ─► key          schedule: tick ─► key          collect: complete list ─► keys of what is gone
//!                        └───────────────┬──────────────────────────────┘
//!                                   reconciler
//!               ┌───────────────┬────────┴────────┬─────────────────┐
//!          declaration        decide           execute          status, news
//!       what is declared   what to do now   fetch ► … ► commit   what users see
//! ```
//! The middle is pure ([`declaration`], [`decide`], [`guard`], [`rows`], [`status`], [`news`], [`removals`]); the rim
//! ([`in_process`], [`origin`]) does what the middle decides.

pub mod chart_files;
pub mod decision;
pub mod event_handler;
pub mod events;
mod finalizer;
pub mod kubeapps_cronjobs;
pub mod metrics;
mod options;
pub mod origin;
pub mod orphans;
pub mod reconciler;
pub mod removals;
pub mod running_syncs;
pub mod secrets;
mod setup;
pub mod spec;
pub mod state;
pub mod status;
pub mod sync;
pub mod sync_summary;

#[cfg(test)]
mod schedule_tests;

pub use options::{Options, SyncOptions};
pub use setup::{Parts, setup};

/// The name of the controller, and of the class of keys that it syncs.
pub const NAME: &str = "apprepository";
/// The class of keys whose chart files it imports.
pub const CHART_FILES: &str = "apprepository/chart-files";

/// The reason of a repository whose index has shrunk so much that it is not believed.
pub const SHRINK_REFUSED: &str = "ShrinkRefused";

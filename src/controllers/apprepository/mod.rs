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
pub mod origin;
pub mod orphans;
pub mod reconciler;
pub mod removals;
pub mod running_syncs;
pub mod secrets;
pub mod spec;
pub mod state;
pub mod status;
pub mod sync;
pub mod sync_summary;

#[cfg(test)]
mod schedule_tests;

/// The reason of a repository whose index has shrunk so much that it is not believed.
pub const SHRINK_REFUSED: &str = "ShrinkRefused";

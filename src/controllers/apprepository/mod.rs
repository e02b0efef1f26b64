//! The AppRepository controller: syncs repositories into the catalog and reports their status.
//!
//! [`decision`], [`spec`], [`status`], [`events`] and [`removals`] are pure. [`sync`] and [`origin`] do the I/O.

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

/// Condition and event reason of a sync that the shrink guard blocked.
pub const SHRINK_REFUSED: &str = "ShrinkRefused";

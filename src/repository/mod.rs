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

pub mod access;
pub mod activity;
pub mod adopt;
mod cleanup;
pub mod collect;
pub mod decide;
pub mod declaration;
pub mod execute;
pub mod files;
pub mod guard;
pub mod in_process;
pub mod locate;
pub mod metrics;
pub mod news;
pub mod origin;
pub mod reconciler;
pub mod removals;
pub mod rows;
pub mod secrets;
pub mod state;
pub mod status;
pub mod summary;
pub mod trigger;

#[cfg(test)]
mod schedule_tests;

/// The reason of a repository whose index has shrunk so much that it is not believed.
pub const SHRINK_REFUSED: &str = "ShrinkRefused";

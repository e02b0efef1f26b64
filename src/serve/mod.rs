//! The catalog in memory, for readers.
//!
//! ```text
//!  catalog ── rows of changed repositories ─► Snapshot ─► search ─► hits
//! ```

pub mod access;
pub mod search;
pub mod snapshot;
pub mod summary;

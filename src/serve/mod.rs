//! The catalog, for readers: in memory, and over HTTP.
//!
//! ```text
//!  catalog ── rows of changed repositories ─► Snapshot ─► search ─► hits
//!                                                │                    │
//!  request ─► access: who sees which namespaces ─┴─► api ◄────────────┘
//! ```

pub mod access;
pub mod api;
pub mod live;
pub mod metrics;
pub mod search;
pub mod snapshot;
pub mod summary;

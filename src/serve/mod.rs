//! The catalog, for readers: in memory, and over HTTP.
//!
//! ```text
//!  catalog ── rows of changed repositories ─► Snapshot ─► search ─► hits
//!                                                │                    │
//!  request ─► access: who sees which namespaces ─┴─► site ─► api ◄────┘
//! ```

pub mod access;
mod api;
pub mod live;
pub mod memory;
pub mod metrics;
mod problem;
mod reload;
mod repository;
mod respond;
pub mod search;
pub mod site;
pub mod snapshot;
pub mod summary;

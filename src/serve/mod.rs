//! The catalog, for readers: in memory, and over HTTP.
//!
//! ```text
//!  catalog ── rows of changed repositories ─► Snapshot ─► search ─► hits
//!                                                │                    │
//!  request ─► limits ─► access: who sees which ──┴─► site ─► api ◄────┘
//!                       namespaces
//! ```

pub mod access;
mod api;
pub mod limits;
pub mod live;
pub mod metrics;
mod problem;
mod respond;
pub mod search;
pub mod site;
pub mod snapshot;
pub mod summary;

//! The catalog, for readers: in memory, and over HTTP.
//!
//! ```text
//!  catalog ── rows of changed repositories ─► Snapshot ─► search ─► hits
//!                                                │                    │
//!  request ─► access: who sees which namespaces ─┴─► site ─┬─► api ◄───┘
//!                                                         └─► helm ─► index.yaml, archives
//! ```

pub mod access;
mod api;
pub mod helm;
mod links;
pub mod live;
pub mod metrics;
mod problem;
mod respond;
pub mod search;
pub mod site;
pub mod snapshot;
pub mod summary;

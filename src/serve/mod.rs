//! The catalog, for readers: in memory, and over HTTP.
//!
//! ```text
//!  catalog ── rows of changed repositories ─► Snapshot ─► search ─► hits
//!                                                │                    │
//!  request ─► limits ─► access: who sees which ──┴─► site ─┬► api ◄───┘
//!                       namespaces                       ├► helm ─► index.yaml, archives
//!                                                        ├► pages
//!  catalog ── row of a chart, or of its files ─► rows ─────┤
//!  API server ── objects that the caller may read ─► cluster ┤
//!  watched releases of this process ─► releases ────────────┘
//! ```

pub mod access;
mod api;
pub mod cluster;
pub mod helm;
pub mod hooks;
pub mod limits;
mod links;
pub mod live;
pub mod memory;
pub mod metrics;
pub mod outdated;
mod pages;
mod problem;
pub mod releases;
mod reload;
mod repository;
mod respond;
mod rows;
pub mod search;
pub mod site;
pub mod snapshot;
pub mod summary;
mod values;

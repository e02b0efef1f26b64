//! Portolan syncs Helm chart repositories and OCI registries into the database that Kubeapps reads, aggregates Applications of
//! `app.k8s.io`, deploys Applications of KubeVela, and serves the catalog to programs.
//!
//! ```text
//!  API server ──watch──┐
//!                      ├─► runtime::watch (caches) ─► event handlers ─► runtime::workqueue ◄─ runtime::cron
//!  manifests ──files───┘                                                      │
//!                                                          runtime::controller (workers, by class)
//!                                        ┌────────────────────────────────────┼───────────────────────┐
//!                            controllers::apprepository           controllers::application     controllers::oam
//!                             fetch, decode, filter, check         select, assess, own          render, apply, collect
//!                                        │
//!                                     catalog (SQLite or Postgres) ──► serve (REST API, Helm repositories)
//! ```
//!
//! Everything is level-triggered: an event only says *look at this key*. A reconcile reads the object from the cache and
//! what is true outside, and brings the state closer to the spec; it may be repeated, interrupted, or run twice without
//! harm.
//!
//! Modules import only from the floors below them (docs/explanation/architecture.md).

#![forbid(unsafe_code)]

pub mod api;
pub mod budget;
pub mod catalog;
pub mod clock;
pub mod cmd;
pub mod controllers;
pub mod cue;
pub mod helm;
pub mod http;
pub mod jq;
pub mod manager;
pub mod oci;
pub mod releases;
pub mod runtime;
pub mod serve;
pub mod server;
pub mod text;
pub mod trace;

#[cfg(test)]
#[path = "../tests/support/corpus.rs"]
mod corpus;

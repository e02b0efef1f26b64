//! Portolan syncs Helm chart repositories and OCI registries into the database that Kubeapps reads.
//!
//! ```text
//!  Kubernetes API server ──watch──┐                       cron expressions ──► schedule ─┐
//!                                 ├─► informer ──► store (cache)                          │
//!  directory of manifests ─notify─┘        └────── enqueue key ──────────► queue ◄── enqueue key
//!                                                                            │
//!                                                           controller: pool of workers, by kind
//!                                                                            │
//!                                                                       repository
//!                                                            fetch ► decode ► guard ► catalog
//! ```
//!
//! Everything is level-triggered: an event only says *look at this key*. A reconcile reads the object from the store and
//! what is true outside, and moves the world one step nearer; it may be repeated, interrupted, or run twice without harm.
//!
//! Modules import only from the floors below them (docs/architecture.md).

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
pub mod runtime;
pub mod server;
pub mod sync_ext;
pub mod text;
pub mod trace;

#[cfg(test)]
#[path = "../tests/support/corpus.rs"]
mod corpus;

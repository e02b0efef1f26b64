//! The integration tests: one binary, to link only once. `make test` sets up their environment and runs them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod applications;
mod architecture;
mod browser;
mod catalog;
mod chaos;
mod cluster;
mod commands;
mod cue;
mod docs;
mod files;
mod filter;
mod fuzz;
mod harness;
mod hooks;
mod isolation;
mod jobs;
mod lease;
mod manifests;
mod news;
mod oam;
mod oam_api;
mod oam_apps;
mod oam_cli;
mod oam_clusters;
mod oam_collect;
mod oam_definitions;
mod oam_objects;
mod oam_start;
mod oam_webhooks;
mod observability;
mod packaging;
mod registry;
mod serve;
mod support;
mod surface;
mod threats;
mod three_way;
mod watched_releases;

//! KubeVela's Applications in a real API server, from declaration to collection, reconciled by the real binary.
//!
//! Recorded cases run together on a control plane of their own, with one process for all namespaces. Each other test has
//! a process that watches its namespace of the shared control plane.

pub mod accounts;
pub mod apps;
mod estate;
mod golden;
pub mod kubelet;
mod operators;
mod receiver;
pub mod setup;
pub mod site;
mod stories;
mod stories_addons;
mod stories_admission;
mod stories_apply_once;
mod stories_bad_input;
mod stories_beside;
mod stories_calls;
mod stories_components;
mod stories_control;
mod stories_crash;
mod stories_deletion;
mod stories_endpoints;
mod stories_fights;
pub mod stories_hostile;
mod stories_identity;
mod stories_marks;
mod stories_memory;
mod stories_metric_checks;
mod stories_metrics;
mod stories_operations;
mod stories_placement;
mod stories_policies;
mod stories_references;
mod stories_requests;
pub mod stories_rest;
mod stories_rights;
mod stories_seen;
mod stories_shards;
mod stories_stages;
mod stories_steps;
mod stories_takeover;
mod stories_terraform;
mod stories_trackers;
mod stories_workflow;
mod stories_workflow_crash;
mod stories_workflow_faults;
pub mod workflows;

pub const APPLICATION: &str = "core.oam.dev/v1beta1 Application";
pub const REVISION: &str = "core.oam.dev/v1beta1 ApplicationRevision";
pub const TRACKER: &str = "core.oam.dev/v1beta1 ResourceTracker";
pub const DEFINITION: &str = "core.oam.dev/v1beta1 ComponentDefinition";
pub const CONFIG_MAP: &str = "v1 ConfigMap";
pub const DEPLOYMENT: &str = "apps/v1 Deployment";

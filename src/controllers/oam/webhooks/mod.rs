//! Webhooks for Applications and definitions, at the paths of KubeVela. Every replica serves them, leader or not.
//!
//! ```text
//!  API server ── TLS ──► serve ─► review ─► applications | definitions ─► verdict
//!                          ▲                     │
//!                     certificates          caches, evaluator, access reviews
//! ```

pub mod certificates;
mod metrics;
pub mod review;
mod serve;

pub use metrics::WebhookMetrics;
pub use serve::Webhook;

use crate::server::ListenAddress;

#[derive(Clone, Debug)]
pub struct WebhookOptions {
    pub address: ListenAddress,
    /// The namespace of the pod, with the Service of the webhooks.
    pub namespace: String,
    pub service: String,
    pub certificate: CertificateSource,
    /// Creates WorkloadDefinitions for ComponentDefinitions that name a kind.
    pub creates_workload_definitions: bool,
    /// Writes the user into annotations (gate `AuthenticateApplication`), not only the groups.
    pub records_user: bool,
    /// The groups that are written into annotations.
    pub group_pattern: String,
    /// The shards of Applications; those of ready processes if empty.
    pub schedulable_shards: Vec<String>,
    /// Assigns Applications to shards; not with the gate `DisableWebhookAutoSchedule`.
    pub schedules_shards: bool,
    /// Checks components although there are shards (gate `ValidateComponentWhenSharding`).
    pub checks_components_of_shards: bool,
    /// Checks the rights to definitions (gate `ValidateDefinitionPermissions`).
    pub checks_definition_rights: bool,
    /// Refuses definitions of kinds that are not installed (gate `ValidateResourcesExist`).
    pub checks_kinds: bool,
}

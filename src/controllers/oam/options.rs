use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use kube::Client;

use crate::api::oam::compression::Format;
use crate::api::oam::labels::{MASTER_SHARD, SHARD_ID};
use crate::controllers::oam::dispatch::admission::Admission;
use crate::controllers::oam::dispatch::decide;
use crate::controllers::oam::rights::IdentityOptions;
use crate::controllers::oam::{references, workflow};
use crate::cue;
use crate::http::Fetcher;
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::write_fence::WriteFence;
use crate::runtime::ownership::ShardLabel;
use crate::server::ListenAddress;

#[derive(Clone, Debug)]
pub struct Options {
    pub workers: usize,
    /// The namespace to watch; all namespaces if `None`.
    pub namespace: Option<String>,
    /// The namespace of definitions for all Applications.
    pub definition_namespace: String,
    /// Longest time between two passes over an Application.
    pub resync_period: Duration,
    /// Time between two complete lists of managed objects, which find what a watch may have missed; never if `None`.
    pub relist_period: Option<Duration>,
    pub pass_timeout: Duration,
    /// Time to write the status after a pass that took longer.
    pub grace_period: Duration,
    /// Maximum number of ApplicationRevisions besides those in use.
    pub revision_limit: usize,
    /// Maximum number of DefinitionRevisions of one definition.
    pub definition_revision_limit: usize,
    /// The version of KubeVela that this controller stands for.
    pub compat_version: String,
    /// Shown at `/info` only: there is one storage, the cluster.
    pub storage_driver: String,
    pub versions: ControllerVersions,
    /// The label of Applications that names this process; `None` without `--enable-sharding`.
    pub shard: Option<ShardLabel>,
    pub workflow: workflow::WorkflowSettings,
    pub dispatch: decide::DispatchSettings,
    /// Maximum number of objects of one Application that are written at the same time.
    pub max_concurrent_writes: usize,
    pub admission: Admission,
    pub apply_once: ApplyOnceMode,
    /// Compression of ResourceTrackers; by size if `None`.
    pub tracker_format: Option<Format>,
    /// Compression of ApplicationRevisions; by size if `None`.
    pub revision_format: Option<Format>,
    /// Leaves `spec.replicas` to HorizontalPodAutoscalers.
    pub respects_autoscalers: bool,
    /// Undeclared parameters and unknown keys are errors.
    pub is_strict: bool,
    /// Traits with a stage are applied before or after their workload (gate `MultiStageComponentApply`).
    pub has_stages: bool,
    /// Objects are written only if a dry run of all of them succeeds (gate `PreDispatchDryRun`).
    pub has_dry_run: bool,
    /// The users with whose rights Applications are applied.
    pub identity: IdentityOptions,
    /// The existing objects that Applications may refer to.
    pub reference_scope: references::ReferenceScope,
    /// Components may refer to manifests at URLs; not with the gate `DisableReferObjectsFromURL`.
    pub allows_urls: bool,
    /// Leaves the data of Secrets that components refer to out of revisions.
    pub redacts_secrets: bool,
    /// Exports KubeVela's gauges of Applications (gate `EnableApplicationStatusMetrics`).
    pub has_application_metrics: bool,
    /// Exports KubeVela's metrics of passes, workflows and templates.
    pub has_compat_metrics: bool,
    /// `None` without `--use-webhook`.
    pub webhooks: Option<WebhookOptions>,
    pub evaluator: cue::EvaluatorOptions,
    /// Sends the HTTP requests of steps and components.
    pub fetcher: Fetcher,
    pub joined: JoinedOptions,
    /// A policy override with a name changes all components whose name contains it, as in KubeVela.
    pub unanchored_overrides: bool,
}

/// The connections to joined clusters.
#[derive(Clone, Debug)]
pub struct JoinedOptions {
    /// Their Secrets are watched.
    pub is_enabled: bool,
    /// Decides which addresses are allowed.
    pub fetcher: Fetcher,
    /// Accepts API servers that are not verified (`--allow-insecure-clusters`).
    pub allow_insecure: bool,
    /// Sends requests through cluster-gateway, without limits; the controller's own client if `None`.
    pub gateway: Option<GatewayClient>,
    pub requests: RequestMetrics,
    /// The fence of the controller's own client: only the process that leads writes.
    pub write_fence: Option<WriteFence>,
}

/// A client of the controller's own API server.
#[derive(Clone)]
pub struct GatewayClient(pub Client);

impl fmt::Debug for GatewayClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GatewayClient")
    }
}

impl JoinedOptions {
    /// Counts no requests, and writes without a Lease.
    #[must_use]
    pub fn new(fetcher: Fetcher, allow_insecure: bool) -> Self {
        Self {
            is_enabled: true,
            fetcher,
            allow_insecure,
            gateway: None,
            requests: RequestMetrics::default(),
            write_fence: None,
        }
    }
}

/// Objects that are left as others changed them, as if each Application had a policy apply-once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyOnceMode {
    #[default]
    Off,
    /// Objects that others change stay so until the Application changes. Those that they delete are created again.
    On,
    /// Objects that others delete stay deleted as well.
    Force,
}

/// The objects that are ours, by their annotation `app.oam.dev/controller-version-require`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerVersions {
    /// Applications without the annotation are left alone.
    pub are_required_of_applications: bool,
    /// Definitions without the annotation are left alone.
    pub are_required_of_definitions: bool,
}

/// The server of the webhooks, and what they do.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    pub address: ListenAddress,
    /// The namespace of the pod, with the Service of the webhooks.
    pub namespace: String,
    pub service: String,
    pub certificate: CertificateSource,
    pub reviews: ReviewOptions,
}

/// Selects the fields that webhooks write, and their checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewOptions {
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

/// The origin of the certificate of the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// The directory of `tls.crt` and `tls.key`.
    Files(PathBuf),
    SelfSigned(SelfSigned),
}

/// A certificate that is stored in a Secret and written to webhook configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfSigned {
    pub namespace: String,
    /// The name of the Secret, and of the Service that configurations name.
    pub service: String,
    /// The name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration.
    pub configuration: String,
}

/// Returns the label by which KubeVela divides Applications. The master records the revisions of definitions.
#[must_use]
pub fn shard_label(id: &str) -> ShardLabel {
    ShardLabel {
        name: SHARD_ID,
        id: id.to_owned(),
        default_id: MASTER_SHARD,
    }
}

//! The flags that have an effect, with their defaults.

use std::error::Error as _;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command, Error, FromArgMatches};

use super::arguments::find;
use super::gates::FeatureGates;
use super::inert::InertFlags;
use super::values::{Bytes, NameList, apply_once, capabilities, number, rate};
use super::webhooks::WebhookFlags;
use crate::cmd::flags::parse::{duration, go_boolean};
use crate::controllers::oam::ApplyOnceMode;

/// The heading of flags that vela-core does not have.
pub(super) const OWN: &str = "Portolan";

/// The flags of KubeVela's controller.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct VelaFlags {
    #[command(flatten)]
    pub feature_gates: FeatureGates,
    #[command(flatten)]
    inert: InertFlags,
    #[command(flatten)]
    pub webhooks: WebhookFlags,
    /// Address of metrics and probes; empty or 0 for none. --listen replaces it
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub metrics_addr: String,
    /// Address of probes; empty or 0 for none. --listen replaces it
    #[arg(long, value_name = "ADDRESS", default_value = ":9440")]
    pub health_addr: String,
    /// Reconcile only while holding the Lease that vela-core takes too
    #[arg(long)]
    pub enable_leader_election: bool,
    /// Namespace of the Lease; empty for that of the definitions
    #[arg(long, value_name = "NAMESPACE", default_value = "")]
    pub leader_election_namespace: String,
    /// Time after the last renewal until another replica takes the Lease
    #[arg(long = "leader-election-lease-duration", value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub lease_duration: Duration,
    /// Time after the last renewal until the leader stops its work and exits
    #[arg(long = "leader-election-renew-deadline", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub renew_deadline: Duration,
    /// Time between two renewals, or two attempts to take the Lease
    #[arg(long = "leader-election-retry-period", value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub retry_period: Duration,
    /// Name of the storage driver, shown in the log and at /info only; $STORAGE_DRIVER takes precedence
    #[arg(long, value_name = "NAME", default_value = "Local")]
    pub storage_driver: String,
    /// File for the log; empty for the standard error
    #[arg(long, value_name = "FILE", default_value = "")]
    pub log_file_path: String,
    /// Size in MiB at which the file of the log is rotated
    #[arg(long, value_name = "N", default_value = "1024", value_parser = number)]
    pub log_file_max_size: u32,
    /// Log at level debug
    #[arg(long)]
    pub log_debug: bool,
    /// Log text instead of JSON
    #[arg(long)]
    pub dev_logs: bool,
    /// Verbosity of the log; 2 and more for level debug
    #[arg(long = "v", value_name = "N", default_value = "0", value_parser = number)]
    pub verbosity: u32,
    // KubeVela's default is 50. Here, the API server alone limits requests unless the flag is set.
    /// Requests per second to the API server; 0 for no limit
    #[arg(long, value_name = "N", default_value = "0", value_parser = rate)]
    pub kube_api_qps: f64,
    /// Requests to the API server beyond --kube-api-qps in a burst
    #[arg(long, value_name = "N", default_value = "100", value_parser = number)]
    pub kube_api_burst: u32,
    /// Time between two complete lists of managed objects; 0 for none
    #[arg(
        long,
        alias = "informer-re-sync-interval",
        value_name = "DURATION",
        default_value = "10h",
        value_parser = duration
    )]
    pub informer_sync_period: Duration,
    /// Longest time between two passes of an Application
    #[arg(long = "application-re-sync-period", value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub application_resync_period: Duration,
    /// Time limit of a pass
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = duration)]
    pub reconcile_timeout: Duration,
    /// Time to write the status after a pass that reached its limit
    #[arg(
        long = "reconcile-termination-graceful-period",
        value_name = "DURATION",
        default_value = "5s",
        value_parser = duration
    )]
    pub reconcile_grace_period: Duration,
    /// Time limit of a get request; 0 for none
    #[arg(long = "controller-client-request-timeout", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub get_timeout: Duration,
    /// Time limit of a list request; 0 for none
    #[arg(
        long = "controller-client-long-running-request-timeout",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = duration
    )]
    pub list_timeout: Duration,
    /// Time limit of a request that writes; 0 for none
    #[arg(
        long = "controller-client-mutating-request-timeout",
        value_name = "DURATION",
        default_value = "15s",
        value_parser = duration
    )]
    pub write_timeout: Duration,
    /// Maximum number of concurrent passes
    #[arg(long, value_name = "N", default_value = "4", value_parser = number)]
    pub concurrent_reconciles: u32,
    /// Number of revisions of an Application that are kept besides those in use
    #[arg(long, value_name = "N", default_value = "10", value_parser = number)]
    pub application_revision_limit: u32,
    /// Number of revisions of a definition that are kept besides those in use
    #[arg(long, value_name = "N", default_value = "20", value_parser = number)]
    pub definition_revision_limit: u32,
    /// on: objects that others change stay so until the Application changes; force: also those that others delete
    #[arg(long = "apply-once-only", value_name = "MODE", default_value = "off", value_parser = apply_once)]
    pub apply_once: ApplyOnceMode,
    /// Leave Applications alone that do not require --compat-version by annotation
    #[arg(long = "ignore-app-without-controller-version")]
    pub ignore_apps_without_version: bool,
    /// Leave definitions alone that do not require --compat-version by annotation
    #[arg(long = "ignore-definition-without-controller-version")]
    pub ignore_definitions_without_version: bool,
    /// Namespace of the definitions for all Applications
    #[arg(
        long = "system-definition-namespace",
        value_name = "NAMESPACE",
        default_value = "vela-system"
    )]
    pub definition_namespace: String,
    /// Longest pause in seconds of a workflow that waits
    #[arg(long = "max-workflow-wait-backoff-time", value_name = "SECONDS", default_value = "60", value_parser = number)]
    pub max_wait_backoff_seconds: u32,
    /// Longest pause in seconds of a workflow with a failed step
    #[arg(long = "max-workflow-failed-backoff-time", value_name = "SECONDS", default_value = "300", value_parser = number)]
    pub max_failed_backoff_seconds: u32,
    /// Number of attempts of a step that fails
    #[arg(long = "max-workflow-step-error-retry-times", value_name = "N", default_value = "10", value_parser = number)]
    pub max_step_retries: u32,
    /// Maximum number of concurrent writes of an Application's objects
    #[arg(long, value_name = "N", default_value = "10", value_parser = number)]
    pub max_dispatch_concurrent: u32,
    /// Let Applications have objects in other namespaces
    #[arg(long = "allow-cross-namespace-resource", default_value_t = true)]
    pub allow_cross_namespace: bool,
    /// Kinds of objects that Applications may have: whitelist:KIND.VERSION,… or blacklist:…; empty for all
    #[arg(long, value_name = "LIST", default_value = "")]
    pub allow_resource_types: String,
    /// Objects that components of type ref-objects may copy: global, cluster or namespace
    #[arg(long = "ref-objects-available-scope", value_name = "SCOPE", default_value = "global")]
    pub ref_objects_scope: String,
    /// With the gate AuthenticateApplication: user of Applications that name none
    #[arg(long, value_name = "USER", default_value = "kubevela:vela-core")]
    pub authentication_default_user: String,
    /// Reconcile only the Applications of the shard --shard-id
    #[arg(long)]
    pub enable_sharding: bool,
    /// Shard of this process
    #[arg(long, value_name = "NAME", default_value = "master")]
    pub shard_id: String,
    /// Address of CPU profiles; empty for none. --debug-addr takes precedence
    #[arg(long, alias = "pprof-addr", value_name = "ADDRESS", default_value = "")]
    pub profiling_addr: String,
    /// Controllers that no longer exist; logged only
    #[arg(long = "disable-caps", value_name = "NAMES", default_value = "", value_parser = capabilities)]
    pub disabled_capabilities: NameList,
    /// Path to the CUE evaluator; empty for portolan-cue beside the executable or in PATH
    #[arg(long, value_name = "FILE", default_value = "", help_heading = OWN)]
    pub cue_evaluator: String,
    /// Maximum number of processes of the evaluator
    #[arg(long, value_name = "N", default_value = "2", value_parser = number, help_heading = OWN)]
    pub cue_workers: u32,
    /// Time limit of an evaluation
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, help_heading = OWN)]
    pub cue_timeout: Duration,
    /// Memory limit of an evaluator process
    #[arg(long, value_name = "BYTES", default_value = "512MiB", help_heading = OWN)]
    pub cue_memory: Bytes,
    /// Fail on undeclared parameters and unknown keys
    #[arg(long, help_heading = OWN)]
    pub strict_validation: bool,
    /// Accept users and groups that annotations of Applications name, although no webhook protects them
    #[arg(long, help_heading = OWN)]
    pub trust_identity_annotations: bool,
    /// ServiceAccount with whose rights Applications act that name none; empty for the rights of the controller
    #[arg(long, value_name = "NAME", default_value = "", help_heading = OWN)]
    pub default_service_account: String,
    /// Refuse Applications without an identity
    #[arg(long, help_heading = OWN)]
    pub require_identity: bool,
    /// Namespaces whose Applications may read Secrets and create Applications elsewhere without an identity
    #[arg(long, value_name = "NAMESPACES", default_value = "", value_parser = NameList::parse, help_heading = OWN)]
    pub privileged_namespaces: NameList,
    /// Leave the data of Secrets out of new ApplicationRevisions
    #[arg(long, help_heading = OWN)]
    pub redact_secrets_in_revisions: bool,
    /// Let steps of workflows send requests to private networks
    #[arg(long, help_heading = OWN)]
    pub allow_private_http: bool,
    /// Deploy to joined clusters, whose Secrets are listed and watched
    #[arg(long, default_value_t = true, help_heading = OWN)]
    pub joined_clusters: bool,
    /// Accept joined clusters without ca.crt or https, whose credentials can be stolen on the way
    #[arg(long, help_heading = OWN)]
    pub allow_insecure_clusters: bool,
    /// Leave replicas to HorizontalPodAutoscalers
    #[arg(long, default_value_t = true, help_heading = OWN)]
    pub respect_hpa: bool,
    /// Let the override of component web change my-web-2 too, as vela-core does
    #[arg(long, help_heading = OWN)]
    pub compat_unanchored_override: bool,
    /// Export metrics under the names of vela-core too
    #[arg(long, help_heading = OWN)]
    pub compat_metrics: bool,
    /// Version of vela-core that this controller counts as; empty for the one whose behavior it has
    #[arg(long, value_name = "VERSION", default_value = "", help_heading = OWN)]
    pub compat_version: String,
}

impl VelaFlags {
    /// Returns the definition of all flags, with and without effect.
    pub fn command() -> Command {
        let command = Command::new("vela-core")
            .no_binary_name(true)
            .disable_help_flag(true)
            .args_override_self(true);
        Self::augment_args(command).mut_args(go_boolean)
    }

    /// Returns true for `--flag` if it has an effect here. None of these flags is secret.
    pub fn is_known(argument: &str) -> bool {
        let command = Self::command();
        let flag = argument
            .strip_prefix("--")
            .and_then(|name| find(command.get_arguments(), name));
        flag.is_some_and(|flag| !InertFlags::contains(flag))
    }

    /// Parses flags of the form `--flag=value`.
    ///
    /// # Errors
    /// The message for the first flag with an invalid value.
    pub(super) fn parse(flags: Vec<String>) -> Result<Self, String> {
        let matches = Self::command()
            .try_get_matches_from(flags)
            .map_err(|error| message(&error))?;
        Self::from_arg_matches(&matches).map_err(|error| message(&error))
    }

    /// Returns a warning for each flag and gate that is not at its default and has no effect, and for unknown gates.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let warnings = [&self.feature_gates.warnings, &self.inert.warnings];
        let webhooks = self.webhooks.warnings(&self.feature_gates);
        warnings.into_iter().flatten().cloned().chain(webhooks)
    }
}

fn message(error: &Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    match (error.kind(), error.source()) {
        (ErrorKind::ValueValidation, Some(cause)) => {
            // The name is followed by that of the value: `--v <N>`, `--use-webhook[=<BOOL>]`.
            let flag = text(ContextKind::InvalidArg)
                .split([' ', '['])
                .next()
                .unwrap_or_default();
            let value = text(ContextKind::InvalidValue);
            format!("invalid value {value:?} for {flag}: {cause}")
        }
        _ => error.to_string(),
    }
}

//! Flags of the webhooks.

use std::path::PathBuf;

use clap::Args;

use super::flags::OWN;
use super::gates::{FeatureGates, Gate, GateEntry};
use super::values::NameList;
use crate::controllers::oam::{CertificateSource, ReviewOptions, SelfSigned, WebhookOptions};
use crate::runtime::manifests::is_object_name;
use crate::server::ListenAddress;

const CERTIFICATE_DIRECTORY: &str = "/k8s-webhook-server/serving-certs";
const GROUP_PATTERN: &str = "kubevela:*";

#[derive(Args, Clone, Debug, PartialEq)]
pub struct WebhookFlags {
    /// Serve the webhooks of Applications and definitions
    #[arg(long)]
    pub use_webhook: bool,
    /// Directory with the certificate tls.crt and the key tls.key of the webhooks
    #[arg(long, value_name = "DIR", default_value = CERTIFICATE_DIRECTORY)]
    pub webhook_cert_dir: String,
    /// Port of the webhooks
    #[arg(long, value_name = "PORT", default_value = "9443")]
    pub webhook_port: u16,
    /// Create WorkloadDefinitions for ComponentDefinitions that name a kind
    #[arg(long, default_value_t = true)]
    pub autogen_workload_definition: bool,
    /// With the gate AuthenticateApplication: the webhook writes the user into annotations, not only the groups
    #[arg(long)]
    pub authentication_with_user: bool,
    /// With the gate AuthenticateApplication: groups that the webhook writes into annotations; * stands for any text
    #[arg(long, value_name = "PATTERN", default_value = GROUP_PATTERN)]
    pub authentication_group_pattern: String,
    /// Shards to which the webhook assigns Applications; empty for those of ready processes
    #[arg(long, value_name = "NAMES", default_value = "", value_parser = NameList::parse)]
    pub schedulable_shards: NameList,
    /// Make and renew the certificate of the webhooks, and write its CA into --webhook-configuration
    #[arg(long, help_heading = OWN)]
    pub webhook_self_signed: bool,
    /// Service of the webhooks, in the namespace of the pod: with --webhook-self-signed, and to tell our own webhook
    #[arg(long, value_name = "NAME", default_value = "portolan-webhook", help_heading = OWN)]
    pub webhook_service: String,
    /// With --webhook-self-signed: name of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration
    #[arg(long, value_name = "NAME", default_value = "portolan-admission", help_heading = OWN)]
    pub webhook_configuration: String,
}

/// Gates that only webhooks follow.
const GATES: [Gate; 4] = [
    Gate::ValidateDefinitionPermissions,
    Gate::ValidateComponentWhenSharding,
    Gate::DisableWebhookAutoSchedule,
    Gate::ValidateResourcesExist,
];

impl WebhookFlags {
    /// Returns a warning for each flag and gate without effect.
    pub(super) fn warnings(&self, gates: &FeatureGates) -> Vec<String> {
        if self.use_webhook {
            let is_ignored = self.webhook_self_signed && self.webhook_cert_dir != CERTIFICATE_DIRECTORY;
            let warning = is_ignored.then(|| "--webhook-cert-dir has no effect with --webhook-self-signed".to_owned());
            return Vec::from_iter(warning);
        }
        let flags = [
            (self.authentication_with_user, "authentication-with-user"),
            (
                self.authentication_group_pattern != GROUP_PATTERN,
                "authentication-group-pattern",
            ),
            (!self.schedulable_shards.0.is_empty(), "schedulable-shards"),
            (!self.autogen_workload_definition, "autogen-workload-definition"),
            (self.webhook_self_signed, "webhook-self-signed"),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
        let flags = flags.map(|(_, name)| format!("--{name} has no effect without --use-webhook"));
        let is_ignored = |entry: &&GateEntry| GATES.contains(&entry.gate) && gates.is_enabled(entry.gate);
        let gates = Gate::ALL.iter().filter(is_ignored);
        let gates = gates.map(|entry| format!("feature gate {} has no effect without --use-webhook", entry.name));
        flags.chain(gates).collect()
    }

    /// Returns the options; `None` without `--use-webhook`. `namespace` is that of the pod.
    ///
    /// # Errors
    /// A value is invalid.
    pub(super) fn options(&self, gates: &FeatureGates, namespace: &str) -> Result<Option<WebhookOptions>, String> {
        if !self.use_webhook {
            return Ok(None);
        }
        for (flag, name) in [
            ("webhook-service", &self.webhook_service),
            ("webhook-configuration", &self.webhook_configuration),
        ] {
            if !is_object_name(name) {
                return Err(format!("invalid value for --{flag}: must be the name of an object"));
            }
        }
        let address: ListenAddress = format!(":{}", self.webhook_port)
            .parse()
            .map_err(|error| format!("invalid value for --webhook-port: {error}"))?;
        Ok(Some(WebhookOptions {
            address,
            namespace: namespace.to_owned(),
            service: self.webhook_service.clone(),
            certificate: if self.webhook_self_signed {
                CertificateSource::SelfSigned(SelfSigned {
                    namespace: namespace.to_owned(),
                    service: self.webhook_service.clone(),
                    configuration: self.webhook_configuration.clone(),
                })
            } else {
                CertificateSource::Files(PathBuf::from(&self.webhook_cert_dir))
            },
            reviews: ReviewOptions {
                creates_workload_definitions: self.autogen_workload_definition,
                records_user: self.authentication_with_user,
                group_pattern: self.authentication_group_pattern.clone(),
                schedulable_shards: self.schedulable_shards.0.clone(),
                schedules_shards: !gates.is_enabled(Gate::DisableWebhookAutoSchedule),
                checks_components_of_shards: gates.is_enabled(Gate::ValidateComponentWhenSharding),
                checks_definition_rights: gates.is_enabled(Gate::ValidateDefinitionPermissions),
                checks_kinds: gates.is_enabled(Gate::ValidateResourcesExist),
            },
        }))
    }
}

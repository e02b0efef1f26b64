//! The options of the controller.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::flags::VelaFlags;
use super::gates::Gate;
use super::values::Bytes;
use crate::api::oam::compression::Format;
use crate::controllers::oam::dispatch::admission::{Admission, ResourceTypes};
use crate::controllers::oam::dispatch::decide::{self, UpdateMethod};
use crate::controllers::oam::references::ReferenceScope;
use crate::controllers::oam::rights::IdentityOptions;
use crate::controllers::oam::{ApplyOnceMode, ControllerVersions, JoinedOptions, Options, shard_label, workflow};
use crate::cue;
use crate::http::Fetcher;
use crate::runtime::kube_client::RequestTimeouts;
use crate::runtime::manifests::is_object_name;

/// The version of KubeVela whose behavior the controller has.
const COMPAT_VERSION: &str = "v1.11.0-alpha.4";

/// The name of KubeVela's Lease, and the prefix of those of other shards.
const LEASE: &str = "kubevela";

/// The shard of Applications without a shard.
const MASTER: &str = "master";

/// Shorter periods would keep a worker busy with nothing.
const MIN_RESYNC_PERIOD: Duration = Duration::from_secs(10);

impl VelaFlags {
    /// Returns the options of the controller for a namespace, or for all. `pod_namespace` has the Service of webhooks.
    /// `fetcher` reaches joined clusters, whose addresses administrators choose. Steps send HTTP requests by it too, to
    /// private networks only with their own flag: tenants choose the addresses, and see the responses.
    ///
    /// # Errors
    /// A value is invalid.
    pub fn to_options(
        &self,
        namespace: Option<String>,
        pod_namespace: &str,
        fetcher: Fetcher,
    ) -> Result<Options, String> {
        let resource_types = ResourceTypes::parse(&self.allow_resource_types)
            .map_err(|error| format!("invalid value for --allow-resource-types: {error}"))?;
        let is_enabled = |gate| self.feature_gates.is_enabled(gate);
        Ok(Options {
            workers: at_least_one(self.concurrent_reconciles),
            namespace,
            definition_namespace: self.definition_namespace.clone(),
            resync_period: self.application_resync_period.max(MIN_RESYNC_PERIOD),
            relist_period: Some(self.informer_sync_period.max(MIN_RESYNC_PERIOD))
                .filter(|_| !self.informer_sync_period.is_zero()),
            pass_timeout: non_zero("reconcile-timeout", self.reconcile_timeout)?,
            grace_period: non_zero("reconcile-termination-graceful-period", self.reconcile_grace_period)?,
            revision_limit: count(self.application_revision_limit),
            definition_revision_limit: count(self.definition_revision_limit),
            compat_version: self.compat_version().to_owned(),
            storage_driver: self.storage_driver(),
            versions: ControllerVersions {
                are_required_of_applications: self.ignore_apps_without_version,
                are_required_of_definitions: self.ignore_definitions_without_version,
            },
            shard: self.enable_sharding.then(|| shard_label(&self.shard_id)),
            workflow: workflow::WorkflowSettings {
                max_retries: self.max_step_retries,
                max_wait_backoff: seconds(self.max_wait_backoff_seconds),
                max_failed_backoff: seconds(self.max_failed_backoff_seconds),
                suspend_on_failure: is_enabled(Gate::EnableSuspendOnFailure),
            },
            dispatch: decide::DispatchSettings {
                update: if is_enabled(Gate::ApplyResourceByReplace) {
                    UpdateMethod::Replace
                } else {
                    UpdateMethod::Patch
                },
                can_take_over: is_enabled(Gate::LegacyResourceOwnerValidation),
            },
            max_concurrent_writes: at_least_one(self.max_dispatch_concurrent),
            admission: Admission {
                allow_cross_namespace: self.allow_cross_namespace,
                resource_types,
            },
            apply_once: if is_enabled(Gate::ApplyOnce) {
                ApplyOnceMode::Force
            } else {
                self.apply_once
            },
            tracker_format: self.format(Gate::ZstdResourceTracker, Gate::GzipResourceTracker),
            revision_format: self.format(Gate::ZstdApplicationRevision, Gate::GzipApplicationRevision),
            respects_autoscalers: self.respect_hpa,
            is_strict: self.strict_validation || is_enabled(Gate::ValidateUndeclaredParameters),
            has_stages: is_enabled(Gate::MultiStageComponentApply),
            has_dry_run: is_enabled(Gate::PreDispatchDryRun),
            identity: IdentityOptions {
                is_authenticated: is_enabled(Gate::AuthenticateApplication),
                default_user: self.authentication_default_user.clone(),
                trusts_annotations: self.trust_identity_annotations,
                default_service_account: self.default_service_account()?,
                is_required: self.require_identity,
                privileged_namespaces: self.privileged_namespaces.0.iter().cloned().collect(),
            },
            allows_urls: !is_enabled(Gate::DisableReferObjectsFromURL),
            redacts_secrets: self.redact_secrets_in_revisions,
            reference_scope: self.reference_scope()?,
            has_application_metrics: is_enabled(Gate::EnableApplicationStatusMetrics),
            has_compat_metrics: self.compat_metrics,
            webhooks: self.webhooks.options(&self.feature_gates, pod_namespace)?,
            evaluator: self.evaluator()?,
            fetcher: fetcher.with_private_networks(self.allow_private_http),
            joined: JoinedOptions {
                is_enabled: self.joined_clusters,
                ..JoinedOptions::new(fetcher, self.allow_insecure_clusters)
            },
            unanchored_overrides: self.compat_unanchored_override,
        })
    }

    /// Returns the memory that all evaluators may take. Reviews of webhooks have one more.
    pub fn evaluators_memory(&self) -> u64 {
        let Bytes(memory) = self.cue_memory;
        memory.saturating_mul(u64::from(self.cue_workers) + u64::from(self.webhooks.use_webhook))
    }

    fn default_service_account(&self) -> Result<Option<String>, String> {
        match self.default_service_account.trim() {
            "" => Ok(None),
            name if is_object_name(name) => Ok(Some(name.to_owned())),
            _ => Err("invalid value for --default-service-account: must be the name of a ServiceAccount".to_owned()),
        }
    }

    fn reference_scope(&self) -> Result<ReferenceScope, String> {
        let scope = ReferenceScope::parse(self.ref_objects_scope.trim());
        scope.ok_or_else(|| {
            "invalid value for --ref-objects-available-scope: must be global, cluster or namespace".to_owned()
        })
    }

    fn evaluator(&self) -> Result<cue::EvaluatorOptions, String> {
        let Bytes(memory) = self.cue_memory;
        let program = self.cue_evaluator.trim();
        Ok(cue::EvaluatorOptions {
            program: (!program.is_empty()).then(|| PathBuf::from(program)),
            workers: NonZeroUsize::new(count(self.cue_workers)).unwrap_or(NonZeroUsize::MIN),
            timeout: non_zero("cue-timeout", self.cue_timeout)?,
            memory,
        })
    }

    /// Zstd wins, as in KubeVela.
    fn format(&self, zstd: Gate, gzip: Gate) -> Option<Format> {
        let formats = [(zstd, Format::Zstd), (gzip, Format::Gzip)];
        let mut enabled = formats
            .into_iter()
            .filter(|(gate, _)| self.feature_gates.is_enabled(*gate));
        enabled.next().map(|(_, format)| format)
    }

    #[must_use]
    pub fn compat_version(&self) -> &str {
        match self.compat_version.trim() {
            "" => COMPAT_VERSION,
            version => version,
        }
    }

    /// Returns the time limits of requests. As in client-go, zero stands for no limit.
    #[must_use]
    pub fn request_timeouts(&self) -> RequestTimeouts {
        let limit = |timeout: Duration| if timeout.is_zero() { Duration::MAX } else { timeout };
        RequestTimeouts {
            get: limit(self.get_timeout),
            list: limit(self.list_timeout),
            write: limit(self.write_timeout),
        }
    }

    /// Returns the storage driver, which is only shown. The environment variable wins, as in KubeVela.
    #[must_use]
    pub fn storage_driver(&self) -> String {
        let variable = std::env::var("STORAGE_DRIVER").ok().filter(|driver| !driver.is_empty());
        variable.unwrap_or_else(|| self.storage_driver.clone())
    }

    /// Returns the name of KubeVela's Lease for the same flags, so that only one of both leads.
    #[must_use]
    pub fn lease_name(&self) -> String {
        let mut name = LEASE.to_owned();
        if self.ignore_apps_without_version {
            let version = self.compat_version().replace('.', "-").to_lowercase();
            name = format!("{name}-{version}");
        }
        if self.enable_sharding && self.shard_id != MASTER {
            name = format!("{name}-{}", self.shard_id);
        }
        name
    }
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn at_least_one(number: u32) -> usize {
    count(number).max(1)
}

fn seconds(number: u32) -> Duration {
    Duration::from_secs(number.into())
}

fn non_zero(flag: &str, duration: Duration) -> Result<Duration, String> {
    match duration {
        Duration::ZERO => Err(format!("invalid value for --{flag}: must be greater than zero")),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests;

//! The flags with their types and defaults.

use std::time::Duration;

use super::arguments::Arity;
use super::effects::IgnoredFlag;
use super::gates::FeatureGates;
use super::words::{check_spec_version, parse_apply_once, parse_capabilities};
use crate::cmd::flags::parse;
use crate::controllers::oam::ApplyOnceMode;

pub(super) use parse::boolean;

/// A value of a flag.
trait FlagValue: Sized {
    const ARITY: Arity = Arity::Value;
    fn parse(text: &str) -> Result<Self, String>;
}

impl FlagValue for bool {
    const ARITY: Arity = Arity::Boolean;
    fn parse(text: &str) -> Result<Self, String> {
        boolean(text)
    }
}

impl FlagValue for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl FlagValue for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        parse::duration(text)
    }
}

impl FlagValue for u32 {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "expected a number".to_owned())
    }
}

impl FlagValue for f64 {
    fn parse(text: &str) -> Result<Self, String> {
        let number: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
        if number.is_finite() && number >= 0.0 {
            Ok(number)
        } else {
            Err("expected a number".to_owned())
        }
    }
}

impl FlagValue for ApplyOnceMode {
    fn parse(text: &str) -> Result<Self, String> {
        parse_apply_once(text)
    }
}

/// A number of bytes: `512Mi` or `512MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FlagValue for Bytes {
    fn parse(text: &str) -> Result<Self, String> {
        parse::bytes(text.strip_suffix('B').unwrap_or(text)).map(Self)
    }
}

/// Names separated by commas.
impl FlagValue for Vec<String> {
    fn parse(text: &str) -> Result<Self, String> {
        let names = text.trim_matches(['[', ']']).split(',').map(str::trim);
        Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }
}

/// Declares the struct of flags with names, types and defaults.
macro_rules! flags {
    ($($flag:literal $field:ident: $type:ty = $default:expr;)+) => {
        /// The flags of KubeVela's controller that have an effect.
        #[derive(Clone, Debug, PartialEq)]
        pub struct OamFlags {
            pub feature_gates: FeatureGates,
            /// Controllers that no longer exist; logged only.
            pub disabled_capabilities: Vec<String>,
            $(pub $field: $type,)+
        }

        impl Default for OamFlags {
            fn default() -> Self {
                Self {
                    feature_gates: FeatureGates::default(),
                    disabled_capabilities: Vec::new(),
                    $($field: $default,)+
                }
            }
        }

        impl OamFlags {
            #[cfg(test)]
            pub(super) const FIELDS: &'static [&'static str] = &[$(stringify!($field)),+];

            fn known_arity(name: &str) -> Option<Arity> {
                match name {
                    "feature-gates" | "disable-caps" => Some(Arity::Value),
                    $($flag => Some(<$type as FlagValue>::ARITY),)+
                    _ => None,
                }
            }

            fn set_known(&mut self, name: &str, value: &str) -> Result<(), String> {
                match name {
                    $($flag => self.$field = <$type as FlagValue>::parse(value)?,)+
                    _ => {}
                }
                Ok(())
            }
        }
    };
}

const SECOND: Duration = Duration::from_secs(1);

flags! {
    "metrics-addr" metrics_addr: String = ":8080".to_owned();
    "health-addr" health_addr: String = ":9440".to_owned();
    "enable-leader-election" enable_leader_election: bool = false;
    "leader-election-namespace" leader_election_namespace: String = String::new();
    "leader-election-lease-duration" lease_duration: Duration = 15 * SECOND;
    "leader-election-renew-deadline" renew_deadline: Duration = 10 * SECOND;
    "leader-election-retry-period" retry_period: Duration = 2 * SECOND;
    "storage-driver" storage_driver: String = "Local".to_owned();
    "log-file-path" log_file_path: String = String::new();
    "log-file-max-size" log_file_max_size: u32 = 1024;
    "log-debug" log_debug: bool = false;
    "dev-logs" dev_logs: bool = false;
    "v" verbosity: u32 = 0;
    // KubeVela's default is 50. Here, the API server alone limits requests unless the flag is set.
    "kube-api-qps" kube_api_qps: f64 = 0.0;
    "kube-api-burst" kube_api_burst: u32 = 100;
    "informer-sync-period" informer_sync_period: Duration = 36_000 * SECOND;
    "application-re-sync-period" application_resync_period: Duration = 300 * SECOND;
    "reconcile-timeout" reconcile_timeout: Duration = 180 * SECOND;
    "reconcile-termination-graceful-period" reconcile_grace_period: Duration = 5 * SECOND;
    "controller-client-request-timeout" get_timeout: Duration = 10 * SECOND;
    "controller-client-long-running-request-timeout" list_timeout: Duration = 30 * SECOND;
    "controller-client-mutating-request-timeout" write_timeout: Duration = 15 * SECOND;
    "concurrent-reconciles" concurrent_reconciles: u32 = 4;
    "application-revision-limit" application_revision_limit: u32 = 10;
    "definition-revision-limit" definition_revision_limit: u32 = 20;
    "apply-once-only" apply_once: ApplyOnceMode = ApplyOnceMode::Off;
    "ignore-app-without-controller-version" ignore_apps_without_version: bool = false;
    "ignore-definition-without-controller-version" ignore_definitions_without_version: bool = false;
    "system-definition-namespace" definition_namespace: String = "vela-system".to_owned();
    "max-workflow-wait-backoff-time" max_wait_backoff_seconds: u32 = 60;
    "max-workflow-failed-backoff-time" max_failed_backoff_seconds: u32 = 300;
    "max-workflow-step-error-retry-times" max_step_retries: u32 = 10;
    "max-dispatch-concurrent" max_dispatch_concurrent: u32 = 10;
    "allow-cross-namespace-resource" allow_cross_namespace: bool = true;
    "allow-resource-types" allow_resource_types: String = String::new();
    "ref-objects-available-scope" ref_objects_scope: String = "global".to_owned();
    "authentication-default-user" authentication_default_user: String = "kubevela:vela-core".to_owned();
    "enable-sharding" enable_sharding: bool = false;
    "shard-id" shard_id: String = "master".to_owned();
    "profiling-addr" profiling_addr: String = String::new();
    "cue-evaluator" cue_evaluator: String = String::new();
    "cue-workers" cue_workers: u32 = 2;
    "cue-timeout" cue_timeout: Duration = 10 * SECOND;
    "cue-memory" cue_memory: Bytes = Bytes(512 << 20);
    "strict-validation" strict_validation: bool = false;
    "trust-identity-annotations" trust_identity_annotations: bool = false;
    "default-service-account" default_service_account: String = String::new();
    "require-identity" require_identity: bool = false;
    "privileged-namespaces" privileged_namespaces: Vec<String> = Vec::new();
    "redact-secrets-in-revisions" redact_secrets_in_revisions: bool = false;
    "allow-private-http" allow_private_http: bool = false;
    "respect-hpa" respect_hpa: bool = true;
    "compat-unanchored-override" compat_unanchored_override: bool = false;
    "compat-version" compat_version: String = String::new();
}

/// Older names of flags.
const ALIASES: [(&str, &str); 2] = [
    ("informer-re-sync-interval", "informer-sync-period"),
    ("pprof-addr", "profiling-addr"),
];

impl OamFlags {
    /// Returns true for `--flag` if it has an effect here. None of these flags is secret.
    pub fn is_known(argument: &str) -> bool {
        let name = argument.strip_prefix("--").map(canonical);
        name.is_some_and(|name| Self::known_arity(name).is_some())
    }

    /// Returns the form of a flag, `None` if it is unknown.
    pub fn arity(name: &str) -> Option<Arity> {
        let ignored = || IgnoredFlag::find(name).map(|flag| flag.form.arity());
        Self::known_arity(canonical(name)).or_else(ignored)
    }

    /// Sets a known flag and returns warnings.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<Vec<String>, String> {
        let name = canonical(name);
        if name == "oam-spec-ver" {
            check_spec_version(value)?;
        }
        if let Some(flag) = IgnoredFlag::find(name) {
            return Ok(flag.check(value)?.into_iter().collect());
        }
        match name {
            "feature-gates" => return Ok(self.feature_gates.add(value)),
            "disable-caps" => self.disabled_capabilities = parse_capabilities(value)?,
            name => self.set_known(name, value)?,
        }
        Ok(Vec::new())
    }
}

fn canonical(name: &str) -> &str {
    ALIASES
        .iter()
        .find(|(alias, _)| *alias == name)
        .map_or(name, |(_, name)| name)
}

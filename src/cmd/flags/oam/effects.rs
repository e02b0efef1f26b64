//! The effects of KubeVela's flags and feature gates, and the flags whose value changes nothing.

use std::time::Duration;

use super::arguments::Arity;
use crate::cmd::flags::parse;

/// The effect of a flag or a feature gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Its value is used.
    Implemented,
    /// The controller always works as with the default.
    Default,
    /// There is nothing that it could change.
    Ignored,
    /// Its feature is not there yet.
    Unsupported,
}

impl Effect {
    /// Returns the warning about a value other than the default. `name` is that of the flag or gate.
    pub(super) fn warning(self, name: &str) -> Option<String> {
        match self {
            Self::Implemented => None,
            Self::Default => Some(format!(
                "{name} has no effect: this controller always works as with the default"
            )),
            Self::Ignored => Some(format!("{name} has no effect on this controller")),
            Self::Unsupported => Some(format!("{name} is not supported yet and ignored")),
        }
    }
}

/// The form of a value that is checked and compared with the default, and not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Boolean,
    Number,
    Duration,
    Text,
}

impl Form {
    pub(super) const fn arity(self) -> Arity {
        match self {
            Self::Boolean => Arity::Boolean,
            Self::Number | Self::Duration | Self::Text => Arity::Value,
        }
    }

    fn parse(self, text: &str) -> Result<Parsed<'_>, String> {
        match self {
            Self::Boolean => parse::boolean(text).map(Parsed::Boolean),
            Self::Number => text
                .parse()
                .map(Parsed::Number)
                .map_err(|_| "expected a number".to_owned()),
            Self::Duration => parse::duration(text).map(Parsed::Duration),
            Self::Text => Ok(Parsed::Text(text.trim_matches(['[', ']']))),
        }
    }
}

#[derive(PartialEq)]
enum Parsed<'a> {
    Boolean(bool),
    Number(f64),
    Duration(Duration),
    Text(&'a str),
}

/// A flag whose value changes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct IgnoredFlag {
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// The value as which the controller works; any value is another one if `None`.
    pub(super) default: Option<&'static str>,
    pub(super) effect: Effect,
}

impl IgnoredFlag {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        IGNORED.iter().find(|flag| flag.name == name)
    }

    /// Returns a warning unless the value is the default.
    ///
    /// # Errors
    /// The value is invalid.
    pub(super) fn check(&self, value: &str) -> Result<Option<String>, String> {
        let parsed = self.form.parse(value)?;
        let is_default = self
            .default
            .is_some_and(|default| self.form.parse(default).as_ref() == Ok(&parsed));
        Ok(match is_default {
            true => None,
            false => self.effect.warning(&format!("--{}", self.name)),
        })
    }
}

const fn flag(name: &'static str, form: Form, default: &'static str, effect: Effect) -> IgnoredFlag {
    IgnoredFlag {
        name,
        form,
        default: Some(default),
        effect,
    }
}

/// A flag whose default in KubeVela differs between its versions.
const fn unknown(name: &'static str, form: Form, effect: Effect) -> IgnoredFlag {
    IgnoredFlag {
        name,
        form,
        default: None,
        effect,
    }
}

use Effect::{Default as AlwaysDefault, Ignored, Unsupported};
use Form::{Boolean, Duration as Time, Number, Text};

/// In the order of KubeVela's documentation.
pub(super) const IGNORED: &[IgnoredFlag] = &[
    flag("leader-election-resource-lock", Text, "leases", Ignored),
    flag("use-webhook", Boolean, "false", Unsupported),
    flag(
        "webhook-cert-dir",
        Text,
        "/k8s-webhook-server/serving-certs",
        Unsupported,
    ),
    flag("webhook-port", Number, "9443", Unsupported),
    flag("autogen-workload-definition", Boolean, "true", Unsupported),
    flag("authentication-with-user", Boolean, "false", Unsupported),
    flag("authentication-group-pattern", Text, "kubevela:*", Unsupported),
    flag("schedulable-shards", Text, "", Unsupported),
    flag("sharding-slave-discovery-resync-period", Time, "5m", Unsupported),
    flag("enable-cluster-gateway", Boolean, "false", Unsupported),
    flag("cluster-gateway-url", Text, "", Unsupported),
    flag("cluster-gateway-ca-file", Text, "", Unsupported),
    flag("enable-cluster-metrics", Boolean, "false", Unsupported),
    flag("cluster-metrics-interval", Time, "15s", Unsupported),
    unknown("disable-remote-cluster-client", Boolean, Unsupported),
    unknown("remote-cluster-client-cache-timeout", Time, Unsupported),
    unknown("remote-cluster-client-cache-prune-probability", Number, Unsupported),
    unknown("multi-cluster-enabled", Boolean, Unsupported),
    flag("custom-revision-hook-url", Text, "", Unsupported),
    flag("optimize-disable-application-revision", Boolean, "false", Unsupported),
    flag("optimize-disable-component-revision", Boolean, "false", Ignored),
    flag(
        "enable-external-package-for-default-compiler",
        Boolean,
        "false",
        Unsupported,
    ),
    flag(
        "enable-external-package-watch-for-default-compiler",
        Boolean,
        "false",
        Unsupported,
    ),
    flag("enable-cue-version-compatibility", Boolean, "true", AlwaysDefault),
    flag("cue-compatibility-cache-size", Number, "2000", Ignored),
    flag("oam-spec-ver", Text, "v0.3", Ignored),
    flag("revision-limit", Number, "50", Ignored),
    flag("depend-check-wait", Time, "30s", Ignored),
    flag("enable-asi-compatibility", Boolean, "false", Ignored),
    flag("optimize-cached-gvks", Text, "", Ignored),
    flag("optimize-list-op", Boolean, "true", AlwaysDefault),
    flag("optimize-resource-tracker-list-op", Boolean, "true", AlwaysDefault),
    flag(
        "optimize-controller-reconcile-loop-reduction",
        Boolean,
        "false",
        Ignored,
    ),
    flag("optimize-mark-with-prob", Number, "0.1", Ignored),
    flag("optimize-disable-workflow-recorder", Boolean, "false", Ignored),
    flag("optimize-enable-in-memory-workflow-context", Boolean, "false", Ignored),
    flag(
        "optimize-disable-resource-apply-double-check",
        Boolean,
        "false",
        Ignored,
    ),
    flag(
        "optimize-enable-resource-tracker-delete-only-trigger",
        Boolean,
        "true",
        AlwaysDefault,
    ),
    flag(
        "application-revision-definition-storage-prune-duration",
        Time,
        "5m",
        Ignored,
    ),
    flag("perf-enabled", Boolean, "false", Ignored),
    flag("development", Boolean, "false", Ignored),
    flag("vmodule", Text, "", Ignored),
    flag("stderrthreshold", Text, "2", Ignored),
    flag("log-dir", Text, "", Ignored),
    flag("log-file", Text, "", Ignored),
    flag("log-backtrace-at", Text, ":0", Ignored),
    flag("logtostderr", Boolean, "true", AlwaysDefault),
    flag("alsologtostderr", Boolean, "false", Ignored),
    flag("add-dir-header", Boolean, "false", Ignored),
    flag("one-output", Boolean, "false", Ignored),
    flag("skip-headers", Boolean, "false", Ignored),
    flag("skip-log-headers", Boolean, "false", Ignored),
    unknown("legacy-stderr-threshold-behavior", Boolean, Ignored),
];

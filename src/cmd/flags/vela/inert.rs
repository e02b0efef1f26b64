//! Flags and gates by their effect, and the flags whose value changes nothing.

use std::time::Duration;

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::values::check_spec_version;
use crate::cmd::flags::parse;

/// The effect of a flag or a feature gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagEffect {
    /// Its value is used.
    Implemented,
    /// The controller always works as with the default.
    Default,
    /// There is nothing that it could change.
    NoEffect,
    /// Its feature is not there yet.
    Unsupported,
}

impl FlagEffect {
    pub const ALL: [Self; 4] = [Self::Implemented, Self::Default, Self::NoEffect, Self::Unsupported];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Implemented => "Implemented",
            Self::Default => "Always as with the default",
            Self::NoEffect => "Without effect",
            Self::Unsupported => "Not supported yet",
        }
    }

    /// Returns the warning about a value other than the default. `name` is that of the flag or gate.
    pub(super) fn warning(self, name: &str) -> Option<String> {
        match self {
            Self::Implemented => None,
            Self::Default => Some(format!(
                "{name} has no effect: this controller always works as with the default"
            )),
            Self::NoEffect => Some(format!("{name} has no effect on this controller")),
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
    SpecVersion,
}

impl Form {
    fn parse(self, text: &str) -> Result<ParsedValue<'_>, String> {
        match self {
            Self::Boolean => parse::boolean(text).map(ParsedValue::Boolean),
            Self::Number => text
                .parse()
                .map(ParsedValue::Number)
                .map_err(|_| "expected a number".to_owned()),
            Self::Duration => parse::duration(text).map(ParsedValue::Duration),
            Self::Text => Ok(ParsedValue::Text(text.trim_matches(['[', ']']))),
            Self::SpecVersion => check_spec_version(text).map(|()| ParsedValue::Text(text)),
        }
    }

    const fn value_name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOL",
            Self::Number => "N",
            Self::Duration => "DURATION",
            Self::Text => "TEXT",
            Self::SpecVersion => "VERSION",
        }
    }
}

#[derive(PartialEq)]
enum ParsedValue<'a> {
    Boolean(bool),
    Number(f64),
    Duration(Duration),
    Text(&'a str),
}

/// A flag whose value changes nothing.
#[derive(Debug)]
pub(super) struct InertFlag {
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// The value as which the controller works; any value is another one if `None`.
    pub(super) default: Option<&'static str>,
    pub(super) effect: FlagEffect,
    pub(super) help: &'static str,
}

impl InertFlag {
    /// Returns a warning unless the value is the default.
    ///
    /// # Errors
    /// The value is invalid.
    fn check(&self, value: &str) -> Result<Option<String>, String> {
        let parsed = self.form.parse(value)?;
        let is_default = self
            .default
            .is_some_and(|default| self.form.parse(default).as_ref() == Ok(&parsed));
        if is_default {
            return Ok(None);
        }
        Ok(self.effect.warning(&format!("--{}", self.name)))
    }

    fn argument(&'static self) -> Arg {
        let argument = Arg::new(self.name)
            .long(self.name)
            .value_name(self.form.value_name())
            .help(self.help)
            .value_parser(move |value: &str| self.check(value));
        if self.form == Form::Boolean {
            return argument
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true");
        }
        argument
    }
}

/// The warnings about flags whose value changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InertFlags {
    pub(super) warnings: Vec<String>,
}

impl InertFlags {
    pub(super) fn contains(flag: &Arg) -> bool {
        INERT.iter().any(|inert| *flag.get_id() == inert.name)
    }
}

impl FromArgMatches for InertFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let warnings = INERT
            .iter()
            .filter_map(|flag| matches.get_one::<Option<String>>(flag.name).cloned().flatten());
        Ok(Self {
            warnings: warnings.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for InertFlags {
    fn augment_args(command: Command) -> Command {
        command.args(INERT.iter().map(InertFlag::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Declares the flags: name, form, default and effect, and help.
macro_rules! inert {
    ($($name:literal: $form:ident = $default:expr, $effect:ident, $help:literal;)+) => {
        &[$(InertFlag {
            name: $name,
            form: Form::$form,
            default: $default,
            effect: FlagEffect::$effect,
            help: $help,
        }),+]
    };
}

/// In the order of KubeVela's documentation. Defaults that differ between its versions are `None`.
pub(super) const INERT: &[InertFlag] = inert! {
    "leader-election-resource-lock": Text = Some("leases"), NoEffect, "Kind of the lock; always a Lease";
    "sharding-slave-discovery-resync-period": Duration = Some("5m"), Unsupported, "Time between two searches for the processes of shards";
    "enable-cluster-gateway": Boolean = Some("false"), NoEffect, "Reach joined clusters by a gateway; this controller connects to them itself";
    "cluster-gateway-url": Text = Some(""), NoEffect, "Address of the gateway to joined clusters";
    "cluster-gateway-ca-file": Text = Some(""), NoEffect, "CA of the gateway to joined clusters";
    "enable-cluster-metrics": Boolean = Some("false"), Unsupported, "Collect metrics of joined clusters";
    "cluster-metrics-interval": Duration = Some("15s"), Unsupported, "Time between two collections of metrics of joined clusters";
    "disable-remote-cluster-client": Boolean = None, NoEffect, "Reach joined clusters by the gateway only";
    "remote-cluster-client-cache-timeout": Duration = None, NoEffect, "Time for which clients of joined clusters are cached; here as long as they are joined";
    "remote-cluster-client-cache-prune-probability": Number = None, NoEffect, "Probability with which a request drops expired clients";
    "multi-cluster-enabled": Boolean = None, NoEffect, "Deploy to joined clusters; this controller always does";
    "custom-revision-hook-url": Text = Some(""), Unsupported, "Address that is asked for the revision of a component";
    "optimize-disable-application-revision": Boolean = Some("false"), Unsupported, "Create no ApplicationRevisions";
    "optimize-disable-component-revision": Boolean = Some("false"), NoEffect, "Create no revisions of components; this controller never does";
    "enable-external-package-for-default-compiler": Boolean = Some("false"), Unsupported, "Let templates import packages of the cluster";
    "enable-external-package-watch-for-default-compiler": Boolean = Some("false"), Unsupported, "Watch packages of the cluster";
    "enable-cue-version-compatibility": Boolean = Some("true"), Default, "Rewrite templates for older versions of CUE";
    "cue-compatibility-cache-size": Number = Some("2000"), NoEffect, "Number of rewritten templates that are cached";
    "oam-spec-ver": SpecVersion = Some("v0.3"), NoEffect, "Version of the specification: all, v0.3 or minimal, which run the same controllers";
    "revision-limit": Number = Some("50"), NoEffect, "Number of revisions of components that are kept";
    "depend-check-wait": Duration = Some("30s"), NoEffect, "Pause until missing dependencies are looked for again; here their events end the wait";
    "enable-asi-compatibility": Boolean = Some("false"), NoEffect, "Create objects for another platform";
    "optimize-cached-gvks": Text = Some(""), NoEffect, "Kinds that are cached; here all kinds that are in use";
    "optimize-list-op": Boolean = Some("true"), Default, "Read lists from the cache";
    "optimize-resource-tracker-list-op": Boolean = Some("true"), Default, "Read ResourceTrackers from the cache by an index";
    "optimize-controller-reconcile-loop-reduction": Boolean = Some("false"), NoEffect, "Skip passes without a change";
    "optimize-mark-with-prob": Number = Some("0.1"), NoEffect, "Probability with which a pass looks for objects to collect; here each pass does";
    "optimize-disable-workflow-recorder": Boolean = Some("false"), NoEffect, "Record no ended workflows; this controller never does";
    "optimize-enable-in-memory-workflow-context": Boolean = Some("false"), NoEffect, "Keep values of steps in memory";
    "optimize-disable-resource-apply-double-check": Boolean = Some("false"), NoEffect, "Read objects from the cache only";
    "optimize-enable-resource-tracker-delete-only-trigger": Boolean = Some("true"), Default, "Start a pass only when a ResourceTracker is deleted";
    "application-revision-definition-storage-prune-duration": Duration = Some("5m"), NoEffect, "Time between two removals of cached definitions without users";
    "perf-enabled": Boolean = Some("false"), NoEffect, "Log durations; see the metrics";
    "development": Boolean = Some("false"), NoEffect, "Log as text; see --dev-logs";
    "vmodule": Text = Some(""), NoEffect, "Verbosity by file; see --log-level";
    "stderrthreshold": Text = Some("2"), NoEffect, "Level from which lines go to the standard error";
    "log-dir": Text = Some(""), NoEffect, "Directory for files of the log; see --log-file-path";
    "log-file": Text = Some(""), NoEffect, "File for the log; see --log-file-path";
    "log-backtrace-at": Text = Some(":0"), NoEffect, "Line of the source whose log entries have a stack trace";
    "logtostderr": Boolean = Some("true"), Default, "Log to the standard error";
    "alsologtostderr": Boolean = Some("false"), NoEffect, "Log to the standard error besides files";
    "add-dir-header": Boolean = Some("false"), NoEffect, "Add the directory of the source to log lines";
    "one-output": Boolean = Some("false"), NoEffect, "Write each line to the file of its level only";
    "skip-headers": Boolean = Some("false"), NoEffect, "Leave the prefix of log lines out";
    "skip-log-headers": Boolean = Some("false"), NoEffect, "Leave headers of log files out";
    "legacy-stderr-threshold-behavior": Boolean = None, NoEffect, "Apply --stderrthreshold as earlier versions of klog";
};

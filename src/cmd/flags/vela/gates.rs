//! KubeVela's feature gates.

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::inert::FlagEffect;
use crate::cmd::flags::parse::boolean;

const FLAG: &str = "feature-gates";

/// A feature gate of vela-core.
#[derive(Debug)]
pub(super) struct GateEntry {
    pub(super) gate: Gate,
    pub(super) name: &'static str,
    pub(super) default: bool,
    pub(super) effect: FlagEffect,
    pub(super) help: &'static str,
}

/// Declares the gates: name, default, effect and help.
macro_rules! gates {
    ($($name:ident = $default:literal, $effect:ident, $help:literal;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Gate { $($name),+ }

        impl Gate {
            pub(super) const ALL: &'static [GateEntry] = &[$(GateEntry {
                gate: Gate::$name,
                name: stringify!($name),
                default: $default,
                effect: FlagEffect::$effect,
                help: $help,
            }),+];
        }
    };
}

gates! {
    MultiStageComponentApply = true, Implemented, "Objects of traits are applied before, with or after the workload, as their definition says";
    PreDispatchDryRun = true, Implemented, "Objects are written only if the API server would accept all of a component";
    ApplyOnce = false, Implemented, "As --apply-once-only=force";
    AuthenticateApplication = false, Implemented, "Applications act as the user that a webhook writes into their annotations";
    ZstdResourceTracker = false, Implemented, "ResourceTrackers are compressed by zstd";
    GzipResourceTracker = false, Implemented, "ResourceTrackers are compressed by gzip";
    ZstdApplicationRevision = false, Implemented, "ApplicationRevisions are compressed by zstd";
    GzipApplicationRevision = false, Implemented, "ApplicationRevisions are compressed by gzip";
    EnableSuspendOnFailure = false, Implemented, "A workflow is suspended when a step has no attempts left";
    ApplyResourceByReplace = false, Implemented, "Objects are replaced instead of patched";
    LegacyResourceOwnerValidation = false, Implemented, "Existing objects without an owner are taken over";
    DisableReferObjectsFromURL = false, Implemented, "Components of type ref-objects with urls are refused";
    EnableApplicationStatusMetrics = false, Implemented, "Gauges of the phase and health of each Application";
    ValidateUndeclaredParameters = false, Implemented, "Undeclared parameters are errors";
    InformerCacheFilterUnnecessaryFields = true, Default, "Fields that the controller does not read are not cached";
    SharedDefinitionStorageForApplicationRevision = true, Default, "Equal definitions of revisions are cached once";
    DisableWorkflowContextConfigMapCache = true, Default, "Values of steps are read from the API server";
    EnablePatchStatusAtOnce = false, NoEffect, "The status is written during a pass; here a pass writes it once";
    ValidateDefinitionPermissions = false, Implemented, "A webhook checks the rights that definitions need";
    ValidateComponentWhenSharding = false, Implemented, "A webhook checks components although shards are enabled";
    DisableWebhookAutoSchedule = false, Implemented, "No webhook assigns Applications to shards";
    ValidateResourcesExist = false, Implemented, "A webhook refuses definitions of kinds that are not installed";
    EnableCueValidation = false, Unsupported, "A webhook checks that required parameters are set";
    DisableBootstrapClusterInfo = false, NoEffect, "The versions of joined clusters are not read at the start; here with the first connection";
    LegacyResourceTrackerGC = false, Unsupported, "ResourceTrackers of KubeVela before 1.2 are collected";
    EnableGlobalPolicies = false, Unsupported, "Policies of the definitions' namespace apply to all Applications";
    EnableApplicationScopedPolicies = false, Unsupported, "Policies with the scope Application are rendered";
    EnableBackupWorkflowRecord = false, Unsupported, "Records of ended workflows are stored elsewhere";
    EnableWatchEventListener = false, Unsupported, "Workflows go on at events of objects that they name";
    DeprecatedPolicySpec = false, Unsupported, "The deprecated form of policies is accepted";
    DeprecatedObjectLabelSelector = false, Unsupported, "Components of type ref-objects select labels in the deprecated form";
    LegacyObjectTypeIdentifier = false, Unsupported, "Components of type ref-objects name kinds in the older form";
    LegacyComponentRevision = false, Unsupported, "Components have revisions as before KubeVela 1.8";
}

/// Older names of gates.
const ALIASES: [(&str, &str); 1] = [("ApplyResourceByUpdate", "ApplyResourceByReplace")];

impl GateEntry {
    pub(super) fn older_names(&self) -> impl Iterator<Item = &'static str> {
        let aliases = ALIASES.iter().filter(|(_, name)| *name == self.name);
        aliases.map(|(alias, _)| *alias)
    }
}

/// The values of `--feature-gates`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// In the order of the flags; the last change of a gate counts.
    changes: Vec<GateChange>,
    pub(super) warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GateChange {
    gate: Gate,
    is_enabled: bool,
}

impl FeatureGates {
    #[must_use]
    pub fn is_enabled(&self, gate: Gate) -> bool {
        let change = self.changes.iter().rev().find(|change| change.gate == gate);
        let default = || Gate::ALL.iter().any(|entry| entry.gate == gate && entry.default);
        change.map_or_else(default, |change| change.is_enabled)
    }

    /// Adds the gates of one flag, `A=true,B=false`, and warnings about those that are unknown or without effect.
    fn add(&mut self, text: &str) {
        let settings = text.split(',').map(str::trim).filter(|setting| !setting.is_empty());
        for setting in settings {
            if let Err(warning) = self.add_gate(setting) {
                self.warnings.push(warning);
            }
        }
    }

    fn add_gate(&mut self, setting: &str) -> Result<(), String> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        let (name, value) = (name.trim(), value.trim());
        let has_name = |entry: &&GateEntry| entry.name == name || entry.older_names().any(|older| older == name);
        let entry = (Gate::ALL.iter().find(has_name)).ok_or_else(|| format!("unknown feature gate {name} ignored"))?;
        let is_enabled =
            boolean(value).map_err(|error| format!("feature gate {name} ignored: invalid value {value:?}: {error}"))?;
        self.changes.push(GateChange {
            gate: entry.gate,
            is_enabled,
        });
        let warning = entry.effect.warning(&format!("feature gate {name}"));
        match warning.filter(|_| is_enabled != entry.default) {
            None => Ok(()),
            Some(warning) => Err(warning),
        }
    }
}

impl FromArgMatches for FeatureGates {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut gates = Self::default();
        for text in matches.get_many::<String>(FLAG).into_iter().flatten() {
            gates.add(text);
        }
        Ok(gates)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for FeatureGates {
    fn augment_args(command: Command) -> Command {
        let flag = Arg::new(FLAG)
            .long(FLAG)
            .value_name("GATE=BOOL,...")
            .action(ArgAction::Append)
            .help("Feature gates; can be repeated");
        command.arg(flag)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

//! KubeVela's feature gates.

use super::effects::Effect;

/// Declares the gates: name, default and effect.
macro_rules! gates {
    ($($name:ident = $default:literal, $effect:ident;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Gate { $($name),+ }

        impl Gate {
            pub(super) const ALL: &'static [(&'static str, Gate, bool, Effect)] =
                &[$((stringify!($name), Gate::$name, $default, Effect::$effect)),+];
        }
    };
}

gates! {
    MultiStageComponentApply = true, Implemented;
    PreDispatchDryRun = true, Implemented;
    ApplyOnce = false, Implemented;
    AuthenticateApplication = false, Implemented;
    ZstdResourceTracker = false, Implemented;
    GzipResourceTracker = false, Implemented;
    ZstdApplicationRevision = false, Implemented;
    GzipApplicationRevision = false, Implemented;
    EnableSuspendOnFailure = false, Implemented;
    ApplyResourceByReplace = false, Implemented;
    LegacyResourceOwnerValidation = false, Implemented;
    DisableReferObjectsFromURL = false, Implemented;
    EnableApplicationStatusMetrics = false, Implemented;
    ValidateUndeclaredParameters = false, Implemented;
    InformerCacheFilterUnnecessaryFields = true, Default;
    SharedDefinitionStorageForApplicationRevision = true, Default;
    DisableWorkflowContextConfigMapCache = true, Default;
    // A pass writes the status once.
    EnablePatchStatusAtOnce = false, Ignored;
    // Of webhooks.
    ValidateDefinitionPermissions = false, Unsupported;
    ValidateComponentWhenSharding = false, Unsupported;
    DisableWebhookAutoSchedule = false, Unsupported;
    ValidateResourcesExist = false, Unsupported;
    EnableCueValidation = false, Unsupported;
    // Of other clusters.
    DisableBootstrapClusterInfo = false, Unsupported;
    LegacyResourceTrackerGC = false, Unsupported;
    EnableGlobalPolicies = false, Unsupported;
    EnableApplicationScopedPolicies = false, Unsupported;
    EnableBackupWorkflowRecord = false, Unsupported;
    EnableWatchEventListener = false, Unsupported;
    DeprecatedPolicySpec = false, Unsupported;
    DeprecatedObjectLabelSelector = false, Unsupported;
    LegacyObjectTypeIdentifier = false, Unsupported;
    LegacyComponentRevision = false, Unsupported;
}

/// Older names of gates.
const ALIASES: [(&str, &str); 1] = [("ApplyResourceByUpdate", "ApplyResourceByReplace")];

/// The values of `--feature-gates`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// In the order of the flags; the last one of a gate counts.
    changes: Vec<(Gate, bool)>,
}

impl FeatureGates {
    #[must_use]
    pub fn is_enabled(&self, gate: Gate) -> bool {
        let change = self.changes.iter().rev().find(|(name, _)| *name == gate);
        let default = || Gate::ALL.iter().any(|(_, name, default, _)| *name == gate && *default);
        change.map_or_else(default, |(_, is_enabled)| *is_enabled)
    }

    /// Adds the gates of one flag, `A=true,B=false`. Returns warnings about those that are unknown or without effect.
    pub(super) fn add(&mut self, text: &str) -> Vec<String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.filter_map(|entry| self.add_gate(entry).err()).collect()
    }

    fn add_gate(&mut self, entry: &str) -> Result<(), String> {
        let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
        let (name, value) = (name.trim(), value.trim());
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let current = alias.map_or(name, |(_, current)| current);
        let (_, gate, default, effect) = Gate::ALL
            .iter()
            .find(|(known, ..)| *known == current)
            .ok_or_else(|| format!("unknown feature gate {name} ignored"))?;
        let is_enabled = super::options::boolean(value)
            .map_err(|error| format!("feature gate {name} ignored: invalid value {value:?}: {error}"))?;
        self.changes.push((*gate, is_enabled));
        let warning = effect.warning(&format!("feature gate {name}"));
        match warning.filter(|_| is_enabled != *default) {
            None => Ok(()),
            Some(warning) => Err(warning),
        }
    }
}

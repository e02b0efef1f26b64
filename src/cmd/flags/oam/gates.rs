//! KubeVela's feature gates.

/// Declares the gates: name, default, and false for those without effect.
macro_rules! gates {
    ($($name:ident = $default:literal, $has_effect:literal;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Gate { $($name),+ }

        impl Gate {
            const ALL: &'static [(&'static str, Gate, bool, bool)] =
                &[$((stringify!($name), Gate::$name, $default, $has_effect)),+];
        }
    };
}

gates! {
    MultiStageComponentApply = true, true;
    PreDispatchDryRun = true, true;
    ApplyOnce = false, true;
    AuthenticateApplication = false, true;
    ZstdResourceTracker = false, true;
    GzipResourceTracker = false, true;
    ZstdApplicationRevision = false, true;
    GzipApplicationRevision = false, true;
    EnableSuspendOnFailure = false, true;
    ApplyResourceByReplace = false, true;
    LegacyResourceOwnerValidation = false, true;
    DisableReferObjectsFromURL = false, true;
    ValidateDefinitionPermissions = false, true;
    ValidateComponentWhenSharding = false, true;
    DisableWebhookAutoSchedule = false, true;
    DisableBootstrapClusterInfo = false, true;
    EnablePatchStatusAtOnce = false, true;
    EnableApplicationStatusMetrics = false, true;
    ValidateUndeclaredParameters = false, true;
    // Always on here; nothing is kept that they would filter.
    InformerCacheFilterUnnecessaryFields = true, true;
    SharedDefinitionStorageForApplicationRevision = true, true;
    DisableWorkflowContextConfigMapCache = true, true;
    EnableCueValidation = false, false;
    EnableGlobalPolicies = false, false;
    EnableApplicationScopedPolicies = false, false;
    ValidateResourcesExist = false, false;
    EnableBackupWorkflowRecord = false, false;
    EnableWatchEventListener = false, false;
    DeprecatedPolicySpec = false, false;
    DeprecatedObjectLabelSelector = false, false;
    LegacyObjectTypeIdentifier = false, false;
    LegacyResourceTrackerGC = false, false;
    LegacyComponentRevision = false, false;
}

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
        let (_, gate, default, has_effect) = Gate::ALL
            .iter()
            .find(|(known, ..)| *known == name)
            .ok_or_else(|| format!("unknown feature gate {name} ignored"))?;
        let is_enabled = super::options::boolean(value)
            .map_err(|error| format!("feature gate {name} ignored: invalid value {value:?}: {error}"))?;
        self.changes.push((*gate, is_enabled));
        match *has_effect || is_enabled == *default {
            true => Ok(()),
            false => Err(format!("feature gate {name} is not supported yet")),
        }
    }
}

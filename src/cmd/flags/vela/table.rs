//! All flags and gates of KubeVela's controller with their effect, for help and reference.

use clap::Arg;

use super::flags::{OWN, VelaFlags};
use super::gates::Gate;
use super::inert::{FlagEffect, INERT};

/// A flag or gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagEntry {
    pub name: String,
    pub older_names: Vec<String>,
    /// `None` if the default differs between versions of KubeVela.
    pub default: Option<String>,
    pub effect: FlagEffect,
    /// True for flags that vela-core does not have.
    pub is_own: bool,
    pub help: String,
}

/// Returns the flags in the order of their definition.
pub fn flag_entries() -> Vec<FlagEntry> {
    VelaFlags::command().get_arguments().map(flag_entry).collect()
}

fn flag_entry(flag: &Arg) -> FlagEntry {
    let name = flag.get_long().unwrap_or_default();
    let inert = INERT.iter().find(|inert| inert.name == name);
    let default = || {
        let values = flag.get_default_values().iter();
        values.map(|value| value.to_string_lossy().into_owned()).collect()
    };
    FlagEntry {
        name: format!("--{name}"),
        older_names: flag
            .get_all_aliases()
            .into_iter()
            .flatten()
            .map(|alias| format!("--{alias}"))
            .collect(),
        default: match inert {
            Some(inert) => inert.default.map(str::to_owned),
            None => Some(default()),
        },
        effect: inert.map_or(FlagEffect::Implemented, |inert| inert.effect),
        is_own: flag.get_help_heading() == Some(OWN),
        help: flag.get_help().map(ToString::to_string).unwrap_or_default(),
    }
}

/// Returns the feature gates in the order of their definition.
pub fn gate_entries() -> Vec<FlagEntry> {
    let entries = Gate::ALL.iter().map(|entry| FlagEntry {
        name: entry.name.to_owned(),
        older_names: entry.older_names().map(str::to_owned).collect(),
        default: Some(entry.default.to_string()),
        effect: entry.effect,
        is_own: false,
        help: entry.help.to_owned(),
    });
    entries.collect()
}

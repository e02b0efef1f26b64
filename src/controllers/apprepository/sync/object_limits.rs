use std::fmt;

use super::filter_process::process_memory;

const MIB: u64 = 1024 * 1024;

/// Maximum memory of one object in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLimits {
    pub index: u64,
    /// Values of a filter, besides its process.
    pub filter: u64,
    pub archive: u64,
    pub icon: u64,
}

impl Default for ObjectLimits {
    fn default() -> Self {
        Self {
            index: 64 * MIB,
            filter: 32 * MIB,
            archive: 32 * MIB,
            icon: 28 * MIB,
        }
    }
}

/// A limit that is lower than the default, because a namespace may hold half of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowered {
    pub object: &'static str,
    pub from: u64,
    pub to: u64,
}

impl ObjectLimits {
    /// Returns the limits for a memory budget, and the lowered defaults. An index and its filter fit together.
    #[must_use]
    pub fn within(budget: u64) -> (Self, Vec<Lowered>) {
        let (default, share) = (Self::default(), budget / 2);
        let for_values = share.saturating_sub(process_memory(0));
        let limits = Self {
            index: default.index.min(for_values / 3 * 2),
            filter: default.filter.min(for_values / 3),
            archive: default.archive.min(share),
            icon: default.icon.min(share),
        };
        let all = [
            ("index", default.index, limits.index),
            ("filter", default.filter, limits.filter),
            ("archive", default.archive, limits.archive),
            ("icon", default.icon, limits.icon),
        ];
        let lowered = all
            .into_iter()
            .filter(|(_, from, to)| to < from)
            .map(|(object, from, to)| Lowered { object, from, to });
        (limits, lowered.collect())
    }
}

impl fmt::Display for Lowered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, from, to } = self;
        write!(
            f,
            "{object} limit lowered from {from} to {to} bytes to fit half of --memory-budget"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::apprepository::chart_files::icon_decoder as icon;
    use crate::helm::archive;

    #[test]
    fn the_defaults_fit_the_default_budget() {
        assert_eq!(ObjectLimits::within(256 * MIB), (ObjectLimits::default(), Vec::new()));
    }

    #[test]
    fn all_objects_fit_half_of_any_budget() {
        for budget in [32, 64, 100, 200, 1024].map(|mib| mib * MIB) {
            let (limits, lowered) = ObjectLimits::within(budget);
            let share = budget / 2;
            assert!(limits.index + process_memory(limits.filter) <= share, "{limits:?}");
            assert!(limits.index >= MIB && limits.filter >= MIB, "{limits:?}");
            assert!(
                archive::ArchiveLimits::default().within(limits.archive).memory() <= share,
                "{limits:?}"
            );
            let icon = icon::IconLimits::default().within(limits.icon);
            assert!(icon::COPIES * icon.bytes as u64 + icon.memory() <= share, "{limits:?}");
            assert_eq!(lowered.is_empty(), budget >= 256 * MIB, "{lowered:?}");
        }
    }

    #[test]
    fn a_lowered_limit_names_both_figures() {
        let (_, lowered) = ObjectLimits::within(64 * MIB);
        assert_eq!(
            lowered[0].to_string(),
            "index limit lowered from 67108864 to 13981012 bytes to fit half of --memory-budget"
        );
    }
}

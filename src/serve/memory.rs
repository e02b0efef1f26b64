//! Divides `--catalog-memory`. Of its eighths, four are for the snapshot, three for the charts of a large repository that are
//! read while their predecessors are still served, and one for those of small repositories.

use std::collections::BTreeMap;

use crate::api::NamespacedName;

/// Limits move in steps of this part of the memory, so that a small change of one namespace does not reload another.
const STEPS: u64 = 64;

/// A limit in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogMemory(u64);

impl CatalogMemory {
    pub const UNLIMITED: Self = Self(u64::MAX);

    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the limit of all charts in the snapshot.
    const fn snapshot(self) -> u64 {
        self.0 / 8 * 4
    }

    /// Returns the limit of a namespace that needs more than others, and of a repository that is being read.
    pub(super) const fn most(self) -> u64 {
        self.0 / 8 * 3
    }

    /// Returns the size up to which repositories are small. Twice of it may be in memory: read, and not yet published.
    pub(super) const fn small(self) -> u64 {
        self.0 / 16
    }

    /// Returns the limit of each repository in a namespace, by namespace. `sizes` are sorted by name.
    ///
    /// Namespaces and their repositories get what they need if it is little, and the others share the rest evenly. This depends
    /// on the sizes alone, so that all replicas leave out the same charts.
    pub(super) fn divide<'a>(self, sizes: &[(&'a NamespacedName, u64)]) -> BTreeMap<&'a str, u64> {
        let namespaces: Vec<&[(&'a NamespacedName, u64)]> = sizes
            .chunk_by(|(one, _), (next, _)| one.namespace == next.namespace)
            .collect();
        let totals = namespaces
            .iter()
            .map(|sizes| sizes.iter().map(|(_, size)| *size).sum::<u64>());
        let most = level(self.snapshot(), totals).min(self.most());
        let mut limits = BTreeMap::new();
        for sizes in namespaces {
            if let [(name, _), ..] = sizes {
                let limit = level(most, sizes.iter().map(|(_, size)| *size)).min(most);
                limits.insert(name.namespace.as_str(), limit);
            }
        }
        limits
    }
}

/// Returns the most that each of several may have, so that all together have at most `capacity`.
fn level(capacity: u64, sizes: impl Iterator<Item = u64>) -> u64 {
    let mut sizes: Vec<u64> = sizes.collect();
    sizes.sort_unstable();
    let step = (capacity / STEPS).max(1);
    let (mut left, mut others) = (capacity, sizes.len() as u64);
    for size in sizes {
        let share = left / others;
        if size > share {
            return share / step * step;
        }
        left -= size;
        others -= 1;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEMORY: CatalogMemory = CatalogMemory::new(64 << 20);
    const MEBIBYTE: u64 = 1 << 20;

    fn names(count: usize) -> Vec<NamespacedName> {
        (0..count)
            .map(|number| NamespacedName::new(format!("team-{:03}", number / 2), format!("{number:03}")))
            .collect()
    }

    fn limits(of: &[(&str, &str, u64)]) -> Vec<u64> {
        let names: Vec<NamespacedName> = of
            .iter()
            .map(|(namespace, name, _)| NamespacedName::new(*namespace, *name))
            .collect();
        let sizes: Vec<_> = names.iter().zip(of).map(|(name, of)| (name, of.2 * MEBIBYTE)).collect();
        let limits = MEMORY.divide(&sizes);
        names
            .iter()
            .map(|name| limits[name.namespace.as_str()] / MEBIBYTE)
            .collect()
    }

    #[test]
    fn a_large_namespace_gets_what_small_ones_leave_and_never_takes_theirs() {
        assert_eq!(limits(&[("a", "x", 1000)]), [24]);
        assert_eq!(limits(&[("a", "x", 1000), ("b", "x", 1)])[0], 24);
        assert_eq!(limits(&[("a", "x", 1000), ("b", "x", 12)])[0], 20);
        assert_eq!(limits(&[("a", "x", 1000), ("b", "x", 1000)]), [16, 16]);
        assert_eq!(limits(&[("a", "x", 1000), ("b", "x", 2), ("c", "x", 1000)])[0], 15);
    }

    #[test]
    fn the_repositories_of_a_namespace_share_its_limit() {
        assert_eq!(limits(&[("a", "x", 1000), ("a", "y", 1000)]), [12, 12]);
        assert_eq!(limits(&[("a", "x", 1000), ("a", "y", 6)]), [18, 18]);
    }

    proptest! {
        #[test]
        fn all_repositories_together_fit_and_a_fair_share_is_never_refused(
            sizes in prop::collection::vec(0..(100 * MEBIBYTE), 1..40)
        ) {
            let names = names(sizes.len());
            let sizes: Vec<_> = names.iter().zip(sizes).collect();
            let limits = MEMORY.divide(&sizes);
            let taken: u64 = sizes.iter().map(|(name, size)| (*size).min(limits[name.namespace.as_str()])).sum();
            prop_assert!(taken <= MEMORY.snapshot(), "{taken}");
            let fair = MEMORY.snapshot() / limits.len() as u64 - MEMORY.snapshot() / STEPS;
            for of_namespace in sizes.chunk_by(|(one, _), (next, _)| one.namespace == next.namespace) {
                let needed: u64 = of_namespace.iter().map(|(_, size)| size).sum();
                let limit = limits[of_namespace[0].0.namespace.as_str()];
                if needed <= fair.min(MEMORY.most()) {
                    prop_assert!(of_namespace.iter().all(|(_, size)| *size <= limit), "{of_namespace:?}: {limit}");
                }
            }
        }
    }
}

//! Limits the removal of repositories that are missing from a list.
//!
//! A missing name proves nothing: the watch may have failed, or the list may be wrong. Charts are removed only after a
//! deletion event, or if few repositories are missing from a complete list.

use std::collections::BTreeSet;

use crate::api::NamespacedName;
use crate::catalog::Record;

const ALWAYS_REMOVED: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub enum Orphans {
    /// Names and UIDs of the removed objects.
    Remove(Vec<(NamespacedName, String)>),
    /// Too many to remove without confirmation.
    Pending { missing: usize, total: usize },
}

/// Compares the catalog with a complete list. Only rows of this `origin` in watched namespaces can be orphans, not
/// those of one-shot commands, Kubeapps or other clusters.
#[must_use]
pub fn find_orphans(
    records: &[Record],
    declared: &BTreeSet<NamespacedName>,
    origin: &str,
    is_watched: impl Fn(&str) -> bool,
    confirmed: bool,
) -> Orphans {
    let is_ours = |record: &&Record| record.origin == origin && is_watched(&record.name.namespace);
    let ours: Vec<&Record> = records.iter().filter(is_ours).collect();
    let missing = ours.iter().filter(|record| !declared.contains(&record.name));
    let missing: Vec<_> = missing
        .map(|record| (record.name.clone(), record.uid.clone()))
        .collect();
    if !confirmed && missing.len() > ALWAYS_REMOVED && missing.len() * 2 > ours.len() {
        return Orphans::Pending {
            missing: missing.len(),
            total: ours.len(),
        };
    }
    Orphans::Remove(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NamespacedName;

    fn name(namespace: &str, name: &str) -> NamespacedName {
        NamespacedName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn record(namespace: &str, repository: &str, origin: &str) -> Record {
        Record {
            name: NamespacedName {
                namespace: namespace.to_owned(),
                name: repository.to_owned(),
            },
            uid: "uid".to_owned(),
            origin: origin.to_owned(),
            ..Record::default()
        }
    }

    fn many(count: usize) -> Vec<Record> {
        (0..count)
            .map(|i| record("default", &format!("r{i}"), "here"))
            .collect()
    }

    fn declared(count: usize) -> BTreeSet<NamespacedName> {
        (0..count).map(|i| name("default", &format!("r{i}"))).collect()
    }

    #[test]
    fn undeclared_repositories_are_removed() {
        let found = find_orphans(&many(3), &declared(2), "here", |_| true, false);
        assert_eq!(found, Orphans::Remove(vec![(name("default", "r2"), "uid".to_owned())]));
    }

    #[test]
    fn rows_of_other_origins_and_unwatched_namespaces_are_ignored() {
        let records = [
            record("default", "one-shot", "one-shot"),
            record("default", "other-cluster", "there"),
            record("elsewhere", "not-watched", "here"),
        ];
        let found = find_orphans(
            &records,
            &BTreeSet::new(),
            "here",
            |namespace| namespace == "default",
            false,
        );
        assert_eq!(found, Orphans::Remove(Vec::new()));
    }

    #[test]
    fn more_than_half_and_more_than_five_removals_are_pending() {
        assert_eq!(
            find_orphans(&many(11), &declared(5), "here", |_| true, false),
            Orphans::Pending { missing: 6, total: 11 }
        );
        assert!(
            matches!(find_orphans(&many(12), &declared(6), "here", |_| true, false), Orphans::Remove(gone) if gone.len() == 6)
        );
        assert!(
            matches!(find_orphans(&many(5), &declared(0), "here", |_| true, false), Orphans::Remove(gone) if gone.len() == 5)
        );
    }

    #[test]
    fn pending_removals_proceed_once_confirmed() {
        assert!(
            matches!(find_orphans(&many(20), &declared(0), "here", |_| true, true), Orphans::Remove(gone) if gone.len() == 20)
        );
    }
}

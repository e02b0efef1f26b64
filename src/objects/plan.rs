//! Which watches a kind needs: pure.

use std::collections::BTreeSet;

use super::watch::Scope;

/// In more namespaces than these a kind is watched in the whole cluster at once.
pub(super) const WIDE_ABOVE: usize = 20;
/// In no more than these it is watched namespace by namespace again; between the two, it stays as it is.
pub(super) const NARROW_BELOW: usize = 10;

/// The scopes in which a kind has to be watched, that is needed in these namespaces.
///
/// A watch of the whole cluster holds what nobody has asked for: a tenant who names Pods or Secrets must not make us hold all of
/// them. So it is made only where the alternative would be many watches.
pub(super) fn scopes(namespaces: &BTreeSet<String>, is_namespaced: bool, is_wide: bool) -> BTreeSet<Scope> {
    if namespaces.is_empty() {
        return BTreeSet::new();
    }
    let limit = if is_wide { NARROW_BELOW } else { WIDE_ABOVE };
    if !is_namespaced || namespaces.len() > limit {
        return BTreeSet::from([Scope::All]);
    }
    namespaces.iter().cloned().map(Scope::Namespace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(count: usize) -> BTreeSet<String> {
        (0..count).map(|number| format!("team-{number}")).collect()
    }

    #[test]
    fn what_nobody_needs_is_not_watched() {
        assert!(scopes(&namespaces(0), true, true).is_empty());
        assert!(scopes(&namespaces(0), false, false).is_empty());
    }

    #[test]
    fn a_kind_is_watched_by_namespace_until_there_are_many() {
        assert_eq!(scopes(&namespaces(20), true, false).len(), 20);
        assert_eq!(scopes(&namespaces(21), true, false), BTreeSet::from([Scope::All]));
    }

    #[test]
    fn a_wide_watch_stays_until_there_are_few() {
        assert_eq!(scopes(&namespaces(11), true, true), BTreeSet::from([Scope::All]));
        assert_eq!(scopes(&namespaces(10), true, true).len(), 10);
    }

    #[test]
    fn a_kind_without_namespaces_has_one_watch() {
        assert_eq!(scopes(&namespaces(1), false, false), BTreeSet::from([Scope::All]));
    }
}

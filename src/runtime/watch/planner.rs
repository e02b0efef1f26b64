//! Decides which watches run, without I/O.

use std::collections::{BTreeMap, BTreeSet};

use super::{GroupKind, Scope};

/// Maximum number of watches: each needs a connection, and tenants choose the kinds.
pub const MAX_WATCHES: usize = 500;

/// Number of namespaces above which a kind is watched in the whole cluster.
pub(super) const WIDE_ABOVE: usize = 20;
/// Number of namespaces up to which it is watched per namespace again. Lower than [`WIDE_ABOVE`] to avoid flapping.
pub(super) const NARROW_BELOW: usize = 10;

/// A cluster-wide watch may hold many objects that no selector matches: it only replaces many watches.
fn scopes(namespaces: &BTreeSet<String>, is_namespaced: bool, is_wide: bool) -> BTreeSet<Scope> {
    if namespaces.is_empty() {
        return BTreeSet::new();
    }
    let limit = if is_wide { NARROW_BELOW } else { WIDE_ABOVE };
    if !is_namespaced || namespaces.len() > limit {
        return BTreeSet::from([Scope::All]);
    }
    namespaces.iter().cloned().map(Scope::Namespace).collect()
}

#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    pub(super) namespaces: BTreeSet<String>,
    pub(super) is_namespaced: bool,
    /// Watched in the whole cluster, however few namespaces there are.
    pub(super) is_wide_preferred: bool,
    /// Set if the cluster-wide watch is forbidden; watches of namespaces may be allowed.
    pub(super) is_wide_refused: bool,
    pub(super) running: BTreeSet<Scope>,
}

impl Demand {
    fn scopes(&self) -> BTreeSet<Scope> {
        let is_wide = self.running.contains(&Scope::All);
        let may_be_narrow = self.is_namespaced && !self.is_wide_preferred;
        let mut scopes = scopes(&self.namespaces, may_be_narrow, is_wide);
        if self.is_namespaced && self.is_wide_refused && scopes.contains(&Scope::All) {
            scopes.extend(self.namespaces.iter().cloned().map(Scope::Namespace));
        }
        scopes
    }
}

/// Plans the scopes of all kinds, at most `limit` in total. Above the limit, the kinds with the most watches become
/// cluster-wide first; then scopes without a running watch are omitted.
pub(super) fn plan(demands: &BTreeMap<GroupKind, Demand>, limit: usize) -> BTreeMap<GroupKind, BTreeSet<Scope>> {
    let mut plan: BTreeMap<_, _> = demands
        .iter()
        .map(|(kind, demand)| (kind.clone(), demand.scopes()))
        .collect();
    let total = |plan: &BTreeMap<_, BTreeSet<_>>| plan.values().map(BTreeSet::len).sum::<usize>();
    if total(&plan) > limit {
        // A failing cluster-wide watch stays, so that its recovery is noticed.
        for (kind, _) in demands.iter().filter(|(_, demand)| demand.is_wide_refused) {
            plan.entry(kind.clone()).or_default().insert(Scope::All);
        }
    }
    while total(&plan) > limit {
        let may_be_wide = |kind: &GroupKind| demands.get(kind).is_some_and(|demand| !demand.is_wide_refused);
        let narrow = plan
            .iter_mut()
            .filter(|(kind, scopes)| scopes.len() > 1 && may_be_wide(kind));
        let Some((_, scopes)) = narrow.max_by_key(|(_, scopes)| scopes.len()) else {
            break;
        };
        *scopes = BTreeSet::from([Scope::All]);
    }
    let mut all: Vec<_> = plan
        .iter()
        .flat_map(|(kind, scopes)| scopes.iter().map(move |scope| (kind, scope)))
        .collect();
    all.sort_by_key(|(kind, scope)| !demands.get(*kind).is_some_and(|demand| demand.running.contains(*scope)));
    let omitted = all.split_off(limit.min(all.len()));
    let omitted: BTreeSet<_> = omitted
        .into_iter()
        .map(|(kind, scope)| (kind.clone(), scope.clone()))
        .collect();
    for (kind, scope) in omitted {
        plan.entry(kind).or_default().remove(&scope);
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(count: usize) -> BTreeSet<String> {
        (0..count).map(|number| format!("team-{number:02}")).collect()
    }

    fn demand(count: usize) -> Demand {
        Demand {
            namespaces: namespaces(count),
            is_namespaced: true,
            ..Demand::default()
        }
    }

    fn demands(demands: &[(&str, Demand)]) -> BTreeMap<GroupKind, Demand> {
        demands
            .iter()
            .map(|(kind, demand)| (GroupKind::new("", *kind), demand.clone()))
            .collect()
    }

    fn summary(all: &[(&str, Demand)], limit: usize) -> Vec<String> {
        let format = |(kind, scopes): (GroupKind, BTreeSet<Scope>)| match scopes.contains(&Scope::All) {
            true if scopes.len() == 1 => format!("{kind}: all"),
            true => format!("{kind}: all and {}", scopes.len() - 1),
            false => format!("{kind}: {}", scopes.len()),
        };
        plan(&demands(all), limit).into_iter().map(format).collect()
    }

    #[test]
    fn unsubscribed_kinds_are_not_watched() {
        assert!(scopes(&namespaces(0), true, true).is_empty());
        assert!(scopes(&namespaces(0), false, false).is_empty());
    }

    #[test]
    fn few_namespaces_are_watched_one_by_one() {
        assert_eq!(scopes(&namespaces(20), true, false).len(), 20);
        assert_eq!(scopes(&namespaces(21), true, false), BTreeSet::from([Scope::All]));
    }

    #[test]
    fn a_cluster_wide_watch_stays_until_few_namespaces_are_left() {
        assert_eq!(scopes(&namespaces(11), true, true), BTreeSet::from([Scope::All]));
        assert_eq!(scopes(&namespaces(10), true, true).len(), 10);
    }

    #[test]
    fn a_cluster_scoped_kind_has_one_watch() {
        assert_eq!(scopes(&namespaces(1), false, false), BTreeSet::from([Scope::All]));
    }

    #[test]
    fn namespaces_are_watched_where_the_cluster_wide_watch_is_refused() {
        let refused = Demand {
            is_wide_refused: true,
            running: BTreeSet::from([Scope::All]),
            ..demand(21)
        };
        assert_eq!(summary(&[("Pod", refused)], MAX_WATCHES), ["Pod: all and 21"]);
    }

    #[test]
    fn a_kind_is_watched_in_the_whole_cluster_if_preferred_and_also_in_namespaces_if_refused() {
        let wide = Demand {
            is_wide_preferred: true,
            ..demand(2)
        };
        let refused = Demand {
            is_wide_refused: true,
            ..wide.clone()
        };
        let all = [("A", wide), ("B", refused), ("C", demand(2))];
        assert_eq!(summary(&all, MAX_WATCHES), ["A: all", "B: all and 2", "C: 2"]);
    }

    #[test]
    fn above_the_limit_the_kind_with_the_most_watches_becomes_cluster_wide_first() {
        let all = [("A", demand(4)), ("B", demand(6)), ("C", demand(5))];
        assert_eq!(summary(&all, 15), ["A: 4", "B: 6", "C: 5"]);
        assert_eq!(summary(&all, 14), ["A: 4", "B: all", "C: 5"]);
        assert_eq!(summary(&all, 9), ["A: 4", "B: all", "C: all"]);
        // The decision is stable.
        let mut wide = all.clone();
        wide[1].1.running = BTreeSet::from([Scope::All]);
        assert_eq!(summary(&wide, 14), ["A: 4", "B: all", "C: 5"]);
    }

    #[test]
    fn running_watches_are_kept_at_the_limit() {
        // Two kinds whose cluster-wide watch is forbidden but attempted.
        let refused = |running: usize| {
            let running = namespaces(running).into_iter().map(Scope::Namespace);
            Demand {
                is_wide_refused: true,
                running: running.chain([Scope::All]).collect(),
                ..demand(5)
            }
        };
        let all = [("A", refused(2)), ("B", refused(5))];
        assert_eq!(summary(&all, 10), ["A: 5", "B: 5"]);
        assert_eq!(summary(&all, 9), ["A: all and 2", "B: all and 5"]);
    }
}

//! Which watches a kind needs: pure.

use std::collections::{BTreeMap, BTreeSet};

use super::GroupKind;
use super::kind_watch::Scope;

/// The most watches that are kept: each is a connection, and tenants say which kinds are watched where.
pub(super) const MOST: usize = 500;

/// In more namespaces than these a kind is watched in the whole cluster at once.
pub(super) const WIDE_ABOVE: usize = 20;
/// In no more than these it is watched namespace by namespace again; between the two, it stays as it is.
pub(super) const NARROW_BELOW: usize = 10;

/// The scopes in which a kind has to be watched, that is needed in these namespaces.
///
/// A watch of the whole cluster holds what nobody has asked for: a tenant who names Pods or Secrets must not make us hold all of
/// them. So it is made only where the alternative would be many watches.
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

/// What is needed of a kind, and how it is watched by now.
#[derive(Clone, Debug, Default)]
pub(super) struct Need {
    /// Where it is needed.
    pub(super) namespaces: BTreeSet<String>,
    pub(super) is_namespaced: bool,
    /// Whether the watch of the whole cluster fails: it may be forbidden where its namespaces are not.
    pub(super) is_refused: bool,
    /// The watches that there are.
    pub(super) running: BTreeSet<Scope>,
}

impl Need {
    fn scopes(&self) -> BTreeSet<Scope> {
        let is_wide = self.running.contains(&Scope::All);
        let mut scopes = scopes(&self.namespaces, self.is_namespaced, is_wide);
        if self.is_namespaced && self.is_refused && scopes.contains(&Scope::All) {
            scopes.extend(self.namespaces.iter().cloned().map(Scope::Namespace));
        }
        scopes
    }
}

/// The scopes in which each kind is to be watched, `most` in all. Where they are too many, kinds are watched in the whole cluster,
/// those with the most watches first; and if that does not help, what is not watched by now is left out.
pub(super) fn plan(needs: &BTreeMap<GroupKind, Need>, most: usize) -> BTreeMap<GroupKind, BTreeSet<Scope>> {
    let mut plan: BTreeMap<_, _> = needs.iter().map(|(kind, need)| (kind.clone(), need.scopes())).collect();
    let total = |plan: &BTreeMap<_, BTreeSet<_>>| plan.values().map(BTreeSet::len).sum::<usize>();
    if total(&plan) > most {
        // A wide watch that fails stays, so that it is known that it does.
        for (kind, _) in needs.iter().filter(|(_, need)| need.is_refused) {
            plan.entry(kind.clone()).or_default().insert(Scope::All);
        }
    }
    while total(&plan) > most {
        let may_be_wide = |kind: &GroupKind| needs.get(kind).is_some_and(|need| !need.is_refused);
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
    all.sort_by_key(|(kind, scope)| !needs.get(*kind).is_some_and(|need| need.running.contains(*scope)));
    let left_out = all.split_off(most.min(all.len()));
    let left_out: BTreeSet<_> = left_out
        .into_iter()
        .map(|(kind, scope)| (kind.clone(), scope.clone()))
        .collect();
    for (kind, scope) in left_out {
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

    fn need(count: usize) -> Need {
        Need {
            namespaces: namespaces(count),
            is_namespaced: true,
            ..Need::default()
        }
    }

    fn needs(needs: &[(&str, Need)]) -> BTreeMap<GroupKind, Need> {
        needs
            .iter()
            .map(|(kind, need)| (GroupKind::new("", *kind), need.clone()))
            .collect()
    }

    fn planned(all: &[(&str, Need)], most: usize) -> Vec<String> {
        let show = |(kind, scopes): (GroupKind, BTreeSet<Scope>)| match scopes.contains(&Scope::All) {
            true if scopes.len() == 1 => format!("{kind}: all"),
            true => format!("{kind}: all and {}", scopes.len() - 1),
            false => format!("{kind}: {}", scopes.len()),
        };
        plan(&needs(all), most).into_iter().map(show).collect()
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

    #[test]
    fn where_the_whole_cluster_may_not_be_looked_at_its_namespaces_are() {
        let refused = Need {
            is_refused: true,
            running: BTreeSet::from([Scope::All]),
            ..need(21)
        };
        assert_eq!(planned(&[("Pod", refused)], MOST), ["Pod: all and 21"]);
    }

    #[test]
    fn too_many_watches_make_the_kind_with_the_most_wide_first() {
        let all = [("A", need(4)), ("B", need(6)), ("C", need(5))];
        assert_eq!(planned(&all, 15), ["A: 4", "B: 6", "C: 5"]);
        assert_eq!(planned(&all, 14), ["A: 4", "B: all", "C: 5"]);
        assert_eq!(planned(&all, 9), ["A: 4", "B: all", "C: all"]);
        // Once it is so it stays so.
        let mut wide = all.clone();
        wide[1].1.running = BTreeSet::from([Scope::All]);
        assert_eq!(planned(&wide, 14), ["A: 4", "B: all", "C: 5"]);
    }

    #[test]
    fn what_is_watched_stays_where_there_is_no_room_for_more() {
        // Two kinds that can't be watched in the whole cluster, which is tried all the same.
        let refused = |running: usize| {
            let running = namespaces(running).into_iter().map(Scope::Namespace);
            Need {
                is_refused: true,
                running: running.chain([Scope::All]).collect(),
                ..need(5)
            }
        };
        let all = [("A", refused(2)), ("B", refused(5))];
        assert_eq!(planned(&all, 10), ["A: 5", "B: 5"]);
        assert_eq!(planned(&all, 9), ["A: all and 2", "B: all and 5"]);
    }
}

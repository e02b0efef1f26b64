use std::collections::{BTreeMap, BTreeSet};

use super::candidates::{EntryState, GarbageCandidate};

/// Holds back the deletion of components while others that depend on them exist.
pub(super) fn hold_back(candidates: &mut [GarbageCandidate<'_>], dependents: &BTreeMap<String, BTreeSet<String>>) {
    let existing = (candidates.iter())
        .filter(|candidate| candidate.state.is_existing())
        .map(|candidate| candidate.entry.component.as_str())
        .collect();
    let blocked = blocked(&existing, dependents);
    for candidate in candidates {
        if matches!(candidate.state, EntryState::Delete { .. }) && blocked.contains(candidate.entry.component.as_str())
        {
            candidate.state = EntryState::HeldBack;
        }
    }
}

fn blocked<'a>(existing: &BTreeSet<&'a str>, dependents: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let is_blocked = |component: &&str| {
        let mut dependents = dependents.get(*component).into_iter().flatten().map(String::as_str);
        dependents.any(|dependent| dependent != *component && existing.contains(dependent))
    };
    let blocked: BTreeSet<_> = existing.iter().copied().filter(is_blocked).collect();
    if blocked.len() == existing.len() {
        // Components that depend on each other would wait forever.
        return BTreeSet::new();
    }
    blocked
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_depends(&["db", "web"], &[], &[])]
    #[case::a_dependent_exists(&["db", "web"], &[("db", "web")], &["db"])]
    #[case::the_dependent_is_gone(&["db"], &[("db", "web")], &[])]
    #[case::a_chain(&["db", "api", "web"], &[("db", "api"), ("api", "web")], &["api", "db"])]
    #[case::itself(&["db"], &[("db", "db")], &[])]
    #[case::a_cycle(&["db", "web"], &[("db", "web"), ("web", "db")], &[])]
    #[case::an_object_without_a_component(&["", "db", "web"], &[("db", "web")], &["db"])]
    fn a_component_waits_for_those_that_depend_on_it(
        #[case] existing: &[&str],
        #[case] dependents: &[(&str, &str)],
        #[case] expected: &[&str],
    ) {
        let dependents = (dependents.iter())
            .map(|(component, dependent)| ((*component).to_owned(), BTreeSet::from([(*dependent).to_owned()])))
            .collect();
        let blocked = blocked(&existing.iter().copied().collect(), &dependents);
        assert_eq!(blocked, expected.iter().copied().collect());
    }
}

//! Names of Kubeapps' copies of Secrets.
//!
//! Kubeapps' API server copies the Secret of a repository into its own namespace, as `<namespace>-apprepo-<name>`. Two
//! repositories may share such a name: `a` and `b-apprepo-c`, or `a-apprepo-b` and `c`. A user could thereby read the
//! Secret of another namespace, so that a copy is used only if its name is unambiguous:
//!
//! - `-apprepo-` occurs once, including overlaps: `a-apprepo-apprepo-b` has two readings;
//! - it does not start with `apprepo-` or `pullsecret-`, like Secrets of repositories in Kubeapps' own namespace.

use crate::api::NamespacedName;
use crate::runtime::manifests::is_object_name;

const SEPARATOR: &str = "-apprepo-";
const RESERVED_PREFIXES: [&str; 2] = ["apprepo-", "pullsecret-"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeappsCopy {
    /// No copy can exist: the repository is in Kubeapps' namespace, or the name is not valid.
    None,
    Named(NamespacedName),
    Ambiguous(NamespacedName),
}

#[must_use]
pub fn copy_of(repository: &NamespacedName, kubeapps_namespace: &str) -> KubeappsCopy {
    let NamespacedName { namespace, name } = repository;
    let copy = format!("{namespace}{SEPARATOR}{name}");
    if namespace == kubeapps_namespace || !is_object_name(&copy) {
        return KubeappsCopy::None;
    }
    let is_unambiguous = is_unambiguous(&copy);
    let copy = NamespacedName::new(kubeapps_namespace, copy);
    if is_unambiguous {
        KubeappsCopy::Named(copy)
    } else {
        KubeappsCopy::Ambiguous(copy)
    }
}

fn is_unambiguous(copy: &str) -> bool {
    // Not `matches`, which skips overlapping occurrences.
    let between = copy
        .as_bytes()
        .windows(SEPARATOR.len())
        .filter(|window| *window == SEPARATOR.as_bytes());
    between.count() == 1 && !RESERVED_PREFIXES.iter().any(|prefix| copy.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn copy(namespace: &str, name: &str) -> KubeappsCopy {
        copy_of(&NamespacedName::new(namespace, name), "kubeapps")
    }

    fn named(name: &str) -> NamespacedName {
        NamespacedName {
            namespace: "kubeapps".to_owned(),
            name: name.to_owned(),
        }
    }

    #[rstest]
    #[case("team-a", "charts")]
    #[case("team-a", "charts.internal")]
    #[case("apprep", "apprepo")]
    #[case("a", "b-apprepo")]
    #[case("my-apprepos", "c")]
    fn an_unambiguous_copy_name_is_used(#[case] namespace: &str, #[case] name: &str) {
        assert_eq!(
            copy(namespace, name),
            KubeappsCopy::Named(named(&format!("{namespace}-apprepo-{name}")))
        );
    }

    #[rstest]
    #[case::name_holds_it("a", "b-apprepo-c")]
    #[case::namespace_holds_it("a-apprepo-b", "c")]
    #[case::both_hold_it("a-apprepo-b", "c-apprepo-d")]
    #[case::overlapping_in_the_name("a", "apprepo-b")]
    #[case::overlapping_in_the_namespace("a-apprepo", "b")]
    #[case::a_secret_of_a_repository_of_kubeapps("apprepo-x", "y")]
    #[case::the_same_with_nothing_between("apprepo", "y")]
    #[case::a_pull_secret_of_a_repository_of_kubeapps("pullsecret-x", "y")]
    fn an_ambiguous_copy_name_is_not_used(#[case] namespace: &str, #[case] name: &str) {
        assert_eq!(
            copy(namespace, name),
            KubeappsCopy::Ambiguous(named(&format!("{namespace}-apprepo-{name}")))
        );
    }

    #[rstest]
    #[case::kubeapps_own_namespace("kubeapps", "charts")]
    #[case::a_path("..", "../secrets/x")]
    #[case::a_query("team-a", "x?y")]
    fn impossible_copies_are_not_read(#[case] namespace: &str, #[case] name: &str) {
        assert_eq!(copy(namespace, name), KubeappsCopy::None);
    }

    #[test]
    fn a_name_too_long_for_a_secret_has_no_copy() {
        assert_eq!(copy("team-a", &"n".repeat(250)), KubeappsCopy::None);
    }

    proptest! {
        #[test]
        fn two_repositories_never_share_a_usable_copy(
            one in ("[ab]?(-?apprepo-?[ab]?){0,2}", "[ab]?(-?apprepo-?[ab]?){0,2}"),
            other in ("[ab]?(-?apprepo-?[ab]?){0,2}", "[ab]?(-?apprepo-?[ab]?){0,2}"),
        ) {
            if one != other && let KubeappsCopy::Named(used) = copy(&one.0, &one.1) {
                prop_assert_ne!(copy(&other.0, &other.1), KubeappsCopy::Named(used));
            }
        }

        #[test]
        fn a_usable_copy_name_is_unambiguous(text in "[ab-]{0,3}(-?apprepo-?[ab]{0,2}-?){1,3}") {
            let splits = (0..text.len()).filter(|at| text[*at..].starts_with(SEPARATOR)).count();
            prop_assert!(!is_unambiguous(&text) || splits == 1);
        }
    }
}

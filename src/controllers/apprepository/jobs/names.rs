//! Names and labels of CronJobs and Jobs.
//!
//! Names equal Kubeapps' names wherever these identify one repository. Kubeapps joins namespace and name, and shortens
//! both by a weak checksum, so that two repositories may share a name: `a-sync-b` and `c`, `a` and `b-sync-c`. Such names
//! get another prefix and a hash.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::api::NamespacedName;
use crate::api::jobs::{MANAGED_BY, MANAGER, REPOSITORY_NAME, REPOSITORY_NAMESPACE};
use crate::text::hex;

/// Maximum length of the name of a CronJob: its Jobs append a time of eleven characters.
const MAX_NAME: usize = 52;
const MAX_LABEL: usize = 63;
/// Differs from Kubeapps' prefix `apprepo-`, so that a hashed name never equals a name of Kubeapps' form.
const HASHED_PREFIX: &str = "apprepository";
const SEPARATORS: [&str; 2] = ["-sync-", "-cleanup-"];
/// Hex digits of SHA-256. A tenant chooses names, so that the hash must resist a search for a second name.
const NAME_DIGITS: usize = 16;
const REQUEST_DIGITS: usize = 10;

#[must_use]
pub fn cron_job(name: &NamespacedName) -> String {
    object_name(name, "sync")
}

/// Returns the name of a Job for one request of a repository: the same request has the same name.
#[must_use]
pub fn sync_job(name: &NamespacedName, request: &str) -> String {
    format!("{}-{}", cron_job(name), digest(request, REQUEST_DIGITS))
}

#[must_use]
pub fn cleanup_job(name: &NamespacedName, uid: &str) -> String {
    format!("{}-{}", object_name(name, "cleanup"), digest(uid, REQUEST_DIGITS))
}

#[must_use]
pub fn hashed_secret(name: &NamespacedName) -> String {
    format!("{HASHED_PREFIX}-{}", digest(&name.to_string(), 2 * NAME_DIGITS))
}

fn object_name(name: &NamespacedName, verb: &str) -> String {
    let joined = format!("{}-{verb}-{}", name.namespace, name.name);
    let kubeapps = format!("apprepo-{joined}");
    if kubeapps.len() <= MAX_NAME && is_unambiguous(&joined) && joined.is_ascii() {
        return kubeapps;
    }
    let head: String = joined.chars().filter(char::is_ascii).collect();
    let room = MAX_NAME - HASHED_PREFIX.len() - NAME_DIGITS - 2;
    let head = head[..head.len().min(room)].trim_end_matches(['-', '.']);
    format!(
        "{HASHED_PREFIX}-{head}-{}",
        digest(&format!("{verb} {name}"), NAME_DIGITS)
    )
}

/// Returns true if only one pair of namespace and name gives this text.
fn is_unambiguous(joined: &str) -> bool {
    // Not `matches`, which skips overlapping occurrences.
    let count = |separator: &str| {
        let windows = joined.as_bytes().windows(separator.len());
        windows.filter(|window| *window == separator.as_bytes()).count()
    };
    SEPARATORS.into_iter().map(count).sum::<usize>() == 1
}

#[must_use]
pub fn labels(name: &NamespacedName) -> BTreeMap<String, String> {
    [
        (REPOSITORY_NAME, label_value(&name.name)),
        (REPOSITORY_NAMESPACE, label_value(&name.namespace)),
        (MANAGED_BY, MANAGER.to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

fn label_value(text: &str) -> String {
    if text.len() <= MAX_LABEL {
        return text.to_owned();
    }
    let head: String = text.chars().take(MAX_LABEL - NAME_DIGITS - 1).collect();
    let head = head.trim_end_matches(['-', '.', '_']);
    format!("{head}-{}", digest(text, NAME_DIGITS))
}

#[must_use]
pub fn digest(text: &str, digits: usize) -> String {
    let mut digest = hex(&Sha256::digest(text.as_bytes()));
    digest.truncate(digits);
    digest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn name(namespace: &str, name: &str) -> NamespacedName {
        NamespacedName::new(namespace, name)
    }

    #[rstest]
    #[case("kubeapps", "plain", "apprepo-kubeapps-sync-plain")]
    #[case("team-a", "full-no-containers", "apprepo-team-a-sync-full-no-containers")]
    fn short_names_are_those_of_kubeapps(#[case] namespace: &str, #[case] repository: &str, #[case] expected: &str) {
        assert_eq!(cron_job(&name(namespace, repository)), expected);
    }

    #[rstest]
    #[case(
        "foofoofoofoofoofoofoo",
        "barbarbarbarbarbarbar",
        "apprepo-foofoofoofoofoofoofoo-sync-barbarbarbarbarbar"
    )]
    #[case("a-sync-b", "c", "")]
    #[case("a", "b-sync-c", "")]
    #[case("a", "sync-b", "")]
    #[case("a", "b-cleanup-c", "")]
    fn a_long_or_ambiguous_name_has_a_hash(#[case] namespace: &str, #[case] repository: &str, #[case] kubeapps: &str) {
        let named = cron_job(&name(namespace, repository));
        assert!(named.starts_with("apprepository-") && named.len() <= 52, "{named}");
        assert_ne!(named, kubeapps);
    }

    #[test]
    fn the_hash_of_a_name_stays_the_same() {
        let named = cron_job(&name("foofoofoofoofoofoofoo", "barbarbarbarbarbarbar"));
        let hash = digest("sync foofoofoofoofoofoofoo/barbarbarbarbarbarbar", 16);
        assert_eq!(named, format!("apprepository-foofoofoofoofoofoofoo-{hash}"));
    }

    #[test]
    fn a_request_has_one_job_of_a_valid_name() {
        let long = name(&"n".repeat(63), &"r".repeat(253));
        let job = sync_job(&long, "request");
        assert_eq!(job, sync_job(&long, "request"));
        assert_ne!(job, sync_job(&long, "another"));
        assert!(job.len() <= 63 && cleanup_job(&long, "uid").len() <= 63, "{job}");
        assert!(labels(&long).values().all(|value| value.len() <= 63));
    }

    proptest! {
        #[test]
        fn two_repositories_never_share_a_name(
            one in ("(a|-?sync-?|-?cleanup-?){1,4}", "(a|-?sync-?|-?cleanup-?){1,4}"),
            other in ("(a|-?sync-?|-?cleanup-?){1,4}", "(a|-?sync-?|-?cleanup-?){1,4}"),
        ) {
            let (first, second) = (name(&one.0, &one.1), name(&other.0, &other.1));
            if first != second {
                prop_assert_ne!(cron_job(&first), cron_job(&second));
                prop_assert_ne!(cleanup_job(&first, "u"), cleanup_job(&second, "u"));
            }
            prop_assert_ne!(sync_job(&first, "u"), cleanup_job(&second, "u"));
        }
    }
}

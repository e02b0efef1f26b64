//! What a repository is called, and the numbers that Postgres locks it by.

use sha2::{Digest, Sha256};

use crate::api::NamespacedName;

/// The number of the lock that every sync and removal of this repository takes.
pub(super) fn repository_key(name: &NamespacedName) -> i64 {
    advisory_key(&["repository", &name.namespace, &name.name])
}

/// A number for Postgres' advisory locks, which all programs of one database share: so it is spread over all 64 bits.
pub(super) fn advisory_key(parts: &[&str]) -> i64 {
    let mut digest = Sha256::new();
    digest.update(b"portolan");
    for part in parts {
        digest.update([0]);
        digest.update(part.as_bytes());
    }
    digest
        .finalize()
        .iter()
        .take(8)
        .fold(0, |key, byte| (key << 8) | i64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repository_has_a_lock_of_its_own() {
        let keys = [("a", "bc"), ("ab", "c"), ("abc", ""), ("a", "b")]
            .map(|(ns, name)| repository_key(&NamespacedName::new(ns, name)));
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key));
        }
        assert_eq!(repository_key(&NamespacedName::new("a", "bc")), keys[0]);
    }
}

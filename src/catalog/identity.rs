//! What a repository is called, and the numbers that Postgres locks it by.

use std::fmt;

use sha2::{Digest, Sha256};

/// A repository: the namespace and name of its AppRepository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepositoryName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl RepositoryName {
    /// A repository's name from its parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The number of the lock that every sync and removal of this repository takes.
    pub(super) fn advisory_key(&self) -> i64 {
        advisory_key(&["repository", &self.namespace, &self.name])
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
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
            .map(|(ns, name)| RepositoryName::new(ns, name).advisory_key());
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key));
        }
        assert_eq!(RepositoryName::new("a", "bc").advisory_key(), keys[0]);
    }
}

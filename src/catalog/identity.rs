//! Advisory locks, because several processes may share a Postgres database.

use sha2::{Digest, Sha256};

use super::Error;
use super::engine::{Engine, Transaction};
use crate::api::NamespacedName;

/// Locks until the transaction ends. On SQLite the write transaction itself is the lock.
pub(super) async fn advisory_lock(tx: &mut Transaction, key: i64) -> Result<(), Error> {
    if let Engine::Postgres(connection) = tx.executor() {
        let query = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(key);
        query.execute(connection).await?;
    }
    Ok(())
}

pub(super) fn repository_key(name: &NamespacedName) -> i64 {
    advisory_key(&["repository", &name.namespace, &name.name])
}

/// Returns a 64-bit key. All programs that use a database share the key space, so it is hashed.
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
    fn each_repository_has_its_own_lock() {
        let keys = [("a", "bc"), ("ab", "c"), ("abc", ""), ("a", "b")]
            .map(|(ns, name)| repository_key(&NamespacedName::new(ns, name)));
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key));
        }
        assert_eq!(repository_key(&NamespacedName::new("a", "bc")), keys[0]);
    }
}

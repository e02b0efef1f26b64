//! The UIDs of deleted repositories: a sync in another process may end later, and would write rows that stay forever.

use std::time::Duration;

use crate::api::NamespacedName;
use crate::catalog::engine::{Connection, Transaction, on_engine};
use crate::catalog::record::{self, storable};
use crate::catalog::{Catalog, Error};

/// Time for which a tombstone is kept: longer than any sync runs.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

impl Catalog {
    /// Returns the time at which the repository with this UID was deleted within the last day, in seconds since 1970.
    pub async fn deleted_at(&self, uid: &str) -> Result<Option<i64>, Error> {
        let uid = storable(uid);
        let read = async |connection: &mut Connection| {
            Ok(on_engine!(connection.executor(), executor =>
                sqlx::query_scalar(SELECT).bind(&*uid).bind(oldest()).fetch_optional(executor).await?))
        };
        self.read("read the deleted repositories", "", read).await
    }

    /// Lets syncs of a repository commit again: it exists after all, in an API server that was restored from a backup.
    /// A deletion at another time than `deleted_at` stays.
    pub async fn forget_deletion(&self, name: &NamespacedName, uid: &str, deleted_at: i64) -> Result<(), Error> {
        const DELETE: &str = "DELETE FROM portolan_tombstones WHERE uid = $1 AND deleted_at = $2";
        let uid = storable(uid);
        self.write("forget a deletion", &name.namespace, async |tx| {
            record::lock(tx, name).await?;
            on_engine!(tx.executor(), executor => {
                sqlx::query(DELETE).bind(&*uid).bind(deleted_at).execute(executor).await?;
            });
            Ok(())
        })
        .await
    }
}

const SELECT: &str = "SELECT deleted_at FROM portolan_tombstones WHERE uid = $1 AND deleted_at >= $2";

/// Returns the time before which a tombstone has expired, in seconds since 1970.
fn oldest() -> i64 {
    let lifetime = i64::try_from(LIFETIME.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::now().as_second() - lifetime
}

/// Returns true if the repository was deleted. Call it with the lock of the repository.
pub(in crate::catalog) async fn has(tx: &mut Transaction, uid: &str) -> Result<bool, Error> {
    let uid = storable(uid);
    let deleted_at: Option<i64> = on_engine!(tx.executor(), executor =>
        sqlx::query_scalar(SELECT).bind(&*uid).bind(oldest()).fetch_optional(executor).await?);
    Ok(deleted_at.is_some())
}

/// Marks a repository as deleted, and removes expired marks. Call it with the lock of the repository.
pub(in crate::catalog) async fn add(tx: &mut Transaction, name: &NamespacedName, uid: &str) -> Result<(), Error> {
    const EXPIRE: &str = "DELETE FROM portolan_tombstones WHERE deleted_at < $1";
    const INSERT: &str = "INSERT INTO portolan_tombstones (namespace, name, uid, deleted_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (uid) DO UPDATE SET deleted_at = excluded.deleted_at";
    let now = jiff::Timestamp::now().as_second();
    let uid = storable(uid);
    on_engine!(tx.executor(), executor => {
        sqlx::query(EXPIRE).bind(oldest()).execute(&mut *executor).await?;
        let insert = sqlx::query(INSERT).bind(&name.namespace).bind(&name.name).bind(&*uid).bind(now);
        insert.execute(executor).await?;
    });
    Ok(())
}

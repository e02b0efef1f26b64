//! Kubeapps' row of a repository. Kubeapps reads it to detect an unchanged index, and we read it to detect other
//! writers.

use jiff::Timestamp;

use super::{
    Error,
    engine::{Engine, Transaction, on_engine},
};
use crate::api::NamespacedName;

#[derive(Clone, Debug)]
pub(super) struct ReposRow {
    pub(super) id: i64,
    pub(super) checksum: Option<String>,
    last_update: Option<String>,
}

impl ReposRow {
    /// Returns the row. On Postgres it is also locked, so that it is not deleted before the charts that refer to it.
    pub(super) async fn find(tx: &mut Transaction, name: &NamespacedName) -> Result<Option<Self>, Error> {
        const SQLITE: &str = "SELECT id, checksum, last_update FROM repos WHERE namespace = $1 AND name = $2";
        const POSTGRES: &str =
            "SELECT CAST(id AS BIGINT), checksum, last_update FROM repos WHERE namespace = $1 AND name = $2
            FOR UPDATE";
        let row: Option<(i64, Option<String>, Option<String>)> = match tx {
            Engine::Sqlite(tx) => {
                let query = sqlx::query_as(SQLITE).bind(&name.namespace).bind(&name.name);
                query.fetch_optional(&mut **tx).await?
            }
            Engine::Postgres(tx) => {
                let query = sqlx::query_as(POSTGRES).bind(&name.namespace).bind(&name.name);
                query.fetch_optional(&mut **tx).await?
            }
        };
        Ok(row.map(|(id, checksum, last_update)| Self {
            id,
            checksum,
            last_update,
        }))
    }

    /// Inserts the row, or takes over the one that Kubeapps' syncer has inserted meanwhile.
    pub(super) async fn insert(tx: &mut Transaction, name: &NamespacedName, checksum: &str) -> Result<Self, Error> {
        const INSERT: &str = "INSERT INTO repos (namespace, name, checksum, last_update) VALUES ($1, $2, $3, $4)
            ON CONFLICT (namespace, name) DO UPDATE SET checksum = excluded.checksum, last_update = excluded.last_update
            RETURNING CAST(id AS BIGINT)";
        let last_update = go_time(Timestamp::now());
        let id = on_engine!(tx, tx => sqlx::query_scalar(INSERT)
            .bind(&name.namespace)
            .bind(&name.name)
            .bind(checksum)
            .bind(&last_update)
            .fetch_one(&mut **tx)
            .await?);
        Ok(Self {
            id,
            checksum: Some(checksum.to_owned()),
            last_update: Some(last_update),
        })
    }

    pub(super) async fn update(self, tx: &mut Transaction, checksum: String) -> Result<Self, Error> {
        let last_update = go_time(Timestamp::now());
        on_engine!(tx, tx => {
            sqlx::query("UPDATE repos SET checksum = $2, last_update = $3 WHERE id = $1")
                .bind(self.id)
                .bind(&checksum)
                .bind(&last_update)
                .execute(&mut **tx)
                .await?;
        });
        Ok(Self {
            id: self.id,
            checksum: Some(checksum),
            last_update: Some(last_update),
        })
    }

    /// Copies the values into our record, so that changes by other writers are detected.
    pub(super) async fn store_values(&self, tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
        const UPDATE: &str =
            "UPDATE portolan_repositories SET repos_id = $3, repos_checksum = $4, repos_last_update = $5
            WHERE namespace = $1 AND name = $2";
        on_engine!(tx, tx => {
            sqlx::query(UPDATE)
                .bind(&name.namespace)
                .bind(&name.name)
                .bind(self.id)
                .bind(&self.checksum)
                .bind(&self.last_update)
                .execute(&mut **tx)
                .await?;
        });
        Ok(())
    }
}

/// Formats a time as Go's `time.String()` in UTC, which Kubeapps stores in `repos.last_update`.
fn go_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_last_update_has_the_format_of_go() {
        let time = |text: &str| go_time(text.parse().unwrap());
        assert_eq!(
            time("2024-12-24T08:06:53.123456789Z"),
            "2024-12-24 08:06:53.123456789 +0000 UTC"
        );
        assert_eq!(time("2024-12-24T08:06:53.5Z"), "2024-12-24 08:06:53.5 +0000 UTC");
        assert_eq!(time("2024-12-24T08:06:53Z"), "2024-12-24 08:06:53 +0000 UTC");
    }
}

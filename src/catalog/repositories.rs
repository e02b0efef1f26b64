//! Kubeapps' row of a repository: Kubeapps detects an unchanged index by it, and Portolan other writers.

use jiff::Timestamp;
use sqlx::FromRow;

use super::{
    Error,
    engine::{Transaction, execute, on_engine, select},
};
use crate::api::NamespacedName;

#[derive(Clone, Debug, FromRow)]
pub(super) struct ReposRow {
    pub(super) id: i64,
    pub(super) checksum: Option<String>,
    last_update: Option<String>,
}

impl ReposRow {
    /// Returns the row. On Postgres it is also locked, so that it is not deleted before the charts that refer to it.
    pub(super) async fn find(tx: &mut Transaction, name: &NamespacedName) -> Result<Option<Self>, Error> {
        const SQLITE: &str = "SELECT id, checksum, last_update FROM repos WHERE namespace = $1 AND name = $2";
        const POSTGRES: &str = "SELECT CAST(id AS BIGINT) AS id, checksum, last_update FROM repos
            WHERE namespace = $1 AND name = $2 FOR UPDATE";
        let statement = tx.choose(SQLITE, POSTGRES);
        Ok(select!(fetch_optional, tx, statement, name))
    }

    /// Inserts the row, or takes over the row that Kubeapps' syncer has inserted meanwhile.
    pub(super) async fn insert(tx: &mut Transaction, name: &NamespacedName, checksum: &str) -> Result<Self, Error> {
        const INSERT: &str = "INSERT INTO repos (namespace, name, checksum, last_update) VALUES ($1, $2, $3, $4)
            ON CONFLICT (namespace, name) DO UPDATE SET checksum = excluded.checksum, last_update = excluded.last_update
            RETURNING CAST(id AS BIGINT) AS id, checksum, last_update";
        Ok(select!(
            fetch_one,
            tx,
            INSERT,
            name,
            checksum,
            go_time(Timestamp::now())
        ))
    }

    pub(super) async fn update(self, tx: &mut Transaction, checksum: String) -> Result<Self, Error> {
        const UPDATE: &str = "UPDATE repos SET checksum = $2, last_update = $3 WHERE id = $1";
        let last_update = go_time(Timestamp::now());
        on_engine!(tx.executor(), executor => {
            let query = sqlx::query(UPDATE).bind(self.id).bind(&checksum).bind(&last_update);
            query.execute(executor).await?;
        });
        Ok(Self {
            id: self.id,
            checksum: Some(checksum),
            last_update: Some(last_update),
        })
    }

    /// Shows readers that charts have changed outside of a commit. Our record follows if Portolan wrote the row last;
    /// otherwise the write of another process stays detectable.
    pub(super) async fn touch(&self, tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
        const UPDATE_REPOS: &str = "UPDATE repos SET last_update = $3 WHERE namespace = $1 AND name = $2";
        const UPDATE_RECORD: &str = "UPDATE portolan_repositories SET repos_last_update = $3
            WHERE namespace = $1 AND name = $2 AND repos_id = $4 AND repos_checksum = $5 AND repos_last_update = $6";
        let last_update = go_time(Timestamp::now());
        execute!(tx, UPDATE_REPOS, name, &last_update);
        execute!(
            tx,
            UPDATE_RECORD,
            name,
            &last_update,
            self.id,
            &self.checksum,
            &self.last_update
        );
        Ok(())
    }

    /// Copies the values into our record, so that changes by other writers are detected.
    pub(super) async fn store_values(&self, tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
        const UPDATE: &str =
            "UPDATE portolan_repositories SET repos_id = $3, repos_checksum = $4, repos_last_update = $5
            WHERE namespace = $1 AND name = $2";
        execute!(tx, UPDATE, name, self.id, &self.checksum, &self.last_update);
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

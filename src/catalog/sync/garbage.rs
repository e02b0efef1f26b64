//! Removes rows that no sync removes: other programs wrote them, or a release with other limits did.

use crate::api::NamespacedName;
use crate::catalog::cluster::MAX_AGE;
use crate::catalog::engine::{Connection, Engine, Transaction, execute, on_engine, select, sql};
use crate::catalog::files::metadata;
use crate::catalog::icons::svg;
use crate::catalog::{Catalog, Error, HISTORY_LIMIT, StoredBytes, record, stored_bytes};

/// Delete the rows of a repository in our tables. The history follows the record.
pub(in crate::catalog) const REPOSITORY_STATEMENTS: [&str; 13] = [
    "DELETE FROM portolan_repositories WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_files WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_chart_metadata WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_icons WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_svg_icons WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_kept_versions WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_index_cache WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_chart_digests WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_deprecated_charts WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_oci_tags WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_oci_repositories WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_stored_bytes WHERE namespace = $1 AND name = $2",
    "DELETE FROM portolan_news WHERE namespace = $1 AND name = $2",
];

const FILES_BATCH: i64 = 1000;

impl Catalog {
    /// Deletes files of versions that their chart does not have, metadata without files, and SVG icons without a chart. Returns
    /// the number of files; with `dry_run` they stay.
    pub async fn collect_files(&self, name: &NamespacedName, dry_run: bool) -> Result<u64, Error> {
        const OPERATION: &str = "delete files without a version";
        let mut collected = 0;
        loop {
            let counting = self.read(OPERATION, &name.namespace, async |connection| {
                let statement = sql!(connection, "files_without_version.sql");
                let rows: Vec<(i64, i64)> = select!(fetch_all, connection, statement, name, i64::MAX);
                let stray: Vec<(String,)> = select!(fetch_all, connection, metadata::SELECT_STRAY, name);
                let stray_icons: Vec<(String,)> = select!(fetch_all, connection, svg::SELECT_STRAY, name);
                Ok((rows.len() as u64, !stray.is_empty() || !stray_icons.is_empty()))
            });
            // A read first: a transaction without changes would still wait for the writer of SQLite.
            let (count, has_stray) = counting.await?;
            if dry_run || (count == 0 && !has_stray) {
                return Ok(collected + count);
            }
            let deleted = self
                .write_long(OPERATION, &name.namespace, async |tx| delete_files(tx, name).await)
                .await?;
            collected += deleted;
            if deleted == 0 {
                return Ok(collected);
            }
        }
    }

    /// Deletes history beyond [`HISTORY_LIMIT`] entries of a repository. Returns the number of entries.
    pub async fn collect_history(&self, dry_run: bool) -> Result<u64, Error> {
        const OPERATION: &str = "delete old history";
        const COUNT: &str = "SELECT count(*) FROM (SELECT row_number() OVER
            (PARTITION BY namespace, name ORDER BY id DESC) AS nth FROM portolan_syncs) AS entries WHERE nth > $1";
        const DELETE: &str = "DELETE FROM portolan_syncs WHERE id IN (SELECT id FROM (SELECT id, row_number() OVER
            (PARTITION BY namespace, name ORDER BY id DESC) AS nth FROM portolan_syncs) AS entries WHERE nth > $1)";
        let counting = self.read(OPERATION, "", async |connection| {
            let count: i64 = on_engine!(connection.executor(), executor =>
                sqlx::query_scalar(COUNT).bind(HISTORY_LIMIT).fetch_one(executor).await?);
            Ok(u64::try_from(count).unwrap_or_default())
        });
        let count = counting.await?;
        if count == 0 || dry_run {
            return Ok(count);
        }
        self.write(OPERATION, "", async |tx| {
            Ok(on_engine!(tx.executor(), executor =>
                sqlx::query(DELETE).bind(HISTORY_LIMIT).execute(executor).await?.rows_affected()))
        })
        .await
    }

    /// Returns the number of rows. While two clusters use the database, nothing is deleted: the other cluster may be in
    /// its first sync.
    ///
    /// A first sync writes the state of a registry before the record, so rows of repositories that `is_declared`
    /// returns true for stay. Rows of Kubeapps' tables are not ours.
    pub async fn collect_stray_rows(
        &self,
        is_declared: impl Fn(&NamespacedName) -> bool,
        dry_run: bool,
    ) -> Result<u64, Error> {
        const OPERATION: &str = "delete rows without a repository";
        let names = self.read(OPERATION, "", async |connection| stray_names(connection).await);
        let mut collected = 0;
        for name in names.await?.into_iter().filter(|name| !is_declared(name)) {
            if dry_run {
                collected += 1;
                continue;
            }
            collected += self
                .write_long(OPERATION, &name.namespace, async |tx| {
                    delete_stray_rows(tx, &name).await
                })
                .await?;
        }
        Ok(collected)
    }
}

async fn delete_files(tx: &mut Transaction, name: &NamespacedName) -> Result<u64, Error> {
    record::lock(tx, name).await?;
    let statement = sql!(tx, "files_without_version.sql");
    let rows: Vec<(i64, i64)> = select!(fetch_all, tx, statement, name, FILES_BATCH);
    let (ids, sizes): (Vec<i64>, Vec<i64>) = rows.into_iter().unzip();
    let deleted = match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query("DELETE FROM files WHERE id IN (SELECT value FROM json_each($1))");
            query
                .bind(sqlx::types::Json(&ids))
                .execute(connection)
                .await?
                .rows_affected()
        }
        Engine::Postgres(connection) => {
            let query = sqlx::query("DELETE FROM files WHERE id = ANY($1)");
            query.bind(&ids).execute(connection).await?.rows_affected()
        }
    };
    let derived_bytes = metadata::delete_stray(tx, name).await? + svg::delete_stray(tx, name).await?;
    let change = StoredBytes {
        charts: 0,
        files: -sizes.iter().sum::<i64>() - derived_bytes,
    };
    stored_bytes::add(tx, name, change).await?;
    Ok(deleted)
}

async fn stray_names(connection: &mut Connection) -> Result<Vec<NamespacedName>, Error> {
    const SELECT: &str = "SELECT namespace, name FROM (
            SELECT namespace, name FROM portolan_files UNION SELECT namespace, name FROM portolan_chart_metadata
            UNION SELECT namespace, name FROM portolan_icons UNION SELECT namespace, name FROM portolan_svg_icons
            UNION SELECT namespace, name FROM portolan_kept_versions UNION SELECT namespace, name FROM portolan_index_cache
            UNION SELECT namespace, name FROM portolan_chart_digests UNION SELECT namespace, name FROM portolan_oci_tags
            UNION SELECT namespace, name FROM portolan_deprecated_charts
            UNION SELECT namespace, name FROM portolan_oci_repositories
            UNION SELECT namespace, name FROM portolan_stored_bytes
            UNION SELECT namespace, name FROM portolan_news) AS found
        WHERE name <> '' AND NOT EXISTS (SELECT 1 FROM portolan_repositories AS own
            WHERE own.namespace = found.namespace AND own.name = found.name)
            AND (SELECT count(*) FROM portolan_clusters
                WHERE renewed > (SELECT max(renewed) - $1 FROM portolan_clusters)) <= 1
        ORDER BY namespace, name";
    let max_age = i64::try_from(MAX_AGE.as_millis()).unwrap_or(i64::MAX);
    let rows: Vec<(String, String)> =
        on_engine!(connection.executor(), executor => sqlx::query_as(SELECT).bind(max_age).fetch_all(executor).await?);
    let names = rows.into_iter();
    Ok(names
        .map(|(namespace, name)| NamespacedName { namespace, name })
        .collect())
}

async fn delete_stray_rows(tx: &mut Transaction, name: &NamespacedName) -> Result<u64, Error> {
    record::lock(tx, name).await?;
    // Its first sync has ended since.
    if record::stored_identity(tx, name).await?.is_some() {
        return Ok(0);
    }
    let mut deleted = 0;
    for statement in REPOSITORY_STATEMENTS {
        deleted += execute!(tx, statement, name);
    }
    Ok(deleted)
}

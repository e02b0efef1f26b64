//! Chart.yaml of imported archives: `portolan_chart_metadata`. Kubeapps' tables have no column for it.
//!
//! A row is written with the files of its archive, and counts while these have the same digest. A row without metadata says
//! that the archive has no valid Chart.yaml, so that a newest version is not fetched again for it.

use serde::Serialize;
use sqlx::types::Json;

use crate::api::NamespacedName;
use crate::catalog::engine::{Engine, Transaction, select};
use crate::catalog::{Catalog, Error, FetchedFiles};

/// Chart.yaml of an imported archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartMetadata {
    /// A JSON object of at most 64 KiB. Its values are lists, objects and texts as written (`version: 1.10` is `"1.10"`);
    /// only `deprecated` and `enabled` are booleans, and no value is null.
    pub json: String,
}

impl Catalog {
    /// Returns `None` if the archive of the version is not imported, or has no valid Chart.yaml.
    pub async fn chart_metadata(
        &self,
        name: &NamespacedName,
        chart_id: &str,
        version: &str,
    ) -> Result<Option<ChartMetadata>, Error> {
        const SELECT: &str = "SELECT d.metadata FROM portolan_chart_metadata d
            JOIN files f ON f.repo_namespace = d.namespace AND f.repo_name = d.name
                AND f.chart_id = d.chart_id AND f.chart_files_id = d.chart_files_id
            WHERE d.namespace = $1 AND d.name = $2 AND d.chart_id = $3 AND d.chart_files_id = $4
                AND d.metadata IS NOT NULL AND f.info ->> 'Digest' = d.digest";
        if chart_id.contains('\0') || version.contains('\0') {
            // Postgres refuses it.
            return Ok(None);
        }
        let files_id = format!("{chart_id}-{version}");
        self.read(
            "read the Chart.yaml of a version",
            &name.namespace,
            async |connection| {
                let row: Option<(String,)> = select!(fetch_optional, connection, SELECT, name, chart_id, &files_id);
                Ok(row.map(|(json,)| ChartMetadata { json }))
            },
        )
        .await
    }
}

/// `chart_id`, `chart_files_id`, digest and metadata of an imported archive.
#[derive(Serialize)]
pub(super) struct MetadataRow<'a>(&'a str, String, &'a str, Option<&'a str>);

impl<'a> MetadataRow<'a> {
    pub(super) fn of(files: &'a FetchedFiles) -> Self {
        let missing = &files.missing;
        Self(
            &missing.chart_id,
            missing.files_id(),
            &missing.digest,
            files.metadata.as_deref(),
        )
    }
}

/// Writes the metadata of files that were written before. Equal rows are not touched, and rows whose files belong to another
/// chart with the same `chart_files_id` are left out.
pub(super) async fn write(tx: &mut Transaction, name: &NamespacedName, rows: &[MetadataRow<'_>]) -> Result<(), Error> {
    const SQLITE: &str = "INSERT INTO portolan_chart_metadata AS d
            (namespace, name, chart_id, chart_files_id, digest, metadata)
        SELECT $1, $2, row.value ->> 0, row.value ->> 1, row.value ->> 2, row.value ->> 3 FROM json_each($3) AS row
        WHERE EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1 AND f.repo_name = $2
            AND f.chart_files_id = row.value ->> 1 AND f.chart_id = row.value ->> 0)
        ON CONFLICT (namespace, name, chart_id, chart_files_id) DO UPDATE
            SET digest = excluded.digest, metadata = excluded.metadata
        WHERE d.digest <> excluded.digest OR d.metadata IS DISTINCT FROM excluded.metadata";
    const POSTGRES: &str = "INSERT INTO portolan_chart_metadata AS d
            (namespace, name, chart_id, chart_files_id, digest, metadata)
        SELECT $1, $2, row.* FROM unnest($3::text[], $4::text[], $5::text[], $6::text[])
            AS row (chart_id, files_id, digest, metadata)
        WHERE EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1 AND f.repo_name = $2
            AND f.chart_files_id = row.files_id AND f.chart_id = row.chart_id)
        ON CONFLICT (namespace, name, chart_id, chart_files_id) DO UPDATE
            SET digest = excluded.digest, metadata = excluded.metadata
        WHERE d.digest <> excluded.digest OR d.metadata IS DISTINCT FROM excluded.metadata";
    if rows.is_empty() {
        return Ok(());
    }
    match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query(SQLITE).bind(&name.namespace).bind(&name.name);
            query.bind(Json(rows)).execute(connection).await?;
        }
        Engine::Postgres(connection) => {
            let query = sqlx::query(POSTGRES)
                .bind(&name.namespace)
                .bind(&name.name)
                .bind(rows.iter().map(|row| row.0).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| &*row.1).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.2).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.3).collect::<Vec<_>>());
            query.execute(connection).await?;
        }
    }
    Ok(())
}

/// Selects a row if there is metadata without files: another program deleted the chart.
pub(in crate::catalog) const SELECT_STRAY: &str = "SELECT d.chart_files_id FROM portolan_chart_metadata d
    WHERE d.namespace = $1 AND d.name = $2 AND NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1
        AND f.repo_name = $2 AND f.chart_files_id = d.chart_files_id AND f.chart_id = d.chart_id) LIMIT 1";

/// Deletes metadata without files, and returns its bytes.
pub(in crate::catalog) async fn delete_stray(tx: &mut Transaction, name: &NamespacedName) -> Result<i64, Error> {
    const SQLITE: &str = "DELETE FROM portolan_chart_metadata AS d
        WHERE d.namespace = $1 AND d.name = $2 AND NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1
            AND f.repo_name = $2 AND f.chart_files_id = d.chart_files_id AND f.chart_id = d.chart_id)
        RETURNING coalesce(octet_length(metadata), 0)";
    const POSTGRES: &str = "DELETE FROM portolan_chart_metadata AS d
        WHERE d.namespace = $1 AND d.name = $2 AND NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1
            AND f.repo_name = $2 AND f.chart_files_id = d.chart_files_id AND f.chart_id = d.chart_id)
        RETURNING CAST(coalesce(pg_column_size(metadata), 0) AS BIGINT)";
    let statement = tx.choose(SQLITE, POSTGRES);
    let rows: Vec<(i64,)> = select!(fetch_all, tx, statement, name);
    Ok(rows.into_iter().map(|(bytes,)| bytes).sum())
}

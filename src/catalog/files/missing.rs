//! Versions without files. The database finds them, because the charts of a large repository are expensive to read.

use jiff::Timestamp;
use sqlx::FromRow;
use sqlx::types::Json;

use crate::api::NamespacedName;
use crate::catalog::engine::{Connection, Engine, Transaction, select, sql};
use crate::catalog::record::unsigned;
use crate::catalog::{ChangedCharts, Error, FilesProgress, MissingFiles, MissingFilesPage, StoredBytes, stored_bytes};

/// Longer URLs are cut, so that the importer refuses them: it keeps a page of versions of each repository.
pub const MAX_URL_CHARACTERS: usize = 2048;

pub(super) async fn files(
    connection: &mut Connection,
    name: &NamespacedName,
    only_newest: bool,
    now: Timestamp,
    limit: usize,
) -> Result<MissingFilesPage, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (statement, now) = (sql!(connection, "files_missing.sql"), now.as_millisecond());
    let rows: Vec<MissingRow> = select!(
        fetch_all,
        connection,
        statement,
        name,
        only_newest,
        now,
        limit,
        MAX_URL_CHARACTERS as i64 + 1
    );
    let next_try = rows.first().and_then(|row| row.next_try);
    Ok(MissingFilesPage {
        files: rows.into_iter().filter_map(MissingRow::files).collect(),
        next_try: next_try.and_then(|millis| Timestamp::from_millisecond(millis).ok()),
    })
}

/// Returns the digests of a version, which an index may list several times.
pub(super) async fn digests(
    connection: &mut Connection,
    name: &NamespacedName,
    chart_id: &str,
    version: &str,
) -> Result<Vec<String>, Error> {
    const SQLITE: &str =
        "SELECT coalesce(e.value ->> 'digest', '') FROM charts c, json_each(c.info, '$.chartVersions') e
        WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = $3 AND e.value ->> 'version' = $4";
    const POSTGRES: &str = "SELECT coalesce(e ->> 'digest', '')
        FROM charts c CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(c.info -> 'chartVersions')
            WHEN 'array' THEN c.info -> 'chartVersions' ELSE '[]' END) AS e
        WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = $3 AND e ->> 'version' = $4";
    let statement = connection.choose(SQLITE, POSTGRES);
    let rows: Vec<(String,)> = select!(fetch_all, connection, statement, name, chart_id, version);
    Ok(rows.into_iter().map(|(digest,)| digest).collect())
}

pub(super) async fn progress(
    connection: &mut Connection,
    name: &NamespacedName,
    only_newest: bool,
) -> Result<FilesProgress, Error> {
    let (statement, tries) = (sql!(connection, "files_progress.sql"), i64::from(FilesProgress::TRIES));
    let (total, open, failed): (i64, i64, i64) = select!(fetch_one, connection, statement, name, only_newest, tries);
    Ok(FilesProgress {
        total: unsigned(total),
        imported: unsigned(total - open),
        failed: unsigned(failed),
    })
}

/// Charts of one statement: a whole large repository would take longer than the server allows.
const SKIPPED_CHARTS: usize = 20;

/// Inserts empty rows for versions without a row, except the first `imported_versions` of each chart.
pub(super) async fn skip(
    tx: &mut Transaction,
    name: &NamespacedName,
    imported_versions: i64,
    charts: &ChangedCharts,
) -> Result<u64, Error> {
    const CHARTS: &str = "SELECT chart_id FROM charts WHERE repo_namespace = $1 AND repo_name = $2
        AND chart_id IS NOT NULL ORDER BY chart_id";
    let (mark, insert) = (sql!(tx, "files_mark_skipped.sql"), sql!(tx, "files_insert_skipped.sql"));
    let charts: Vec<String> = match charts.listed() {
        Some(charts) => charts.iter().cloned().collect(),
        None => {
            let rows: Vec<(String,)> = select!(fetch_all, tx, CHARTS, name);
            rows.into_iter().map(|(chart_id,)| chart_id).collect()
        }
    };
    let (mut rows, mut bytes) = (0, StoredBytes::default());
    for charts in charts.chunks(SKIPPED_CHARTS) {
        let charts: Vec<&str> = charts.iter().map(String::as_str).collect();
        let sizes: Vec<i64> = match tx.executor() {
            Engine::Sqlite(connection) => {
                let charts = Json(&charts);
                let query = sqlx::query(mark).bind(&name.namespace).bind(&name.name);
                query
                    .bind(imported_versions)
                    .bind(charts)
                    .execute(&mut *connection)
                    .await?;
                let query = sqlx::query_scalar(insert).bind(&name.namespace).bind(&name.name);
                query.bind(imported_versions).bind(charts).fetch_all(connection).await?
            }
            Engine::Postgres(connection) => {
                let query = sqlx::query(mark).bind(&name.namespace).bind(&name.name);
                query
                    .bind(imported_versions)
                    .bind(&charts)
                    .execute(&mut *connection)
                    .await?;
                let query = sqlx::query_scalar(insert).bind(&name.namespace).bind(&name.name);
                query
                    .bind(imported_versions)
                    .bind(&charts)
                    .fetch_all(connection)
                    .await?
            }
        };
        rows += sizes.len() as u64;
        bytes.files += sizes.iter().sum::<i64>();
    }
    stored_bytes::add(tx, name, bytes).await?;
    Ok(rows)
}

/// All columns but `next_try` are null if no files are missing now.
#[derive(FromRow)]
struct MissingRow {
    next_try: Option<i64>,
    chart_id: Option<String>,
    version: Option<String>,
    digest: Option<String>,
    url: Option<String>,
    tries: Option<i64>,
}

impl MissingRow {
    fn files(self) -> Option<MissingFiles> {
        Some(MissingFiles {
            chart_id: self.chart_id?,
            version: self.version?,
            digest: self.digest?,
            url: self.url,
            tries: u32::try_from(self.tries?).unwrap_or(u32::MAX),
        })
    }
}

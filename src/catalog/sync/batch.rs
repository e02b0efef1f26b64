//! Writes charts in batches and isolates rows that the database rejects.

use std::collections::HashSet;

use serde_json::value::{RawValue, to_raw_value};
use sqlx::types::Json;

use crate::api::NamespacedName;
use crate::catalog::engine::{Engine, Transaction, on_engine};
use crate::catalog::news::ChangeLog;
use crate::catalog::{ChartRow, CommitSummary, Error, StoredBytes, stored_bytes};
use crate::text::{printable, truncate};

/// Batch size. Smaller for SQLite, which makes four copies of a JSON parameter and has no round trips to save.
const MAX_BYTES_SQLITE: usize = 1 << 18;
const MAX_BYTES_POSTGRES: usize = 1 << 20;

const MAX_ROWS: usize = 256;

const REASON_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowChange {
    Insert,
    Update {
        id: i64,
        /// The stored row has an imported icon, and its URL is unchanged.
        keep_icon: bool,
    },
}

impl RowChange {
    pub(super) const fn update(id: i64) -> Self {
        Self::Update { id, keep_icon: false }
    }
}

pub(super) struct Batch<'b> {
    name: &'b NamespacedName,
    pub(super) committed: &'b mut CommitSummary,
    /// Changed versions are returned.
    pub(super) has_sinks: bool,
    inserts: Vec<Insert>,
    updates: Vec<Update>,
    bytes: usize,
    /// Changes of versions by `chart_id`, of rows that are not written yet.
    pending: Vec<(String, ChangeLog)>,
    pub(super) changes: ChangeLog,
}

#[derive(serde::Serialize)]
struct Insert {
    chart_id: String,
    info: Box<RawValue>,
}

#[derive(serde::Serialize)]
struct Update {
    id: i64,
    chart_id: String,
    info: Box<RawValue>,
    keep_icon: bool,
    #[serde(skip)]
    files: Vec<String>,
}

impl<'b> Batch<'b> {
    pub(super) fn new(name: &'b NamespacedName, committed: &'b mut CommitSummary, has_sinks: bool) -> Self {
        Self {
            name,
            committed,
            has_sinks,
            inserts: Vec::new(),
            updates: Vec::new(),
            bytes: 0,
            pending: Vec::new(),
            changes: ChangeLog::default(),
        }
    }

    pub(super) async fn push(&mut self, tx: &mut Transaction, row: ChartRow, change: RowChange) -> Result<(), Error> {
        let info = to_raw_value(&row.info)?;
        self.bytes += info.get().len();
        match change {
            RowChange::Insert => self.inserts.push(Insert {
                chart_id: row.chart_id,
                info,
            }),
            RowChange::Update { id, keep_icon } => {
                let files = row.info.file_ids();
                self.bytes += files.iter().map(String::len).sum::<usize>();
                self.updates.push(Update {
                    id,
                    chart_id: row.chart_id,
                    info,
                    keep_icon,
                    files,
                });
            }
        }
        let max_bytes = tx.choose(MAX_BYTES_SQLITE, MAX_BYTES_POSTGRES);
        if self.bytes >= max_bytes || self.inserts.len() + self.updates.len() >= MAX_ROWS {
            self.write(tx).await?;
        }
        Ok(())
    }

    /// Adds the changes of a row to the news, once the row is written.
    pub(super) fn report(&mut self, chart_id: &str, changes: impl FnOnce() -> ChangeLog) {
        if self.has_sinks {
            self.pending.push((chart_id.to_owned(), changes()));
        }
    }

    pub(super) async fn write(&mut self, tx: &mut Transaction) -> Result<(), Error> {
        let (inserts, updates) = (std::mem::take(&mut self.inserts), std::mem::take(&mut self.updates));
        self.bytes = 0;
        let (name, committed) = (self.name, &mut *self.committed);
        let rejected_before = committed.rejected.len();
        let written = &mut committed.written;
        written.extend(inserts.iter().map(|insert| insert.chart_id.clone()));
        written.extend(updates.iter().map(|update| update.chart_id.clone()));
        committed.added += write_all(tx, name, &inserts, committed).await?;
        committed.changed += write_all(tx, name, &updates, committed).await?;
        let rejected = committed.rejected.iter().skip(rejected_before);
        let rejected: HashSet<&str> = rejected.map(|(chart_id, _)| chart_id.as_str()).collect();
        for (chart_id, changes) in std::mem::take(&mut self.pending) {
            if !rejected.contains(chart_id.as_str()) {
                self.changes.append(changes);
            }
        }
        Ok(())
    }
}

trait Writable: Sized + Sync {
    fn chart_id(&self) -> &str;
    fn write(
        tx: &mut Transaction,
        name: &NamespacedName,
        rows: &[Self],
        bytes: &mut StoredBytes,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Bisects rows that the database rejects until the rejected row is alone, and skips it. Savepoints are needed because
/// Postgres aborts a transaction at the first error.
async fn write_all<R: Writable>(
    tx: &mut Transaction,
    name: &NamespacedName,
    rows: &[R],
    committed: &mut CommitSummary,
) -> Result<u64, Error> {
    let mut written = 0;
    let mut pending = vec![rows];
    while let Some(rows) = pending.pop() {
        let (Some(first), count) = (rows.first(), rows.len()) else {
            continue;
        };
        run(tx, "SAVEPOINT batch").await?;
        let mut bytes = StoredBytes::default();
        match R::write(tx, name, rows, &mut bytes).await {
            Ok(()) => {
                written += count as u64;
                committed.bytes += bytes;
                committed.bytes.charts += size(tx, name, rows).await?;
            }
            Err(error) if error.is_invalid_data() => {
                run(tx, "ROLLBACK TO SAVEPOINT batch").await?;
                if count == 1 {
                    let reason = truncate(&printable(&error.database_message()), REASON_BYTES);
                    committed.rejected.push((first.chart_id().to_owned(), reason));
                    // The stored row, if any, stays.
                    committed.bytes.charts += size(tx, name, rows).await?;
                } else {
                    let (left, right) = rows.split_at(count / 2);
                    pending.extend([right, left]);
                }
            }
            Err(error) => return Err(error),
        }
        run(tx, "RELEASE SAVEPOINT batch").await?;
    }
    Ok(written)
}

async fn size<R: Writable>(tx: &mut Transaction, name: &NamespacedName, rows: &[R]) -> Result<i64, Error> {
    let charts: Vec<&str> = rows.iter().map(Writable::chart_id).collect();
    stored_bytes::size_of_charts(tx, name, &charts).await
}

async fn run(tx: &mut Transaction, statement: &'static str) -> Result<(), Error> {
    on_engine!(tx.executor(), executor => { sqlx::query(statement).execute(executor).await?; });
    Ok(())
}

impl Writable for Insert {
    fn chart_id(&self) -> &str {
        &self.chart_id
    }

    async fn write(
        tx: &mut Transaction,
        name: &NamespacedName,
        rows: &[Self],
        _: &mut StoredBytes,
    ) -> Result<(), Error> {
        // An upsert, because Kubeapps' syncer may have inserted the row meanwhile.
        // SQLite needs WHERE to parse ON CONFLICT after SELECT.
        const SQLITE: &str = "INSERT INTO charts (repo_namespace, repo_name, chart_id, info)
            SELECT $1, $2, value ->> '$.chart_id', value -> '$.info' FROM json_each($3) WHERE true
            ON CONFLICT (repo_name, repo_namespace, chart_id) DO UPDATE SET info = excluded.info";
        const POSTGRES: &str = "INSERT INTO charts (repo_namespace, repo_name, chart_id, info)
            SELECT $1, $2, row.chart_id, row.info::jsonb FROM unnest($3::text[], $4::text[]) AS row (chart_id, info)
            ON CONFLICT (repo_name, repo_namespace, chart_id) DO UPDATE SET info = excluded.info";
        match tx.executor() {
            Engine::Sqlite(connection) => {
                let query = sqlx::query(SQLITE).bind(&name.namespace).bind(&name.name);
                query.bind(Json(rows)).execute(connection).await?;
            }
            Engine::Postgres(connection) => {
                let query = sqlx::query(POSTGRES)
                    .bind(&name.namespace)
                    .bind(&name.name)
                    .bind(rows.iter().map(|row| &*row.chart_id).collect::<Vec<_>>())
                    .bind(rows.iter().map(|row| row.info.get()).collect::<Vec<_>>());
                query.execute(connection).await?;
            }
        }
        Ok(())
    }
}

impl Writable for Update {
    fn chart_id(&self) -> &str {
        &self.chart_id
    }

    async fn write(
        tx: &mut Transaction,
        name: &NamespacedName,
        rows: &[Self],
        bytes: &mut StoredBytes,
    ) -> Result<(), Error> {
        const SQLITE: &str = "UPDATE charts SET info = CASE WHEN row.keep_icon THEN json_set(row.info,
                '$.raw_icon', json(charts.info -> '$.raw_icon'),
                '$.icon_content_type', json(charts.info -> '$.icon_content_type')) ELSE row.info END
            FROM (SELECT value ->> '$.id' AS id, value -> '$.info' AS info, value ->> '$.keep_icon' AS keep_icon
                FROM json_each($1)) AS row WHERE charts.id = row.id";
        const POSTGRES: &str =
            "UPDATE charts SET info = CASE WHEN row.keep_icon THEN row.info::jsonb || jsonb_build_object(
                'raw_icon', charts.info -> 'raw_icon',
                'icon_content_type', charts.info -> 'icon_content_type') ELSE row.info::jsonb END
            FROM unnest($1::bigint[], $2::text[], $3::boolean[]) AS row (id, info, keep_icon) WHERE charts.id = row.id";
        match tx.executor() {
            Engine::Sqlite(connection) => {
                sqlx::query(SQLITE).bind(Json(rows)).execute(connection).await?;
            }
            Engine::Postgres(connection) => {
                let query = sqlx::query(POSTGRES)
                    .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
                    .bind(rows.iter().map(|row| row.info.get()).collect::<Vec<_>>())
                    .bind(rows.iter().map(|row| row.keep_icon).collect::<Vec<_>>());
                query.execute(connection).await?;
            }
        }
        delete_stale_files(tx, name, rows, bytes).await
    }
}

/// Deletes files, metadata and failures of versions that the charts no longer have. Kubeapps never deletes them.
async fn delete_stale_files(
    tx: &mut Transaction,
    name: &NamespacedName,
    rows: &[Update],
    bytes: &mut StoredBytes,
) -> Result<(), Error> {
    const SQLITE: [&str; 3] = [
        "DELETE FROM files WHERE repo_name = $1 AND repo_namespace = $2
            AND chart_id IN (SELECT value FROM json_each($3))
            AND (chart_id, chart_files_id) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each($4))
            RETURNING octet_length(info)",
        "DELETE FROM portolan_chart_metadata WHERE name = $1 AND namespace = $2
            AND chart_id IN (SELECT value FROM json_each($3))
            AND (chart_id, chart_files_id) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each($4))
            RETURNING coalesce(octet_length(metadata), 0)",
        "DELETE FROM portolan_files WHERE name = $1 AND namespace = $2
            AND chart_id IN (SELECT value FROM json_each($3))
            AND (chart_id, chart_files_id) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each($4))
            RETURNING 0",
    ];
    const POSTGRES: [&str; 3] = [
        "DELETE FROM files WHERE repo_name = $1 AND repo_namespace = $2 AND chart_id = ANY($3::text[])
            AND NOT EXISTS (SELECT FROM unnest($4::text[], $5::text[]) AS kept (chart_id, file_id)
                WHERE kept.chart_id = files.chart_id AND kept.file_id = files.chart_files_id)
            RETURNING CAST(pg_column_size(info) AS BIGINT)",
        "DELETE FROM portolan_chart_metadata AS d WHERE d.name = $1 AND d.namespace = $2 AND d.chart_id = ANY($3::text[])
            AND NOT EXISTS (SELECT FROM unnest($4::text[], $5::text[]) AS kept (chart_id, file_id)
                WHERE kept.chart_id = d.chart_id AND kept.file_id = d.chart_files_id)
            RETURNING CAST(coalesce(pg_column_size(d.metadata), 0) AS BIGINT)",
        "DELETE FROM portolan_files AS p WHERE p.name = $1 AND p.namespace = $2 AND p.chart_id = ANY($3::text[])
            AND NOT EXISTS (SELECT FROM unnest($4::text[], $5::text[]) AS kept (chart_id, file_id)
                WHERE kept.chart_id = p.chart_id AND kept.file_id = p.chart_files_id)
            RETURNING CAST(0 AS BIGINT)",
    ];
    let charts: Vec<&str> = rows.iter().map(|row| &*row.chart_id).collect();
    let kept = rows
        .iter()
        .flat_map(|row| row.files.iter().map(|file| (&*row.chart_id, &**file)));
    match tx.executor() {
        Engine::Sqlite(connection) => {
            let kept: Vec<(&str, &str)> = kept.collect();
            for statement in SQLITE {
                let query = sqlx::query_scalar(statement).bind(&name.name).bind(&name.namespace);
                let query = query.bind(Json(&charts)).bind(Json(&kept));
                let deleted: Vec<i64> = query.fetch_all(&mut *connection).await?;
                bytes.files -= deleted.iter().sum::<i64>();
            }
        }
        Engine::Postgres(connection) => {
            let (owners, files): (Vec<&str>, Vec<&str>) = kept.unzip();
            for statement in POSTGRES {
                let query = sqlx::query_scalar(statement).bind(&name.name).bind(&name.namespace);
                let query = query.bind(&charts).bind(&owners).bind(&files);
                let deleted: Vec<i64> = query.fetch_all(&mut *connection).await?;
                bytes.files -= deleted.iter().sum::<i64>();
            }
        }
    }
    Ok(())
}

use std::io::BufRead;
use std::time::Duration;

use futures::FutureExt;
use serde::de::IgnoredAny;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor};

use super::lines::Reader;
use super::tables::{ColumnType, On, TABLES, Table, find};
use super::{ExportLine, FORMAT, Header, Sequence, TableHeader, Transferred};
use crate::catalog::connection::Usage;
use crate::catalog::engine::{Engine, Transaction, on_engine};
use crate::catalog::{Catalog, Error, ErrorKind, RENEW_INTERVAL, cluster, schema};

/// For all rows, over a slow network.
const DEADLINE: Duration = Duration::from_secs(12 * 3600);

const BATCH_ROWS: usize = 500;
const BATCH_BYTES: usize = 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportMode {
    /// Refuses a catalog with rows.
    Empty,
    /// Deletes all rows of the catalog first, in the same transaction.
    Replace,
}

impl Catalog {
    /// In one transaction: after any failure nothing has changed. Fails with [`ErrorKind::Transfer`] if the export was
    /// cut or edited, if the catalog has rows, or if a controller uses it.
    pub async fn import(&self, input: impl BufRead + Send, mode: ImportMode) -> Result<Transferred, Error> {
        let mut reader = Reader::new(input);
        let import = async |tx: &mut Transaction| {
            let imported = import(tx, &mut reader, mode).boxed().await?;
            if reader.next().map_err(refused)?.is_some() {
                return Err(refused(reader.error("more lines after the end")));
            }
            Ok(imported)
        };
        self.write_with("import the catalog", Usage::Commit, "", DEADLINE, import)
            .await
    }
}

fn refused(reason: String) -> Error {
    ErrorKind::Transfer {
        reason: format!("cannot import, nothing was changed: {reason}"),
    }
    .into()
}

/// Names the file as the cause if the database refuses its rows.
fn damaged(reader: &Reader<impl BufRead>, error: Error) -> Error {
    if !error.is_foreign_key_violation() && !error.is_invalid_data() {
        return error;
    }
    let reason = format!(
        "the rows before are damaged or incomplete: {}; use another export",
        error.database_message()
    );
    refused(reader.error(&reason))
}

async fn import(
    tx: &mut Transaction,
    reader: &mut Reader<impl BufRead + Send>,
    mode: ImportMode,
) -> Result<Transferred, Error> {
    refuse_if_in_use(tx).await?;
    match mode {
        ImportMode::Empty => refuse_if_filled(tx).await?,
        ImportMode::Replace => delete_all(tx).await?,
    }
    match reader.next().map_err(refused)? {
        Some((ExportLine::Header(header), _)) => check(&header).map_err(refused)?,
        _ => return Err(refused("not an export of `portolan catalog export`".to_owned())),
    }
    let (mut batch, mut imported) = (None::<ImportBatch>, Transferred::default());
    loop {
        let Some((line, digest)) = reader.next().map_err(refused)? else {
            return Err(refused("the file ends before its end: it was cut".to_owned()));
        };
        match line {
            ExportLine::Table(header) => {
                if let Some(batch) = &mut batch {
                    batch.write(tx).await.map_err(|error| damaged(reader, error))?;
                }
                batch = Some(ImportBatch::new(&header).map_err(|reason| refused(reader.error(&reason)))?);
            }
            ExportLine::Row(row) => {
                let batch = batch
                    .as_mut()
                    .ok_or_else(|| refused(reader.error("a row without a table")))?;
                batch.push(row).map_err(|reason| refused(reader.error(&reason)))?;
                imported.rows += 1;
                imported.repositories += u64::from(batch.table.name == "portolan_repositories");
                if batch.is_full() {
                    batch.write(tx).await.map_err(|error| damaged(reader, error))?;
                }
            }
            ExportLine::Sequence(sequence) => set_sequence(tx, &sequence).await?,
            ExportLine::End(end) => {
                if end.sha256 != digest || end.rows != imported.rows {
                    return Err(refused(
                        "the digest differs: the file was changed since its export".to_owned(),
                    ));
                }
                if let Some(batch) = &mut batch {
                    batch.write(tx).await.map_err(|error| damaged(reader, error))?;
                }
                count_bytes(tx).await?;
                return Ok(imported);
            }
            ExportLine::Header(_) | ExportLine::Chunk(_) => return Err(refused(reader.error("unexpected line"))),
        }
    }
}

fn check(header: &Header) -> Result<(), String> {
    let supported = schema::newest_version();
    if header.format != FORMAT || header.schema > supported {
        return Err(format!(
            "written by Portolan {} in format {} with schema version {}, this release reads format {FORMAT} and schema \
             versions up to {supported}; use that release or a newer one",
            header.portolan, header.format, header.schema
        ));
    }
    Ok(())
}

/// Refuses a catalog whose claim a controller has renewed. On SQLite the caller holds the lock.
async fn refuse_if_in_use(tx: &mut Transaction) -> Result<(), Error> {
    const SELECT: &str = "SELECT cluster_id, renewed FROM portolan_clusters ORDER BY renewed DESC";
    if let Engine::Postgres(connection) = tx.executor() {
        // A controller that starts now waits with its claim.
        let lock = sqlx::raw_sql("LOCK TABLE portolan_clusters IN SHARE ROW EXCLUSIVE MODE");
        connection.execute(lock).await?;
    } else {
        return Ok(());
    }
    let now = cluster::now(tx).await?;
    let newest: Option<(String, i64)> =
        on_engine!(tx.executor(), executor => sqlx::query_as(SELECT).fetch_optional(executor).await?);
    let Some((cluster, renewed)) = newest else {
        return Ok(());
    };
    let age = Duration::from_millis(u64::try_from(now - renewed).unwrap_or_default());
    if age < 2 * RENEW_INTERVAL {
        return Err(refused(format!(
            "a controller used the catalog {} s ago (cluster ID {cluster:?}); stop it, and import {} s later",
            age.as_secs(),
            2 * RENEW_INTERVAL.as_secs()
        )));
    }
    Ok(())
}

async fn refuse_if_filled(tx: &mut Transaction) -> Result<(), Error> {
    for table in TABLES {
        let select = format!(
            "SELECT count(*) FROM (SELECT 1 AS one FROM {} LIMIT 1) AS found",
            table.name
        );
        let count: i64 = on_engine!(tx.executor(), executor =>
            sqlx::query_scalar(AssertSqlSafe(select)).fetch_one(executor).await?);
        if count > 0 {
            return Err(refused(format!(
                "the catalog is not empty (table {}); use --replace to delete all its rows first",
                table.name
            )));
        }
    }
    Ok(())
}

async fn delete_all(tx: &mut Transaction) -> Result<(), Error> {
    let names = TABLES.iter().rev().map(|table| table.name);
    for name in names.chain(["portolan_stored_bytes"]) {
        let delete = sqlx::raw_sql(AssertSqlSafe(format!("DELETE FROM {name}")));
        on_engine!(tx.executor(), executor => { executor.execute(delete).await?; });
    }
    Ok(())
}

struct ImportBatch {
    table: &'static Table,
    columns: Vec<(&'static str, ColumnType)>,
    rows: Vec<Vec<Value>>,
    bytes: usize,
}

impl ImportBatch {
    fn new(header: &TableHeader) -> Result<Self, String> {
        let table = find(&header.name).ok_or_else(|| format!("unknown table {:?}", header.name))?;
        let column = |name: &String| {
            let column = table.columns.iter().find(|(column, _)| column == name);
            column
                .copied()
                .ok_or_else(|| format!("unknown column {name:?} of table {}", table.name))
        };
        Ok(Self {
            table,
            columns: header.columns.iter().map(column).collect::<Result<_, _>>()?,
            rows: Vec::new(),
            bytes: 0,
        })
    }

    fn push(&mut self, row: Vec<Value>) -> Result<(), String> {
        let is_valid = row.len() == self.columns.len()
            && row
                .iter()
                .zip(&self.columns)
                .all(|(value, (_, column))| has_type(value, *column));
        if !is_valid {
            return Err(format!("not a row of table {}", self.table.name));
        }
        self.bytes += row
            .iter()
            .map(|value| value.as_str().map_or(8, str::len))
            .sum::<usize>();
        self.rows.push(row);
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    async fn write(&mut self, tx: &mut Transaction) -> Result<(), Error> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if rows.is_empty() {
            return Ok(());
        }
        let rows = serde_json::to_string(&rows).map_err(|error| refused(error.to_string()))?;
        let statement = self.table.insert(tx.choose(On::Sqlite, On::Postgres), &self.columns);
        on_engine!(tx.executor(), executor => {
            sqlx::query(AssertSqlSafe(statement)).bind(rows).execute(executor).await?;
        });
        Ok(())
    }
}

fn has_type(value: &Value, column: ColumnType) -> bool {
    match (column, value) {
        (_, Value::Null) | (ColumnType::Text, Value::String(_)) | (ColumnType::Boolean, Value::Bool(_)) => true,
        (ColumnType::Integer, Value::Number(number)) => number.is_i64(),
        (ColumnType::Json, Value::String(text)) => serde_json::from_str::<IgnoredAny>(text).is_ok(),
        _ => false,
    }
}

/// Continues after the last ID of the export, or after the last ID of this catalog if it is higher.
async fn set_sequence(tx: &mut Transaction, sequence: &Sequence) -> Result<(), Error> {
    const SQLITE: [&str; 2] = [
        "UPDATE sqlite_sequence SET seq = max(seq, $2) WHERE name = $1",
        "INSERT INTO sqlite_sequence (name, seq) SELECT $1, $2
            WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = $1)",
    ];
    const POSTGRES: &str = "SELECT setval(own.id, greatest($2, coalesce(pg_sequence_last_value(own.id), 1)))
        FROM (SELECT CAST(pg_get_serial_sequence($1, 'id') AS regclass) AS id) AS own";
    let Sequence { table, value } = sequence;
    if !find(table).is_some_and(|table| table.has_sequence) || *value < 1 {
        return Err(refused(format!("unknown sequence {table:?}")));
    }
    match tx.executor() {
        Engine::Sqlite(connection) => {
            for statement in SQLITE {
                let query = sqlx::query(statement).bind(table).bind(value);
                query.execute(&mut *connection).await?;
            }
        }
        Engine::Postgres(connection) => {
            let query = sqlx::query(POSTGRES).bind(table).bind(value);
            query.execute(connection).await?;
        }
    }
    Ok(())
}

/// Counts the bytes of all repositories as this engine stores them.
async fn count_bytes(tx: &mut Transaction) -> Result<(), Error> {
    let size = tx.choose("octet_length", "pg_column_size");
    let statement = AssertSqlSafe(format!(
        "INSERT INTO portolan_stored_bytes (namespace, name, charts, files) SELECT namespace, name,
        (SELECT coalesce(sum({size}(info)), 0) FROM charts WHERE repo_namespace = p.namespace AND repo_name = p.name)
        + (SELECT coalesce(sum({size}(o.info)), 0) FROM portolan_deprecated_charts o
            WHERE o.namespace = p.namespace AND o.name = p.name),
        (SELECT coalesce(sum({size}(info)), 0) FROM files WHERE repo_namespace = p.namespace AND repo_name = p.name)
        + (SELECT coalesce(sum({size}(d.metadata)), 0) FROM portolan_chart_metadata d
            WHERE d.namespace = p.namespace AND d.name = p.name)
        + (SELECT coalesce(sum({size}(s.svg) + {size}(s.url)), 0) FROM portolan_svg_icons s
            WHERE s.namespace = p.namespace AND s.name = p.name)
        FROM portolan_repositories p"
    ));
    on_engine!(tx.executor(), executor => { sqlx::query(statement).execute(executor).await?; });
    Ok(())
}

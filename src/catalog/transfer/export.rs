use std::io::Write;
use std::time::Duration;

use futures::{FutureExt, TryStreamExt};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor};

use super::lines::Writer;
use super::tables::{On, TABLES, Table};
use super::{End, ExportLine, FORMAT, Header, Sequence, TableHeader, Transferred};
use crate::catalog::engine::{Connection, Engine, on_engine};
use crate::catalog::{Catalog, Error, ErrorKind, schema};

/// For all rows, over a slow network.
const DEADLINE: Duration = Duration::from_secs(12 * 3600);

/// Rows of a statement, so that none takes longer than the server allows. They are not held in memory.
const PAGE: u32 = 1000;

/// The rows of one point in time, although a controller writes. Writing the file may be slow.
const BEGIN_POSTGRES: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL statement_timeout = '10min'; SET LOCAL idle_in_transaction_session_timeout = '10min'";

impl Catalog {
    pub async fn export(&self, out: impl Write + Send) -> Result<Transferred, Error> {
        const OPERATION: &str = "export the catalog";
        let export = async |connection: &mut Connection| {
            let begin = connection.choose("BEGIN", BEGIN_POSTGRES);
            run(connection, begin).await?;
            let exported = write_all(connection, Writer::new(out)).boxed().await;
            // The connection is closed with the command.
            run(connection, "ROLLBACK").await?;
            exported
        };
        self.on_connection(OPERATION, false, "", DEADLINE, export).await
    }
}

async fn run(connection: &mut Connection, statements: &'static str) -> Result<(), Error> {
    on_engine!(connection.executor(), executor => { executor.execute(sqlx::raw_sql(statements)).await?; });
    Ok(())
}

async fn write_all(connection: &mut Connection, mut out: Writer<impl Write + Send>) -> Result<Transferred, Error> {
    let schema = schema::recorded_version(connection).await?;
    // It may have columns that this release does not export.
    schema::check_version(schema, schema::newest_version())?;
    let header = Header {
        format: FORMAT,
        schema,
        portolan: env!("CARGO_PKG_VERSION").to_owned(),
    };
    line(&mut out, &ExportLine::Header(header))?;
    let mut exported = Transferred::default();
    for table in TABLES.iter().filter(|table| table.since <= schema) {
        let columns = table.columns.iter().map(|(name, _)| (*name).to_owned());
        let header = TableHeader {
            name: table.name.to_owned(),
            columns: columns.collect(),
        };
        line(&mut out, &ExportLine::Table(header))?;
        let rows = rows(connection, &mut out, table).await?;
        exported.rows += rows;
        if table.name == "portolan_repositories" {
            exported.repositories = rows;
        }
    }
    for table in TABLES.iter().filter(|table| table.has_sequence) {
        if let Some(value) = last_id(connection, table.name).await? {
            let table = table.name.to_owned();
            line(&mut out, &ExportLine::Sequence(Sequence { table, value }))?;
        }
    }
    let end = End {
        rows: exported.rows,
        sha256: out.digest(),
    };
    out.finish(&ExportLine::End(end)).map_err(|error| failed(&error))?;
    Ok(exported)
}

/// Writes the rows of a table and returns their number. Each is written as it arrives.
async fn rows(connection: &mut Connection, out: &mut Writer<impl Write + Send>, table: &Table) -> Result<u64, Error> {
    let (mut count, mut last) = (0, Vec::new());
    loop {
        let mut page_rows = 0;
        let statement = table.select(connection.choose(On::Sqlite, On::Postgres), last.is_empty(), PAGE);
        on_engine!(connection.executor(), executor => {
            let mut query = sqlx::query_scalar(AssertSqlSafe(statement));
            for value in &last {
                query = match value {
                    Value::Number(number) => query.bind(number.as_i64()),
                    value => query.bind(value.as_str().map(str::to_owned)),
                };
            }
            let mut rows = query.fetch(executor);
            while let Some(row) = rows.try_next().await? {
                let row: String = row;
                let row: Vec<Value> = serde_json::from_str(&row).map_err(|error| failed(&error))?;
                last = row[..table.key].to_vec();
                page_rows += 1;
                out.row(row).map_err(|error| failed(&error))?;
            }
        });
        count += u64::from(page_rows);
        if page_rows < PAGE {
            return Ok(count);
        }
    }
}

fn line(out: &mut Writer<impl Write>, line: &ExportLine) -> Result<(), Error> {
    out.line(line).map_err(|error| failed(&error))
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    ErrorKind::Transfer {
        reason: format!("failed to write the export: {error}"),
    }
    .into()
}

/// Returns the last ID that a table generated; it is never used again.
async fn last_id(connection: &mut Connection, table: &str) -> Result<Option<i64>, Error> {
    const SQLITE: &str = "SELECT seq FROM sqlite_sequence WHERE name = $1";
    const POSTGRES: &str = "SELECT pg_sequence_last_value(CAST(pg_get_serial_sequence($1, 'id') AS regclass))";
    Ok(match connection.executor() {
        Engine::Sqlite(executor) => sqlx::query_scalar(SQLITE).bind(table).fetch_optional(executor).await?,
        Engine::Postgres(executor) => sqlx::query_scalar(POSTGRES).bind(table).fetch_one(executor).await?,
    })
}

//! Table creation: Kubeapps' three tables when they are missing, and our own by migrations.
//!
//! Kubeapps' API server creates its tables at startup, and `invalidate-cache` recreates them at any time. So they are
//! no migrations: they are checked at each start, and again when a statement fails because a table is missing.

mod migrations;
#[cfg(test)]
mod tests;

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Executor, FromRow, SqlSafeStr};

use super::{
    Catalog, Error, ErrorKind, Migrations,
    connection::{Connection, Pools, Usage},
    engine::{Engine, Transaction, on_engine, sql},
    identity::{advisory_key, advisory_lock},
};
use migrations::{MigrationStep, STEPS};

/// Index on Kubeapps' table of files, which has none for the cascade from charts. Its last part gives the digest of a
/// version's files without reading the row, which also contains the README and the values.
const INDEX_SQLITE: &str = "DROP INDEX IF EXISTS files_chart;
CREATE INDEX IF NOT EXISTS portolan_files_content ON files
    (repo_name, repo_namespace, chart_id, (chart_files_id || char(10) || (info ->> 'Digest')))";

/// The same index, hashed, because Postgres limits the size of an index key.
const INDEX_POSTGRES: &str = "CREATE INDEX IF NOT EXISTS portolan_files_content ON files
    (repo_name, repo_namespace, chart_id, hashtextextended(chart_files_id || chr(10) || (info ->> 'Digest'), 0))";

const DROP_KUBEAPPS: &str = "DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS charts; DROP TABLE IF EXISTS repos;";

/// Deletes our rows that refer to rows of Kubeapps' tables. The cached registry state stays valid.
const DELETE_DERIVED_ROWS: &str =
    "DELETE FROM portolan_files; DELETE FROM portolan_chart_metadata; DELETE FROM portolan_icons;
    DELETE FROM portolan_svg_icons;
    DELETE FROM portolan_kept_versions; DELETE FROM portolan_chart_digests; DELETE FROM portolan_index_cache;
    DELETE FROM portolan_deprecated_charts; DELETE FROM portolan_stored_bytes;";

#[derive(Debug, Clone, Copy, FromRow)]
struct Present {
    kubeapps: bool,
    migrations: bool,
    ours: bool,
    index: bool,
}

impl Present {
    async fn find(tx: &mut Transaction, steps: &[MigrationStep]) -> Result<Self, Error> {
        let statement = sql!(tx, "tables_present.sql");
        let tables = migrations::tables(steps);
        Ok(match tx.executor() {
            Engine::Sqlite(connection) => {
                sqlx::query_as(statement)
                    .bind(Json(tables))
                    .fetch_one(connection)
                    .await?
            }
            Engine::Postgres(connection) => sqlx::query_as(statement).bind(tables).fetch_one(connection).await?,
        })
    }
}

pub(super) fn tables() -> Vec<&'static str> {
    let kubeapps = ["repos", "charts", "files"];
    kubeapps.into_iter().chain(migrations::tables(STEPS)).collect()
}

/// Returns true if a table was missing. Runs under a lock, so that several Portolans may start concurrently. Kubeapps
/// does not take that lock, so a race with it is retried.
pub(super) async fn ensure(pools: &Pools, migrations: Migrations) -> Result<bool, Error> {
    let attempt = || ensure_once(pools, STEPS, migrations);
    attempt.retry(backoff()).when(Error::is_schema_race).await
}

pub(super) async fn recreate(pools: &Pools) -> Result<(), Error> {
    let attempt = || recreate_once(pools);
    attempt.retry(backoff()).when(Error::is_schema_race).await
}

fn backoff() -> ExponentialBuilder {
    let builder = ExponentialBuilder::default().with_min_delay(Duration::from_millis(50));
    builder.with_max_times(8).with_jitter()
}

async fn ensure_once(pools: &Pools, steps: &[MigrationStep], migrations: Migrations) -> Result<bool, Error> {
    let mut tx = begin(pools).await?;
    match ensure_in(&mut tx, steps, migrations).await {
        Ok((was_complete, has_index)) => {
            tx.commit().await?;
            if !has_index {
                create_index(pools).await?;
            }
            Ok(!was_complete)
        }
        Err(error) => Err(tx.fail(error).await),
    }
}

/// Returns true twice if all tables existed, and if the index did.
async fn ensure_in(
    tx: &mut Transaction,
    steps: &[MigrationStep],
    migrations: Migrations,
) -> Result<(bool, bool), Error> {
    let before = Present::find(tx, steps).await?;
    if migrations == Migrations::Refuse {
        refuse_changes(tx, steps, before).await?;
    }
    // Migrate before checking for missing tables: a pending migration may create some.
    let is_complete = before.migrations && {
        refuse_development_tables(tx).await?;
        refuse_newer_schema(tx, steps).await?;
        migrate(tx, steps).await?;
        Present::find(tx, steps).await?.ours
    };
    if !is_complete {
        // Drops all of our tables if some are missing: the migrations table would report them as created.
        run(tx, AssertSqlSafe(migrations::drop_statements(steps))).await?;
        migrate(tx, steps).await?;
    }
    if !before.kubeapps {
        run(tx, DELETE_DERIVED_ROWS).await?;
        create_kubeapps_tables(tx).await?;
    }
    Ok((before.kubeapps && is_complete, before.kubeapps && before.index))
}

/// The last statements of a transaction. Kubeapps creates the tables at its start too, and ends if it waited for our
/// transaction and finds them. So a transaction that something waits for is given up: the other program creates them.
async fn create_kubeapps_tables(tx: &mut Transaction) -> Result<(), Error> {
    const WAITING: &str = "SELECT count(*) FROM pg_locks AS waiting JOIN pg_locks AS held
            ON held.transactionid = waiting.transactionid AND held.granted AND held.pid = pg_backend_pid()
        WHERE waiting.locktype = 'transactionid' AND NOT waiting.granted";
    let statements = sql!(tx, "kubeapps_tables.sql");
    run(tx, statements).await?;
    if let Engine::Postgres(connection) = tx.executor() {
        let waiting: i64 = sqlx::query_scalar(WAITING).fetch_one(connection).await?;
        if waiting > 0 {
            return Err(ErrorKind::TablesWanted.into());
        }
    }
    Ok(())
}

async fn recreate_once(pools: &Pools) -> Result<(), Error> {
    let mut tx = begin(pools).await?;
    run(&mut tx, DROP_KUBEAPPS).await?;
    run(&mut tx, DELETE_DERIVED_ROWS).await?;
    create_kubeapps_tables(&mut tx).await?;
    tx.commit().await?;
    create_index(pools).await
}

async fn run(tx: &mut Transaction, statements: impl SqlSafeStr) -> Result<(), Error> {
    on_engine!(tx.executor(), executor => { executor.execute(sqlx::raw_sql(statements)).await?; });
    Ok(())
}

/// Creates our index. On Postgres, Kubeapps may own the table, or the table may be too large to index quickly.
/// Everything works without the index, but slower.
async fn create_index(pools: &Pools) -> Result<(), Error> {
    let mut tx = begin(pools).await?;
    let statement = tx.choose(INDEX_SQLITE, INDEX_POSTGRES);
    match run(&mut tx, statement).await {
        Ok(()) => tx.commit().await,
        Err(error) => {
            let error = tx.fail(error).await;
            tracing::info!(
                error = %error.database_message(),
                "failed to create the index portolan_files_content, queries for chart files are slower"
            );
            Ok(())
        }
    }
}

async fn begin(pools: &Pools) -> Result<Transaction, Error> {
    let mut tx = Transaction::begin(pools.writer(Usage::Call, "").await?).await?;
    advisory_lock(&mut tx, advisory_key(&["schema"])).await?;
    Ok(tx)
}

/// Refuses tables with another first migration: development builds before the first release created them.
async fn refuse_development_tables(tx: &mut Transaction) -> Result<(), Error> {
    const SELECT: &str = "SELECT count(*) FROM portolan_migrations WHERE version = 1 AND checksum <> $1";
    let Some(first) = STEPS.first() else { return Ok(()) };
    let checksum = first.migration(tx).checksum;
    let mismatches: i64 = on_engine!(tx.executor(), executor => {
        sqlx::query_scalar(SELECT).bind(&*checksum).fetch_one(executor).await?
    });
    if mismatches > 0 {
        return Err(ErrorKind::DevelopmentTables.into());
    }
    Ok(())
}

const RECORDED_VERSION: &str = "SELECT coalesce(max(version), 0) FROM portolan_migrations";

pub(super) async fn recorded_version(connection: &mut Connection) -> Result<i64, Error> {
    Ok(on_engine!(connection.executor(), executor => sqlx::query_scalar(RECORDED_VERSION).fetch_one(executor).await?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaVersions {
    /// The last migration of the database; 0 without tables of Portolan.
    pub recorded: i64,
    pub supported: i64,
}

impl Catalog {
    /// Fails if a newer release has migrated the database.
    pub async fn schema_versions(&self) -> Result<SchemaVersions, Error> {
        let supported = newest_version();
        let read = async |connection: &mut Connection| recorded_version(connection).await;
        let recorded = self.read("read the schema version", "", read).await?;
        check_version(recorded, supported)?;
        Ok(SchemaVersions { recorded, supported })
    }
}

async fn version_in(tx: &mut Transaction) -> Result<i64, Error> {
    Ok(on_engine!(tx.executor(), executor => sqlx::query_scalar(RECORDED_VERSION).fetch_one(executor).await?))
}

pub(super) fn newest_version() -> i64 {
    migrations::newest(STEPS)
}

#[cfg(test)]
pub(super) fn our_tables() -> Vec<&'static str> {
    migrations::tables(STEPS)
}

/// Refuses tables that a newer release has migrated: migrations have no way back.
async fn refuse_newer_schema(tx: &mut Transaction, steps: &[MigrationStep]) -> Result<(), Error> {
    check_version(version_in(tx).await?, migrations::newest(steps))
}

async fn refuse_changes(tx: &mut Transaction, steps: &[MigrationStep], present: Present) -> Result<(), Error> {
    if !present.migrations || !present.ours {
        return Err(ErrorKind::NotMigrated.into());
    }
    if version_in(tx).await? < migrations::newest(steps) {
        return Err(ErrorKind::NotMigrated.into());
    }
    Ok(())
}

pub(super) fn check_version(found: i64, supported: i64) -> Result<(), Error> {
    if found > supported {
        return Err(ErrorKind::NewerSchema { found, supported }.into());
    }
    Ok(())
}

/// Runs pending migrations. Uses `run_direct`, because the future of `run` is not `Send` here.
async fn migrate(tx: &mut Transaction, steps: &[MigrationStep]) -> Result<(), Error> {
    let migrator = migrations::migrator(steps, tx);
    on_engine!(tx.executor(), connection => migrator.run_direct(None, connection, false).await?);
    Ok(())
}

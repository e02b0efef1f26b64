//! Table creation: Kubeapps' three tables when they are missing, and our own by migrations.
//!
//! Kubeapps' API server creates its tables at startup, and its `invalidate-cache` command drops and recreates them at
//! any time. They are therefore not part of the migrations: they are checked at each start, and again when a statement
//! fails because a table is missing.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use sqlx::{
    Executor, FromRow, SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

use super::{
    Error,
    connection::{Pools, Usage},
    engine::{Engine, Transaction, on_engine, sql},
    identity::{advisory_key, advisory_lock},
};

/// Index on Kubeapps' table of files, which has none for the cascade from charts. Its last part gives the digest of a
/// version's files without reading the row, which also contains the README and the values.
const INDEX_SQLITE: &str = "DROP INDEX IF EXISTS files_chart;
CREATE INDEX IF NOT EXISTS portolan_files_content ON files
    (repo_name, repo_namespace, chart_id, (chart_files_id || char(10) || (info ->> 'Digest')))";

/// The same index, hashed, because Postgres limits the size of an index key.
const INDEX_POSTGRES: &str = "CREATE INDEX IF NOT EXISTS portolan_files_content ON files
    (repo_name, repo_namespace, chart_id, hashtextextended(chart_files_id || chr(10) || (info ->> 'Digest'), 0))";

const DROP_KUBEAPPS: &str = "DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS charts; DROP TABLE IF EXISTS repos;";

const DROP_OURS: &str = "DROP TABLE IF EXISTS portolan_syncs; DROP TABLE IF EXISTS portolan_repositories;
    DROP TABLE IF EXISTS portolan_files; DROP TABLE IF EXISTS portolan_icons;
    DROP TABLE IF EXISTS portolan_oci_tags; DROP TABLE IF EXISTS portolan_oci_repositories;
    DROP TABLE IF EXISTS portolan_kept_versions; DROP TABLE IF EXISTS portolan_index_cache; DROP TABLE IF EXISTS portolan_chart_digests;
    DROP TABLE IF EXISTS portolan_stored_bytes; DROP TABLE IF EXISTS portolan_clusters;
    DROP TABLE IF EXISTS portolan_migrations;";

/// Deletes our rows that refer to rows of Kubeapps' tables. The cached registry state stays valid.
const DELETE_DERIVED_ROWS: &str =
    "DELETE FROM portolan_files; DELETE FROM portolan_icons; DELETE FROM portolan_kept_versions;
    DELETE FROM portolan_chart_digests; DELETE FROM portolan_index_cache; DELETE FROM portolan_stored_bytes;";

const MIGRATIONS_TABLE: &str = "portolan_migrations";

#[derive(Debug, Clone, Copy, FromRow)]
struct Present {
    kubeapps: bool,
    migrations: bool,
    ours: bool,
    index: bool,
}

impl Present {
    async fn find(tx: &mut Transaction) -> Result<Self, Error> {
        let statement = sql!(tx, "tables_present.sql");
        Ok(on_engine!(tx.executor(), executor => sqlx::query_as(statement).fetch_one(executor).await?))
    }
}

/// Creates missing tables. Returns true if there were any.
///
/// Runs under a lock, so that several Portolans may start concurrently. Kubeapps does not take that lock, so a race with
/// it is retried.
pub(super) async fn ensure(pools: &Pools) -> Result<bool, Error> {
    let attempt = || ensure_once(pools);
    attempt.retry(backoff()).when(is_race).await
}

pub(super) async fn recreate(pools: &Pools) -> Result<(), Error> {
    let attempt = || recreate_once(pools);
    attempt.retry(backoff()).when(is_race).await
}

fn is_race(error: &Error) -> bool {
    error.is_schema_race() || matches!(error, Error::TablesWanted)
}

fn backoff() -> ExponentialBuilder {
    let builder = ExponentialBuilder::default().with_min_delay(Duration::from_millis(50));
    builder.with_max_times(8).with_jitter()
}

async fn ensure_once(pools: &Pools) -> Result<bool, Error> {
    let mut tx = begin(pools).await?;
    match ensure_in(&mut tx).await {
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
async fn ensure_in(tx: &mut Transaction) -> Result<(bool, bool), Error> {
    let before = Present::find(tx).await?;
    // Migrate before checking for missing tables: a pending migration may create some.
    let is_complete = before.migrations && {
        refuse_development_tables(tx).await?;
        migrate(tx).await?;
        Present::find(tx).await?.ours
    };
    if !is_complete {
        // Drops all of our tables if some are missing: the migrations table would report them as created.
        run(tx, DROP_OURS).await?;
        migrate(tx).await?;
    }
    if !before.kubeapps {
        run(tx, DELETE_DERIVED_ROWS).await?;
        create_kubeapps_tables(tx).await?;
    }
    Ok((before.kubeapps && is_complete, before.kubeapps && before.index))
}

/// Creates Kubeapps' tables, as the last statements of a transaction.
///
/// Kubeapps creates them at its start too, and ends if it waited for our transaction and finds that we created them.
/// So a transaction that something waits for is given up: the other program creates the tables.
async fn create_kubeapps_tables(tx: &mut Transaction) -> Result<(), Error> {
    const WAITING: &str = "SELECT count(*) FROM pg_locks AS waiting JOIN pg_locks AS held
            ON held.transactionid = waiting.transactionid AND held.granted AND held.pid = pg_backend_pid()
        WHERE waiting.locktype = 'transactionid' AND NOT waiting.granted";
    let statements = sql!(tx, "kubeapps_tables.sql");
    run(tx, statements).await?;
    if let Engine::Postgres(connection) = tx.executor() {
        let waiting: i64 = sqlx::query_scalar(WAITING).fetch_one(connection).await?;
        if waiting > 0 {
            return Err(Error::TablesWanted);
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

async fn run(tx: &mut Transaction, statements: &'static str) -> Result<(), Error> {
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

fn init(tx: &Transaction) -> Migration {
    let sql = tx.choose(
        include_str!("../../migrations/sqlite/0001_init.sql"),
        include_str!("../../migrations/postgres/0001_init.sql"),
    );
    Migration::new(1, "init".into(), MigrationType::Simple, sql.into_sql_str(), false)
}

/// Refuses tables with another first migration: development builds before the first release created them.
async fn refuse_development_tables(tx: &mut Transaction) -> Result<(), Error> {
    const SELECT: &str = "SELECT count(*) FROM portolan_migrations WHERE version = 1 AND checksum <> $1";
    let checksum = init(tx).checksum;
    let mismatches: i64 = on_engine!(tx.executor(), executor => {
        sqlx::query_scalar(SELECT).bind(&*checksum).fetch_one(executor).await?
    });
    if mismatches > 0 {
        return Err(Error::DevelopmentTables);
    }
    Ok(())
}

/// Runs pending migrations. Uses `run_direct`, because the future of `run` is not `Send` here.
async fn migrate(tx: &mut Transaction) -> Result<(), Error> {
    let mut migrator = Migrator::with_migrations(vec![init(tx)]);
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    // Our own lock ends with the transaction. The migrator's lock would stay with the pooled connection if a migration fails.
    migrator.set_locking(false);
    on_engine!(tx.executor(), connection => migrator.run_direct(None, connection, false).await?);
    Ok(())
}

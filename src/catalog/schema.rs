//! The tables: Kubeapps' three, made whenever they are missing, and our own, by versioned migrations.
//!
//! Kubeapps' API server makes its tables at its own start, and its syncer's `invalidate-cache` drops them and makes them anew,
//! at any time and without asking. So they stand outside the migrations: they are looked for at each start, and whenever a
//! statement fails because one is gone.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use sqlx::{
    Executor, FromRow, SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

use super::{
    Error,
    engine::{Engine, Pools, Transaction, on_engine, sql},
    identity::advisory_key,
};

/// Kubeapps' tables word for word as it makes them (they have not changed since its 1.9), so that whoever comes first, both
/// find what they would have made.
const KUBEAPPS_POSTGRES: &str = "
CREATE TABLE IF NOT EXISTS repos (
    ID serial NOT NULL PRIMARY KEY,
    namespace varchar NOT NULL,
    name varchar NOT NULL,
    checksum varchar,
    last_update varchar,
    UNIQUE(namespace, name)
);
CREATE TABLE IF NOT EXISTS charts (
    ID serial NOT NULL PRIMARY KEY,
    repo_name varchar NOT NULL,
    repo_namespace varchar NOT NULL,
    chart_id varchar,
    info jsonb NOT NULL,
    UNIQUE(repo_name, repo_namespace, chart_id),
    FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos (name, namespace) ON DELETE CASCADE
);
CREATE TABLE IF NOT EXISTS files (
    ID serial NOT NULL PRIMARY KEY,
    chart_id varchar NOT NULL,
    repo_name varchar NOT NULL,
    repo_namespace varchar NOT NULL,
    chart_files_ID varchar NOT NULL,
    info jsonb NOT NULL,
    UNIQUE(repo_namespace, chart_files_ID),
    FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos (name, namespace) ON DELETE CASCADE,
    FOREIGN KEY (repo_name, repo_namespace, chart_id) REFERENCES charts (repo_name, repo_namespace, chart_id) ON DELETE CASCADE
);";

/// The same for SQLite, where nobody else reads them. An id is never given twice, as in Postgres: a repository that was removed
/// and made again is then seen to be another one.
const KUBEAPPS_SQLITE: &str = "
CREATE TABLE IF NOT EXISTS repos (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    checksum TEXT,
    last_update TEXT,
    UNIQUE(namespace, name)
);
CREATE TABLE IF NOT EXISTS charts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    repo_name TEXT NOT NULL,
    repo_namespace TEXT NOT NULL,
    chart_id TEXT,
    info TEXT NOT NULL,
    UNIQUE(repo_name, repo_namespace, chart_id),
    FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos (name, namespace) ON DELETE CASCADE
);
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chart_id TEXT NOT NULL,
    repo_name TEXT NOT NULL,
    repo_namespace TEXT NOT NULL,
    chart_files_id TEXT NOT NULL,
    info TEXT NOT NULL,
    UNIQUE(repo_namespace, chart_files_id),
    FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos (name, namespace) ON DELETE CASCADE,
    FOREIGN KEY (repo_name, repo_namespace, chart_id) REFERENCES charts (repo_name, repo_namespace, chart_id) ON DELETE CASCADE
);";

/// An index on Kubeapps' table of files, which has none that serves the cascade from its charts. Its last part tells the digest
/// of a version's files without reading them: a README and values that were moved out of line are costly to take apart.
const INDEX_SQLITE: &str = "DROP INDEX IF EXISTS files_chart;
CREATE INDEX IF NOT EXISTS portolan_files_content ON files
    (repo_name, repo_namespace, chart_id, (chart_files_id || char(10) || (info ->> 'Digest')))";

/// The same for Postgres, hashed: a key of an index has a limit, and what stands in a row of somebody else's has none.
const INDEX_POSTGRES: &str = "CREATE INDEX IF NOT EXISTS portolan_files_content ON files
    (repo_name, repo_namespace, chart_id, hashtextextended(chart_files_id || chr(10) || (info ->> 'Digest'), 0))";

const DROP_KUBEAPPS: &str = "DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS charts; DROP TABLE IF EXISTS repos;";

const DROP_OURS: &str = "DROP TABLE IF EXISTS portolan_syncs; DROP TABLE IF EXISTS portolan_repositories;
    DROP TABLE IF EXISTS portolan_files; DROP TABLE IF EXISTS portolan_icons;
    DROP TABLE IF EXISTS portolan_oci_tags; DROP TABLE IF EXISTS portolan_oci_repositories;
    DROP TABLE IF EXISTS portolan_kept_versions; DROP TABLE IF EXISTS portolan_index_cache; DROP TABLE IF EXISTS portolan_chart_digests;
    DROP TABLE IF EXISTS portolan_migrations;";

/// What tells of rows in Kubeapps' tables, and means nothing without them. What is known of registries still holds.
const FORGET_ROWS: &str = "DELETE FROM portolan_files; DELETE FROM portolan_icons; DELETE FROM portolan_kept_versions;
    DELETE FROM portolan_chart_digests; DELETE FROM portolan_index_cache;";

/// Where the migrations that were run are recorded.
const MIGRATIONS_TABLE: &str = "portolan_migrations";

/// The tables that exist.
#[derive(Debug, Clone, Copy, FromRow)]
struct Present {
    /// `repos`, `charts` and `files`, all three.
    kubeapps: bool,
    /// The record of the migrations.
    migrations: bool,
    /// All of Portolan's own tables.
    ours: bool,
    /// Portolan's index on Kubeapps' table of files.
    index: bool,
}

impl Present {
    async fn find(tx: &mut Transaction) -> Result<Self, Error> {
        let statement = sql!(tx, "tables_present.sql");
        Ok(on_engine!(tx, tx => sqlx::query_as(statement).fetch_one(&mut **tx).await?))
    }
}

/// Makes whatever table is missing, and says whether any was.
///
/// All of it is one transaction under a lock, so that several Portolans may start at once. Kubeapps knows nothing of that lock:
/// where it made the same tables at the same moment, all is tried again.
pub(super) async fn ensure(pools: &Pools) -> Result<bool, Error> {
    retrying(|| ensure_once(pools)).await
}

/// Drops Kubeapps' tables with all that is in them, and makes them anew.
pub(super) async fn recreate(pools: &Pools) -> Result<(), Error> {
    retrying(|| recreate_once(pools)).await
}

async fn retrying<T, F: Future<Output = Result<T, Error>>>(attempt: impl FnMut() -> F) -> Result<T, Error> {
    attempt
        .retry(
            ExponentialBuilder::default()
                .with_min_delay(Duration::from_millis(20))
                .with_max_times(8)
                .with_jitter(),
        )
        .when(Error::is_schema_race)
        .await
}

async fn ensure_once(pools: &Pools) -> Result<bool, Error> {
    let mut tx = begin(pools).await?;
    let before = Present::find(&mut tx).await?;
    if !before.kubeapps {
        make_kubeapps(&mut tx).await?;
    }
    // Migrations come before the look for a dropped table: a later migration may not have created it yet.
    let is_complete = before.migrations && {
        refuse_development_tables(&mut tx).await?;
        migrate(&mut tx).await?;
        Present::find(&mut tx).await?.ours
    };
    if !is_complete {
        drop_ours(&mut tx).await?;
        migrate(&mut tx).await?;
    }
    if !before.kubeapps {
        run(&mut tx, FORGET_ROWS).await?;
    }
    if !(before.kubeapps && before.index) {
        make_index(&mut tx).await?;
    }
    tx.commit().await?;
    Ok(!(before.kubeapps && is_complete))
}

/// Where somebody has dropped some of ours, what is left goes too: the record would say that there is nothing to do, and later
/// migrations build upon what the first ones made. The next syncs learn all of it again.
async fn drop_ours(tx: &mut Transaction) -> Result<(), Error> {
    run(tx, DROP_OURS).await
}

async fn recreate_once(pools: &Pools) -> Result<(), Error> {
    let mut tx = begin(pools).await?;
    run(&mut tx, DROP_KUBEAPPS).await?;
    run(&mut tx, FORGET_ROWS).await?;
    make_kubeapps(&mut tx).await?;
    make_index(&mut tx).await?;
    tx.commit().await
}

async fn run(tx: &mut Transaction, statements: &'static str) -> Result<(), Error> {
    on_engine!(tx, tx => { tx.execute(sqlx::raw_sql(statements)).await?; });
    Ok(())
}

/// Makes our index where it is missing. On Postgres Kubeapps may own the table, or have filled it with more than can be sorted
/// while others wait: then all works without the index, only slower.
async fn make_index(tx: &mut Transaction) -> Result<(), Error> {
    if let Engine::Sqlite(_) = tx {
        return run(tx, INDEX_SQLITE).await;
    }
    run(
        tx,
        "SAVEPOINT index; SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '30s'",
    )
    .await?;
    match run(tx, INDEX_POSTGRES).await {
        Ok(()) => {
            run(
                tx,
                "SET LOCAL lock_timeout TO DEFAULT; SET LOCAL statement_timeout TO DEFAULT",
            )
            .await?
        }
        Err(error) if error.is_schema_race() => return Err(error),
        Err(error) => {
            run(tx, "ROLLBACK TO SAVEPOINT index").await?;
            tracing::info!(
                error = %error.bare(),
                "failed to create the index portolan_files_content, queries for chart files are slower"
            );
        }
    }
    run(tx, "RELEASE SAVEPOINT index").await
}

async fn begin(pools: &Pools) -> Result<Transaction, Error> {
    let mut tx = pools.begin().await?;
    if let Engine::Postgres(tx) = &mut tx {
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(advisory_key(&["schema"]))
            .execute(&mut **tx)
            .await?;
    }
    Ok(tx)
}

async fn make_kubeapps(tx: &mut Transaction) -> Result<(), Error> {
    match tx {
        Engine::Sqlite(tx) => tx.execute(sqlx::raw_sql(KUBEAPPS_SQLITE)).await.map(|_| ())?,
        Engine::Postgres(tx) => tx.execute(sqlx::raw_sql(KUBEAPPS_POSTGRES)).await.map(|_| ())?,
    }
    Ok(())
}

/// The first migration of this database. Further ones follow it in [`migrate`].
fn init(tx: &Transaction) -> Migration {
    let sql = match tx {
        Engine::Sqlite(_) => include_str!("../../migrations/sqlite/0001_init.sql"),
        Engine::Postgres(_) => include_str!("../../migrations/postgres/0001_init.sql"),
    };
    Migration::new(1, "init".into(), MigrationType::Simple, sql.into_sql_str(), false)
}

/// Refuses tables whose first migration was another one: development builds created such tables before the first release.
async fn refuse_development_tables(tx: &mut Transaction) -> Result<(), Error> {
    const SELECT: &str = "SELECT count(*) FROM portolan_migrations WHERE version = 1 AND checksum <> $1";
    let checksum = init(tx).checksum;
    let others: i64 = on_engine!(tx, tx => sqlx::query_scalar(SELECT).bind(&*checksum).fetch_one(&mut **tx).await?);
    if others > 0 {
        return Err(Error::DevelopmentTables);
    }
    Ok(())
}

/// Runs the migrations that have not run yet.
///
/// `run_direct` is `run` for a connection at hand: of `run`, the compiler can't see that it may be sent between threads.
async fn migrate(tx: &mut Transaction) -> Result<(), Error> {
    let mut migrator = Migrator::with_migrations(vec![init(tx)]);
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    // We hold a lock of our own that ends with the transaction. The migrator's belongs to the connection, and would stay with
    // it in the pool when a migration fails.
    migrator.set_locking(false);
    on_engine!(tx, tx => migrator.run_direct(None, &mut **tx, false).await?);
    Ok(())
}

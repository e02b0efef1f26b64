//! The tables: Kubeapps' three, made whenever they are missing, and our own, by versioned migrations.
//!
//! Kubeapps' API server makes its tables at its own start, and its syncer's `invalidate-cache` drops them and makes them anew,
//! at any time and without asking. So they stand outside the migrations: they are looked for at each start, and whenever a
//! statement fails because one is gone.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use sqlx::{
    Executor, SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

use super::{
    Error,
    engine::{Engine, Pools, Transaction, on_engine},
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
/// and made again is then seen to be another one. The index serves the cascade.
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
);
CREATE INDEX IF NOT EXISTS files_chart ON files (repo_name, repo_namespace, chart_id);";

const DROP_KUBEAPPS: &str = "DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS charts; DROP TABLE IF EXISTS repos;";

const DROP_OURS: &str = "DROP TABLE IF EXISTS portolan_syncs; DROP TABLE IF EXISTS portolan_repositories;
    DROP TABLE IF EXISTS portolan_migrations;";

/// Where the migrations that were run are recorded.
const MIGRATIONS_TABLE: &str = "portolan_migrations";

const KUBEAPPS_TABLES: i64 = 3;
/// Those that the first migration makes, and its record. A table of a later migration doesn't count here: it is not missing
/// where that migration has not run yet.
const OUR_TABLES: i64 = 3;

/// Which tables are there.
#[derive(Debug, Clone, Copy)]
struct Present {
    /// `repos`, `charts` and `files`, all three.
    kubeapps: bool,
    /// Ours, and the record of the migrations that made them.
    ours: bool,
}

impl Present {
    async fn find(tx: &mut Transaction) -> Result<Self, Error> {
        let counts = match tx {
            Engine::Sqlite(tx) => sqlx::query_as(PRESENT_SQLITE).fetch_one(&mut **tx).await?,
            Engine::Postgres(tx) => sqlx::query_as(PRESENT_POSTGRES).fetch_one(&mut **tx).await?,
        };
        Ok(Self::of(counts))
    }

    const fn of((kubeapps, ours): (i64, i64)) -> Self {
        Self {
            kubeapps: kubeapps == KUBEAPPS_TABLES,
            ours: ours == OUR_TABLES,
        }
    }
}

const PRESENT_SQLITE: &str = "SELECT count(CASE WHEN name IN ('repos', 'charts', 'files') THEN 1 END),
    count(CASE WHEN name IN ('portolan_repositories', 'portolan_syncs', 'portolan_migrations') THEN 1 END)
    FROM sqlite_master WHERE type = 'table'";

/// As a statement without a schema would find them, by the search path.
const PRESENT_POSTGRES: &str = "SELECT num_nonnulls(to_regclass('repos'), to_regclass('charts'), to_regclass('files'))::bigint,
    num_nonnulls(to_regclass('portolan_repositories'), to_regclass('portolan_syncs'), to_regclass('portolan_migrations'))::bigint";

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
    if !before.ours {
        // Where somebody has dropped some of ours, what is left goes too: the record would say that there is nothing to do, and
        // later migrations build upon what the first ones made. The next syncs learn all of it again.
        on_engine!(&mut tx, tx => { tx.execute(sqlx::raw_sql(DROP_OURS)).await?; });
    }
    migrate(&mut tx).await?;
    tx.commit().await?;
    Ok(!(before.kubeapps && before.ours))
}

async fn recreate_once(pools: &Pools) -> Result<(), Error> {
    let mut tx = begin(pools).await?;
    on_engine!(&mut tx, tx => { tx.execute(sqlx::raw_sql(DROP_KUBEAPPS)).await?; });
    make_kubeapps(&mut tx).await?;
    tx.commit().await
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

/// `run_direct` is `run` for a connection at hand: of `run`, the compiler can't see that it may be sent between threads.
async fn migrate(tx: &mut Transaction) -> Result<(), Error> {
    match tx {
        Engine::Sqlite(tx) => {
            let first = include_str!("../../migrations/sqlite/0001_repositories.sql");
            migrator(&[("repositories", first)])
                .run_direct(None, &mut **tx, false)
                .await?;
        }
        Engine::Postgres(tx) => {
            let first = include_str!("../../migrations/postgres/0001_repositories.sql");
            migrator(&[("repositories", first)])
                .run_direct(None, &mut **tx, false)
                .await?;
        }
    }
    Ok(())
}

/// The migrations in their order; they are numbered from 1.
fn migrator(migrations: &[(&'static str, &'static str)]) -> Migrator {
    let migrations = (1..)
        .zip(migrations)
        .map(|(version, (name, sql))| {
            Migration::new(
                version,
                (*name).into(),
                MigrationType::Simple,
                sql.into_sql_str(),
                false,
            )
        })
        .collect();
    let mut migrator = Migrator::with_migrations(migrations);
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    // We hold a lock of our own that ends with the transaction. The migrator's belongs to the connection, and would stay with
    // it in the pool when a migration fails.
    migrator.set_locking(false);
    migrator
}

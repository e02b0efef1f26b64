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
    DROP TABLE IF EXISTS portolan_kept_versions; DROP TABLE IF EXISTS portolan_indexes; DROP TABLE IF EXISTS portolan_cuts;
    DROP TABLE IF EXISTS portolan_migrations;";

/// What tells of rows in Kubeapps' tables, and means nothing without them. What is known of registries still holds.
const FORGET_ROWS: &str = "DELETE FROM portolan_files; DELETE FROM portolan_icons; DELETE FROM portolan_kept_versions;
    DELETE FROM portolan_cuts; DELETE FROM portolan_indexes;";

/// Where the migrations that were run are recorded.
const MIGRATIONS_TABLE: &str = "portolan_migrations";

const KUBEAPPS_TABLES: i64 = 3;
/// Those that the first migration makes, and its record. A table of a later migration doesn't count here: it is not missing
/// where that migration has not run yet.
const OUR_TABLES: i64 = 3;
/// Those of the later migrations.
const LATER_TABLES: i64 = 7;

/// Which tables are there.
#[derive(Debug, Clone, Copy)]
struct Present {
    /// `repos`, `charts` and `files`, all three.
    kubeapps: bool,
    /// Ours that the first migration made, and the record of the migrations.
    ours: bool,
    /// Ours that the later migrations made.
    later: bool,
    /// Our index on a table of Kubeapps'.
    index: bool,
}

impl Present {
    async fn find(tx: &mut Transaction) -> Result<Self, Error> {
        let counts = match tx {
            Engine::Sqlite(tx) => sqlx::query_as(PRESENT_SQLITE).fetch_one(&mut **tx).await?,
            Engine::Postgres(tx) => sqlx::query_as(PRESENT_POSTGRES).fetch_one(&mut **tx).await?,
        };
        Ok(Self::of(counts))
    }

    const fn of((kubeapps, ours, later, index): (i64, i64, i64, i64)) -> Self {
        Self {
            kubeapps: kubeapps == KUBEAPPS_TABLES,
            ours: ours == OUR_TABLES,
            later: later == LATER_TABLES,
            index: index == 1,
        }
    }
}

const PRESENT_SQLITE: &str = "SELECT count(CASE WHEN name IN ('repos', 'charts', 'files') THEN 1 END),
    count(CASE WHEN name IN ('portolan_repositories', 'portolan_syncs', 'portolan_migrations') THEN 1 END),
    count(CASE WHEN name IN ('portolan_files', 'portolan_icons', 'portolan_oci_repositories', 'portolan_oci_tags',
        'portolan_kept_versions', 'portolan_indexes', 'portolan_cuts') THEN 1 END),
    count(CASE WHEN name = 'portolan_files_content' THEN 1 END)
    FROM sqlite_master";

/// As a statement without a schema would find them, by the search path.
const PRESENT_POSTGRES: &str = "SELECT num_nonnulls(to_regclass('repos'), to_regclass('charts'), to_regclass('files'))::bigint,
    num_nonnulls(to_regclass('portolan_repositories'), to_regclass('portolan_syncs'), to_regclass('portolan_migrations'))::bigint,
    num_nonnulls(to_regclass('portolan_files'), to_regclass('portolan_icons'), to_regclass('portolan_oci_repositories'),
        to_regclass('portolan_oci_tags'), to_regclass('portolan_kept_versions'), to_regclass('portolan_indexes'),
        to_regclass('portolan_cuts'))::bigint,
    num_nonnulls(to_regclass('portolan_files_content'))::bigint";

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
        drop_ours(&mut tx).await?;
    }
    migrate(&mut tx).await?;
    // A table of a later migration that was dropped is seen only now: before, it might just not have been made yet.
    let healed = !Present::find(&mut tx).await?.later;
    if healed {
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
    Ok(healed || !(before.kubeapps && before.ours))
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

/// `run_direct` is `run` for a connection at hand: of `run`, the compiler can't see that it may be sent between threads.
async fn migrate(tx: &mut Transaction) -> Result<(), Error> {
    match tx {
        Engine::Sqlite(tx) => {
            let migrations = [
                (
                    "repositories",
                    include_str!("../../migrations/sqlite/0001_repositories.sql"),
                ),
                (
                    "files icons oci kept",
                    include_str!("../../migrations/sqlite/0002_files_icons_oci_kept.sql"),
                ),
                (
                    "indexes cuts",
                    include_str!("../../migrations/sqlite/0003_indexes_cuts.sql"),
                ),
            ];
            migrator(&migrations).run_direct(None, &mut **tx, false).await?;
        }
        Engine::Postgres(tx) => {
            let migrations = [
                (
                    "repositories",
                    include_str!("../../migrations/postgres/0001_repositories.sql"),
                ),
                (
                    "files icons oci kept",
                    include_str!("../../migrations/postgres/0002_files_icons_oci_kept.sql"),
                ),
                (
                    "indexes cuts",
                    include_str!("../../migrations/postgres/0003_indexes_cuts.sql"),
                ),
            ];
            migrator(&migrations).run_direct(None, &mut **tx, false).await?;
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

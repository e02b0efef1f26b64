//! Upgrades between two lists of migrations, on SQLite files.

use super::*;
use crate::api::NamespacedName;
use crate::budget::ResourceMetrics;

const SECOND: MigrationStep = MigrationStep {
    version: 9001,
    name: "second",
    sqlite: "CREATE TABLE portolan_second (id BIGINT NOT NULL PRIMARY KEY);
        INSERT INTO portolan_second SELECT count(*) FROM portolan_oci_tags;",
    postgres: "",
    tables: &["portolan_second"],
};

const BROKEN: MigrationStep = MigrationStep {
    version: 9002,
    sqlite: "CREATE TABLE portolan_third (id BIGINT NOT NULL PRIMARY KEY); SELECT * FROM no_such_table;",
    tables: &["portolan_third"],
    ..SECOND
};

async fn pools(directory: &tempfile::TempDir) -> Pools {
    let path = directory.path().join("catalog.db");
    Pools::sqlite(&path, true, &ResourceMetrics::default()).await.unwrap()
}

async fn number(pools: &Pools, statement: &'static str) -> i64 {
    let mut connection = pools.reader(Usage::Call, "").await.unwrap();
    let number = on_engine!(connection.executor(), executor => sqlx::query_scalar(statement).fetch_one(executor).await);
    number.unwrap()
}

fn with(steps: &[MigrationStep]) -> Vec<MigrationStep> {
    STEPS.iter().chain(steps).copied().collect()
}

async fn insert_tag(pools: &Pools) {
    let mut tx = begin(pools).await.unwrap();
    let name = NamespacedName::new("default", "kept");
    let insert = "INSERT INTO portolan_oci_tags (namespace, name, repository, tag, digest, tries)
        VALUES ($1, $2, 'r', 't', 'd', 0)";
    let inserted = async {
        crate::catalog::engine::execute!(tx, insert, name);
        Ok::<_, Error>(())
    };
    inserted.await.unwrap();
    tx.commit().await.unwrap();
}

const RECORDED: &str = "SELECT count(*) FROM portolan_migrations WHERE version > 9000";
const TAGS: &str = "SELECT count(*) FROM portolan_oci_tags";

#[tokio::test]
async fn a_job_refuses_tables_of_an_earlier_release_and_missing_ones() {
    let directory = tempfile::tempdir().unwrap();
    let pools = pools(&directory).await;
    let refused = ensure_once(&pools, STEPS, Migrations::Refuse).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::NotMigrated), "{refused}");
    ensure_once(&pools, STEPS, Migrations::Run).await.unwrap();
    insert_tag(&pools).await;
    let steps = with(&[SECOND]);
    let refused = ensure_once(&pools, &steps, Migrations::Refuse).await.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::NotMigrated) && !refused.is_transient(),
        "{refused}"
    );
    assert_eq!((number(&pools, RECORDED).await, number(&pools, TAGS).await), (0, 1));

    ensure_once(&pools, &steps, Migrations::Run).await.unwrap();
    let is_rebuilt = ensure_once(&pools, &steps, Migrations::Refuse).await.unwrap();
    assert!(!is_rebuilt);
    let mut tx = begin(&pools).await.unwrap();
    run(&mut tx, "DROP TABLE portolan_second").await.unwrap();
    tx.commit().await.unwrap();
    let refused = ensure_once(&pools, &steps, Migrations::Refuse).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::NotMigrated), "{refused}");
    assert_eq!(number(&pools, TAGS).await, 1, "the other tables stay");
}

#[tokio::test]
async fn a_second_migration_keeps_the_rows_and_runs_once() {
    let directory = tempfile::tempdir().unwrap();
    let pools = pools(&directory).await;
    ensure_once(&pools, STEPS, Migrations::Run).await.unwrap();
    insert_tag(&pools).await;
    let steps = with(&[SECOND]);
    let is_rebuilt = ensure_once(&pools, &steps, Migrations::Run).await.unwrap();
    assert!(!is_rebuilt, "no table was missing");
    assert_eq!(number(&pools, TAGS).await, 1);
    assert_eq!(number(&pools, "SELECT id FROM portolan_second").await, 1);
    ensure_once(&pools, &steps, Migrations::Run).await.unwrap();
    assert_eq!(number(&pools, RECORDED).await, 1);
    assert_eq!(number(&pools, "SELECT count(*) FROM portolan_second").await, 1);
}

#[tokio::test]
async fn concurrent_starts_migrate_once() {
    let directory = tempfile::tempdir().unwrap();
    ensure_once(&pools(&directory).await, STEPS, Migrations::Run)
        .await
        .unwrap();
    let steps = with(&[SECOND]);
    let start = async || {
        let pools = pools(&directory).await;
        ensure_once(&pools, &steps, Migrations::Run).await
    };
    let results = futures::future::join_all((0..4).map(|_| start())).await;
    for result in results {
        result.unwrap();
    }
    let pools = pools(&directory).await;
    assert_eq!(number(&pools, RECORDED).await, 1);
    assert_eq!(number(&pools, "SELECT count(*) FROM portolan_second").await, 1);
}

#[tokio::test]
async fn an_older_release_refuses_the_tables_of_a_newer_one() {
    let directory = tempfile::tempdir().unwrap();
    let pools = pools(&directory).await;
    ensure_once(&pools, &with(&[SECOND]), Migrations::Run).await.unwrap();
    insert_tag(&pools).await;
    let error = ensure_once(&pools, STEPS, Migrations::Run).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NewerSchema { found: 9001, .. }),
        "{error}"
    );
    assert_eq!(number(&pools, TAGS).await, 1, "nothing is written");
    assert_eq!(number(&pools, "SELECT count(*) FROM portolan_second").await, 1);
}

#[tokio::test]
async fn a_failed_migration_leaves_the_older_schema() {
    let directory = tempfile::tempdir().unwrap();
    let pools = pools(&directory).await;
    ensure_once(&pools, STEPS, Migrations::Run).await.unwrap();
    insert_tag(&pools).await;
    ensure_once(&pools, &with(&[SECOND, BROKEN]), Migrations::Run)
        .await
        .unwrap_err();
    assert_eq!(number(&pools, TAGS).await, 1);
    assert_eq!(number(&pools, RECORDED).await, 0);
    let tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('portolan_second', 'portolan_third')";
    assert_eq!(number(&pools, tables).await, 0);
    ensure_once(&pools, STEPS, Migrations::Run).await.unwrap();
}

#[test]
fn versions_rise_and_each_file_creates_the_tables_of_its_line() {
    for pair in STEPS.windows(2) {
        assert!(pair[0].version < pair[1].version);
    }
    for step in STEPS {
        for sql in [step.sqlite, step.postgres] {
            let created = sql.matches("CREATE TABLE ").count();
            assert_eq!(created, step.tables.len(), "{}", step.name);
            for table in step.tables {
                assert!(sql.contains(&format!("CREATE TABLE {table} (")), "{table}");
            }
        }
    }
}

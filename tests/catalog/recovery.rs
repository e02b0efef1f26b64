//! Tables that are dropped while a process runs, and tables that Kubeapps creates concurrently.

use std::time::Duration;

use portolan::catalog::{Catalog, ErrorKind, FilesMode, SyncCommit};
use rstest::rstest;
use sqlx::Executor;

use crate::cluster::SOON;
use crate::support::eventually::eventually;

use super::{
    Fixture, On, Tables, chart,
    files::{fail, names, of, wanted},
    record, repository, rows,
};

#[rstest]
#[tokio::test]
async fn dropped_tables_of_kubeapps_are_recreated_by_the_next_call(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let rebuilt = fixture.catalog.rebuilt();
    assert_eq!(*rebuilt.borrow(), 0);
    fixture
        .tables
        .execute("DROP TABLE files; DROP TABLE charts; DROP TABLE repos")
        .await;

    let error = fixture.catalog.record(&repository()).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::TablesRebuilt) && error.is_transient(),
        "{error}"
    );
    assert_eq!(*rebuilt.borrow(), 1);
    let stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    assert!(!stored.trusted, "another process may have written the charts");
    let committed = fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert_eq!(committed.added, 1);
    assert!(fixture.catalog.record(&repository()).await.unwrap().unwrap().trusted);
}

#[rstest]
#[tokio::test]
async fn a_commit_recreates_a_missing_table(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    for dropped in ["DROP TABLE files", "DROP TABLE files; DROP TABLE charts"] {
        fixture.tables.execute(dropped).await;
        let changed = || vec![chart("a", &["1.1.0", "1.0.0"])];
        let error = fixture.try_sync("x", changed()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TablesRebuilt), "{error}");
        fixture.try_sync("x", changed()).await.unwrap();
        fixture.try_sync("x", vec![chart("a", &["1.0.0"])]).await.unwrap();
    }
    assert_eq!(*fixture.catalog.rebuilt().borrow(), 2);
}

#[rstest]
#[case::all("DROP TABLE portolan_syncs; DROP TABLE portolan_repositories; DROP TABLE portolan_migrations")]
#[case::all_but_the_record_of_migrations("DROP TABLE portolan_syncs; DROP TABLE portolan_repositories")]
#[case::only_the_record_of_migrations("DROP TABLE portolan_migrations")]
#[case::only_the_history("DROP TABLE portolan_syncs")]
#[case::only_the_failures_of_files("DROP TABLE portolan_files")]
#[case::only_the_digests("DROP TABLE portolan_chart_digests")]
#[tokio::test]
async fn our_tables_are_recreated_although_their_migrations_are_recorded(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[case] dropped: &str,
) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    fixture.tables.execute(dropped).await;
    assert!(fixture.catalog.ensure_tables().await.unwrap());
    assert_eq!(*fixture.catalog.rebuilt().borrow(), 1);
    assert!(!fixture.catalog.ensure_tables().await.unwrap());
    assert_eq!(*fixture.catalog.rebuilt().borrow(), 1);
    // Kubeapps' tables are not dropped.
    let committed = fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert_eq!(committed.unchanged, 1);
}

#[rstest]
#[tokio::test]
async fn a_call_recreates_our_missing_tables(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .tables
        .execute("DROP TABLE portolan_syncs; DROP TABLE portolan_repositories")
        .await;
    let error = fixture.catalog.save(&record(), None, None).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TablesRebuilt), "{error}");
    fixture.catalog.save(&record(), None, None).await.unwrap();
}

#[rstest]
#[tokio::test]
async fn recreated_tables_are_empty_and_no_record_is_trusted(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    fixture.catalog.recreate().await.unwrap();
    assert_eq!(*fixture.catalog.rebuilt().borrow(), 1);
    assert_eq!(fixture.tables.count("charts").await, 0);
    let stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    assert_eq!((stored.trusted, stored.charts), (false, 0));
    assert_eq!(fixture.sync(vec![chart("a", &["1.0.0"])]).await.added, 1);
}

#[rstest]
#[tokio::test]
async fn a_record_is_not_trusted_after_another_process_wrote_the_repository(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[values(
        "UPDATE repos SET checksum = 'theirs'",
        "UPDATE repos SET last_update = 'theirs'",
        "UPDATE repos SET checksum = NULL",
        "DELETE FROM repos",
        "DELETE FROM repos; INSERT INTO repos (namespace, name, checksum) VALUES ('kubeapps', 'stable', 'checksum')"
    )]
    touched: &str,
) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert!(fixture.catalog.records().await.unwrap()[0].trusted);
    fixture.tables.execute(touched).await;
    assert!(!fixture.catalog.records().await.unwrap()[0].trusted);
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert!(fixture.catalog.records().await.unwrap()[0].trusted);
}

#[rstest]
#[tokio::test]
async fn opening_again_changes_nothing(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let again = Catalog::open(&fixture.settings).await.unwrap();
    assert!(again.record(&repository()).await.unwrap().unwrap().trusted);
    assert_eq!(*again.rebuilt().borrow(), 0);
    again.ping().await.unwrap();
    again.close().await;
}

/// Builds before the first release had other migrations with the same numbers.
#[rstest]
#[case::with_all_three_migrations(3)]
#[case::with_the_first_migration(1)]
#[tokio::test]
async fn tables_of_a_development_build_are_refused_and_not_changed(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[case] migrations: i64,
) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let blob = if on == On::Sqlite { "x'00'" } else { "'\\x00'" };
    fixture
        .tables
        .execute(
            "DROP TABLE portolan_index_cache; DROP TABLE portolan_chart_digests; DROP TABLE portolan_files;
             ALTER TABLE portolan_repositories DROP COLUMN details; DELETE FROM portolan_migrations",
        )
        .await;
    for version in 1..=migrations {
        let insert = "INSERT INTO portolan_migrations (version, description, success, checksum, execution_time)";
        let values = format!("VALUES ({version}, 'of a development build', TRUE, {blob}, 0)");
        fixture.tables.execute(&format!("{insert} {values}")).await;
    }
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    let progress = reader.files_progress(&repository(), FilesMode::All).await.unwrap();
    assert_eq!(progress.total, 0, "a reader creates no tables");
    assert_eq!(reader.chart_digests(&repository(), "cache_key").await.unwrap(), None);
    let error = reader.record(&repository()).await.unwrap_err();
    assert!(error.to_string().contains("from an older release"), "{error}");

    let error = Catalog::open(&fixture.settings).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DevelopmentTables), "{error}");
    assert!(!error.is_transient());
    let text = error.to_string();
    assert!(
        text.contains("drop all tables whose names begin with portolan_"),
        "{text}"
    );
    assert_eq!(fixture.tables.count("portolan_migrations").await, migrations);
    assert_eq!(fixture.tables.count("portolan_repositories").await, 1);

    // Follow the advice.
    fixture
        .tables
        .execute(
            "DROP TABLE portolan_syncs; DROP TABLE portolan_repositories; DROP TABLE portolan_icons;
             DROP TABLE portolan_oci_repositories; DROP TABLE portolan_oci_tags; DROP TABLE portolan_kept_versions;
             DROP TABLE portolan_migrations",
        )
        .await;
    let catalog = Catalog::open(&fixture.settings).await.unwrap();
    assert_eq!(*catalog.rebuilt().borrow(), 0);
    let progress = catalog.files_progress(&repository(), FilesMode::All).await.unwrap();
    assert_eq!(progress.total, 1, "Kubeapps' tables stay");
    assert!(!catalog.ensure_tables().await.unwrap());
    assert_eq!(fixture.sync(vec![chart("a", &["1.0.0"])]).await.unchanged, 1);
}

#[rstest]
#[tokio::test]
async fn failures_are_deleted_with_the_rows_they_refer_to(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    fail(&fixture, &of("a", "1.0.0"), 60).await;
    fixture
        .tables
        .execute("DROP TABLE files; DROP TABLE charts; DROP TABLE repos")
        .await;
    assert!(fixture.catalog.ensure_tables().await.unwrap());
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert_eq!(names(&wanted(&fixture, FilesMode::All).await), ["a 1.0.0"]);
}

#[rstest]
#[tokio::test]
async fn tables_of_the_first_release_are_upgraded_with_their_rows(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let migrations = fixture.tables.count("portolan_migrations").await;
    assert!(migrations > 1);
    fixture
        .tables
        .execute(
            "DROP TABLE portolan_fences; DROP TABLE portolan_tombstones; DROP TABLE portolan_chart_metadata;
             DROP TABLE portolan_svg_icons; DROP TABLE portolan_deprecated_charts; DROP TABLE portolan_news;
             DELETE FROM portolan_migrations WHERE version > 1",
        )
        .await;
    let starts = (0..3).map(|_| Catalog::open(&fixture.settings));
    for catalog in futures::future::join_all(starts).await {
        let catalog = catalog.unwrap();
        assert!(catalog.record(&repository()).await.unwrap().unwrap().trusted);
        assert!(!catalog.ensure_tables().await.unwrap());
        catalog.close().await;
    }
    assert_eq!(fixture.tables.count("portolan_migrations").await, migrations);
    assert_eq!(fixture.tables.count("portolan_fences").await, 0);
    assert_eq!(fixture.sync(vec![chart("a", &["1.0.0"])]).await.unchanged, 1);
}

#[rstest]
#[tokio::test]
async fn a_database_of_a_newer_release_is_refused(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let blob = if on == On::Sqlite { "x'00'" } else { "'\\x00'" };
    fixture
        .tables
        .execute(&format!(
            "INSERT INTO portolan_migrations (version, description, success, checksum, execution_time)
             VALUES (9999, 'of the future', TRUE, {blob}, 0)"
        ))
        .await;
    let error = Catalog::open(&fixture.settings).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NewerSchema { found: 9999, .. }) && !error.is_transient(),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("run that release or a newer one"), "{text}");
    assert!(text.contains("restore a backup from before the upgrade"), "{text}");
    assert_eq!(fixture.tables.count("portolan_repositories").await, 0);
    let error = fixture.catalog.export(&mut Vec::new()).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NewerSchema { found: 9999, .. }),
        "{error}"
    );
}

/// Kubeapps' API server runs the same statements at startup without our lock.
#[tokio::test]
async fn concurrent_starts_next_to_kubeapps_create_the_tables_once() {
    let database = crate::support::postgres::database().await;
    let settings = super::settings(&database.url);
    let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
    for _ in 0..5 {
        pool.execute("DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS charts; DROP TABLE IF EXISTS repos")
            .await
            .unwrap();
        pool.execute("DROP TABLE IF EXISTS portolan_syncs; DROP TABLE IF EXISTS portolan_repositories")
            .await
            .unwrap();
        let kubeapps = async {
            for _ in 0..20 {
                // It may fail because of a race with ours.
                let _ = pool.execute(sqlx::raw_sql(KUBEAPPS_DDL)).await;
            }
        };
        let ours = futures::future::join_all((0..6).map(|_| Catalog::open(&settings)));
        let (opened, ()) = tokio::join!(ours, kubeapps);
        for catalog in opened {
            catalog.unwrap().close().await;
        }
    }
    let catalog = Catalog::open(&settings).await.unwrap();
    assert!(!catalog.ensure_tables().await.unwrap());
}

/// A slow trigger lets the other program begin while our tables are not committed.
#[tokio::test]
async fn kubeapps_creates_its_tables_while_portolan_creates_them() {
    let database = crate::support::postgres::database().await;
    let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
    pool.execute(sqlx::raw_sql(
        "CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
             IF current_setting('application_name') = 'portolan' AND to_regclass('files') IS NOT NULL THEN
                 PERFORM pg_sleep(1);
             END IF;
         END $$;
         CREATE EVENT TRIGGER slow ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION slow();",
    ))
    .await
    .unwrap();
    let ours = tokio::spawn({
        let settings = super::settings(&database.url);
        async move { Catalog::open(&settings).await }
    });
    let sleeping = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'portolan' AND wait_event = 'PgSleep'";
    eventually(SOON, "our tables to be created", async || {
        let sleeping: i64 = sqlx::query_scalar(sleeping).fetch_one(&pool).await.unwrap();
        (sleeping > 0).then_some(())
    })
    .await;
    pool.execute(sqlx::raw_sql(KUBEAPPS_DDL)).await.unwrap();
    ours.await.unwrap().unwrap();
    let tables = "SELECT num_nulls(to_regclass('files'), to_regclass('portolan_repositories')) = 0";
    assert!(sqlx::query_scalar::<_, bool>(tables).fetch_one(&pool).await.unwrap());
}

const KUBEAPPS_DDL: &str = "
CREATE TABLE IF NOT EXISTS repos (ID serial NOT NULL PRIMARY KEY, namespace varchar NOT NULL, name varchar NOT NULL,
  checksum varchar, last_update varchar, UNIQUE(namespace, name));
CREATE TABLE IF NOT EXISTS charts (ID serial NOT NULL PRIMARY KEY, repo_name varchar NOT NULL, repo_namespace varchar NOT NULL,
  chart_id varchar, info jsonb NOT NULL, UNIQUE(repo_name, repo_namespace, chart_id),
  FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos (name, namespace) ON DELETE CASCADE);
CREATE TABLE IF NOT EXISTS files (ID serial NOT NULL PRIMARY KEY, chart_id varchar NOT NULL, repo_name varchar NOT NULL,
  repo_namespace varchar NOT NULL, chart_files_ID varchar NOT NULL, info jsonb NOT NULL, UNIQUE(repo_namespace, chart_files_ID),
  FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos (name, namespace) ON DELETE CASCADE,
  FOREIGN KEY (repo_name, repo_namespace, chart_id) REFERENCES charts (repo_name, repo_namespace, chart_id) ON DELETE CASCADE);";

/// A lost connection is a transient error, and the next call opens another one.
#[tokio::test]
async fn terminated_postgres_connections_are_replaced() {
    let fixture = Fixture::new(On::Postgres).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    fixture
        .tables
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'portolan'",
        )
        .await;
    let again = async {
        while let Err(error) = fixture.catalog.ping().await {
            assert!(error.is_transient(), "{error}");
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again).await.unwrap();
    assert_eq!(fixture.sync(vec![chart("a", &["1.0.0"])]).await.unchanged, 1);
}

/// Only the connection of the writer is terminated, during the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_loses_its_connection_is_rolled_back_and_transient() {
    let fixture = Fixture::new(On::Postgres).await;
    let Tables::Postgres(pool) = &fixture.tables else {
        panic!("not Postgres")
    };
    let pool = pool.clone();
    let runtime = tokio::runtime::Handle::current();
    let mut at = 0;
    let charts = std::iter::from_fn(move || {
        at += 1;
        if at == 600 {
            let pool = pool.clone();
            tokio::task::block_in_place(|| {
                runtime.block_on(pool.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                     WHERE datname = current_database() AND state = 'idle in transaction'",
                ))
            })
            .unwrap();
        }
        (at <= 1000).then(|| chart(&at.to_string(), &["1.0.0"]))
    });
    let charts = charts.map(|info| {
        Ok(portolan::catalog::ChartRow {
            chart_id: info.id.clone(),
            info,
        })
    });
    // On a worker thread, because the iterator blocks it.
    let catalog = fixture.catalog.clone();
    let error = tokio::spawn(async move { catalog.commit(SyncCommit::new(record(), None, "x"), charts).await })
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(fixture.tables.count("charts").await, 0);
    fixture
        .catalog
        .commit(SyncCommit::new(record(), None, "x"), rows(vec![chart("a", &["1.0.0"])]))
        .await
        .unwrap();
}

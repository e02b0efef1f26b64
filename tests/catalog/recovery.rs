//! Tables that vanish under a running process, and tables that somebody else makes at the same moment.

use std::time::Duration;

use portolan::catalog::{Catalog, Error, FilesMode, SyncCommit};
use rstest::rstest;
use sqlx::Executor;

use super::{
    Fixture, On, Tables, chart,
    files::{fail, names, of, wanted},
    record, repository, rows,
};

#[rstest]
#[tokio::test]
async fn dropped_tables_of_kubeapps_heal_with_the_next_call(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let rebuilt = fixture.catalog.rebuilt();
    assert_eq!(*rebuilt.borrow(), 0);
    fixture
        .tables
        .execute("DROP TABLE files; DROP TABLE charts; DROP TABLE repos")
        .await;

    let error = fixture.catalog.record(&repository()).await.unwrap_err();
    assert!(matches!(error, Error::TablesRebuilt) && error.is_transient(), "{error}");
    assert_eq!(*rebuilt.borrow(), 1);
    let stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    assert!(!stored.trusted, "the charts are not the ones that we wrote any more");
    let committed = fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert_eq!(committed.added, 1);
    assert!(fixture.catalog.record(&repository()).await.unwrap().unwrap().trusted);
}

#[rstest]
#[tokio::test]
async fn a_commit_that_misses_a_table_heals_it(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    for dropped in ["DROP TABLE files", "DROP TABLE files; DROP TABLE charts"] {
        fixture.tables.execute(dropped).await;
        let changed = || vec![chart("a", &["1.1.0", "1.0.0"])];
        let error = fixture.try_sync("x", changed()).await.unwrap_err();
        assert!(matches!(error, Error::TablesRebuilt), "{error}");
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
async fn our_own_tables_heal_although_the_migrations_count_as_applied(
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
    // The charts were not ours to drop, and the next sync finds them as they are.
    let committed = fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert_eq!(committed.unchanged, 1);
}

#[rstest]
#[tokio::test]
async fn a_call_that_misses_our_own_tables_heals_them(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .tables
        .execute("DROP TABLE portolan_syncs; DROP TABLE portolan_repositories")
        .await;
    let error = fixture.catalog.save(&record(), None, None).await.unwrap_err();
    assert!(matches!(error, Error::TablesRebuilt), "{error}");
    fixture.catalog.save(&record(), None, None).await.unwrap();
}

#[rstest]
#[tokio::test]
async fn recreating_empties_kubeapps_tables_and_no_record_is_trusted(#[values(On::Sqlite, On::Postgres)] on: On) {
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
async fn a_row_that_another_hand_has_touched_is_not_trusted(
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

/// The migrations of builds before the first release were other ones under the same numbers.
#[rstest]
#[case::with_all_three_migrations(3)]
#[case::with_the_first_migration(1)]
#[tokio::test]
async fn tables_of_a_development_build_are_refused_and_stay_as_they_are(
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
    assert_eq!(progress.total, 0, "whoever only reads makes no tables");
    assert_eq!(reader.chart_digests(&repository(), "cache_key").await.unwrap(), None);
    let error = reader.record(&repository()).await.unwrap_err();
    assert!(error.to_string().contains("of an older release"), "{error}");

    let error = Catalog::open(&fixture.settings).await.unwrap_err();
    assert!(matches!(error, Error::DevelopmentTables), "{error}");
    assert!(!error.is_transient());
    let text = error.to_string();
    assert!(
        text.contains("drop all tables whose names begin with portolan_"),
        "{text}"
    );
    assert_eq!(fixture.tables.count("portolan_migrations").await, migrations);
    assert_eq!(fixture.tables.count("portolan_repositories").await, 1);

    // The advice is followed.
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
async fn what_told_of_lost_rows_is_forgotten(#[values(On::Sqlite, On::Postgres)] on: On) {
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
        matches!(error, Error::Schema { .. }) && !error.is_transient(),
        "{error}"
    );
    assert!(error.to_string().contains("newer"), "{error}");
}

/// Kubeapps' API server runs the same statements at its own start, and knows nothing of our lock.
#[tokio::test]
async fn many_starts_at_once_beside_kubeapps_make_the_tables_once() {
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
                // It may trip over ours in turn, as it may over another of its own.
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

/// A cut connection is a transient error, and the next call has a new connection.
#[tokio::test]
async fn connections_that_postgres_ends_are_made_anew() {
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

/// Only the connection of the writer is cut, while it is writing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_connection_is_cut_leaves_nothing_and_is_transient() {
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
    // On a worker of the runtime: the iterator blocks it.
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

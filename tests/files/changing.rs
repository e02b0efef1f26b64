use std::time::Duration;

use sqlx::{Executor, PgPool};

use super::{ALL, SOON, World, chart, readme, readmes};
use crate::support::archives::{Archive, Chart};
use crate::support::chart_server::{Fault, Page};
use crate::support::eventually::eventually;
use crate::support::postgres;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_republished_version_keeps_its_old_files_until_the_new_ones_are_there() {
    let world = World::new().await;
    let old = chart("web", "1.0.0");
    world.declare("stable", &world.serve("stable", std::slice::from_ref(&old)), "");
    world.once(&[ALL]).await;
    let new = Chart::new("web", "1.0.0").file("README.md", "new").pack();
    world.serve("stable", std::slice::from_ref(&new));
    let path = "/stable/web-1.0.0.tgz";
    world.server.break_path(path, Fault::status(500));
    world.once(&[ALL]).await;
    let files = world.files().await;
    assert_eq!(readmes(&files)["stable/web-1.0.0"], readme("web", "1.0.0"));
    assert_eq!(files["stable/web-1.0.0"]["Digest"], old.sha256());
    let chart = world.chart("stable/web").await.unwrap();
    assert_eq!(chart["chartVersions"][0]["digest"], new.sha256());

    world.server.clear_faults(path);
    world.execute("UPDATE portolan_files SET next_try = 1").await;
    world.once(&[ALL]).await;
    let files = world.files().await;
    assert_eq!(readmes(&files)["stable/web-1.0.0"], "new");
    assert_eq!(files["stable/web-1.0.0"]["Digest"], new.sha256());
    assert!(
        world
            .texts("SELECT chart_files_id FROM portolan_files")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn files_are_imported_for_the_first_of_two_entries_of_a_version() {
    let world = World::new().await;
    let first = Chart::new("web", "1.0.0").file("README.md", "first").pack();
    let second = Chart::new("web", "1.0.0").file("README.md", "second").pack();
    world.server.serve("/stable/first.tgz", Page::new(first.bytes.clone()));
    world
        .server
        .serve("/stable/second.tgz", Page::new(second.bytes.clone()));
    let entries = [first.index_entry(&["first.tgz"]), second.index_entry(&["second.tgz"])];
    world.declare("stable", &world.serve_entries("stable", entries.clone()), "");
    for _ in 0..2 {
        world.once(&[ALL]).await;
    }
    assert_eq!(readmes(&world.files().await)["stable/web-1.0.0"], "first");
    assert_eq!(world.server.requests("/stable/first.tgz").len(), 1);
    assert!(world.server.requests("/stable/second.tgz").is_empty());
    let status = world.status("stable").await.unwrap();
    assert_eq!(
        (&status["files"]["imported"], &status["files"]["total"]),
        (&1.into(), &1.into())
    );

    // When the order of the entries changes, the files change too.
    let [first, second] = entries;
    world.serve_entries("stable", [second, first]);
    world.once(&[ALL]).await;
    assert_eq!(readmes(&world.files().await)["stable/web-1.0.0"], "second");
}

/// Records database writes with their transactions.
const WATCH: &str = "
    CREATE TABLE test_log (what text, transaction bigint);
    CREATE FUNCTION test_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO test_log VALUES (TG_OP || ' ' || TG_TABLE_NAME || ' ' ||
            CASE TG_TABLE_NAME WHEN 'files' THEN to_jsonb(OLD) ->> 'chart_files_id' ELSE to_jsonb(OLD) ->> 'chart_id' END, txid_current());
        RETURN NULL;
    END $$;
    CREATE TRIGGER test_files AFTER UPDATE OR DELETE ON files FOR EACH ROW EXECUTE FUNCTION test_note();
    CREATE TRIGGER test_charts AFTER UPDATE OR DELETE ON charts FOR EACH ROW EXECUTE FUNCTION test_note();";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_version_and_its_files_are_deleted_in_one_transaction() {
    let world = World::new().await;
    let archives = [
        chart("web", "2.0.0"),
        chart("web", "1.0.0"),
        chart("gone", "1.0.0"),
        chart("same", "1.0.0"),
    ];
    world.declare("stable", &world.serve("stable", &archives), "");
    let database = postgres::database().await;
    let _portolan = world.run_on(&database.url, &[ALL]).await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let count =
        async |statement: &'static str| -> i64 { sqlx::query_scalar(statement).fetch_one(&pool).await.unwrap_or(-1) };
    let files = "SELECT count(*) FROM files";
    eventually(SOON, "all files", async || (count(files).await == 4).then_some(())).await;
    pool.execute(WATCH).await.unwrap();

    world.serve("stable", &[archives[0].clone(), archives[3].clone()]);
    world.resync("stable").await;
    eventually(SOON, "the removed version to be deleted", async || {
        (count(files).await == 2).then_some(())
    })
    .await;
    let mut log: Vec<(String, i64)> = sqlx::query_as("SELECT * FROM test_log").fetch_all(&pool).await.unwrap();
    log.sort();
    let done: Vec<&str> = log.iter().map(|(what, _)| what.as_str()).collect();
    let expected = [
        "DELETE charts stable/gone",
        "DELETE files stable/gone-1.0.0",
        "DELETE files stable/web-1.0.0",
        "UPDATE charts stable/web",
    ];
    assert_eq!(done, expected);
    assert!(log.iter().all(|(_, transaction)| *transaction == log[0].1), "{log:?}");
}

/// Physical row locations: every write moves a row, even with equal values.
async fn row_locations(pool: &PgPool) -> Vec<String> {
    let statement = "SELECT 'files ' || id || ' ' || ctid || ' ' || xmin FROM files
        UNION ALL SELECT 'charts ' || id || ' ' || ctid || ' ' || xmin FROM charts
        UNION ALL SELECT 'failed ' || chart_files_id || ' ' || ctid || ' ' || xmin FROM portolan_files
        UNION ALL SELECT 'icons ' || chart_id || ' ' || ctid || ' ' || xmin FROM portolan_icons ORDER BY 1";
    sqlx::query_scalar(statement).fetch_all(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_repository_causes_no_writes_and_no_archive_requests() {
    let world = World::new().await;
    let mut archives: Vec<Archive> = (0..5).map(|minor| chart("web", &format!("1.{minor}.0"))).collect();
    let url = world.serve("stable", &archives);
    archives.push(chart("absent", "1.0.0"));
    world.serve_index("stable", &archives);
    world.declare("stable", &url, "  interval: \"* * * * * *\"\n");
    let database = postgres::database().await;
    let _portolan = world
        .run_on(&database.url, &[ALL, "--icons", "--min-interval=1s"])
        .await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    eventually(SOON, "all available files", async || {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM files")
            .fetch_one(&pool)
            .await
            .unwrap_or(0);
        (count == 6).then_some(())
    })
    .await;
    let (before, requests) = (
        row_locations(&pool).await,
        world.requested_paths("stable", &archives).len(),
    );
    let syncs = || world.server.requests("/stable/index.yaml").len();
    let expected = syncs() + 4;
    eventually(SOON, "four more syncs", async || (syncs() >= expected).then_some(())).await;
    assert_eq!(row_locations(&pool).await, before);
    assert_eq!(world.requested_paths("stable", &archives).len(), requests);
    assert_eq!(requests, 6);
}

/// Files follow the filter: removed and restored with their chart.
#[tokio::test]
async fn files_follow_a_filter() {
    let world = World::new().await;
    let archives = [chart("kept", "1.0.0"), chart("dropped", "1.0.0")];
    let url = world.serve("stable", &archives);
    let filter = "  filterRule:\n    jq: .name == \"kept\"\n";
    let names = async || world.files().await.into_keys().collect::<Vec<String>>();
    world.declare("stable", &url, filter);
    world.once(&[ALL]).await;
    assert_eq!(names().await, ["stable/kept-1.0.0"]);
    assert!(world.archive_requests("stable", &archives[1]).is_empty());
    world.declare("stable", &url, "");
    world.once(&[ALL]).await;
    assert_eq!(names().await, ["stable/dropped-1.0.0", "stable/kept-1.0.0"]);
    world.declare("stable", &url, filter);
    world.once(&[ALL]).await;
    assert_eq!(names().await, ["stable/kept-1.0.0"]);
    assert_eq!(world.archive_requests("stable", &archives[0]).len(), 1);
}

/// Kubeapps' `invalidate-cache` drops the tables of a running process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_come_back_after_their_table_was_dropped() {
    let world = World::new().await;
    let archives = [chart("web", "1.0.0")];
    world.declare(
        "stable",
        &world.serve("stable", &archives),
        "  interval: \"* * * * * *\"\n",
    );
    let database = postgres::database().await;
    let _portolan = world.run_on(&database.url, &[ALL, "--min-interval=1s"]).await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let there = async || {
        let readme = sqlx::query_scalar("SELECT info ->> 'Readme' FROM files")
            .fetch_optional(&pool)
            .await;
        let readme: Option<String> = readme.ok().flatten();
        readme.filter(|text| *text == readme_of_web())
    };
    eventually(SOON, "the files", there).await;
    pool.execute("DROP TABLE files, charts, repos").await.unwrap();
    eventually(SOON + Duration::from_secs(15), "the restored files", there).await;
}

fn readme_of_web() -> String {
    readme("web", "1.0.0")
}

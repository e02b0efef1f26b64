//! Compares rows with those that Kubeapps' syncer wrote for the same index.

use std::fs;

use serde_json::{Value, json};
use sqlx::{Executor, PgPool};

use super::{World, execute};
use crate::support::corpus;
use crate::support::portolan::command;
use crate::support::postgres;
use crate::support::project;

/// An index and the rows that Kubeapps wrote for it.
pub struct Golden {
    pub index: String,
    pub rows: Vec<Value>,
}

impl Golden {
    /// Loads Grafana's index if the corpus and the goldens are available, or else a small fixture.
    pub fn load() -> Self {
        let real = corpus::corpus().zip(corpus::goldens()).map(|(corpus, goldens)| {
            (
                corpus.join("grafana__helm-charts/index.yaml"),
                goldens.join("grafana.charts.jsonl"),
            )
        });
        let (index, rows) = real
            .filter(|(index, rows)| index.exists() && rows.exists())
            .unwrap_or_else(|| {
                (
                    project("tests/commands/fixture/index.yaml"),
                    project("tests/commands/fixture/charts.jsonl"),
                )
            });
        let rows = fs::read_to_string(rows).unwrap();
        Self {
            index: fs::read_to_string(index).unwrap(),
            rows: rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect(),
        }
    }

    /// Returns the rows for a repository at this URL.
    fn rows_at(&self, url: &str) -> Vec<Value> {
        let mut rows = self.rows.clone();
        for row in &mut rows {
            row["info"]["repo"]["url"] = url.into();
        }
        rows.sort_by_key(|row| row["chart_id"].to_string());
        rows
    }
}

/// Creates Kubeapps' tables with these rows, without Portolan's tables.
pub async fn create_kubeapps_database(pool: &PgPool, rows: &[Value]) {
    let tables = fs::read_to_string(project("tests/commands/fixture/kubeapps.sql")).unwrap();
    pool.execute(sqlx::AssertSqlSafe(tables)).await.unwrap();
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    sqlx::query("INSERT INTO repos (namespace, name, checksum, last_update) VALUES ($1, $2, 'digest', '2024-12-24 08:06:53.123456789 +0000 UTC m=+1.2')")
        .bind(text(&rows[0], "repo_namespace"))
        .bind(text(&rows[0], "repo_name"))
        .execute(pool)
        .await
        .unwrap();
    for row in rows {
        sqlx::query("INSERT INTO charts (repo_namespace, repo_name, chart_id, info) VALUES ($1, $2, $3, $4)")
            .bind(text(row, "repo_namespace"))
            .bind(text(row, "repo_name"))
            .bind(text(row, "chart_id"))
            .bind(&row["info"])
            .execute(pool)
            .await
            .unwrap();
    }
}

async fn read_charts(pool: &PgPool) -> Vec<Value> {
    let rows: Vec<(String, String, String, Value)> =
        sqlx::query_as("SELECT chart_id, repo_name, repo_namespace, info FROM charts")
            .fetch_all(pool)
            .await
            .unwrap();
    let mut rows: Vec<Value> = rows
        .into_iter()
        .map(|(id, name, namespace, info)| {
            json!({ "chart_id": id, "repo_name": name, "repo_namespace": namespace, "info": info })
        })
        .collect();
    rows.sort_by_key(|row| row["chart_id"].to_string());
    rows
}

/// Returns a text for each chart that every write changes, also with the same values.
async fn row_versions(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar("SELECT id || ' ' || ctid::text || ' ' || xmin::text FROM charts ORDER BY id")
        .fetch_all(pool)
        .await
        .unwrap()
}

async fn sync(url: &str, database_url: &str) -> String {
    let mut command = command(["sync", "grafana", url, "helm", "--namespace", "kubeapps"]);
    command.args(["--database-url", database_url]);
    execute(command).await.ok()
}

#[tokio::test]
async fn a_sync_writes_the_same_rows_as_kubeapps() {
    let world = World::new().await;
    let golden = Golden::load();
    let database = postgres::database().await;
    let url = world.serve("grafana", golden.index.as_str());
    sync(&url, &database.url).await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let (stored, expected) = (read_charts(&pool).await, golden.rows_at(&url));
    assert_eq!(stored.len(), expected.len());
    for (stored, expected) in stored.iter().zip(&expected) {
        assert_eq!(stored, expected);
    }
    // Without `--chart-files` there is an empty row for each version, so that Kubeapps shows it.
    let files: i64 = sqlx::query_scalar("SELECT count(*) FROM files WHERE info ->> 'Digest' <> ''")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(files, 0);
}

#[tokio::test]
async fn a_sync_of_a_database_of_kubeapps_writes_no_charts() {
    let world = World::new().await;
    let golden = Golden::load();
    let database = postgres::database().await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let url = world.serve("grafana", golden.index.as_str());
    create_kubeapps_database(&pool, &golden.rows_at(&url)).await;
    let before = row_versions(&pool).await;
    let output = sync(&url, &database.url).await;
    assert_eq!(row_versions(&pool).await, before, "{output}");

    // Only the chart that Kubeapps changed since is written.
    pool.execute(
        "UPDATE charts SET info = info || '{\"description\": \"changed\"}' WHERE id = (SELECT min(id) FROM charts)",
    )
    .await
    .unwrap();
    pool.execute("UPDATE repos SET checksum = 'changed'").await.unwrap();
    sync(&url, &database.url).await;
    assert_eq!(row_versions(&pool).await[1..], before[1..]);
    assert_eq!(read_charts(&pool).await, golden.rows_at(&url));
}

#[tokio::test]
async fn the_catalog_of_a_real_index_moves_to_sqlite_and_back_and_is_not_written_again() {
    let world = World::new().await;
    let (first, second) = (postgres::database().await, postgres::database().await);
    let url = world.serve("grafana", Golden::load().index);
    sync(&url, &first.url).await;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let sqlite = format!("sqlite://{}", path("portolan.db"));
    for (from, to) in [(&first.url, &sqlite), (&sqlite, &second.url)] {
        let file = path(if to == &sqlite { "there.jsonl" } else { "back.jsonl" });
        for (verb, database_url) in [("export", from), ("import", to)] {
            execute(command(["catalog", verb, &file, "--database-url", database_url]))
                .await
                .ok();
        }
    }
    let (first, pool) = (
        PgPool::connect(&first.url).await.unwrap(),
        PgPool::connect(&second.url).await.unwrap(),
    );
    let charts = read_charts(&first).await;
    assert!(!charts.is_empty());
    assert_eq!(read_charts(&pool).await, charts);
    let before = row_versions(&pool).await;
    sync(&url, &second.url).await;
    assert_eq!(row_versions(&pool).await, before);
}

//! `--keep-removed-versions`: installed versions stay manageable after their repository removed them.

use serde_json::{Value, json};
use sqlx::PgPool;

use super::{World, chart, readme};
use crate::support::archives::{self, Archive};
use crate::support::chart_server::Page;
use crate::support::portolan::command;
use crate::support::postgres::{self, TestDatabase};
use crate::support::world::succeeded;

/// A repository synced into Postgres by `portolan sync`, where the reader's statements work unchanged.
struct Fixture {
    world: World,
    database: TestDatabase,
    pool: PgPool,
}

impl Fixture {
    async fn new() -> Self {
        let database = postgres::database().await;
        Self {
            world: World::new().await,
            pool: PgPool::connect(&database.url).await.unwrap(),
            database,
        }
    }

    fn serve(&self, archives: &[&Archive]) {
        let entries = archives.iter().map(|archive| {
            let mut entry = archive.index_entry(&[&archive.file_name()]);
            entry["appVersion"] = "9".into();
            entry
        });
        let index = archives::index(entries);
        self.world.server.serve("/stable/index.yaml", Page::new(index));
        self.world.server.serve_archives("stable", archives.iter().copied());
    }

    async fn sync(&self, more: &[&str]) {
        let url = self.world.server.url("/stable");
        let mut sync = command(["sync", "stable", &url, "helm", "--namespace=kubeapps", super::ALL]);
        sync.args(["--database-url", &self.database.url]).args(more);
        succeeded(sync).await;
    }

    /// Finds an installed version by name and both versions, like the reader.
    async fn find_installed(&self, name: &str, version: &str) -> Option<Value> {
        sqlx::query_scalar(
            "SELECT info FROM charts WHERE (repo_namespace = $1 OR repo_namespace = $2) AND (info->>'name' = $3)
             AND (info->'chartVersions' @> $4::jsonb) ORDER BY (info->>'name') ASC",
        )
        .bind("team")
        .bind("kubeapps")
        .bind(name)
        .bind(json!([{ "version": version, "app_version": "9" }]).to_string())
        .fetch_optional(&self.pool)
        .await
        .unwrap()
    }

    /// Finds the README of an installed version, like the reader.
    async fn readme(&self, name: &str, version: &str) -> Option<String> {
        let info: Option<Value> =
            sqlx::query_scalar("SELECT info FROM files WHERE repo_namespace = $1 AND chart_files_id = $2")
                .bind("kubeapps")
                .bind(format!("stable/{name}-{version}"))
                .fetch_optional(&self.pool)
                .await
                .unwrap();
        info.map(|info| super::text(&info["Readme"]))
    }

    async fn versions(&self, name: &str) -> Vec<String> {
        let infos: Vec<Value> = sqlx::query_scalar("SELECT info FROM charts WHERE chart_id = $1")
            .bind(format!("stable/{name}"))
            .fetch_all(&self.pool)
            .await
            .unwrap();
        let versions = infos.iter().flat_map(|info| info["chartVersions"].as_array().unwrap());
        versions.map(|version| super::text(&version["version"])).collect()
    }
}

const KEEP: &str = "--keep-removed-versions=1h";

#[tokio::test]
async fn a_retained_version_is_found_with_its_files_until_it_expires() {
    let fixture = Fixture::new().await;
    let [newest, middle, oldest, other] = [("web", "3.0.0"), ("web", "2.0.0"), ("web", "1.0.0"), ("gone", "1.0.0")]
        .map(|(name, version)| chart(name, version));
    fixture.serve(&[&newest, &middle, &oldest, &other]);
    fixture.sync(&[KEEP]).await;
    fixture.serve(&[&newest, &oldest]);
    fixture.sync(&[KEEP]).await;
    // Sorted among the other versions, as a complete chart.
    assert_eq!(fixture.versions("web").await, ["3.0.0", "2.0.0", "1.0.0"]);
    for (name, version) in [("web", "2.0.0"), ("gone", "1.0.0")] {
        assert!(fixture.find_installed(name, version).await.is_some(), "{name}");
        assert_eq!(fixture.readme(name, version).await, Some(readme(name, version)));
    }
    // The index changes again; the retention counts from the removal.
    let newer = chart("web", "4.0.0");
    fixture.serve(&[&newer, &newest, &oldest]);
    fixture.sync(&[KEEP]).await;
    assert_eq!(fixture.versions("web").await, ["4.0.0", "3.0.0", "2.0.0", "1.0.0"]);
    assert_eq!(fixture.readme("web", "2.0.0").await, Some(readme("web", "2.0.0")));

    // The retention expires while the index is unchanged.
    let done = sqlx::query("UPDATE portolan_kept_versions SET expires = 1, missing_since = 0")
        .execute(&fixture.pool)
        .await;
    assert_eq!(done.unwrap().rows_affected(), 2);
    fixture.sync(&[KEEP]).await;
    assert_eq!(fixture.versions("web").await, ["4.0.0", "3.0.0", "1.0.0"]);
    assert!(fixture.find_installed("web", "2.0.0").await.is_none());
    assert!(fixture.find_installed("gone", "1.0.0").await.is_none());
    assert_eq!(fixture.readme("web", "2.0.0").await, None);
    assert_eq!(fixture.readme("gone", "1.0.0").await, None);
    assert_eq!(fixture.readme("web", "1.0.0").await, Some(readme("web", "1.0.0")));
}

#[tokio::test]
async fn without_the_flag_removed_versions_are_deleted() {
    let fixture = Fixture::new().await;
    let (newest, oldest) = (chart("web", "2.0.0"), chart("web", "1.0.0"));
    fixture.serve(&[&newest, &oldest]);
    fixture.sync(&[KEEP]).await;
    fixture.serve(&[&newest]);
    fixture.sync(&[KEEP]).await;
    fixture.serve(&[&newest, &oldest]);
    fixture.sync(&[KEEP]).await;
    let marks: i64 = sqlx::query_scalar("SELECT count(*) FROM portolan_kept_versions")
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
    assert_eq!(marks, 0);
    assert_eq!(fixture.world.archive_requests("stable", &oldest).len(), 1);
    fixture.serve(&[&newest]);
    fixture.sync(&[]).await;
    assert_eq!(fixture.versions("web").await, ["2.0.0"]);
    assert_eq!(fixture.readme("web", "1.0.0").await, None);
}

#[tokio::test]
async fn filtered_charts_are_not_retained() {
    let fixture = Fixture::new().await;
    let (web, other) = (chart("web", "1.0.0"), chart("other", "1.0.0"));
    fixture.serve(&[&web, &other]);
    fixture.sync(&[KEEP]).await;
    fixture
        .sync(&[KEEP, r#"--filter-rules={"jq": ".name == \"web\""}"#])
        .await;
    assert_eq!(fixture.versions("web").await, ["1.0.0"]);
    assert!(fixture.versions("other").await.is_empty());
    assert_eq!(fixture.readme("other", "1.0.0").await, None);
}

/// Missing files of a retained version can still be imported: archives often outlive their entries.
#[tokio::test]
async fn a_version_is_retained_before_its_files_are_imported() {
    let fixture = Fixture::new().await;
    let (newest, oldest) = (chart("web", "2.0.0"), chart("web", "1.0.0"));
    fixture.serve(&[&newest, &oldest]);
    fixture.sync(&[KEEP]).await;
    let done = sqlx::query("DELETE FROM files WHERE chart_files_id = 'stable/web-1.0.0'")
        .execute(&fixture.pool)
        .await;
    assert_eq!(done.unwrap().rows_affected(), 1);
    fixture.serve(&[&newest]);
    fixture.sync(&[KEEP]).await;
    assert_eq!(fixture.readme("web", "1.0.0").await, Some(readme("web", "1.0.0")));
}

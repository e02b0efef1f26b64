//! The rows of files, and those that a filter leaves, beside what Kubeapps' own syncer wrote for the same input.
//!
//! Both need the corpus and the goldens, which are no part of the project: without them there is nothing to compare with.

use std::fs;
use std::path::Path;

use serde_json::Value;
use sqlx::PgPool;

use super::{World, ran};
use crate::support::chart_server::Page;
use crate::support::portolan::command;
use crate::support::{corpus, postgres};

/// The folders of the corpus and of the goldens.
fn directories() -> Option<(&'static Path, &'static Path)> {
    let directories = corpus::corpus().zip(corpus::goldens());
    if directories.is_none() {
        println!("nothing to compare with: the corpus or the goldens are not there");
    }
    directories
}

/// The text of `info` in a line of a golden, where Postgres has printed it.
fn info_of(line: &str) -> &str {
    let (_, info) = line.split_once(r#""info" : "#).expect("a golden has it last");
    info.strip_suffix('}').expect("a golden is an object")
}

async fn sync(world: &World, name: &str, database_url: &str, more: &[&str]) {
    let url = world.server.url(&format!("/{name}"));
    let mut command = command(["sync", name, &url, "helm", "--namespace", "kubeapps"]);
    command.args(["--database-url", database_url]).args(more);
    ran(command).await.ok();
}

/// Kubeapps leaves a version without a row whose archive will not come; ours gets an empty one, since its reader fails without.
#[tokio::test]
async fn the_files_of_archives_are_byte_for_byte_those_that_kubeapps_wrote() {
    let Some((corpus, goldens)) = directories() else { return };
    let world = World::new().await;
    let index = fs::read(goldens.join("archives.index.yaml")).unwrap();
    world.server.serve("/archives/index.yaml", Page::new(index));
    for archive in fs::read_dir(corpus.join("charts")).unwrap() {
        let path = archive.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.ends_with(".tgz") {
            world
                .server
                .serve(&format!("/archives/{name}"), Page::new(fs::read(&path).unwrap()));
        }
    }
    let database = postgres::database().await;
    sync(&world, "archives", &database.url, &["--chart-files=all"]).await;

    let pool = PgPool::connect(&database.url).await.unwrap();
    let statement = "SELECT chart_files_id, chart_id, repo_name, repo_namespace, info::text FROM files ORDER BY chart_files_id COLLATE \"C\"";
    let mut stored: Vec<(String, String, String, String, String)> =
        sqlx::query_as(statement).fetch_all(&pool).await.unwrap();
    let page = stored
        .iter()
        .position(|row| row.0 == "archives/nexus-repository-manager-42.0.2");
    let page = stored.remove(page.expect("a page in the place of an archive has a row"));
    let empty: Value = serde_json::from_str(&page.4).unwrap();
    for part in ["Readme", "DefaultValues", "Schema", "Digest"] {
        assert_eq!(empty[part], "", "{part}");
    }

    let golden = fs::read_to_string(goldens.join("archives.files.jsonl")).unwrap();
    assert_eq!(stored.len(), golden.lines().count());
    for (line, (files_id, chart_id, name, namespace, info)) in golden.lines().zip(&stored) {
        let row: Value = serde_json::from_str(line).unwrap();
        let columns = ["chart_files_id", "chart_id", "repo_name", "repo_namespace"];
        assert_eq!(
            columns.map(|column| row[column].as_str().unwrap()),
            [files_id, chart_id, name, namespace]
        );
        let (ours, theirs) = (world.server.url(""), "http://127.0.0.1:8081");
        assert!(info.replace(&ours, theirs) == info_of(line), "{files_id} differs");
    }
}

/// A documented difference: what a filter takes out goes, where Kubeapps keeps what it has.
#[tokio::test]
async fn a_filter_leaves_the_rows_that_kubeapps_wrote_for_it_and_no_others() {
    let Some((corpus, goldens)) = directories() else { return };
    let world = World::new().await;
    let index = fs::read(corpus.join("grafana__helm-charts/index.yaml")).unwrap();
    world.server.serve("/grafana/index.yaml", Page::new(index));
    let database = postgres::database().await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let stored = async || -> Vec<(String, i64, String)> {
        let statement = "SELECT chart_id, CAST(id AS BIGINT), info::text FROM charts ORDER BY chart_id COLLATE \"C\"";
        sqlx::query_as(statement).fetch_all(&pool).await.unwrap()
    };
    sync(&world, "grafana", &database.url, &[]).await;
    let all = stored().await;
    for (second, rows) in [("tempo", 1), ("alloy", 2)] {
        let filter = format!(
            r#"--filter-rules={{"jq":".name == $var1 or .name == $var2","variables":{{"$var1":"loki","$var2":"{second}"}}}}"#
        );
        sync(&world, "grafana", &database.url, &[&filter]).await;
        let golden = goldens.join(format!("grafana-filter-loki-or-{second}.charts.jsonl"));
        let golden = fs::read_to_string(golden).unwrap();
        let stored = stored().await;
        assert_eq!((stored.len(), golden.lines().count()), (rows, rows));
        for (line, (chart_id, id, info)) in golden.lines().zip(stored) {
            let (ours, theirs) = (world.server.url(""), "http://127.0.0.1:8081");
            assert!(info.replace(&ours, theirs) == info_of(line), "{chart_id} differs");
            if second == "tempo" {
                assert!(
                    all.iter().any(|row| (&row.0, row.1) == (&chart_id, id)),
                    "{chart_id} was made anew"
                );
            }
        }
    }
    // And without one all of them are back, of the same index.
    sync(&world, "grafana", &database.url, &[]).await;
    let infos = |rows: Vec<(String, i64, String)>| rows.into_iter().map(|row| row.2).collect::<Vec<_>>();
    assert!(infos(stored().await) == infos(all));
}

//! The index: its content, its bytes and its validators.

use std::io::Read as _;

use flate2::read::GzDecoder;
use rstest::rstest;
use serde_json::json;

use super::{INDEX, PROXY, chart, declare, get, serve};
use crate::catalog::On;
use crate::serve::{SOON, Serving, database, fill, sync};
use crate::support::eventually::eventually;
use crate::support::world::World;

const CHARTS: [(&str, &[&str]); 2] = [("web", &["1.1.0", "1.0.0"]), ("redis", &["2.0.0"])];

#[rstest]
#[tokio::test]
async fn the_index_has_equal_bytes_on_all_replicas_and_after_a_restart(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    fill(&world, &url, "stable", &CHARTS).await;
    let (first, second) = (Serving::of(&world, &url).await, Serving::of(&world, &url).await);
    let index = get(&first, INDEX).await;
    assert_eq!((index.status, index.header("content-type")), (200, "application/json"));
    let content = index.json();
    let names: Vec<&String> = content["entries"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["redis", "web"]);
    assert_eq!(
        content["entries"]["web"][1]["urls"],
        json!(["archives/web/1.0.0/web-1.0.0.tgz"])
    );
    assert!(content["generated"].is_string(), "{content}");
    drop(first);
    for serving in [second, Serving::of(&world, &url).await] {
        let other = get(&serving, INDEX).await;
        assert_eq!(
            (other.body, other.headers["etag"].clone()),
            (index.body.clone(), index.headers["etag"].clone())
        );
    }
}

#[rstest]
#[tokio::test]
async fn an_index_that_the_client_has_is_not_sent_again_until_it_changes(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    fill(&world, &url, "stable", &CHARTS).await;
    let serving = Serving::of(&world, &url).await;
    let index = get(&serving, INDEX).await;
    assert!(index.header("etag").starts_with("W/\""), "{index:?}");
    let known = [("if-none-match", index.header("etag"))];
    sync(&world, &url).await;
    let again = serving.request(INDEX, &known).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    fill(&world, &url, "stable", &CHARTS[..1]).await;
    let changed = eventually(SOON, "the changed index", async || {
        let answer = serving.request(INDEX, &known).await;
        if answer.status == 200 {
            Ok(answer)
        } else {
            Err(answer.status.to_string())
        }
    })
    .await;
    assert_eq!(changed.json()["entries"].get("redis"), None);
}

#[tokio::test]
async fn the_index_is_compressed_for_clients_that_accept_it() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &CHARTS).await;
    let serving = Serving::of(&world, &url).await;
    let plain = get(&serving, INDEX).await;
    let packed = serving.request(INDEX, &[("accept-encoding", "gzip")]).await;
    assert_eq!(
        (plain.header("content-encoding"), packed.header("content-encoding")),
        ("", "gzip")
    );
    let mut unpacked = Vec::new();
    GzDecoder::new(packed.body.as_slice())
        .read_to_end(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, plain.body);
    let head = serving
        .client
        .head(format!("{}{INDEX}", serving.url))
        .send()
        .await
        .unwrap();
    assert_eq!(head.headers()["content-length"], plain.body.len().to_string());
    assert!(head.bytes().await.unwrap().is_empty());
}

#[rstest]
#[tokio::test]
async fn an_index_of_many_charts_has_each_once(#[values(On::Sqlite, On::Postgres)] on: On) {
    const NUMBER: usize = 600;
    const VERSIONS: &[&str] = &["1.0.0"];
    let world = World::new().await;
    let url = database(&world, on).await;
    let names: Vec<String> = (0..NUMBER).map(|number| format!("web-{number}")).collect();
    let charts: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), VERSIONS)).collect();
    fill(&world, &url, "stable", &charts).await;
    let serving = Serving::of(&world, &url).await;
    let index = get(&serving, INDEX).await;
    assert_eq!(index.json()["entries"].as_object().unwrap().len(), NUMBER);
    let text = String::from_utf8(index.body).unwrap();
    assert_eq!(text.matches("\"name\":\"web-").count(), NUMBER);
}

#[tokio::test]
async fn rendered_indexes_leave_no_file() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &CHARTS).await;
    let spool = world.directory.join("spool");
    std::fs::create_dir(&spool).unwrap();
    let serving = serve(&world, &url, &[PROXY, &format!("--spool-dir={}", spool.display())]).await;
    assert_eq!(get(&serving, INDEX).await.status, 200);
    assert_eq!(std::fs::read_dir(&spool).unwrap().count(), 0);
    let metrics = serving.portolan.metrics().await;
    assert!(metrics.sum("portolan_budget_used", &[("resource", "helm_indexes")]) > Some(0.0));
}

#[tokio::test]
async fn rows_that_only_kubeapps_has_written_have_an_index() {
    let world = World::new().await;
    let url = world.database_url();
    let archive = chart("harbour", "1.0.0");
    declare(&world, std::slice::from_ref(&archive), "");
    sync(&world, &url).await;
    world.execute("DELETE FROM portolan_repositories").await;
    let serving = Serving::of(&world, &url).await;
    let index = get(&serving, INDEX).await.json();
    assert_eq!(index["entries"]["harbour"][0]["digest"], archive.sha256());
    // It is not known whether the repository needs credentials.
    let refused = get(&serving, &super::archive_path(&archive)).await.problem(403);
    assert!(refused.contains("--archives=proxy"), "{refused}");
}

#[tokio::test]
async fn an_index_is_complete_or_missing() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[]).await;
    let serving = Serving::of(&world, &url).await;
    assert_eq!(get(&serving, INDEX).await.json()["entries"], json!({}));
    for path in [
        "/helm/default/other/index.yaml",
        "/helm/default/stable",
        "/helm/default/stable/index.yaml/x",
    ] {
        get(&serving, path).await.problem(404);
    }
}

//! The rules of Flux's source-controller: an index of at most 50 MiB, archives of at most 10 MiB, the first URL of a version
//! only, http or https only, and no conditional requests.

use serde_json::{Value, json};

use super::{INDEX, PROXY, archive_path, chart, declare, get, serve};
use crate::serve::{Serving, sync};
use crate::support::archives::{Archive, index};
use crate::support::chart_server::Page;
use crate::support::world::World;

const MAX_INDEX: usize = 50 << 20;
const MAX_ARCHIVE: usize = 10 << 20;

#[tokio::test]
async fn an_index_has_what_flux_needs() {
    let world = World::new().await;
    let url = world.database_url();
    let archives = [chart("harbour", "1.1.0"), chart("harbour", "1.0.0")];
    declare(&world, &archives, "");
    sync(&world, &url).await;
    let serving = serve(&world, &url, &[PROXY]).await;
    for _ in 0..2 {
        // Flux sends no validators and reads the whole index each time.
        let answer = get(&serving, INDEX).await;
        assert!(answer.status == 200 && answer.body.len() <= MAX_INDEX, "{answer:?}");
        for (entry, archive) in answer.json()["entries"]["harbour"]
            .as_array()
            .unwrap()
            .iter()
            .zip(&archives)
        {
            for field in ["apiVersion", "name", "version"] {
                assert!(entry[field].as_str().is_some_and(|text| !text.is_empty()), "{entry}");
            }
            let base = format!("{}/helm/default/stable/", serving.url)
                .parse::<reqwest::Url>()
                .unwrap();
            let first = base.join(entry["urls"][0].as_str().unwrap()).unwrap();
            assert!(matches!(first.scheme(), "http" | "https"), "{first}");
            let fetched = get(&serving, first.path()).await;
            assert!(fetched.body.len() <= MAX_ARCHIVE);
            assert_eq!(fetched.body, archive.bytes);
        }
    }
}

#[tokio::test]
async fn an_index_that_flux_refuses_is_refused_with_a_hint() {
    let world = World::new().await;
    let url = world.database_url();
    let mut entries: Vec<Value> = (0..1000)
        .map(|patch| json!({"name": "web", "version": format!("1.0.{patch}"), "urls": ["web.tgz"]}))
        .collect();
    // The rows have the description of the newest version, and the index repeats it.
    entries[999]["description"] = "x".repeat(60 << 10).into();
    world.server.serve("/stable/index.yaml", Page::new(index(entries)));
    world.declare("stable", &world.server.url("/stable"), "");
    sync(&world, &url).await;
    let serving = Serving::of(&world, &url).await;
    for _ in 0..2 {
        let detail = get(&serving, INDEX).await.problem(507);
        assert!(detail.contains("spec.filterRule"), "{detail}");
    }
}

#[tokio::test]
async fn an_archive_has_the_headers_that_flux_reads() {
    let world = World::new().await;
    let url = world.database_url();
    let archives: [Archive; 1] = [chart("harbour", "1.0.0")];
    declare(&world, &archives, "");
    sync(&world, &url).await;
    let serving = serve(&world, &url, &[PROXY]).await;
    let answer = get(&serving, &archive_path(&archives[0])).await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, "application/gzip")
    );
    assert_eq!(answer.header("content-length"), archives[0].bytes.len().to_string());
}

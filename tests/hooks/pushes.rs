//! From a push to the catalog: receivers and controllers together, on both engines.

use std::time::{Duration, Instant};

use futures::future::join_all;
use rstest::rstest;
use serde_json::json;

use super::{NEVER, Receiving, TOKEN, receiver};
use crate::catalog::On;
use crate::cluster::rows::Rows;
use crate::cluster::{World, index};
use crate::support::archives::{Archive, Chart};
use crate::support::postgres;
use crate::support::process::ScratchDir;
use crate::support::registry::{Registry, Setup};

/// Repositories that are pushed to at the same time.
const REPOSITORIES: usize = 20;

/// A database, and the directory of its file.
pub(super) struct Database {
    pub(super) url: String,
    pub(super) rows: Rows,
    _directory: ScratchDir,
}

impl Database {
    pub(super) async fn new(on: On) -> Self {
        let directory = ScratchDir::new("hooks");
        let url = match on {
            On::Sqlite => format!("sqlite://{}", directory.join("portolan.db").display()),
            On::Postgres => postgres::database().await.url,
        };
        Self {
            rows: Rows::of(&url).await,
            url,
            _directory: directory,
        }
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repositories_that_are_pushed_at_once_are_synced_at_once(#[values(On::Sqlite, On::Postgres)] on: On) {
    let (world, database) = (World::new().await, Database::new(on).await);
    let _portolan = world.portolan(&database.url, &[NEVER, "--min-interval=1s"]).await;
    let receiving = Receiving::start(&world).await;
    let mut names: Vec<String> = (0..REPOSITORIES).map(|number| format!("r{number:02}")).collect();
    names.sort();
    let mut paths = Vec::new();
    for name in &names {
        let url = world.serve(name, index(&[("web", &["1.0.0"])]));
        world.declare(name, &url).await;
        paths.push(receiver(&world, name, "generic", TOKEN).await);
        world.until_ready(name).await;
    }
    let fetched: Vec<usize> = names.iter().map(|name| requests(&world, name)).collect();
    for name in &names {
        world.serve(name, index(&[("web", &["1.1.0", "1.0.0"])]));
    }
    let pushed = Instant::now();
    let statuses = join_all(paths.iter().map(|path| receiving.post(path, &[], ""))).await;
    assert!(statuses.iter().all(|status| *status == 202), "{statuses:?}");
    let expected: Vec<String> = names.iter().map(|name| format!("{name}/web 1.1.0 1.0.0")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    database.rows.until_charts(&expected).await;
    // A bound for debug builds beside other tests; docs/performance.md has the figures.
    assert!(pushed.elapsed() < Duration::from_secs(20), "{:?}", pushed.elapsed());
    for (name, before) in names.iter().zip(fetched) {
        let path = format!("/{name}/index.yaml");
        let later = world.server.requests(&path).split_off(before);
        assert!(!later.is_empty() && later[0].is_conditional(), "{later:?}");
    }
}

fn requests(world: &World, name: &str) -> usize {
    world.server.requests(&format!("/{name}/index.yaml")).len()
}

fn chart(version: &str) -> Archive {
    Chart::new("web", version).pack()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_notifications_of_a_registry_bring_a_pushed_chart_into_the_catalog() {
    let (world, database) = (World::new().await, Database::new(On::Sqlite).await);
    let receiving = Receiving::start(&world).await;
    world.declare("ports", "oci://127.0.0.1:1/ports").await;
    let path = receiver(&world, "ports", "distribution", TOKEN).await;
    let setup = Setup::default().notify(&format!("{}{path}", receiving.url), TOKEN);
    let registry = Registry::start(setup).await;
    registry.helm_push(&chart("1.0.0"), "ports").await;
    let plain = format!("http://{}/ports", registry.host);
    let spec = json!({ "spec": { "type": "oci", "url": plain, "ociRepositories": ["web"] } });
    world.edit("ports", spec).await;
    let _portolan = world.portolan(&database.url, &[NEVER, "--min-interval=1s"]).await;
    database.rows.until_charts(&["ports/web 1.0.0"]).await;
    registry.helm_push(&chart("1.1.0"), "ports").await;
    database.rows.until_charts(&["ports/web 1.1.0 1.0.0"]).await;
}

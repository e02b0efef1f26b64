//! Registries with many tags.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::{NEVER, RecordedRegistry, chart};
use crate::cluster::rows::Postgres;
use crate::cluster::{SOON, World, condition, message};
use crate::support::archives::Chart;
use crate::support::chart_server::ChartServer;
use crate::support::eventually::eventually;
use crate::support::registry::{Registry, Setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_first_sync_resumes() {
    const TAGS: usize = 300;
    /// Maximum loss: pulls between two writes, and concurrent ones.
    const LOST: usize = 64 + 8;
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let fixture = RecordedRegistry::with_password().await;
    let versions = (0..TAGS).map(|number| Chart::new("harbour", &format!("1.{number}.0")).pack());
    fixture.registry.push_charts("ports/harbour", versions).await;
    let flags = [NEVER, "--host-requests-per-second=200", "--host-burst=50"];
    let mut portolan = world.portolan(postgres.url(), &flags).await;
    fixture.declare(&world, "port", &["harbour"]).await;
    eventually(SOON, "half of the tags to be pulled", async || {
        let pulled = fixture.pulled_since(0).len();
        if pulled >= TAGS / 2 {
            Ok(())
        } else {
            Err(pulled.to_string())
        }
    })
    .await;
    portolan.signal("KILL");
    portolan.exit(SOON).await;
    let before = fixture.pulled_since(0).len();
    assert!(before < TAGS, "it was killed too late");
    assert_eq!(
        postgres.rows.charts().await.unwrap(),
        Vec::<String>::new(),
        "an incomplete chart was written"
    );

    let _portolan = world.portolan(postgres.url(), &flags).await;
    world
        .until_within(Duration::from_secs(60), "port", "all tags", |object| {
            condition(object, "Ready") == Some(("True", "Synced"))
                && message(object) == format!("{TAGS} versions in 1 chart.")
        })
        .await;
    let pulled = fixture.pulled_since(0);
    assert_eq!(pulled.iter().collect::<BTreeSet<_>>().len(), TAGS);
    assert!(pulled.len() <= TAGS + LOST, "{} pulls of {TAGS} tags", pulled.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_registry_is_synced_in_parts_and_each_tag_is_pulled_once() {
    const TAGS: usize = 520;
    let (world, postgres) = (World::new().await, Postgres::new().await);
    // Public, without TLS.
    let registry = Registry::start(Setup::default().pages_of(100)).await;
    let front = ChartServer::in_front_of(registry.upstream()).await;
    let versions = (0..TAGS).map(|number| Chart::new("harbour", &format!("1.{number}.0")).pack());
    registry.push_charts("ports/harbour", versions).await;
    registry
        .push_chart("ports/pier", "0.1.0", &chart("pier", "0.1.0"))
        .await;
    let flags = [
        NEVER,
        "--chart-files=latest",
        "--host-requests-per-second=1000",
        "--host-burst=1000",
    ];
    let _portolan = world.portolan(postgres.url(), &flags).await;
    let spec = json!({ "type": "oci", "url": front.url("/ports"), "ociRepositories": ["harbour", "pier"] });
    world.declare_with("port", json!({ "spec": spec })).await;
    world
        .until_within(Duration::from_secs(90), "port", "all tags", |object| {
            condition(object, "Ready") == Some(("True", "Synced"))
                && message(object) == format!("{} versions in 2 charts.", TAGS + 1)
        })
        .await;
    world.until_files("port", 2).await;
    let seen = front.all_requests();
    let configs: Vec<&str> = seen
        .iter()
        .filter(|request| request.method == Method::GET)
        .filter_map(|request| request.path.strip_prefix("/v2/ports/"))
        .filter(|path| path.contains("/manifests/"))
        .collect();
    // Two more for the archives of the newest.
    assert_eq!(configs.len(), TAGS + 1 + 2);
    let first = configs.iter().position(|path| *path == "pier/manifests/0.1.0").unwrap();
    assert!(first < 20, "the only version of a chart was pull number {first}");
    let readme = &postgres.rows.files().await["port/pier-0.1.0"]["Readme"];
    assert_eq!(readme, "# pier 0.1.0\n");
}

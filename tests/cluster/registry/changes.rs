//! Changes in a registry: time until detection, and cost.

use serde_json::json;

use super::{NEVER, RecordedRegistry, chart, resynced};
use crate::cluster::rows::Postgres;
use crate::cluster::{SOON, World};
use crate::support::archives::Chart;
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;

/// Waits until the repository was synced this many more times.
async fn until_synced(portolan: &Portolan, more: f64) -> f64 {
    let before = syncs(portolan).await;
    eventually(SOON, "more syncs", async || {
        let seen = syncs(portolan).await - before;
        if seen >= more { Ok(seen) } else { Err(seen.to_string()) }
    })
    .await
}

async fn syncs(portolan: &Portolan) -> f64 {
    portolan
        .metrics()
        .await
        .sum("portolan_syncs_total", &[])
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_registry_costs_one_request_per_chart() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let fixture = RecordedRegistry::with_password().await;
    for version in ["1.0.0", "1.1.0", "1.2.0"] {
        fixture.push("harbour", &chart("harbour", version)).await;
    }
    fixture.push("pier", &chart("pier", "0.1.0")).await;
    let portolan = world
        .portolan(postgres.url(), &[NEVER, "--chart-files=all", "--min-interval=1s"])
        .await;
    fixture.declare(&world, "port", &["harbour", "pier"]).await;
    world.until_ready("port").await;
    world.until_files("port", 4).await;

    // A new tag: one manifest for the chart, and one for its archive.
    let before = fixture.requests();
    fixture.push("harbour", &chart("harbour", "1.3.0")).await;
    resynced(&world, "port", "one").await;
    postgres
        .rows
        .until_charts(&["port/harbour 1.3.0 1.2.0 1.1.0 1.0.0", "port/pier 0.1.0"])
        .await;
    world.until_files("port", 5).await;
    let pulled = fixture.pulled_since(before);
    assert!(pulled.iter().all(|tag| tag == "1.3.0"), "{pulled:?}");
    assert_eq!(pulled.len(), 2, "{pulled:?}");

    // A tag that is pushed again with other content.
    let again = Chart::new("harbour", "1.1.0").file("README.md", "# Again\n").pack();
    let digest = fixture.push("harbour", &again).await;
    let before = fixture.requests();
    resynced(&world, "port", "two").await;
    let infos = postgres.rows.infos().await.unwrap();
    assert_eq!(infos["port/harbour"]["chartVersions"][2]["digest"], digest.as_str());
    eventually(SOON, "the files of the republished version", async || {
        let files = postgres.rows.files().await;
        let found = &files["port/harbour-1.1.0"];
        let is_new = found["Readme"] == "# Again\n" && found["Digest"] == digest.as_str();
        if is_new { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    let pulled = fixture.pulled_since(before);
    assert!(pulled.iter().all(|tag| tag == "1.1.0"), "{pulled:?}");

    // A deleted tag is removed with its files.
    fixture.registry.delete_tag("ports/harbour", "1.0.0").await;
    resynced(&world, "port", "three").await;
    postgres
        .rows
        .until_charts(&["port/harbour 1.3.0 1.2.0 1.1.0", "port/pier 0.1.0"])
        .await;
    assert!(!postgres.rows.files().await.contains_key("port/harbour-1.0.0"));

    // From here on, nothing changes.
    world
        .edit("port", json!({ "spec": { "interval": "* * * * * *" } }))
        .await;
    world.until_ready("port").await;
    until_synced(&portolan, 1.0).await;
    let before = fixture.requests();
    let ticks = until_synced(&portolan, 4.0).await;
    let paths: Vec<String> = fixture.front.all_requests()[before..]
        .iter()
        .map(|request| request.path.clone())
        .collect();
    for chart in ["harbour", "pier"] {
        let path = format!("/v2/ports/{chart}/tags/list");
        let lists = paths.iter().filter(|seen| **seen == path).count() as f64;
        // The first and last sync may have sent their requests before or after the counting.
        assert!(
            (lists - ticks).abs() <= 1.0,
            "{lists} lists of {chart} in {ticks} syncs: {paths:?}"
        );
    }
    let others: Vec<&String> = paths.iter().filter(|path| !path.ends_with("/tags/list")).collect();
    assert!(others.iter().all(|path| *path == "/v2/"), "{others:?}");
    assert!(
        others.len() as f64 <= ticks + 1.0,
        "{} authentication requests in {ticks} syncs",
        others.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retagged_version_is_found_by_the_digest_check() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let fixture = RecordedRegistry::with_password().await;
    fixture.push("harbour", &chart("harbour", "1.0.0")).await;
    let flags = ["--crontab=* * * * * *", "--oci-check-digests=1s"];
    let _portolan = world.portolan(postgres.url(), &flags).await;
    fixture.declare(&world, "port", &["harbour"]).await;
    world.until_ready("port").await;
    let again = Chart::new("harbour", "1.0.0").field("description", "Another").pack();
    let digest = fixture.push("harbour", &again).await;
    eventually(SOON, "the republished version", async || {
        let infos = postgres.rows.infos().await.unwrap();
        let found = &infos["port/harbour"];
        let is_new = found["description"] == "Another" && found["chartVersions"][0]["digest"] == digest.as_str();
        if is_new { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

//! Repositories and Applications in one process do not block each other.

use std::time::{Duration, Instant};

use kube::Api;
use serde_json::json;

use super::{SOON, Site, shop};
use crate::cluster::{World, index};
use crate::support::chart_server::{ChartServer, Fault};
use crate::support::eventually::eventually;

/// Time limit for work that must not wait.
const PROMPT: Duration = Duration::from_secs(15);

/// Repositories in the namespace of the Applications.
async fn world(site: &Site<'_>) -> World {
    World {
        namespace: site.namespace.clone(),
        kubeconfig: site.control_plane.kubeconfig(),
        client: site.client.clone(),
        repositories: Api::namespaced(site.client.clone(), &site.namespace),
        server: ChartServer::start().await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_downloads_do_not_delay_applications() {
    let site = Site::new().await;
    let world = world(&site).await;
    let _portolan = site.portolan(&["--stall-timeout=120s", "--min-interval=1s"]).await;
    // More than the workers of either controller.
    for number in 0..30 {
        let name = format!("slow-{number}");
        let url = world.serve(&name, index(&[("web", &["1.0.0"])]));
        world
            .server
            .break_path(&format!("/{name}/index.yaml"), Fault::StallAfter(20));
        world.declare(&name, &url).await;
    }
    // A host has fewer requests at once, in any order.
    eventually(SOON, "a stalled download", async || {
        let requests = (0..30).map(|number| world.server.requests(&format!("/slow-{number}/index.yaml")).len());
        (requests.sum::<usize>() > 0).then_some(())
    })
    .await;
    let started = Instant::now();
    for number in 0..10 {
        let name = format!("shop-{number}");
        site.declare(&name, shop(&[("", "ConfigMap")], true)).await;
        site.until_components(&name, "0/0").await;
    }
    site.config_map("web", &json!({ "app": "shop" })).await;
    for number in 0..10 {
        site.until_components(&format!("shop-{number}"), "1/1").await;
    }
    assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_applications_do_not_delay_repositories() {
    let site = Site::new().await;
    let world = world(&site).await;
    site.config_maps(0..20).await;
    for number in 0..200 {
        site.declare(
            &format!("shop-{number}"),
            shop(&[("", "ConfigMap"), ("", "Secret")], number % 10 == 0),
        )
        .await;
    }
    let _portolan = site.portolan(&["--min-interval=1s"]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let started = Instant::now();
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
    for number in [0, 57, 199] {
        site.until_components(&format!("shop-{number}"), "20/20").await;
    }
    // Also while all of them are reconciled repeatedly.
    for round in 0..3 {
        site.config_map(&format!("more-{round}"), &json!({ "app": "shop" }))
            .await;
        world.serve("stable", index(&[("web", &[&format!("1.{round}.1")])]));
        let started = Instant::now();
        let fetched = world.server.requests("/stable/index.yaml").len();
        world.resync("stable", &format!("round-{round}")).await;
        world.until_fetched("stable", fetched + 1).await;
        world.until_ready("stable").await;
        assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
    }
    for number in [0, 57, 199] {
        site.until_components(&format!("shop-{number}"), "23/23").await;
    }
}

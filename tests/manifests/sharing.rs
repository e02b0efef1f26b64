//! Identical repositories share downloads; repositories with different settings do not.

use super::*;
use crate::support::portolan::Portolan;

const MANY: usize = 8;

/// Ticks every second.
const EVERY_SECOND: &str = "  interval: \"* * * * * *\"\n";

impl World {
    /// Number of index requests and finished syncs so far.
    async fn counts(&self, portolan: &Portolan) -> (usize, f64) {
        let syncs = portolan
            .metrics()
            .await
            .sum("portolan_syncs_total", &[])
            .unwrap_or_default();
        (self.server.count("/web/index.yaml"), syncs)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identical_repositories_share_one_download_per_tick() {
    let world = World::new().await;
    let url = world.serve_web("web", &["1.0.0"]);
    for number in 0..MANY {
        world.declare(&format!("same-{number}"), &url, EVERY_SECOND);
    }
    let portolan = world.run(&["--min-interval=1s"]).await;
    for number in 0..MANY {
        world.until_newest(&format!("same-{number}"), "1.0.0").await;
    }
    let (requests_before, syncs_before) = world.counts(&portolan).await;
    // All repositories get the new version.
    world.serve_web("web", &["1.1.0", "1.0.0"]);
    for number in 0..MANY {
        world.until_newest(&format!("same-{number}"), "1.1.0").await;
    }
    let (requests, syncs) = eventually(SOON, "some rounds", async || {
        let (requests, syncs) = world.counts(&portolan).await;
        let (requests, syncs) = (requests - requests_before, syncs - syncs_before);
        if syncs >= (6 * MANY) as f64 {
            Ok((requests, syncs))
        } else {
            Err(format!("{syncs} syncs"))
        }
    })
    .await;
    // A late repository may need a second request if a sync takes more than a second.
    assert!(requests as f64 <= syncs / 3.0, "{requests} requests for {syncs} syncs");
    // All repositories compute the same chart digests.
    let keys = world
        .texts("SELECT DISTINCT digest_key FROM portolan_index_cache")
        .await;
    assert_eq!(keys.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requested_sync_does_not_use_a_cached_response() {
    let world = World::new().await;
    let url = world.serve_web("web", &["1.0.0"]);
    world.declare("first", &url, "");
    world.declare("second", &url, "");
    let _portolan = world.run(&["--min-interval=1s"]).await;
    world.until_newest("first", "1.0.0").await;
    world.until_newest("second", "1.0.0").await;
    let before = world.server.count("/web/index.yaml");
    world.resync("first").await;
    eventually(SOON, "the resync", async || {
        (world.server.count("/web/index.yaml") > before).then_some(())
    })
    .await;
    world.serve_web("web", &["1.1.0"]);
    // The cached response is older than the request.
    world.resync("second").await;
    world.until_newest("second", "1.1.0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_is_shared_only_with_the_same_credentials() {
    let world = World::new().await;
    let url = world.serve_web("web", &["1.0.0"]);
    world.server.demand_basic("captain", "secret");
    for (name, password) in [("knows", "secret"), ("knows-too", "secret"), ("guesses", "guess")] {
        let with_password = url.replace("://", &format!("://captain:{password}@"));
        world.declare(name, &with_password, EVERY_SECOND);
    }
    world.declare("has-none", &url, EVERY_SECOND);
    let portolan = world.run(&["--min-interval=1s"]).await;
    world.until_newest("knows", "1.0.0").await;
    world.until_newest("knows-too", "1.0.0").await;
    for name in ["guesses", "has-none"] {
        let status = world
            .until_status(name, "the failure to be reported", |status| {
                status["ready"] == Value::Bool(false)
            })
            .await;
        assert!(status.to_string().contains("Unauthorized"), "{status}");
    }
    // The same while other repositories are synced.
    let (_, before) = world.counts(&portolan).await;
    eventually(SOON, "some rounds", async || {
        let (_, syncs) = world.counts(&portolan).await;
        (syncs >= before + 12.0).then_some(()).ok_or(syncs - before)
    })
    .await;
    for name in ["guesses", "has-none"] {
        let status = world.status(name).await.unwrap();
        assert_eq!(status["ready"], Value::Bool(false), "{status}");
        assert_eq!(status["charts"], 0, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloads_and_decoding_do_not_wait_for_sqlite_writers() {
    /// Number of concurrent syncs.
    const WORKERS: usize = 4;
    let world = World::new().await;
    let _portolan = world.run(&[]).await;
    let pool = world.pool().await;
    let mut writer = pool.acquire().await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *writer).await.unwrap();
    let names: Vec<String> = (0..WORKERS).map(|number| format!("repository-{number}")).collect();
    for name in &names {
        world.declare(name, &world.serve_web(name, &["1.0.0"]), "");
    }
    eventually(SOON, "all to be downloaded", async || {
        let missing: Vec<&String> = names
            .iter()
            .filter(|name| world.server.count(&format!("/{name}/index.yaml")) == 0)
            .collect();
        missing.is_empty().then_some(()).ok_or(format!("{missing:?}"))
    })
    .await;
    sqlx::query("ROLLBACK").execute(&mut *writer).await.unwrap();
    for name in &names {
        world.until_newest(name, "1.0.0").await;
    }
}

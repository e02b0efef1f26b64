//! Without changes, no cluster gets a request.

use std::time::Duration;

use super::fleet::{Fleet, PATIENT, assert_kept, placed};
use crate::oam_apps::CONFIG_MAP;
use crate::oam_apps::apps::{config, web};
use crate::oam_apps::stories_rest::{requests, until_quiet};
use crate::support::eventually::SOON;

/// Time without any request, which includes two re-syncs.
const WINDOW: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_rest_no_request_goes_to_any_cluster() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let (near, kubeconfig) = site.proxy().await;
    let west = fleet.west().await;
    let far = [
        fleet.join_proxy("east", east).await,
        fleet.join_proxy("west", &west).await,
    ];
    let flags = fleet.flags(&["--application-re-sync-period=5s"]);
    let portolan = site.start(&kubeconfig, &flags);
    portolan.ready(SOON).await;
    site.declare(
        "shop",
        placed(&[web("front", 1), config("settings", "one")], &["local", "east"]),
    )
    .await;
    site.declare("mall", placed(&[config("other", "one")], &["local", "west"]))
        .await;
    for app in ["shop", "mall"] {
        site.until_running(app).await;
    }
    let proxies = [&near, &far[0], &far[1]];
    for proxy in proxies {
        until_quiet(proxy).await;
    }
    let before = proxies.map(|proxy| requests(proxy).len());
    // The test asserts that nothing happens, so there is no condition to wait for.
    tokio::time::sleep(WINDOW).await;
    for (proxy, before) in proxies.into_iter().zip(before) {
        let after = requests(proxy);
        assert!(after.len() == before, "{}: {:#?}", proxy.url(), &after[before..]);
        assert!(before > 0, "{} was used", proxy.url());
    }

    // It still sees changes.
    assert_kept(east, "settings", "one").await;
    assert_kept(&west, "other", "one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_no_application_uses_gets_no_request() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let west = fleet.west().await;
    let used = fleet.join_proxy("east", east).await;
    let unused = fleet.join_proxy("west", &west).await;
    let _portolan = fleet.portolan(&[]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    site.until_running("shop").await;
    assert_kept(east, "settings", "one").await;
    assert!(!used.requests().is_empty());
    let requests = unused.requests();
    assert!(requests.is_empty(), "{requests:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_joined_clusters_their_secrets_get_no_request() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &fleet.flags(&[PATIENT, "--joined-clusters=false"]));
    portolan.ready(SOON).await;
    site.declare("near", placed(&[config("near", "one")], &["local"])).await;
    site.declare("far", placed(&[config("far", "one")], &["east"])).await;
    site.until_running("near").await;
    site.until_said("far", "joined clusters are disabled; see --joined-clusters")
        .await;
    assert_eq!(east.get(CONFIG_MAP, "far").await, None);
    let secrets = format!("/api/v1/namespaces/{}/secrets", fleet.definitions);
    let mut requests = proxy.requests();
    requests.retain(|request| request.path.starts_with(&secrets));
    assert!(requests.is_empty(), "{requests:#?}");
}

//! A cluster that is dead or slow harms only the Applications that use it.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tokio::net::TcpListener;

use super::fleet::{Fleet, PATIENT, TOKEN, assert_kept, credential, has, placed};
use crate::oam_apps::CONFIG_MAP;
use crate::oam_apps::apps::{config, spec};
use crate::oam_apps::site::Site;
use crate::oam_apps::workflows::outcome;
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::Portolan;

/// Applications that use the bad cluster, more than there are workers.
const BAD: usize = 10;
/// Number of clusters that never answer, each of which takes five seconds.
const SILENT: usize = 20;
/// Attempts to connect become rare while a cluster is bad.
pub const RECOVERY: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug)]
enum Failure {
    /// Refuses connections.
    Dead,
    /// Accepts connections, and never answers.
    Silent,
}

impl Failure {
    async fn begin(self, proxy: &FaultProxy) {
        match self {
            Self::Dead => proxy.gate.close().await,
            Self::Silent => proxy.gate.stall(),
        }
    }

    async fn end(self, proxy: &FaultProxy) {
        match self {
            Self::Dead => proxy.gate.open().await,
            Self::Silent => {
                proxy.gate.resume();
                // Those that it has accepted stay silent.
                proxy.gate.disconnect();
            }
        }
    }
}

/// Declares Applications in the cluster `rogue`, and returns their names.
pub async fn declare_bad(site: &Site) -> Vec<String> {
    let names: Vec<_> = (0..BAD).map(|number| format!("bad-{number}")).collect();
    for name in &names {
        site.declare(name, placed(&[config(name, "one")], &["rogue"])).await;
    }
    names
}

/// Deploys a local Application and one in a live cluster, and has them kept, beside those in a bad one.
pub async fn assert_others_served(fleet: &Fleet, round: &str) {
    let (site, east) = (&fleet.site, &fleet.east);
    let [near, far] = ["near", "far"].map(|place| format!("{place}-{round}"));
    site.declare(&near, spec(&[config(&near, "one")])).await;
    site.declare(&far, placed(&[config(&far, "one")], &["east"])).await;
    for app in [&near, &far] {
        site.until_running(app).await;
    }
    assert_kept(site, &near, "one").await;
    assert_kept(east, &far, "one").await;
}

/// Waits until the metrics count this number of clusters that can't be reached.
async fn until_unreachable(portolan: &Portolan, count: f64) {
    eventually(SOON, "the metric of clusters", async || {
        let labels = [("state", "unreachable")];
        match portolan.metrics().await.sum("portolan_joined_clusters", &labels) {
            Some(found) if found == count => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await;
}

#[rstest]
#[case::dead(Failure::Dead)]
#[case::silent(Failure::Silent)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_fails_from_the_start_delays_no_other_and_its_applications_run_once_it_is_well(
    #[case] failure: Failure,
) {
    let fleet = Fleet::new().await;
    let (site, west) = (&fleet.site, fleet.west().await);
    let proxy = fleet.join_proxy("rogue", &west).await;
    failure.begin(&proxy).await;
    let portolan = fleet.portolan(&[PATIENT]).await.with_probes();
    let bad = declare_bad(site).await;
    assert_others_served(&fleet, "first").await;
    for name in &bad {
        site.until_said(name, "rogue").await;
        assert_eq!(west.get(CONFIG_MAP, name).await, None);
    }
    until_unreachable(&portolan, 1.0).await;
    assert_others_served(&fleet, "second").await;

    failure.end(&proxy).await;
    fleet.until_all_running(&bad, RECOVERY).await;
    assert_kept(&west, &bad[0], "one").await;
    until_unreachable(&portolan, 0.0).await;
}

#[rstest]
#[case::dead(Failure::Dead)]
#[case::silent(Failure::Silent)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_fails_later_delays_no_other_and_gets_its_drift_undone_once_it_is_well(
    #[case] failure: Failure,
) {
    let fleet = Fleet::new().await;
    let (site, west) = (&fleet.site, fleet.west().await);
    let proxy = fleet.join_proxy("rogue", &west).await;
    let _portolan = fleet.portolan(&[PATIENT]).await.with_probes();
    let bad = declare_bad(site).await;
    for name in &bad {
        site.until_running(name).await;
    }
    failure.begin(&proxy).await;
    let drift = json!({ "data": { "key": "drift" } });
    west.edit(CONFIG_MAP, &bad[0], drift).await;
    west.delete(CONFIG_MAP, &bad[1]).await;
    site.declare(&bad[2], placed(&[config(&bad[2], "two")], &["rogue"]))
        .await;
    site.until_said(&bad[2], "rogue").await;
    assert_others_served(&fleet, "first").await;

    failure.end(&proxy).await;
    for (name, value) in [(&bad[0], "one"), (&bad[1], "one"), (&bad[2], "two")] {
        eventually(RECOVERY, &format!("{name} to be as declared"), async || {
            match west.get(CONFIG_MAP, name).await {
                Some(object) if has(value)(&object) => Ok(()),
                object => Err(format!("{object:?}")),
            }
        })
        .await;
    }
    fleet.until_all_running(&bad, RECOVERY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_in_a_dead_and_a_live_cluster_is_deployed_and_kept_in_the_live_one() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let west = fleet.west().await;
    let proxy = fleet.join_proxy("rogue", &west).await;
    proxy.gate.close().await;
    let _portolan = fleet.portolan(&[PATIENT]).await;
    let deploy = json!({ "policies": ["everywhere"] });
    let topology = json!({ "clusters": ["rogue", "east"] });
    let spec = json!({
        "components": [config("settings", "one")],
        "policies": [{ "name": "everywhere", "type": "topology", "properties": topology }],
        "workflow": { "steps": [{ "name": "deploy", "type": "deploy", "properties": deploy }] },
    });
    site.declare("shop", spec).await;
    east.until(CONFIG_MAP, "settings", "created", has("one")).await;
    let app = site.until_said("shop", "rogue").await;
    assert!(outcome(&app, "deploy")[2].contains("rogue"), "{:#}", app["status"]);
    assert_ne!(app["status"]["status"], "running");

    proxy.gate.open().await;
    fleet.until_all_running(&["shop".to_owned()], RECOVERY).await;
    for cluster in [east, &west] {
        assert_kept(cluster, "settings", "one").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_clusters_are_waited_for_at_the_same_time() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    // Connections stay in its queue.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://{}", silent.local_addr().unwrap());
    let names: Vec<_> = (0..SILENT).map(|number| format!("silent-{number}")).collect();
    for name in &names {
        fleet
            .join_with(name, TOKEN, json!({}), credential(east, &endpoint))
            .await;
    }
    let _portolan = fleet.portolan(&[PATIENT]).await.with_probes();
    let mut clusters: Vec<_> = names.iter().map(String::as_str).collect();
    clusters.push("east");
    site.declare("shop", placed(&[config("settings", "one")], &clusters))
        .await;
    // In sequence, the attempts would take a hundred seconds.
    east.until(CONFIG_MAP, "settings", "created", has("one")).await;
    site.until_said("shop", "silent-").await;
    assert_others_served(&fleet, "first").await;
}

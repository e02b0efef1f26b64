//! A cluster that attacks: its answers are limited in size and time, and its redirects are not followed.

use axum::http::Method;
use rstest::rstest;
use serde_json::json;

use super::fleet::{CERTIFICATE, Fleet, PATIENT, TOKEN, assert_kept, credential, placed};
use super::isolation::{RECOVERY, assert_others_served, declare_bad};
use crate::oam_apps::apps::config;
use crate::support::chart_server::ChartServer;
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiFault, ApiRequest};
use crate::support::portolan::peak_memory;

/// Size of an answer in MiB, and the memory of a process that keeps none of them.
const HUGE: usize = 100;
const MEMORY: u64 = 400;

fn is_read(request: &ApiRequest) -> bool {
    request.method == Method::GET && !request.is_watch()
}

fn is_of_config_maps(request: &ApiRequest) -> bool {
    is_read(request) && request.path.contains("/configmaps")
}

fn is_of_version(request: &ApiRequest) -> bool {
    request.path == "/version"
}

fn is_after_connecting(request: &ApiRequest) -> bool {
    !is_of_version(request)
}

fn is_any(_: &ApiRequest) -> bool {
    true
}

#[rstest]
#[case::large_version(ApiFault::Huge(HUGE), is_of_version)]
#[case::large_reads(ApiFault::Huge(HUGE), is_of_config_maps)]
#[case::large_answers(ApiFault::Huge(HUGE), is_after_connecting)]
#[case::throttled(ApiFault::Throttled, is_any)]
#[case::throttled_reads(ApiFault::Throttled, is_of_config_maps)]
#[case::silent_reads(ApiFault::Stalled, is_of_config_maps)]
#[case::failing(ApiFault::Status(500), is_after_connecting)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_cluster_is_named_and_delays_no_other(
    #[case] fault: ApiFault,
    #[case] chooser: fn(&ApiRequest) -> bool,
) {
    let fleet = Fleet::new().await;
    let (site, west) = (&fleet.site, fleet.west().await);
    let proxy = fleet.join_proxy("rogue", &west).await;
    proxy.inject(usize::MAX, fault, chooser);
    let portolan = fleet.portolan(&[PATIENT]).await.with_probes();
    let bad = declare_bad(site).await;
    assert_others_served(&fleet, "first").await;
    for name in &bad {
        site.until_said(name, "rogue").await;
    }
    assert_others_served(&fleet, "second").await;
    let memory = peak_memory(&portolan);
    assert!(memory < MEMORY, "{memory} MiB");

    proxy.clear_faults();
    fleet.until_all_running(&bad, RECOVERY).await;
    assert_kept(&west, &bad[0], "one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_event_of_a_watch_is_given_up() {
    let fleet = Fleet::new().await;
    let (site, west) = (&fleet.site, fleet.west().await);
    let proxy = fleet.join_proxy("rogue", &west).await;
    proxy.inject(usize::MAX, ApiFault::Endless, ApiRequest::is_watch);
    let portolan = fleet.portolan(&[PATIENT]).await.with_probes();
    let bad = declare_bad(site).await;
    assert_others_served(&fleet, "first").await;
    eventually(SOON, "a second watch", async || {
        let requests = proxy.requests();
        let watches = requests.iter().filter(|request| request.is_watch());
        // The first of each kind is still open if nothing limits it.
        let of_config_maps = watches.filter(|request| request.is_of("configmaps")).count();
        if of_config_maps > 1 {
            Ok(())
        } else {
            Err(of_config_maps)
        }
    })
    .await;
    let memory = peak_memory(&portolan);
    assert!(memory < MEMORY, "{memory} MiB");

    proxy.clear_faults();
    proxy.gate.disconnect();
    fleet.until_all_running(&bad, RECOVERY).await;
    assert_kept(&west, &bad[0], "one").await;
}

#[rstest]
#[case::from_the_start(is_any)]
#[case::later(is_after_connecting)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_not_followed_and_the_token_reaches_no_other_host(#[case] chooser: fn(&ApiRequest) -> bool) {
    let fleet = Fleet::new().await;
    let (site, west) = (&fleet.site, fleet.west().await);
    let thief = ChartServer::start().await;
    let proxy = fleet.join_proxy("rogue", &west).await;
    proxy.inject(usize::MAX, ApiFault::Redirect(thief.url("/stolen")), chooser);
    let _portolan = fleet.portolan(&[PATIENT]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["rogue"]))
        .await;
    site.until_said("shop", "rogue").await;
    assert_others_served(&fleet, "first").await;
    assert!(!proxy.requests().is_empty());
    assert_eq!(thief.request_count(), 0);

    proxy.clear_faults();
    fleet.until_all_running(&["shop".to_owned()], RECOVERY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_over_the_address_of_a_cluster_gets_no_token() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    // Its certificate is of another authority.
    let thief = ChartServer::start_tls().await;
    let west = fleet.west().await;
    let certificate = west.control_plane.admin_pem(2090);
    let mut x509 = credential(east, &thief.url(""));
    x509["tls.crt"] = certificate.0.into();
    x509["tls.key"] = certificate.1.into();
    for (name, type_, data) in [
        ("token", TOKEN, credential(east, &thief.url(""))),
        ("certificate", CERTIFICATE, x509),
    ] {
        fleet.join_with(name, type_, json!({}), data).await;
    }
    let _portolan = fleet.portolan(&[PATIENT]).await;
    for name in ["token", "certificate"] {
        site.declare(name, placed(&[config(name, "one")], &[name])).await;
    }
    for name in ["token", "certificate"] {
        site.until_said(name, "is not trusted").await;
    }
    assert_eq!(thief.request_count(), 0);
}

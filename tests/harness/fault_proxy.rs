use axum::http::Method;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use super::control_plane::config_map;
use crate::support::control_plane::control_plane;
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiFault, FaultProxy};

/// Returns a proxy and a client without retries for config maps in a new namespace.
async fn through_proxy() -> (FaultProxy, Api<ConfigMap>) {
    let control_plane = control_plane().await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    let namespace = control_plane.namespace().await;
    let account = "system:masters-in-tests";
    let token = control_plane.token_for(&namespace, "porter").await;
    let subject = format!("--serviceaccount={namespace}:porter");
    let arguments = [
        "-n",
        &namespace,
        "create",
        "rolebinding",
        account,
        "--clusterrole=admin",
        &subject,
    ];
    control_plane.kubectl(&arguments).await;

    let kubeconfig = Kubeconfig::read_from(control_plane.kubeconfig_for(&proxy.url(), &token)).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    let maps: Api<ConfigMap> = Api::namespaced(Client::try_from(config).unwrap(), &namespace);
    eventually(SOON, "the permissions to be effective", async || {
        maps.list(&ListParams::default()).await
    })
    .await;
    (proxy, maps)
}

#[tokio::test]
async fn requests_without_faults_are_forwarded_and_counted() {
    let (proxy, maps) = through_proxy().await;
    maps.create(&PostParams::default(), &config_map("one")).await.unwrap();
    let posts = proxy
        .requests()
        .iter()
        .filter(|request| request.method == Method::POST)
        .count();
    assert_eq!(posts, 1);
}

#[tokio::test]
async fn selected_requests_get_the_requested_status() {
    let (proxy, maps) = through_proxy().await;
    for code in [403, 409, 410, 429, 500, 503] {
        proxy.inject(1, ApiFault::Status(code), |request| request.method == Method::POST);
        let error = maps
            .create(&PostParams::default(), &config_map("never"))
            .await
            .unwrap_err();
        assert!(matches!(error, kube::Error::Api(status) if status.code == code));
    }
    assert!(maps.get_opt("never").await.unwrap().is_none());
    proxy.inject(1, ApiFault::Refused, |request| request.method == Method::POST);
    proxy.clear_faults();
    maps.create(&PostParams::default(), &config_map("now")).await.unwrap();
}

#[tokio::test]
async fn a_response_can_be_dropped_before_or_after_the_request_is_processed() {
    let (proxy, maps) = through_proxy().await;
    proxy.inject(1, ApiFault::Refused, |request| request.method == Method::POST);
    assert!(
        maps.create(&PostParams::default(), &config_map("before"))
            .await
            .is_err()
    );
    proxy.inject(1, ApiFault::ResponseLost, |request| request.method == Method::POST);
    assert!(maps.create(&PostParams::default(), &config_map("after")).await.is_err());
    assert!(maps.get_opt("before").await.unwrap().is_none());
    assert!(maps.get_opt("after").await.unwrap().is_some());
}

#[tokio::test]
async fn a_watch_is_forwarded_expires_and_is_disconnected() {
    let (proxy, maps) = through_proxy().await;
    maps.create(&PostParams::default(), &config_map("one")).await.unwrap();
    let mut watch = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let mut names = Vec::new();
    while names.last().is_none_or(|name| name != "one") {
        if let WatchEvent::Added(map) = watch.try_next().await.unwrap().expect("the watch continues") {
            names.push(map.metadata.name.unwrap());
        }
    }
    proxy.gate.disconnect();
    while let Ok(Some(_)) = watch.try_next().await {}

    proxy.inject(1, ApiFault::WatchExpired, |request| request.is_watch());
    let mut watch = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let expired = watch.try_next().await.unwrap().expect("an event");
    assert!(matches!(expired, WatchEvent::Error(status) if status.code == 410));
}

#[tokio::test]
async fn a_closed_gate_blocks_requests_until_it_opens() {
    let (proxy, maps) = through_proxy().await;
    proxy.gate.close().await;
    assert!(maps.list(&ListParams::default()).await.is_err());
    proxy.gate.open().await;
    maps.list(&ListParams::default()).await.unwrap();
}

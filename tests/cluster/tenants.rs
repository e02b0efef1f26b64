//! Addresses and proxies that tenants of a cluster may not use, and access to metrics.

use axum::http::StatusCode;
use serde_json::json;

use super::rows::Postgres;
use super::{NEVER, SOON, World, index, message};
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;
use crate::support::ports::free_port;
use crate::support::proxy::Proxy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxy_of_a_tenant_is_ignored_and_an_event_names_the_flag() {
    let (world, postgres, proxy) = (World::new().await, Postgres::new().await, Proxy::start().await);
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let host = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    proxy.add_host(&host, world.server.host());
    let environment =
        json!([{ "name": "http_proxy", "value": proxy.url() }, { "name": "https_proxy", "value": proxy.url() }]);
    let template = json!({ "spec": { "containers": [{ "env": environment }] } });
    let spec = json!({ "type": "helm", "url": url, "syncJobPodTemplate": template });
    let portolan = world.portolan(postgres.url(), &[NEVER]).await;
    world.declare_with("stable", json!({ "spec": spec })).await;
    world.until_ready("stable").await;
    let note = world.event("stable", "ProxiesIgnored").await;
    assert!(note.contains("--allow-tenant-proxies"), "{note}");
    drop(portolan);

    // A proxy that does not know the host would fail the sync: the global namespace may choose it.
    let unknown = json!({ "type": "helm", "url": "http://charts.example.com/stable", "syncJobPodTemplate": template });
    proxy.add_host("charts.example.com:80", world.server.host());
    let global = format!("--global-repos-namespace={}", world.namespace);
    let _portolan = world.portolan(postgres.url(), &[NEVER, &global]).await;
    world.declare_with("global", json!({ "spec": unknown })).await;
    world.until_ready("global").await;
    assert!(
        proxy
            .requests()
            .iter()
            .all(|request| request.target.contains("charts.example.com"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loopback_and_the_api_server_are_refused_in_a_cluster() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let api_server = control_plane().await.url();
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    let spec = json!({ "type": "helm", "url": api_server, "tlsInsecureSkipVerify": true });
    world.declare_with("api", json!({ "spec": spec })).await;

    let mut command = world.command(&world.kubeconfig, postgres.url(), &[NEVER]);
    command.env_remove("PORTOLAN_ALLOW_LOOPBACK");
    let portolan = Portolan::start(command);
    for name in ["stable", "api"] {
        let object = world.until_ready_is(name, "False", "AddressRefused").await;
        assert!(message(&object).contains("--allow-loopback"), "{}", message(&object));
    }
    assert!(world.server.requests("/stable/index.yaml").is_empty());
    drop(portolan);

    // Even if loopback is allowed, the API server is not.
    let _portolan = world.portolan(postgres.url(), &[NEVER]).await;
    world.resync("stable", "one").await;
    world.resync("api", "one").await;
    world.until_ready("stable").await;
    world
        .until("api", "the API server to be refused", |object| {
            message(object).contains("it is the API server")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_require_a_token_that_the_api_server_authorizes() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let control_plane = control_plane().await;
    let address = format!("127.0.0.1:{}", free_port());
    let bind = format!("--metrics-bind-address={address}");
    let portolan = world.portolan(postgres.url(), &[NEVER, "--metrics-auth", &bind]).await;
    assert_eq!(portolan.get("/metrics").await.unwrap().0, 404);

    let (reader, stranger) = (format!("{}-reader", world.namespace), "stranger");
    let tokens = [
        control_plane.token_for(&world.namespace, &reader).await,
        control_plane.token_for(&world.namespace, stranger).await,
    ];
    control_plane
        .kubectl(&[
            "create",
            "clusterrole",
            &reader,
            "--verb=get",
            "--non-resource-url=/metrics",
        ])
        .await;
    let account = format!("--serviceaccount={}:{reader}", world.namespace);
    let role = format!("--clusterrole={reader}");
    control_plane
        .kubectl(&["create", "clusterrolebinding", &reader, &role, &account])
        .await;

    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .build()
        .unwrap();
    let status = async |token: Option<&str>| {
        let request = client.get(format!("http://{address}/metrics"));
        let request = token
            .into_iter()
            .fold(request, |request, token| request.bearer_auth(token));
        request.send().await.unwrap().status()
    };
    // The authorizer of the API server may not have seen the role yet.
    eventually(SOON, "the reader to be authorized", async || {
        match status(Some(&tokens[0])).await {
            StatusCode::OK => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await;
    assert_eq!(status(Some(&tokens[1])).await, StatusCode::FORBIDDEN);
    assert_eq!(status(Some("forged")).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(None).await, StatusCode::UNAUTHORIZED);
}

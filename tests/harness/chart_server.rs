use std::time::Duration;

use axum::http::{Method, StatusCode, header};
use reqwest::Client;

use crate::support::archives::{Chart, sha256};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::helm;
use crate::support::process::ScratchDir;
use crate::support::registry::{Registry, Setup};
use crate::support::tls::Authority;

const INDEX: &str = "/stable/index.yaml";

fn client() -> Client {
    portolan::http::install_crypto_provider();
    Client::builder().no_proxy().build().unwrap()
}

async fn server_with_index() -> ChartServer {
    let server = ChartServer::start().await;
    server.serve(INDEX, Page::new("apiVersion: v1\nentries: {}\n"));
    server
}

#[tokio::test]
async fn a_matching_etag_returns_304_until_the_page_changes() {
    let server = server_with_index().await;
    let first = client().get(server.url(INDEX)).send().await.unwrap();
    assert_eq!(first.status(), StatusCode::OK);
    let tag = first.headers()[header::ETAG].clone();

    let conditional_request = || {
        client()
            .get(server.url(INDEX))
            .header(header::IF_NONE_MATCH, &tag)
            .send()
    };
    assert_eq!(conditional_request().await.unwrap().status(), StatusCode::NOT_MODIFIED);
    server.serve(INDEX, Page::new("apiVersion: v1\nentries: {a: []}\n"));
    assert_eq!(conditional_request().await.unwrap().status(), StatusCode::OK);

    let conditional: Vec<bool> = server
        .requests(INDEX)
        .iter()
        .map(|request| request.is_conditional())
        .collect();
    assert_eq!(conditional, [false, true, true]);
    assert_eq!(server.requests(INDEX)[1].status, Some(StatusCode::NOT_MODIFIED));
}

#[tokio::test]
async fn a_date_is_compared_if_there_is_no_etag() {
    let server = server_with_index().await;
    let date = "Wed, 21 Oct 2015 07:28:00 GMT";
    server.serve(
        INDEX,
        Page::new("x")
            .without_etag()
            .last_modified(date)
            .content_type("text/plain"),
    );
    let answer = client()
        .get(server.url(INDEX))
        .header(header::IF_MODIFIED_SINCE, date)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_MODIFIED);
    let answer = client()
        .get(server.url(INDEX))
        .header(header::IF_NONE_MATCH, "\"x\"")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/plain");
    server.serve(INDEX, Page::new("x").etag("W/\"weak\""));
    let answer = client()
        .get(server.url(INDEX))
        .header(header::IF_NONE_MATCH, "W/\"weak\"")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn compressed_pages_are_complete() {
    let server = server_with_index().await;
    let text = "apiVersion: v1\n".repeat(1000);
    server.serve(INDEX, Page::new(text.clone()).gzip());
    let answer = client().get(server.url(INDEX)).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), text);

    // A client that decompresses the body removes the header.
    let raw = Client::builder().no_proxy().no_gzip().build().unwrap();
    let answer = raw
        .get(server.url(INDEX))
        .header(header::ACCEPT_ENCODING, "gzip")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()[header::CONTENT_ENCODING], "gzip");
    assert!(answer.bytes().await.unwrap().len() < 1000);
}

#[tokio::test]
async fn faults_apply_to_the_requested_number_of_requests() {
    let server = server_with_index().await;
    server.break_times(INDEX, Fault::retry_after(503, "7"), 2);
    server.break_times(INDEX, Fault::NoResponse, 1);
    let get = || client().get(server.url(INDEX)).send();
    for _ in 0..2 {
        let answer = get().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()[header::RETRY_AFTER]),
            (503, &"7".parse().unwrap())
        );
    }
    // The client retries once if a reused connection is closed; the fault counts all the same.
    let _ = get().await;
    assert_eq!(server.requests(INDEX)[2].status, None);
    assert_eq!(get().await.unwrap().status(), 200);

    server.break_path(INDEX, Fault::status(404));
    assert_eq!(get().await.unwrap().status(), 404);
    server.clear_faults(INDEX);
    assert_eq!(get().await.unwrap().status(), 200);
}

#[tokio::test]
async fn bodies_are_truncated_stalled_and_slowed_down() {
    let server = server_with_index().await;
    server.break_times(INDEX, Fault::TruncateAfter(5), 1);
    let cut = client().get(server.url(INDEX)).send().await.unwrap();
    assert_eq!(cut.content_length(), Some(27));
    assert!(cut.text().await.is_err());

    server.break_times(INDEX, Fault::StallAfter(5), 1);
    let mut stalled = client().get(server.url(INDEX)).send().await.unwrap();
    assert_eq!(stalled.chunk().await.unwrap().unwrap(), "apiVe");
    assert!(
        tokio::time::timeout(Duration::from_millis(100), stalled.chunk())
            .await
            .is_err(),
        "the body stalls"
    );

    server.break_times(INDEX, Fault::Drip(9, Duration::from_millis(1)), 1);
    let dripped = client().get(server.url(INDEX)).send().await.unwrap();
    assert_eq!(dripped.text().await.unwrap(), "apiVersion: v1\nentries: {}\n");

    server.break_times(INDEX, Fault::Delay(Duration::from_secs(60)), 1);
    let late = tokio::time::timeout(Duration::from_millis(100), client().get(server.url(INDEX)).send()).await;
    assert!(late.is_err(), "the headers stall");
}

#[tokio::test]
async fn a_compressed_body_expands_endlessly() {
    let server = server_with_index().await;
    server.break_path(INDEX, Fault::EndlessGzip);
    let mut answer = client().get(server.url(INDEX)).send().await.unwrap();
    let mut bytes = 0;
    while bytes < 8 << 20 {
        bytes += answer.chunk().await.unwrap().expect("there is always more").len();
    }
}

#[tokio::test]
async fn redirects_may_loop_and_pages_may_be_html() {
    let server = server_with_index().await;
    server.break_path(INDEX, Fault::redirect(INDEX));
    assert!(client().get(server.url(INDEX)).send().await.unwrap_err().is_redirect());
    server.clear_faults(INDEX);
    server.break_path(INDEX, Fault::html());
    let answer = client().get(server.url("/stable/index.yaml?q=1")).send().await.unwrap();
    assert!(answer.text().await.unwrap().starts_with("<!DOCTYPE"));
    assert_eq!(server.requests(INDEX).last().unwrap().query.as_deref(), Some("q=1"));
}

#[tokio::test]
async fn https_is_trusted_only_with_its_ca() {
    let server = ChartServer::start_tls().await;
    server.serve(INDEX, Page::new("x"));
    assert!(client().get(server.url(INDEX)).send().await.is_err());
    let authority = reqwest::Certificate::from_pem(server.ca_pem().as_bytes()).unwrap();
    let knowing = Client::builder()
        .no_proxy()
        .tls_certs_only([authority])
        .build()
        .unwrap();
    assert_eq!(
        knowing
            .get(server.url(INDEX))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap(),
        "x"
    );
}

#[tokio::test]
async fn archives_and_icons_are_served_unchanged() {
    let server = ChartServer::start().await;
    let archive = Chart::new("harbour", "1.2.3").pack();
    server.serve("/harbour-1.2.3.tgz", Page::archive(&archive));
    server.serve("/icon", Page::new("<svg/>").without_content_type());
    let answer = client().get(server.url("/harbour-1.2.3.tgz")).send().await.unwrap();
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/gzip");
    assert_eq!(sha256(&answer.bytes().await.unwrap()), archive.sha256());
    let icon = client().get(server.url("/icon")).send().await.unwrap();
    assert_eq!(icon.headers().get(header::CONTENT_TYPE), None);
    assert_eq!(
        (
            server.count("/icon"),
            server.count("/harbour-1.2.3.tgz"),
            server.count("/")
        ),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn credentials_are_required_and_recorded() {
    let server = server_with_index().await;
    server.demand_basic("navigator", "fair:winds");
    let refused = client().get(server.url(INDEX)).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(refused.headers()[header::WWW_AUTHENTICATE], "Basic realm=\"charts\"");
    let request = client().get(server.url(INDEX));
    let answer = request
        .basic_auth("navigator", Some("fair:winds"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::OK);

    server.demand("Bearer open-sesame");
    let wrong = client()
        .get(server.url("/else"))
        .bearer_auth("calm")
        .send()
        .await
        .unwrap();
    assert_eq!(wrong.headers()[header::WWW_AUTHENTICATE], "Bearer realm=\"charts\"");
    let right = client().head(server.url(INDEX)).bearer_auth("open-sesame");
    assert_eq!(right.send().await.unwrap().status(), StatusCode::OK);

    let seen = server.all_requests();
    let credentials: Vec<_> = seen.iter().map(|request| request.authorization()).collect();
    let basic = Some("Basic bmF2aWdhdG9yOmZhaXI6d2luZHM=");
    assert_eq!(
        credentials,
        [None, basic, Some("Bearer calm"), Some("Bearer open-sesame")]
    );
    assert_eq!((seen[2].path.as_str(), seen[2].host()), ("/else", Some(server.host())));
    assert_eq!(seen[3].method, Method::HEAD);
}

#[tokio::test]
async fn redirects_of_all_statuses_lead_to_another_server() {
    let (one, other) = (ChartServer::start().await, server_with_index().await);
    one.break_path("/old", Fault::redirect_as(308, &other.url(INDEX)));
    let answer = client().get(one.url("/old")).send().await.unwrap();
    assert_eq!(answer.url().as_str(), other.url(INDEX));
    assert_eq!(one.all_requests()[0].status, Some(StatusCode::PERMANENT_REDIRECT));
    assert_eq!(other.count(INDEX), 1);
}

#[tokio::test]
async fn a_conditional_request_gets_a_faulty_body() {
    let server = server_with_index().await;
    server.serve(INDEX, Page::new("apiVersion: v1\n").etag("\"one\""));
    server.break_times(INDEX, Fault::TruncateAfter(3), 1);
    let request = client().get(server.url(INDEX)).header(header::IF_NONE_MATCH, "\"one\"");
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.bytes().await.is_err());
    assert!(server.requests(INDEX)[0].is_conditional());
}

#[tokio::test]
async fn requests_to_a_registry_are_recorded_and_get_faults() {
    let authority = Authority::new();
    let registry = Registry::start(Setup::default().tls(&authority)).await;
    let open = ChartServer::in_front_of(registry.upstream()).await;
    let encrypted = ChartServer::in_front_of_tls(&authority, registry.upstream()).await;
    let archive = Chart::new("harbour", "1.2.3").pack();
    let directory = ScratchDir::new("recorded");
    let file = directory
        .write(&archive.file_name(), &archive.bytes)
        .display()
        .to_string();
    let target = format!("oci://{}/charts", open.host());
    helm::output(helm::command(
        directory.path(),
        &["push", &file, &target, "--plain-http"],
    ))
    .await;
    let ca = format!("--ca-file={}", directory.write("ca.crt", encrypted.ca_pem()).display());
    let source = format!("oci://{}/charts/harbour", encrypted.host());
    let output = helm::output(helm::command(
        directory.path(),
        &["show", "chart", &source, "--version=1.2.3", &ca],
    ))
    .await;
    assert!(output.contains("name: harbour"), "{output}");

    let manifest = "/v2/charts/harbour/manifests/1.2.3";
    let puts: Vec<_> = open
        .requests(manifest)
        .into_iter()
        .filter(|request| request.method == Method::PUT)
        .collect();
    assert_eq!(puts.len(), 1);
    assert_eq!(puts[0].status, Some(StatusCode::CREATED));
    assert!(encrypted.count(manifest) > 0);

    let tags = "/v2/charts/harbour/tags/list";
    open.break_times(tags, Fault::retry_after(429, "1"), 1);
    open.break_times(tags, Fault::status(500), 1);
    open.break_times(tags, Fault::TruncateAfter(4), 1);
    let get = || client().get(open.url(tags)).send();
    assert_eq!(get().await.unwrap().headers()[header::RETRY_AFTER], "1");
    assert_eq!(get().await.unwrap().status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(get().await.unwrap().text().await.is_err());
    assert!(get().await.unwrap().text().await.unwrap().contains("1.2.3"));
}

#[tokio::test]
async fn servers_can_share_a_ca() {
    let authority = Authority::new();
    let (one, other) = (
        ChartServer::start_tls_with(&authority).await,
        ChartServer::start_tls_with(&authority).await,
    );
    assert_eq!(one.ca_pem(), other.ca_pem());
    let certificate = reqwest::Certificate::from_pem(authority.ca_pem.as_bytes()).unwrap();
    portolan::http::install_crypto_provider();
    let client = Client::builder()
        .no_proxy()
        .tls_certs_only([certificate])
        .build()
        .unwrap();
    for server in [one, other] {
        assert_eq!(
            client.get(server.url("/")).send().await.unwrap().status(),
            StatusCode::NOT_FOUND
        );
    }
}

use std::time::Duration;

use axum::http::{StatusCode, header};
use reqwest::Client;

use crate::support::chart_server::{ChartServer, Fault, Page};

const INDEX: &str = "/stable/index.yaml";

fn client() -> Client {
    portolan::source::install_crypto_provider();
    Client::builder().no_proxy().build().unwrap()
}

async fn server_with_index() -> ChartServer {
    let server = ChartServer::start().await;
    server.serve(INDEX, Page::new("apiVersion: v1\nentries: {}\n"));
    server
}

#[tokio::test]
async fn its_own_etag_is_answered_with_304_until_the_page_changes() {
    let server = server_with_index().await;
    let first = client().get(server.url(INDEX)).send().await.unwrap();
    assert_eq!(first.status(), StatusCode::OK);
    let tag = first.headers()[header::ETAG].clone();

    let asked = || {
        client()
            .get(server.url(INDEX))
            .header(header::IF_NONE_MATCH, &tag)
            .send()
    };
    assert_eq!(asked().await.unwrap().status(), StatusCode::NOT_MODIFIED);
    server.serve(INDEX, Page::new("apiVersion: v1\nentries: {a: []}\n"));
    assert_eq!(asked().await.unwrap().status(), StatusCode::OK);

    let conditional: Vec<bool> = server
        .seen(INDEX)
        .iter()
        .map(|request| request.is_conditional())
        .collect();
    assert_eq!(conditional, [false, true, true]);
    assert_eq!(server.seen(INDEX)[1].status, Some(StatusCode::NOT_MODIFIED));
}

#[tokio::test]
async fn a_date_counts_where_there_is_no_etag() {
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
async fn compressed_pages_arrive_whole() {
    let server = server_with_index().await;
    let text = "apiVersion: v1\n".repeat(1000);
    server.serve(INDEX, Page::new(text.clone()).gzip());
    let answer = client().get(server.url(INDEX)).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), text);

    // A client that unpacks it takes the header away.
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
async fn faults_last_as_long_as_asked_for() {
    let server = server_with_index().await;
    server.break_times(INDEX, Fault::retry_after(503, "7"), 2);
    server.break_times(INDEX, Fault::NoAnswer, 1);
    let get = || client().get(server.url(INDEX)).send();
    for _ in 0..2 {
        let answer = get().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()[header::RETRY_AFTER]),
            (503, &"7".parse().unwrap())
        );
    }
    // The client tries once more by itself when a connection that it had kept is closed: the fault was used up all the same.
    let _ = get().await;
    assert_eq!(server.seen(INDEX)[2].status, None);
    assert_eq!(get().await.unwrap().status(), 200);

    server.break_path(INDEX, Fault::status(404));
    assert_eq!(get().await.unwrap().status(), 404);
    server.repair(INDEX);
    assert_eq!(get().await.unwrap().status(), 200);
}

#[tokio::test]
async fn bodies_are_cut_stalled_and_dripped() {
    let server = server_with_index().await;
    server.break_times(INDEX, Fault::CutAfter(5), 1);
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
        "nothing more comes"
    );

    server.break_times(INDEX, Fault::Drip(9, Duration::from_millis(1)), 1);
    let dripped = client().get(server.url(INDEX)).send().await.unwrap();
    assert_eq!(dripped.text().await.unwrap(), "apiVersion: v1\nentries: {}\n");

    server.break_times(INDEX, Fault::Delay(Duration::from_secs(60)), 1);
    let late = tokio::time::timeout(Duration::from_millis(100), client().get(server.url(INDEX)).send()).await;
    assert!(late.is_err(), "not even headers come");
}

#[tokio::test]
async fn a_compressed_body_expands_without_end() {
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
    server.repair(INDEX);
    server.break_path(INDEX, Fault::html());
    let answer = client().get(server.url("/stable/index.yaml?q=1")).send().await.unwrap();
    assert!(answer.text().await.unwrap().starts_with("<!DOCTYPE"));
    assert_eq!(server.seen(INDEX).last().unwrap().query.as_deref(), Some("q=1"));
}

#[tokio::test]
async fn https_is_trusted_only_by_who_knows_its_authority() {
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

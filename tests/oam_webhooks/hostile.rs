//! Clients that are not the API server.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::site::{Reviewed, application};
use crate::oam_apps::apps::{config, spec};
use crate::support::portolan::peak_memory;

const PATH: &str = "/validating-core-oam-dev-v1beta1-applications";

fn client() -> reqwest::Client {
    client_at("127.0.0.1")
}

/// A client with an address of its own on loopback.
fn client_at(address: &str) -> reqwest::Client {
    portolan::http::install_crypto_provider();
    let builder = reqwest::Client::builder()
        .no_proxy()
        .local_address(address.parse::<std::net::IpAddr>().ok());
    builder.tls_danger_accept_invalid_certs(true).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_no_reviews_are_refused() {
    let reviewed = Reviewed::new("Fail").await;
    let portolan = reviewed.portolan(&[]).await;
    let url = |path: &str| format!("https://127.0.0.1:{}{path}", reviewed.port);
    let post = async |path: &str, body: String| {
        let response = client().post(url(path)).body(body).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    // The server does not read it, so that the client may see a reset in place of the response.
    let large = client().post(url(PATH)).body("x".repeat(10 << 20)).send().await;
    assert!(large.is_err() || large.is_ok_and(|response| response.status().as_u16() == 413));
    assert_eq!(post(PATH, "{".to_owned()).await.0, 400);
    assert_eq!(post(PATH, "[".repeat(1 << 20)).await.0, 400);
    assert_eq!(post("/else", String::new()).await.0, 404);
    assert_eq!(client().get(url(PATH)).send().await.unwrap().status().as_u16(), 405);
    // Neither health nor metrics.
    assert_eq!(
        client().get(url("/metrics")).send().await.unwrap().status().as_u16(),
        404
    );
    let mut plain = TcpStream::connect(("localhost", reviewed.port)).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), plain.read_to_end(&mut answer)).await;
    assert!(read.is_ok() && !answer.starts_with(b"HTTP"), "{answer:?}");
    reviewed.until_called().await;
    assert!(!portolan.has_exited());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_takes_a_hundred_times_its_text_is_refused() {
    let reviewed = Reviewed::new("Fail").await;
    let portolan = reviewed.portolan(&[]).await;
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "namespace": reviewed.site.namespace, "object": "OBJECT",
            "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" },
        },
    });
    let object = format!(r#"{{"spec":[{}0]}}"#, r#"{"":0},"#.repeat(1_000_000));
    let review = review.to_string().replace("\"OBJECT\"", &object);
    for path in [PATH, "/mutating-core-oam-dev-v1beta1-applications"] {
        let url = format!("https://127.0.0.1:{}{path}", reviewed.port);
        let response = client().post(url).body(review.clone()).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        let text = response.text().await.unwrap();
        assert!(text.contains("of memory when it is decoded"), "{text}");
    }
    assert!(!portolan.has_exited());
    assert!(peak_memory(&portolan) < 256, "{} MiB", peak_memory(&portolan));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_reviews_a_second_delay_neither_the_api_server_nor_probes() {
    let reviewed = Reviewed::new("Fail").await;
    let portolan = reviewed.portolan(&[]).await.with_probes();
    let app = application("app", spec(&[config("a", "one")]));
    let hostile = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "namespace": reviewed.site.namespace, "object": app,
            "kind": { "group": "core.oam.dev", "version": "v1beta1", "kind": "Application" },
            "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" },
            "userInfo": { "username": "mallory" },
        },
    });
    let hostile = hostile.to_string();
    let url = format!("https://127.0.0.1:{}{PATH}", reviewed.port);
    let attackers = (0..64).map(|_| {
        let (client, url, body) = (client_at("127.0.0.9"), url.clone(), hostile.clone());
        tokio::spawn(async move {
            loop {
                // Refusals count as much as reviews.
                let _ = client.post(&url).body(body.clone()).send().await;
            }
        })
    });
    let attackers: Vec<_> = attackers.collect();
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(5) {
        let asked = Instant::now();
        let written = reviewed.create_dry("applications", &app).await;
        assert_eq!(written.code, 201, "{written:?}");
        slowest = slowest.max(asked.elapsed());
    }
    for attacker in attackers {
        attacker.abort();
    }
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    drop(portolan);
}

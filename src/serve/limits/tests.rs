use std::cell::Cell;
use std::future::{pending, ready};

use axum::body::Body as Content;
use axum::http::{StatusCode, header};
use futures::FutureExt;
use futures::future::join_all;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use super::*;

struct Site {
    limiter: Limiter,
    registry: Registry,
}

impl Site {
    fn new(proxies: &[&str]) -> Self {
        let (mut registry, metrics) = (Registry::default(), LimitMetrics::default());
        metrics.register(&mut registry);
        let proxies = proxies.iter().map(|proxy| proxy.parse::<TrustedProxy>().unwrap());
        let limiter = Limiter::new(
            RequestLimits::default(),
            proxies.collect(),
            "/catalog".to_owned(),
            metrics,
        );
        Self { limiter, registry }
    }

    async fn get(&self, request: Request, token: Option<&str>) -> Response {
        let token = token.map(TokenDigest::of);
        self.limiter
            .respond(request, token, |_| ready(StatusCode::OK.into_response()))
            .await
    }

    async fn status(&self, request: Request, token: Option<&str>) -> u16 {
        self.get(request, token).await.status().as_u16()
    }

    /// Begins requests that are never answered.
    fn hang<'a>(&'a self, count: usize, path: &'static str, token: &'a str) -> Vec<impl Future<Output = Response>> {
        let hang = |_| {
            let token = Some(TokenDigest::of(token));
            self.limiter.respond(request(path, 1), token, |_| pending())
        };
        (0..count).map(hang).collect()
    }

    fn metric(&self, sample: &str) -> bool {
        let mut metrics = String::new();
        text::encode(&mut metrics, &self.registry).unwrap();
        metrics.lines().any(|line| line == sample)
    }
}

fn request(path: &str, peer: u8) -> Request {
    let mut request = Request::new(Content::empty());
    *request.uri_mut() = path.parse().unwrap();
    request.extensions_mut().insert(Peer(IpAddr::from([10, 0, 0, peer])));
    request
}

fn forwarded(path: &str, peer: u8, value: &'static str) -> Request {
    let mut request = request(path, peer);
    let value = header::HeaderValue::from_static(value);
    request.headers_mut().insert("x-forwarded-for", value);
    request
}

#[tokio::test(start_paused = true)]
async fn a_caller_above_the_rate_is_refused_and_others_are_served() {
    let site = Site::new(&[]);
    for _ in 0..200 {
        assert_eq!(site.status(request("/", 1), Some("jane")).await, 200);
    }
    let refused = site.get(request("/", 1), Some("jane")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
    assert_eq!(site.status(request("/", 1), Some("joe")).await, 200);
    assert_eq!(site.status(request("/", 1), None).await, 200);
    assert!(site.metric(r#"portolan_catalog_requests_limited_total{limit="rate"} 1"#));
}

#[tokio::test(start_paused = true)]
async fn addresses_that_untrusted_peers_forward_do_not_count() {
    let site = Site::new(&[]);
    for number in 0..200 {
        let value = if number % 2 == 0 { "192.0.2.1" } else { "192.0.2.2" };
        assert_eq!(site.status(forwarded("/", 1, value), None).await, 200);
    }
    assert_eq!(site.status(forwarded("/", 1, "192.0.2.3"), None).await, 429);
    assert_eq!(site.status(forwarded("/", 2, "192.0.2.1"), None).await, 200);
}

#[tokio::test(start_paused = true)]
async fn clients_behind_a_trusted_proxy_count_by_their_address() {
    let site = Site::new(&["10.0.0.1"]);
    for _ in 0..200 {
        assert_eq!(site.status(forwarded("/", 1, "192.0.2.1"), None).await, 200);
    }
    assert_eq!(site.status(forwarded("/", 1, "192.0.2.9, 192.0.2.1"), None).await, 429);
    assert_eq!(site.status(forwarded("/", 1, "192.0.2.2"), None).await, 200);
    assert_eq!(site.status(forwarded("/", 2, "192.0.2.1"), None).await, 200);
}

#[tokio::test(start_paused = true)]
async fn unknown_tokens_count_by_address_only_with_trusted_proxies() {
    let cases: [(&[&str], Option<[u8; 4]>); 2] = [(&[], None), (&["10.0.0.1"], Some([192, 0, 2, 1]))];
    for (proxies, expected) in cases {
        let (site, address) = (Site::new(proxies), Cell::new(None));
        let (limiter, seen) = (&site.limiter, &address);
        let handled = limiter.respond(forwarded("/", 1, "192.0.2.1"), None, |_| async move {
            seen.set(limiter.address_of_unknown_tokens());
            StatusCode::OK.into_response()
        });
        assert_eq!(handled.await.status(), StatusCode::OK);
        assert_eq!(
            address.get(),
            expected.map(|address| ClientAddress::from(IpAddr::from(address)))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_has_5_sign_ins_and_then_one_each_12_seconds() {
    let site = Site::new(&[]);
    let sign_ins = async |peer: u8, count: usize| {
        let limiter = &site.limiter;
        let admitted = &Cell::new(0);
        for _ in 0..count {
            let handled = limiter.respond(request("/login", peer), None, |_| async move {
                admitted.set(admitted.get() + usize::from(limiter.check_sign_in().is_ok()));
                StatusCode::OK.into_response()
            });
            handled.await;
        }
        admitted.get()
    };
    assert_eq!(sign_ins(1, 8).await, 5);
    assert_eq!(sign_ins(2, 1).await, 1);
    assert!(site.metric(r#"portolan_catalog_requests_limited_total{limit="sign_ins"} 3"#));
    tokio::time::advance(SIGN_IN_INTERVAL).await;
    assert_eq!(sign_ins(1, 8).await, 1);
    assert_eq!(site.status(request("/", 1), None).await, 200);
}

#[tokio::test(start_paused = true)]
async fn a_caller_has_16_requests_in_flight_and_others_are_served() {
    let site = Site::new(&[]);
    let mut hanging = Box::pin(join_all(site.hang(16, "/", "jane")));
    assert!(hanging.as_mut().now_or_never().is_none());
    let refused = site.get(request("/", 1), Some("jane")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
    assert_eq!(site.status(request("/", 1), Some("joe")).await, 200);
    assert!(site.metric(r#"portolan_catalog_requests_in_flight{stage="request"} 16"#));
    drop(hanging);
    assert_eq!(site.status(request("/", 1), Some("jane")).await, 200);
    assert!(site.metric(r#"portolan_catalog_requests_limited_total{limit="in_flight_by_caller"} 1"#));
}

#[tokio::test(start_paused = true)]
async fn archives_take_longer_and_leave_permits_to_other_requests() {
    let site = Site::new(&[]);
    let archive = "/catalog/helm/ns/repo/archives/web/1.0.0/web-1.0.0.tgz";
    let mut archives = Box::pin(join_all(site.hang(16, archive, "jane")));
    assert!(archives.as_mut().now_or_never().is_none());
    for path in [
        "/",
        "/helm/ns/repo/archives/web",
        "/catalog/helm/ns/repo/index.yaml",
        "/catalog/helm/ns/archives/index.yaml",
    ] {
        assert_eq!(site.status(request(path, 1), Some("jane")).await, 200);
        let start = Instant::now();
        let late = site.hang(1, path, "joe").pop().unwrap().await;
        assert_eq!((late.status().as_u16(), start.elapsed()), (503, REQUEST_TIMEOUT));
    }
    let start = Instant::now();
    assert_eq!(site.status(request(archive, 1), Some("jane")).await, 503);
    let late = site.hang(1, archive, "joe").pop().unwrap().await;
    assert_eq!((late.status().as_u16(), start.elapsed()), (503, ARCHIVE_TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn a_body_counts_until_it_is_sent() {
    let site = Site::new(&[]);
    let mut sent = Vec::new();
    for _ in 0..16 {
        sent.push(site.get(request("/", 1), Some("jane")).await);
    }
    assert!(site.metric(r#"portolan_catalog_requests_in_flight{stage="body"} 16"#));
    assert_eq!(site.status(request("/", 1), Some("jane")).await, 503);
    assert_eq!(site.status(request("/", 1), Some("joe")).await, 200);
    // The server cuts one at its limit.
    let kept = sent.pop().unwrap().extensions_mut().remove::<KeepUntilSent>().unwrap();
    kept.0.cut();
    drop(kept);
    assert_eq!(site.status(request("/", 1), Some("jane")).await, 200);
    for limit in ["bodies_by_caller", "body_speed"] {
        let sample = format!("portolan_catalog_requests_limited_total{{limit=\"{limit}\"}} 1");
        assert!(site.metric(&sample), "{sample}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_callers_together_have_128_bodies() {
    let site = Site::new(&[]);
    let mut sent = Vec::new();
    for caller in 0..8 {
        for _ in 0..16 {
            sent.push(site.get(request("/", 1), Some(&format!("caller-{caller}"))).await);
        }
    }
    assert!(sent.iter().all(|response| response.status() == StatusCode::OK));
    assert_eq!(site.status(request("/", 1), Some("jane")).await, 503);
    sent.clear();
    assert_eq!(site.status(request("/", 1), Some("jane")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn a_long_uri_is_refused_and_does_not_count() {
    let site = Site::new(&[]);
    let long = format!("/?q={}", "x".repeat(MAX_URI_BYTES));
    for _ in 0..300 {
        assert_eq!(site.status(request(&long, 1), None).await, 414);
    }
    assert_eq!(site.status(request("/", 1), None).await, 200);
}

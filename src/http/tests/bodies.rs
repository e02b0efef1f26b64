//! Statuses, conditional requests and body limits.

use rstest::rstest;

use super::*;

#[tokio::test]
async fn a_body_has_size_digest_and_validators() {
    let server = Server::start(|_| {
        response(
            "200 OK",
            "ETag: \"abc\"\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
            b"hello",
        )
    })
    .await;
    let body = body(&server.at("index.yaml?token=x")).await;
    assert_eq!(body.bytes, 5);
    assert_eq!(
        body.sha256,
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    );
    assert_eq!(body.validators.etag.as_deref(), Some("\"abc\""));
    assert_eq!(
        body.validators.last_modified.as_deref(),
        Some("Sun, 06 Nov 1994 08:49:37 GMT")
    );
    assert_eq!(bytes(body), b"hello");
    let request = server.requests().remove(0).to_lowercase();
    assert!(request.starts_with("get /index.yaml?token=x http/1.1\r\n"), "{request}");
    assert!(
        request.contains("user-agent: portolan/") && request.contains("accept-encoding: gzip"),
        "{request}"
    );
    assert!(
        !request.contains("if-none-match") && !request.contains("if-modified-since"),
        "{request}"
    );
}

#[tokio::test]
async fn validators_make_the_request_conditional() {
    let server = Server::start(|request| {
        let is_match = request.to_lowercase().contains("if-none-match: \"abc\"");
        if is_match {
            vec![Part::Bytes(b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec())]
        } else {
            response("200 OK", "", b"new")
        }
    })
    .await;
    let validators = Validators {
        etag: Some("\"abc\"".to_owned()),
        last_modified: Some("yesterday".to_owned()),
    };
    let fetched = fetcher().get(&server.url, Some(&validators), &limits()).await.unwrap();
    assert!(matches!(fetched, Fetched::NotModified));
    assert!(
        server.requests()[0]
            .to_lowercase()
            .contains("if-modified-since: yesterday")
    );

    let other = Validators {
        etag: Some("\"other\"".to_owned()),
        last_modified: None,
    };
    let fetched = fetcher().get(&server.url, Some(&other), &limits()).await.unwrap();
    assert!(matches!(fetched, Fetched::Body(_)));
}

#[tokio::test]
async fn a_304_for_an_unconditional_request_is_an_error() {
    let server = Server::always("HTTP/1.1 304 Not Modified", b"").await;
    for validators in [None, Some(Validators::default())] {
        let error = fetcher()
            .get(&server.url, validators.as_ref(), &limits())
            .await
            .unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("UnexpectedStatus", false));
    }
}

#[rstest]
#[case("401 Unauthorized", "Unauthorized", false)]
#[case("403 Forbidden", "Forbidden", false)]
#[case("404 Not Found", "NotFound", false)]
#[case("410 Gone", "NotFound", false)]
#[case("407 Proxy Authentication Required", "ProxyAuthenticationRequired", false)]
#[case("408 Request Timeout", "UnexpectedStatus", false)]
#[case("429 Too Many Requests", "TooManyRequests", true)]
#[case("500 Internal Server Error", "ServerError", true)]
#[case("503 Service Unavailable", "ServerError", true)]
#[case("204 No Content", "UnexpectedStatus", false)]
#[case("206 Partial Content", "UnexpectedStatus", false)]
#[tokio::test]
async fn other_statuses_are_errors_with_advice(
    #[case] status: &'static str,
    #[case] reason: &str,
    #[case] is_transient: bool,
) {
    let server = Server::start(move |_| response(status, "", b"the secret of the body")).await;
    let mut url = server.at("index.yaml?token=secret");
    url.set_username("user").unwrap();
    url.set_password(Some("secret")).unwrap();
    let error = get(&url).await.unwrap_err();
    assert_eq!(
        (error.reason(), error.is_transient(), error.retry_after()),
        (reason, is_transient, None)
    );
    let message = error.to_string();
    assert!(
        message.contains("index.yaml returned") && message.contains("; "),
        "{message}"
    );
    assert!(!format!("{message} {error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn a_body_is_rejected_by_its_content_length() {
    let server = Server::start(|_| {
        vec![
            Part::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 104857601\r\n\r\n".to_vec()),
            Part::Hang,
        ]
    })
    .await;
    let error = get(&server.url).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("limit of 104857600 bytes (size is at least 104857601 bytes)"),
        "{error}"
    );
}

#[tokio::test]
async fn a_body_without_content_length_is_rejected_at_the_limit() {
    let server = Server::start(|_| {
        let mut parts = vec![Part::Bytes(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
        )];
        parts.extend((0..100).map(|_| Part::Bytes([&b"1000\r\n"[..], &[b'x'; 0x1000], b"\r\n"].concat())));
        parts.push(Part::Hang);
        parts
    })
    .await;
    let limits = FetchLimits {
        max_bytes: 10_000,
        ..limits()
    };
    let error = fetcher().get(&server.url, None, &limits).await.unwrap_err();
    assert_eq!(error.reason(), "TooLarge", "{error}");
    let exact = Server::always("HTTP/1.1 200 OK", &[b'x'; 10_000]).await;
    assert!(fetcher().get(&exact.url, None, &limits).await.is_ok());
}

#[rstest]
#[case("HTTP/1.1 200 OK\nContent-Length: 10", b"hello", 5)]
#[case("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"5\r\nhello\r\n", 5)]
#[case("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"5\r\nhel", 3)]
#[tokio::test]
async fn a_truncated_body_is_an_error(#[case] head: &str, #[case] sent: &[u8], #[case] seen: u64) {
    let server = Server::always(head, sent).await;
    let error = get(&server.url).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("ConnectionInterrupted", true));
    assert!(
        matches!(error, FetchError::Interrupted { bytes, .. } if bytes <= seen),
        "{error}"
    );
}

#[tokio::test]
async fn a_large_body_is_spooled_to_an_unlinked_file() {
    let content = [b'x'; 3 << 20].to_vec();
    let server = Server::start(move |_| response("200 OK", "", &content)).await;
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        spool_dir: Some(directory.path().to_owned()),
        ..Settings::default()
    };
    let fetched = Fetcher::new(settings)
        .unwrap()
        .get(&server.url, None, &limits())
        .await
        .unwrap();
    let Fetched::Body(body) = fetched else {
        panic!("{fetched:?}")
    };
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!(bytes(body).len(), 3 << 20);
}

#[tokio::test]
async fn a_missing_spool_directory_is_an_error() {
    let server = Server::start(|_| response("200 OK", "", &[b'x'; 2 << 20])).await;
    let settings = Settings {
        spool_dir: Some("/nowhere/at/all".into()),
        ..Settings::default()
    };
    let error = Fetcher::new(settings)
        .unwrap()
        .get(&server.url, None, &limits())
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "SpoolFailed");
}

#[rstest]
#[case(vec![], 0)]
#[case(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello".to_vec(), 5)]
#[tokio::test]
async fn a_stalled_download_times_out(#[case] sent: Vec<u8>, #[case] seen: u64) {
    let server = Server::start(move |_| vec![Part::Bytes(sent.clone()), Part::Hang]).await;
    let short = Duration::from_millis(100);
    let limits = FetchLimits {
        stall: short,
        connect: short,
        ..limits()
    };
    let error = fetcher().get(&server.url, None, &limits).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("DownloadStalled", true));
    assert!(
        matches!(error, FetchError::Stalled { bytes, .. } if bytes == seen),
        "{error}"
    );
}

#[tokio::test]
async fn the_total_timeout_ends_a_slow_download() {
    let next_byte = Arc::new(tokio::sync::Notify::new());
    let server = Server::start({
        let next_byte = Arc::clone(&next_byte);
        move |_| {
            let mut parts = vec![Part::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec())];
            for _ in 0..1000 {
                parts.extend([Part::Bytes(b"x".to_vec()), Part::Until(Arc::clone(&next_byte))]);
            }
            parts
        }
    })
    .await;
    let sender = tokio::spawn(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(20));
        loop {
            interval.tick().await;
            next_byte.notify_one();
        }
    });
    let limits = FetchLimits {
        total: Duration::from_millis(300),
        stall: Duration::from_millis(200),
        ..limits()
    };
    let error = fetcher().get(&server.url, None, &limits).await.unwrap_err();
    sender.abort();
    assert_eq!((error.reason(), error.is_transient()), ("Timeout", true));
    assert!(error.to_string().contains("0.3s"), "{error}");
}

#[tokio::test]
async fn a_transfer_below_one_kibibyte_per_second_is_stalled() {
    // 100 bytes every 200 ms: half of the minimum.
    let server = trickle(100).await;
    let limits = FetchLimits {
        stall: Duration::from_secs(1),
        ..limits()
    };
    let error = fetcher().get(&server.url, None, &limits).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("DownloadStalled", true));
    assert!(error.to_string().contains("less than 1 KiB/s for 1s after "), "{error}");
}

#[tokio::test]
async fn a_transfer_above_one_kibibyte_per_second_completes() {
    let server = trickle(400).await;
    let limits = FetchLimits {
        stall: Duration::from_secs(1),
        ..limits()
    };
    let Fetched::Body(body) = fetcher().get(&server.url, None, &limits).await.unwrap() else {
        panic!("no validators were sent")
    };
    assert_eq!(body.bytes, 4_000);
}

/// Serves ten chunks of this size, one every 200 ms.
async fn trickle(bytes: usize) -> Server {
    let next = Arc::new(tokio::sync::Notify::new());
    let server = Server::start({
        let next = Arc::clone(&next);
        move |_| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 10 * bytes);
            let mut parts = vec![Part::Bytes(head.into_bytes())];
            for _ in 0..10 {
                parts.extend([Part::Until(Arc::clone(&next)), Part::Bytes(vec![b'x'; bytes])]);
            }
            parts
        }
    })
    .await;
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(200));
        loop {
            interval.tick().await;
            next.notify_waiters();
        }
    });
    server
}

//! Compressed bodies and their limits.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use rstest::rstest;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn size_and_content_of_a_gzip_body_are_those_after_decompression() {
    let compressed_body = gzip(b"hello");
    let server = Server::start(move |_| response("200 OK", "Content-Encoding: gzip", &compressed_body)).await;
    let body = body(&server.url).await;
    assert_eq!((body.bytes, bytes(body)), (5, b"hello".to_vec()));
}

#[tokio::test]
async fn a_decompression_bomb_is_rejected_at_the_limit() {
    let compressed_body = gzip(&vec![0; 4 << 20]).repeat(16);
    assert!(compressed_body.len() < 100_000);
    let server = Server::start(move |_| response("200 OK", "Content-Encoding: gzip", &compressed_body)).await;
    let limits = FetchLimits {
        max_bytes: 1_000_000,
        ..limits()
    };
    let error = fetcher().get(&server.url, None, &limits).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("TooLarge", false));
    let FetchError::TooLarge { limit, actual, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(limit, 1_000_000);
    assert!((1_000_001..2_000_000).contains(&actual), "{actual}");
}

#[tokio::test]
async fn a_truncated_or_corrupt_gzip_stream_is_an_error() {
    let complete = gzip(&[b'x'; 10_000]);
    let mut corrupt = complete.clone();
    let last = corrupt.len() - 6;
    corrupt[last] ^= 0xff;
    for compressed_body in [complete[..complete.len() - 9].to_vec(), corrupt, b"hello".to_vec()] {
        let server = Server::start(move |_| response("200 OK", "Content-Encoding: gzip", &compressed_body)).await;
        let error = get(&server.url).await.unwrap_err();
        assert_eq!(error.reason(), "ConnectionInterrupted", "{error}");
    }
}

#[tokio::test]
async fn the_size_limit_applies_before_and_after_decompression() {
    // Incompressible, so that the gzip stream is larger than its content.
    let content: Vec<u8> = (0..10_000_u64)
        .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(&content).unwrap();
    let compressed_body = encoder.finish().unwrap();
    assert!(compressed_body.len() > content.len());
    let limits_of = |max_bytes| FetchLimits { max_bytes, ..limits() };
    for is_announced in [true, false] {
        let compressed_body = compressed_body.clone();
        let (compressed, decompressed) = (compressed_body.len() as u64, content.len() as u64);
        let server = Server::start(move |_| {
            if is_announced {
                return response("200 OK", "Content-Encoding: gzip", &compressed_body);
            }
            let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n".to_vec();
            vec![Part::Bytes([head, compressed_body.clone()].concat()), Part::Close]
        })
        .await;
        let error = fetcher()
            .get(&server.url, None, &limits_of(decompressed))
            .await
            .unwrap_err();
        assert_eq!(error.reason(), "TooLarge");
        assert!(fetcher().get(&server.url, None, &limits_of(compressed)).await.is_ok());
    }
}

#[tokio::test]
async fn the_total_timeout_stops_a_decompression_bomb() {
    let compressed_body = gzip(&vec![0; 1 << 20]).repeat(1 << 10);
    let server = Server::start(move |_| response("200 OK", "Content-Encoding: gzip", &compressed_body)).await;
    let limits = FetchLimits {
        max_bytes: u64::MAX,
        total: Duration::from_millis(300),
        ..limits()
    };
    let started = std::time::Instant::now();
    let error = fetcher().get(&server.url, None, &limits).await.unwrap_err();
    assert_eq!(error.reason(), "Timeout");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn gzip_members_are_concatenated() {
    let compressed_body = [gzip(b"hel"), gzip(b""), gzip(b"lo")].concat();
    let server = Server::start(move |_| {
        // Byte by byte, because a member may end anywhere in a chunk.
        let mut parts = vec![Part::Bytes(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: X-GZIP\r\n\r\n".to_vec(),
        )];
        parts.extend(
            compressed_body
                .iter()
                .map(|byte| Part::Bytes([b"1\r\n".as_slice(), &[*byte], b"\r\n"].concat())),
        );
        parts.push(Part::Bytes(b"0\r\n\r\n".to_vec()));
        parts
    })
    .await;
    assert_eq!(bytes(body(&server.url).await), b"hello");
}

#[tokio::test]
async fn an_empty_gzip_body_is_empty() {
    let server = Server::start(|_| response("200 OK", "Content-Encoding: gzip", b"")).await;
    assert_eq!(body(&server.url).await.bytes, 0);
}

#[rstest]
#[case("br", false)]
#[case("gzip, gzip", false)]
#[case("deflate", true)]
#[case("zstd", true)]
#[tokio::test]
async fn an_unsupported_content_encoding_is_an_error(#[case] encoding: &'static str, #[case] verbatim: bool) {
    let server = Server::start(move |_| response("200 OK", &format!("Content-Encoding: {encoding}"), b"hello")).await;
    let request = Request {
        verbatim,
        ..Request::new(server.at("index.yaml?token=secret"))
    };
    let error = fetcher().send(&request, &limits()).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("UnexpectedEncoding", false));
    let message = error.to_string();
    assert!(message.contains(encoding) && !message.contains("secret"), "{message}");
}

#[tokio::test]
async fn a_verbatim_body_is_not_decompressed() {
    let compressed_body = gzip(b"an archive");
    for encoding in ["Content-Encoding: gzip", "Content-Encoding: identity", ""] {
        let served = compressed_body.clone();
        let server = Server::start(move |_| response("200 OK", encoding, &served)).await;
        let request = Request {
            verbatim: true,
            accept: Some("application/octet-stream".to_owned()),
            ..Request::new(server.url.clone())
        };
        let response = fetcher().send(&request, &limits()).await.unwrap();
        assert_eq!(bytes(response.body), compressed_body);
        let request = server.requests().remove(0).to_lowercase();
        assert!(request.contains("accept-encoding: identity\r\n"), "{request}");
        assert!(request.contains("accept: application/octet-stream\r\n"), "{request}");
    }
}

#[tokio::test]
async fn a_head_request_returns_headers_without_a_body() {
    let server = Server::start(|request| if request.starts_with("HEAD /a ") { redirect("/b") } else { vec![Part::Bytes(
            b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\nContent-Encoding: br\r\nETag: \"x\"\r\nDocker-Content-Digest: sha256:00\r\n\r\n".to_vec(),
        )] })
    .await;
    let request = Request {
        head: true,
        ..Request::new(server.at("a"))
    };
    let response = fetcher().send(&request, &limits()).await.unwrap();
    assert_eq!(
        (response.status, &response.url, response.body.bytes),
        (StatusCode::OK, &server.at("b"), 0)
    );
    assert_eq!(response.headers["docker-content-digest"], "sha256:00");
    assert_eq!(response.body.validators.etag.as_deref(), Some("\"x\""));
    assert!(server.requests().iter().all(|request| request.starts_with("HEAD ")));
}

#[tokio::test]
async fn too_many_or_too_long_headers_are_an_error() {
    for headers in ["X: y\n".repeat(101), format!("X: {}\n", "y".repeat(4_000_000))] {
        let server = Server::start(move |_| response("200 OK", headers.trim(), b"hello")).await;
        assert!(get(&server.url).await.is_err());
    }
}

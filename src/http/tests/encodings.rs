//! Compressed bodies, and the caps on both sides of it.

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
async fn a_compressed_body_is_measured_as_what_it_holds() {
    let packed = gzip(b"hello");
    let server = Server::start(move |_| answer("200 OK", "Content-Encoding: gzip", &packed)).await;
    let body = body(&server.url).await;
    assert_eq!((body.bytes, bytes(body)), (5, b"hello".to_vec()));
}

#[tokio::test]
async fn a_compressed_bomb_is_refused_at_the_limit() {
    let packed = gzip(&vec![0; 4 << 20]).repeat(16);
    assert!(packed.len() < 100_000);
    let server = Server::start(move |_| answer("200 OK", "Content-Encoding: gzip", &packed)).await;
    let limits = Limits {
        max_bytes: 1_000_000,
        ..limits()
    };
    let error = fetcher().get(&server.url, None, &limits).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("TooLarge", false));
    let FetchError::TooLarge { limit, seen, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(limit, 1_000_000);
    assert!((1_000_001..2_000_000).contains(&seen), "{seen}");
}

#[tokio::test]
async fn compression_that_ends_early_or_is_broken_is_an_error() {
    let whole = gzip(&[b'x'; 10_000]);
    let mut broken = whole.clone();
    let last = broken.len() - 6;
    broken[last] ^= 0xff;
    for packed in [whole[..whole.len() - 9].to_vec(), broken, b"hello".to_vec()] {
        let server = Server::start(move |_| answer("200 OK", "Content-Encoding: gzip", &packed)).await;
        let error = get(&server.url).await.unwrap_err();
        assert_eq!(error.reason(), "ConnectionInterrupted", "{error}");
    }
}

#[tokio::test]
async fn what_comes_is_capped_before_and_after_decompression() {
    // Nothing that can be compressed: it is larger packed than unpacked.
    let content: Vec<u8> = (0..10_000_u64)
        .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(&content).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(packed.len() > content.len());
    let of = |max_bytes| Limits { max_bytes, ..limits() };
    for is_announced in [true, false] {
        let packed = packed.clone();
        let (on_the_wire, unpacked) = (packed.len() as u64, content.len() as u64);
        let server = Server::start(move |_| {
            if is_announced {
                return answer("200 OK", "Content-Encoding: gzip", &packed);
            }
            let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n".to_vec();
            vec![Part::Bytes([head, packed.clone()].concat()), Part::Close]
        })
        .await;
        let error = fetcher().get(&server.url, None, &of(unpacked)).await.unwrap_err();
        assert_eq!(error.reason(), "TooLarge");
        assert!(fetcher().get(&server.url, None, &of(on_the_wire)).await.is_ok());
    }
}

#[tokio::test]
async fn a_bomb_is_stopped_by_the_deadline_of_the_whole_too() {
    let packed = gzip(&vec![0; 1 << 20]).repeat(1 << 10);
    let server = Server::start(move |_| answer("200 OK", "Content-Encoding: gzip", &packed)).await;
    let limits = Limits {
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
async fn several_members_are_one_body() {
    let packed = [gzip(b"hel"), gzip(b""), gzip(b"lo")].concat();
    let server = Server::start(move |_| {
        // Byte by byte, since a member may end anywhere in a chunk.
        let mut parts = vec![Part::Bytes(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: X-GZIP\r\n\r\n".to_vec(),
        )];
        parts.extend(
            packed
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
async fn a_compressed_body_of_no_bytes_is_empty() {
    let server = Server::start(|_| answer("200 OK", "Content-Encoding: gzip", b"")).await;
    assert_eq!(body(&server.url).await.bytes, 0);
}

#[rstest]
#[case("br", false)]
#[case("gzip, gzip", false)]
#[case("deflate", true)]
#[case("zstd", true)]
#[tokio::test]
async fn an_encoding_that_was_not_asked_for_is_an_error(#[case] encoding: &'static str, #[case] verbatim: bool) {
    let server = Server::start(move |_| answer("200 OK", &format!("Content-Encoding: {encoding}"), b"hello")).await;
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
async fn verbatim_bytes_are_those_that_are_served() {
    let packed = gzip(b"an archive");
    for encoding in ["Content-Encoding: gzip", "Content-Encoding: identity", ""] {
        let served = packed.clone();
        let server = Server::start(move |_| answer("200 OK", encoding, &served)).await;
        let request = Request {
            verbatim: true,
            accept: Some("application/octet-stream".to_owned()),
            ..Request::new(server.url.clone())
        };
        let answer = fetcher().send(&request, &limits()).await.unwrap();
        assert_eq!(bytes(answer.body), packed);
        let request = server.requests().remove(0).to_lowercase();
        assert!(request.contains("accept-encoding: identity\r\n"), "{request}");
        assert!(request.contains("accept: application/octet-stream\r\n"), "{request}");
    }
}

#[tokio::test]
async fn a_head_request_brings_headers_alone() {
    let server = Server::start(|request| match request.starts_with("HEAD /a ") {
        true => redirect("/b"),
        false => vec![Part::Bytes(
            b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\nContent-Encoding: br\r\nETag: \"x\"\r\nDocker-Content-Digest: sha256:00\r\n\r\n".to_vec(),
        )],
    })
    .await;
    let request = Request {
        head: true,
        ..Request::new(server.at("a"))
    };
    let answer = fetcher().send(&request, &limits()).await.unwrap();
    assert_eq!(
        (answer.status, &answer.url, answer.body.bytes),
        (StatusCode::OK, &server.at("b"), 0)
    );
    assert_eq!(answer.headers["docker-content-digest"], "sha256:00");
    assert_eq!(answer.body.validators.etag.as_deref(), Some("\"x\""));
    assert!(server.requests().iter().all(|request| request.starts_with("HEAD ")));
}

#[tokio::test]
async fn headers_without_end_are_refused() {
    for headers in ["X: y\n".repeat(101), format!("X: {}\n", "y".repeat(4_000_000))] {
        let server = Server::start(move |_| answer("200 OK", headers.trim(), b"hello")).await;
        assert!(get(&server.url).await.is_err());
    }
}

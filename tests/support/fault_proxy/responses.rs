//! The responses of injected faults.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode, header};
use futures::{StreamExt, stream};
use serde_json::json;

/// Size of a piece of a large response.
const PIECE: usize = 1 << 20;
/// Number of pieces of an endless response before it stalls, and the time between them. A client without a limit fails
/// the test, and not the machine.
const PIECES: usize = 200;
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn error(code: u16) -> Response<Body> {
    let status = StatusCode::from_u16(code).expect("a status");
    let reason = match code {
        403 => "Forbidden",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        _ => "ServiceUnavailable",
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected by the test", "reason": reason, "code": code});
    let response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json");
    response.body(body.to_string().into()).expect("the response is valid")
}

pub(super) fn expired() -> Response<Body> {
    let event = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version: 1 (2)", "reason": "Expired", "code": 410}});
    json_response(format!("{event}\n").into())
}

pub(super) fn torn() -> Response<Body> {
    json_response("{\"type\": \"MODIFIED\", \"object\": {\"apiVersion\": \"v1\", \"meta".into())
}

pub(super) fn too_many_requests(retry_after: u64) -> Response<Body> {
    let mut refused = error(429);
    refused.headers_mut().insert(header::RETRY_AFTER, retry_after.into());
    refused
}

/// Announces the complete body, and closes the connection after half of it.
pub(super) async fn half(answer: Response<Body>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    parts.headers.insert(header::CONTENT_LENGTH, body.len().into());
    let start = Ok::<_, io::Error>(body.slice(..body.len() / 2));
    let cut = async {
        // Written data is sent first.
        tokio::task::yield_now().await;
        Err(io::Error::other("cut"))
    };
    let pieces = stream::iter([start]).chain(stream::once(cut));
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// An object with this many MiB.
pub(super) fn huge(mebibytes: usize) -> Response<Body> {
    let start =
        Bytes::from_static(b"{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {}, \"padding\": \"");
    let padding = std::iter::repeat_n(piece(), mebibytes);
    let pieces = std::iter::once(start)
        .chain(padding)
        .chain([Bytes::from_static(b"\"}\n")]);
    json_response(Body::from_stream(stream::iter(pieces.map(Ok::<_, io::Error>))))
}

/// An event of a watch that has no end.
pub(super) fn endless() -> Response<Body> {
    let start = Bytes::from_static(b"{\"type\": \"ADDED\", \"object\": {\"padding\": \"");
    let padding = stream::repeat(piece()).take(PIECES).then(|piece| async move {
        tokio::time::sleep(PAUSE).await;
        piece
    });
    let pieces = stream::iter([start]).chain(padding).chain(stream::pending());
    json_response(Body::from_stream(pieces.map(Ok::<_, io::Error>)))
}

fn piece() -> Bytes {
    Bytes::from(vec![b'x'; PIECE])
}

pub(super) fn redirect(to: &str) -> Response<Body> {
    let response = Response::builder()
        .status(StatusCode::TEMPORARY_REDIRECT)
        .header(header::LOCATION, to);
    response.body(Body::empty()).expect("the response is valid")
}

fn json_response(body: Body) -> Response<Body> {
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response.body(body).expect("the response is valid")
}

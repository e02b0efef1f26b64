//! Faults of the chart server.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{Stream, StreamExt, stream};

use super::respond;
use crate::support::signal::Signal;

/// A fault in place of the regular response.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Responds with this status, these headers and this body.
    Answer(StatusCode, Vec<(HeaderName, String)>, Bytes),
    /// Closes the connection without a response.
    NoResponse,
    /// Waits before the regular response.
    Delay(Duration),
    /// Gives the first signal, and waits for the second one before the regular response.
    Hold(Arc<Signal>, Arc<Signal>),
    /// Sends this many bytes of the page, then nothing more; the connection stays open.
    StallAfter(usize),
    /// Announces the complete page, sends this many bytes of it and closes the connection.
    TruncateAfter(usize),
    /// Sends the page in pieces of this many bytes, with a pause after each.
    Drip(usize, Duration),
    /// A compressed body that expands endlessly.
    EndlessGzip,
}

impl Fault {
    /// A response with only a status.
    pub fn status(status: u16) -> Self {
        Self::Answer(
            StatusCode::from_u16(status).expect("a status"),
            Vec::new(),
            Bytes::new(),
        )
    }

    /// A status with a `Retry-After` header.
    pub fn retry_after(status: u16, value: &str) -> Self {
        let headers = vec![(header::RETRY_AFTER, value.to_owned())];
        Self::Answer(StatusCode::from_u16(status).expect("a status"), headers, Bytes::new())
    }

    /// A redirect with status 302; a path that redirects to itself is a loop.
    pub fn redirect(location: &str) -> Self {
        Self::redirect_as(302, location)
    }

    /// A redirect with another status: 301, 303, 307 or 308.
    pub fn redirect_as(status: u16, location: &str) -> Self {
        let headers = vec![(header::LOCATION, location.to_owned())];
        Self::Answer(StatusCode::from_u16(status).expect("a status"), headers, Bytes::new())
    }

    /// An HTML page with status 200, like those of captive portals and login pages.
    pub fn html() -> Self {
        let headers = vec![(header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned())];
        Self::Answer(
            StatusCode::OK,
            headers,
            "<!DOCTYPE html>\n<html><body>Please log in</body></html>\n".into(),
        )
    }

    /// Applies the fault to a regular response. Returns `None` if the connection must be closed.
    pub async fn apply<G: Future<Output = Response<Body>>>(
        self,
        mut request: Request,
        good: impl FnOnce(Request) -> G,
    ) -> Option<Response<Body>> {
        match self {
            Self::NoResponse => return None,
            Self::Delay(pause) => {
                tokio::time::sleep(pause).await;
                return Some(good(request).await);
            }
            Self::Hold(reached, released) => {
                reached.give();
                released.given().await;
                return Some(good(request).await);
            }
            Self::Answer(status, headers, body) => {
                let mut response = respond(status, body.into());
                for (name, value) in headers {
                    response.headers_mut().append(name, value.parse().expect("a header"));
                }
                return Some(response);
            }
            Self::EndlessGzip => {
                let mut response = respond(StatusCode::OK, Body::from_stream(endless_gzip()));
                response
                    .headers_mut()
                    .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                return Some(response);
            }
            Self::StallAfter(_) | Self::TruncateAfter(_) | Self::Drip(..) => {}
        }
        // The fault applies to the complete body.
        for name in [
            header::IF_NONE_MATCH,
            header::IF_MODIFIED_SINCE,
            header::ACCEPT_ENCODING,
        ] {
            request.headers_mut().remove(name);
        }
        let (mut parts, body) = good(request).await.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        parts.headers.insert(header::CONTENT_LENGTH, body.len().into());
        let start = |bytes: usize| Ok::<_, std::io::Error>(body.slice(..bytes.min(body.len())));
        let spoiled = match self {
            Self::StallAfter(bytes) => stream::iter([start(bytes)]).chain(stream::pending()).boxed(),
            Self::TruncateAfter(bytes) => stream::iter([start(bytes)]).chain(stream::once(closed())).boxed(),
            Self::Drip(piece, pause) => drip(body.clone(), piece, pause).boxed(),
            _ => unreachable!("other faults returned above"),
        };
        Some(Response::from_parts(parts, Body::from_stream(spoiled)))
    }
}

/// Returns the error that ends a connection. Yields first, so that written data is sent.
async fn closed() -> Result<Bytes, std::io::Error> {
    tokio::task::yield_now().await;
    Err(std::io::Error::other("cut"))
}

fn drip(body: Bytes, piece: usize, pause: Duration) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    stream::unfold(body, move |mut rest| async move {
        if rest.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        let piece = rest.split_to(piece.min(rest.len()));
        Some((Ok(piece), rest))
    })
}

/// One compressed mebibyte of empty lines, repeated endlessly. A block after a flush is independent.
fn endless_gzip() -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    let lines = vec![b'\n'; 1 << 20];
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let mut block = || {
        encoder
            .write_all(&lines)
            .and_then(|()| encoder.flush())
            .expect("writing to memory succeeds");
        Bytes::from(std::mem::take(encoder.get_mut()))
    };
    let (first, next) = (block(), block());
    stream::iter([first]).chain(stream::repeat(next)).map(Ok)
}

//! Successful responses: content in the format that the client accepts, with a weak ETag, in gzip for clients that accept it.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use super::problem::Problem;
use super::rows::Rows;
use crate::budget::{Reservation, SMALL_JSON};
use crate::server::{accepts_gzip, gzip};
use crate::text::hex;

pub(super) const JSON: &str = "application/json";
/// Below it, gzip saves no packet.
const MIN_GZIP_BYTES: usize = 1024;

/// A body, and the memory that is reserved for it until it is sent.
pub(super) struct Content {
    pub(super) media_type: &'static str,
    pub(super) body: Vec<u8>,
    pub(super) memory: Option<Reservation>,
}

struct ReservedBytes {
    bytes: Vec<u8>,
    _memory: Reservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Content {
    pub(super) fn new(media_type: &'static str, body: Vec<u8>) -> Self {
        Self {
            media_type,
            body,
            memory: None,
        }
    }

    pub(super) fn json(content: &impl Serialize) -> Result<Self, Problem> {
        let body = serde_json::to_vec(content).map_err(|_| Problem::internal())?;
        Ok(Self::new(JSON, body))
    }

    /// Reserves memory for a large body. The request must hold no other.
    pub(super) async fn reserve(self, rows: &Rows, namespace: &str) -> Result<Self, Problem> {
        let memory = rows.memory_of_body(namespace, self.body.len()).await?;
        Ok(Self { memory, ..self })
    }

    fn into_body(self) -> Body {
        match self.memory {
            None => self.body.into(),
            Some(mut memory) => {
                memory.shrink(self.body.len() as u64);
                Bytes::from_owner(ReservedBytes {
                    bytes: self.body,
                    _memory: memory,
                })
                .into()
            }
        }
    }
}

/// Returns the media type to respond with: of the types that the client prefers, the one that is offered first.
pub(super) fn negotiate(request: &HeaderMap, offered: &[&'static str]) -> Result<&'static str, Problem> {
    let values = request.get_all(header::ACCEPT).iter();
    let ranges: Vec<(&str, f32)> = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|range| !range.is_empty())
        .map(parse_range)
        .collect();
    let mut best: Option<(&'static str, f32)> = None;
    for &media_type in offered {
        let quality = quality(&ranges, media_type);
        if quality > best.map_or(0.0, |(_, quality)| quality) {
            best = Some((media_type, quality));
        }
    }
    let chosen = best.map(|(media_type, _)| media_type);
    chosen.ok_or_else(|| Problem::not_acceptable(offered))
}

fn parse_range(range: &str) -> (&str, f32) {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q="));
    (name, weight.map_or(1.0, |weight| weight.trim().parse().unwrap_or(0.0)))
}

/// The most specific range counts.
fn quality(ranges: &[(&str, f32)], media_type: &str) -> f32 {
    if ranges.is_empty() {
        return 1.0;
    }
    let kind = media_type.split('/').next().unwrap_or_default();
    let of = |wanted: &dyn Fn(&str) -> bool| {
        ranges
            .iter()
            .find(|(range, _)| wanted(range))
            .map(|(_, quality)| *quality)
    };
    of(&|range| range.eq_ignore_ascii_case(media_type))
        .or_else(|| {
            of(&|range| {
                range
                    .strip_suffix("/*")
                    .is_some_and(|range| range.eq_ignore_ascii_case(kind))
            })
        })
        .or_else(|| of(&|range| range == "*/*"))
        .unwrap_or(0.0)
}

/// Responds with JSON of a limited size.
pub(super) fn respond(request: &HeaderMap, content: &impl Serialize) -> Result<Response, Problem> {
    negotiate(request, &[JSON])?;
    respond_with(request, Content::json(content)?)
}

/// Responds with content of a negotiated media type. Large content is hashed and compressed beside the runtime.
pub(super) async fn send(request: &HeaderMap, content: Content) -> Result<Response, Problem> {
    if content.body.len() <= SMALL_JSON {
        return respond_with(request, content);
    }
    let request = request.clone();
    let response = spawn_blocking(move || respond_with(&request, content)).await;
    response.unwrap_or_else(|_| Err(Problem::internal()))
}

/// The ETag is a digest of the body, so equal content has the same one on every replica.
pub(super) fn respond_with(request: &HeaderMap, content: Content) -> Result<Response, Problem> {
    let digest = hex(&Sha256::digest(&content.body));
    let etag = format!("W/\"{}\"", digest.get(..32).unwrap_or(&digest));
    let mut response = if is_known(request, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        encode(request, content)?
    };
    let headers = response.headers_mut();
    headers.insert(
        header::ETAG,
        HeaderValue::from_str(&etag).map_err(|_| Problem::internal())?,
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(
        header::VARY,
        HeaderValue::from_static("Authorization, Cookie, Accept, Accept-Encoding"),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

fn encode(request: &HeaderMap, mut content: Content) -> Result<Response, Problem> {
    let media_type = content_type(content.media_type)?;
    let is_packed =
        content.body.len() >= MIN_GZIP_BYTES && accepts_gzip(request) && is_compressible(content.media_type);
    if is_packed {
        content.body = gzip(&content.body).map_err(|_| Problem::internal())?;
    }
    let mut response = content.into_body().into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media_type);
    if is_packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Only types of text have a charset.
fn content_type(media_type: &str) -> Result<HeaderValue, Problem> {
    let value = if media_type.starts_with("text/") {
        HeaderValue::try_from(format!("{media_type}; charset=utf-8"))
    } else {
        HeaderValue::try_from(media_type)
    };
    value.map_err(|_| Problem::internal())
}

/// Images are compressed already, except SVG.
fn is_compressible(media_type: &str) -> bool {
    !media_type.starts_with("image/") || media_type.ends_with("+xml")
}

/// Returns true if the client has this representation. Weak comparison, as RFC 9110 has it for If-None-Match.
pub(super) fn is_known(request: &HeaderMap, etag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let values = request.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    tags.any(|tag| tag.trim() == "*" || opaque(tag) == opaque(etag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(headers: &[(header::HeaderName, &str)], content: &str) -> Response {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        respond(&headers.collect(), &content).unwrap()
    }

    #[test]
    fn a_client_that_has_the_content_gets_no_body() {
        let first = get(&[], "web");
        let etag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
        assert!(etag.starts_with("W/\""), "{etag}");
        for known in [
            etag.clone(),
            format!("\"x\", {}", etag.trim_start_matches("W/")),
            "*".to_owned(),
        ] {
            let response = get(&[(header::IF_NONE_MATCH, &known)], "web");
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!(response.headers()[header::ETAG], etag.as_str());
        }
        assert_eq!(get(&[(header::IF_NONE_MATCH, &etag)], "other").status(), StatusCode::OK);
    }

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        const DIFF: &str = "text/x-diff";
        let negotiate = |accept: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            negotiate(&headers, &[JSON, DIFF]).ok()
        };
        assert_eq!(super::negotiate(&HeaderMap::new(), &[JSON, DIFF]).unwrap(), JSON);
        for (accept, expected) in [
            ("*/*", Some(JSON)),
            ("text/html, application/*;q=0.8", Some(JSON)),
            ("Text/X-Diff", Some(DIFF)),
            ("text/x-diff;q=0.9, application/json; q=0.1", Some(DIFF)),
            ("application/json;q=0, */*;q=0.1", Some(DIFF)),
            ("text/html", None),
            ("application/json;q=0", None),
            ("application/json;q=much", None),
        ] {
            assert_eq!(negotiate(accept), expected, "{accept}");
        }
    }

    #[tokio::test]
    async fn memory_of_a_body_is_returned_once_it_is_sent() {
        let memory = crate::budget::Budget::new("memory", 1000);
        let content = Content {
            media_type: "text/markdown",
            body: b"# web".to_vec(),
            memory: Some(memory.acquire("team-a", 300).await),
        };
        let response = send(&HeaderMap::new(), content).await.unwrap();
        assert_eq!(memory.used(), 5);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/markdown; charset=utf-8");
        drop(response);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn large_content_is_compressed_for_clients_that_accept_it() {
        let large = "x".repeat(MIN_GZIP_BYTES);
        let gzip = [(header::ACCEPT_ENCODING, "gzip")];
        assert_eq!(get(&gzip, &large).headers()[header::CONTENT_ENCODING], "gzip");
        assert!(!get(&[], &large).headers().contains_key(header::CONTENT_ENCODING));
        assert!(!get(&gzip, "small").headers().contains_key(header::CONTENT_ENCODING));
    }
}

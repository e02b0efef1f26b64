//! Successful responses: JSON with a weak ETag, in gzip for clients that accept it.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::problem::Problem;
use crate::server::{accepts_gzip, gzip};
use crate::text::hex;

/// Below it, gzip saves no packet.
const MIN_GZIP_BYTES: usize = 1024;

/// The ETag is a digest of the body, so equal content has the same one on every replica.
pub(super) fn respond(request: &HeaderMap, content: &impl Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_vec(content).map_err(|_| Problem::internal())?;
    let digest = hex(&Sha256::digest(&body));
    let etag = format!("W/\"{}\"", digest.get(..32).unwrap_or(&digest));
    let mut response = if is_known(request, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        encode(request, body)?
    };
    let headers = response.headers_mut();
    headers.insert(
        header::ETAG,
        HeaderValue::from_str(&etag).map_err(|_| Problem::internal())?,
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(
        header::VARY,
        HeaderValue::from_static("Authorization, Cookie, Accept-Encoding"),
    );
    Ok(response)
}

fn encode(request: &HeaderMap, body: Vec<u8>) -> Result<Response, Problem> {
    let json = [(header::CONTENT_TYPE, "application/json")];
    if body.len() < MIN_GZIP_BYTES || !accepts_gzip(request) {
        return Ok((json, body).into_response());
    }
    let body = gzip(&body).map_err(|_| Problem::internal())?;
    Ok((json, [(header::CONTENT_ENCODING, "gzip")], body).into_response())
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
    fn large_content_is_compressed_for_clients_that_accept_it() {
        let large = "x".repeat(MIN_GZIP_BYTES);
        let gzip = [(header::ACCEPT_ENCODING, "gzip")];
        assert_eq!(get(&gzip, &large).headers()[header::CONTENT_ENCODING], "gzip");
        assert!(!get(&[], &large).headers().contains_key(header::CONTENT_ENCODING));
        assert!(!get(&gzip, "small").headers().contains_key(header::CONTENT_ENCODING));
    }
}

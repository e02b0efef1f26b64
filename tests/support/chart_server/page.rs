//! The response of a path.

use std::io::Write;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use super::respond;
use crate::support::archives::Archive;

/// A page with its validators.
#[derive(Clone, Debug)]
pub struct Page {
    body: Bytes,
    content_type: Option<&'static str>,
    etag: Option<String>,
    last_modified: Option<String>,
    gzip: bool,
}

impl Page {
    /// A page with an ETag that depends on its content.
    pub fn new(body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let hash: String = Sha256::digest(&body)
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            body,
            content_type: Some("application/yaml"),
            etag: Some(format!("\"{hash}\"")),
            last_modified: None,
            gzip: false,
        }
    }

    /// Removes the ETag. Without Last-Modified either, the server cannot respond with 304.
    pub fn without_etag(mut self) -> Self {
        self.etag = None;
        self
    }

    /// Sets the ETag, including quotes.
    pub fn etag(mut self, etag: &str) -> Self {
        self.etag = Some(etag.to_owned());
        self
    }

    /// Sets the Last-Modified date.
    pub fn last_modified(mut self, date: &str) -> Self {
        self.last_modified = Some(date.to_owned());
        self
    }

    /// Compresses responses to clients that accept it.
    pub fn gzip(mut self) -> Self {
        self.gzip = true;
        self
    }

    /// A page with the archive of a chart.
    pub fn archive(archive: &Archive) -> Self {
        Self::new(archive.bytes.clone()).content_type("application/gzip")
    }

    pub fn content_type(mut self, content_type: &'static str) -> Self {
        self.content_type = Some(content_type);
        self
    }

    pub fn without_content_type(mut self) -> Self {
        self.content_type = None;
        self
    }

    /// Returns the page, or 304. The date is compared only without an ETag in the request (RFC 9110, 13.1.3).
    pub fn answer(&self, headers: &HeaderMap) -> Response<Body> {
        let header_value = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let unchanged = match (
            header_value(header::IF_NONE_MATCH),
            header_value(header::IF_MODIFIED_SINCE),
        ) {
            (Some(tag), _) => self.etag.as_deref() == Some(tag),
            (None, Some(date)) => self.last_modified.as_deref() == Some(date),
            (None, None) => false,
        };
        let compressed =
            self.gzip && header_value(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
        let mut response = match (unchanged, compressed) {
            (true, _) => respond(StatusCode::NOT_MODIFIED, Body::empty()),
            (false, false) => respond(StatusCode::OK, self.body.clone().into()),
            (false, true) => respond(StatusCode::OK, gzip(&self.body).into()),
        };
        let mut set = |name, value: &str| {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_str(value).expect("a header"))
        };
        if !unchanged {
            if let Some(content_type) = self.content_type {
                set(header::CONTENT_TYPE, content_type);
            }
            if compressed {
                set(header::CONTENT_ENCODING, "gzip");
            }
        }
        self.etag.iter().for_each(|tag| drop(set(header::ETAG, tag)));
        self.last_modified
            .iter()
            .for_each(|date| drop(set(header::LAST_MODIFIED, date)));
        response
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder
        .write_all(body)
        .and_then(|()| encoder.finish())
        .expect("writing to memory succeeds")
}

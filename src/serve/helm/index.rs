//! `index.yaml` of a repository.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::ArchiveMode;
use super::body::stream_body;
use super::indexes::{RenderError, RenderRequest};
use super::render::FORMAT;
use crate::api::NamespacedName;
use crate::catalog::query::ChartsKey;
use crate::serve::problem::Problem;
use crate::serve::respond::is_known;
use crate::serve::site::Site;
use crate::server::accepts_gzip;
use crate::text::hex;

/// In seconds.
const RETRY_AFTER: u64 = 5;

type Names = Result<Path<(String, String)>, PathRejection>;

pub(super) async fn show(State(site): State<Site>, headers: HeaderMap, names: Names) -> Result<Response, Problem> {
    let Path((namespace, repository)) = names.map_err(|_| Problem::unknown_path())?;
    let name = NamespacedName::new(namespace, repository);
    let visit = site.enter(&headers, Some(&name.namespace)).await?;
    let key = visit.repository(&name)?.keys.charts.clone();
    let helm = site.helm();
    let etag = etag(&key, helm.archives);
    let mut response = if is_known(&headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let record = visit.loaded().records.get(&name);
        let request = RenderRequest {
            // Names are unique in a Helm repository.
            may_share_names: record.is_none_or(|record| record.kind != "helm"),
            repository: name,
            key,
            etag: etag.clone(),
            mode: helm.archives,
        };
        drop(visit);
        let index = helm.indexes.get(site.live(), &helm.budgets, request).await?;
        let is_compressed = accepts_gzip(&headers);
        let (reader, bytes) = index.reader(is_compressed);
        content(stream_body(reader), bytes, is_compressed)
    };
    let headers = response.headers_mut();
    let etag = HeaderValue::from_str(&etag).map_err(|_| Problem::internal())?;
    headers.insert(header::ETAG, etag);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(
        header::VARY,
        HeaderValue::from_static("Authorization, Cookie, Accept-Encoding"),
    );
    Ok(response)
}

/// Returns the same on every replica. It changes with the bytes of the index.
fn etag(key: &ChartsKey, mode: ArchiveMode) -> String {
    let inputs = format!("{FORMAT}\n{mode}\n{}", key.text());
    let digest = hex(&Sha256::digest(inputs));
    format!("W/\"{}\"", digest.get(..32).unwrap_or(&digest))
}

fn content(body: Body, bytes: u64, is_compressed: bool) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CONTENT_LENGTH, bytes.into());
    if is_compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

impl From<RenderError> for Problem {
    fn from(error: RenderError) -> Self {
        match error {
            RenderError::TooLarge => Self::insufficient_storage(
                "the index takes more than 50 MiB, which Flux refuses; keep fewer charts or versions by spec.filterRule",
            ),
            RenderError::Unavailable(error) => error.into(),
            RenderError::SpoolFull | RenderError::Spool | RenderError::Busy | RenderError::LargeRow(_) => {
                Self::unavailable(format!("{error}; retry later"), RETRY_AFTER)
            }
        }
    }
}

//! The OpenAPI document, which a test compares with the responses.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;

use crate::serve::problem::Problem;
use crate::serve::respond::respond;
use crate::serve::site::Site;

const DOCUMENT: &str = include_str!("openapi.json");

/// Needs no credentials: the document has no content of the catalog.
pub(super) async fn show(State(site): State<Site>, headers: HeaderMap) -> Result<Response, Problem> {
    let mut document: Value = serde_json::from_str(DOCUMENT).map_err(|_| Problem::internal())?;
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    document["servers"] = serde_json::json!([{ "url": format!("{}/api/v1", site.prefix()) }]);
    respond(&headers, &document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_json() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
    }
}

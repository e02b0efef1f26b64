//! The REST API `/api/v1`: what a caller may see of the snapshot, and rows of charts.
//!
//! ```text
//!  request ─► parameters ─► Site: who, which namespaces ─► snapshot ─┬───► page, ETag, gzip
//!                                                              └─► rows of a chart ─┘
//! ```

pub(super) mod address;
pub(super) mod chart;
pub(super) mod charts;
pub(super) mod diff;
mod document;
pub(super) mod files;
mod icon;
pub(super) mod keys;
mod metadata;
mod outdated;
pub(super) mod parameters;
pub(super) mod repositories;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

use super::access::Visible;
use super::problem::Problem;
use super::respond::respond;
use super::site::Site;

/// The routes below `/api/v1`.
pub(super) fn routes() -> Router<Site> {
    Router::new()
        .route("/openapi.json", get(document::show))
        .route("/whoami", get(whoami))
        .route("/repositories", get(repositories::list))
        .route("/repositories/{namespace}/{repository}", get(repositories::show))
        .route("/repositories/{namespace}/{repository}/syncs", get(repositories::syncs))
        .route("/outdated", outdated::route())
        .route("/charts", get(charts::list))
        .route("/charts/{namespace}/{repository}/{chart}", get(chart::show))
        .route("/charts/{namespace}/{repository}/{chart}/icon", get(icon::show))
        .route("/charts/{namespace}/{repository}/{chart}/diff", get(diff::show))
        .route(
            "/charts/{namespace}/{repository}/{chart}/versions",
            get(chart::versions),
        )
        .route(
            "/charts/{namespace}/{repository}/{chart}/versions/{version}",
            get(chart::version),
        )
        .route(
            "/charts/{namespace}/{repository}/{chart}/versions/{version}/keys",
            get(keys::show),
        )
        .route(
            "/charts/{namespace}/{repository}/{chart}/versions/{version}/chart",
            get(metadata::show),
        )
        .route(
            "/charts/{namespace}/{repository}/{chart}/versions/{version}/{file}",
            get(files::show),
        )
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Whoami<'a> {
    /// Null for a caller without credentials.
    user: Option<&'a str>,
    all_namespaces: bool,
    /// Those with repositories that the caller sees.
    namespaces: Vec<&'a str>,
}

async fn whoami(State(site): State<Site>, headers: HeaderMap) -> Result<Response, Problem> {
    let visit = site.enter(&headers, None).await?;
    let visible = &visit.caller.namespaces;
    let namespaces = visit.loaded().namespaces.iter().map(String::as_str);
    let whoami = Whoami {
        user: visit.caller.user.as_deref(),
        all_namespaces: matches!(visible, Visible::All),
        namespaces: namespaces.filter(|namespace| visible.contains(namespace)).collect(),
    };
    respond(&headers, &whoami)
}

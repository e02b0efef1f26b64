//! Pages for browsers. The server renders them, and they work without scripts.
//!
//! ```text
//!  request ─► Site::enter ─► what the API reads ─► Frame + template ─► page: ETag, headers
//!                                         problem ─► show_problems ─► page, or the sign-in
//! ```

mod applications;
mod assets;
mod catalog;
mod chart;
mod error;
mod frame;
mod help;
mod links;
mod login;
mod outdated;
mod repositories;
mod shown;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{Redirect, Response};
use axum::routing::get;

use error::PageError;
pub(super) use error::show_problems;
use frame::Frame;

use super::problem::Problem;
use super::respond::{Content, respond_with, send};
use super::site::{Site, at};

const HTML: &str = "text/html";
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const HEADERS: [(&str, &str); 4] = [
    ("content-security-policy", POLICY),
    // With `no-referrer`, browsers send `Origin: null` with forms.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// The routes of all pages. The catalog is at the prefix with a slash, which `nest` would not match.
pub(super) fn routes(site: &Site) -> Router<Site> {
    let below = Router::new()
        .route("/repositories", get(repositories::list))
        .route("/repositories/{namespace}/{repository}", get(repositories::show))
        .route("/outdated", get(outdated::list))
        .route("/help", get(help::show))
        .route("/assets/{file}", get(assets::show))
        .route("/robots.txt", get(assets::robots))
        .route("/favicon.ico", get(assets::favicon))
        .merge(applications::routes())
        .merge(chart::routes())
        .merge(login::routes());
    let prefix = site.prefix();
    let pages = at(prefix, below).route(&format!("{prefix}/"), get(catalog::show));
    if prefix.is_empty() {
        pages
    } else {
        pages.route(prefix, get(add_slash))
    }
}

async fn add_slash(State(site): State<Site>) -> Redirect {
    Redirect::permanent(&format!("{}/", site.prefix()))
}

/// Responds with a page, or with 304 to a browser that has it.
fn page(_site: &Site, headers: &HeaderMap, template: &impl Template) -> Result<Response, PageError> {
    let body = template.render().map_err(|error| unrenderable(&error))?;
    let mut response = respond_with(headers, Content::new(HTML, body.into_bytes()))?;
    protect(response.headers_mut());
    Ok(response)
}

/// Same as [`page`] for a page whose size depends on a chart: with a CPU permit of the namespace, and its memory if it is large.
/// The request must hold no other memory.
async fn large_page(
    site: &Site,
    headers: &HeaderMap,
    namespace: &str,
    template: impl Template + Send + 'static,
) -> Result<Response, PageError> {
    let body = site.rows().compute(namespace, move || template.render()).await?;
    let body = body.map_err(|error| unrenderable(&error))?;
    let content = Content::new(HTML, body.into_bytes());
    let content = content.reserve(site.rows(), namespace).await?;
    let mut response = send(headers, content).await?;
    protect(response.headers_mut());
    Ok(response)
}

fn unrenderable(error: &askama::Error) -> Problem {
    tracing::error!(%error, "failed to render a page");
    Problem::internal()
}

/// Adds the headers that limit what a page may do, and who may embed it.
fn protect(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

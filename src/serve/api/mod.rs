//! The REST API `/api/v1`: what a caller may see of the snapshot, and rows of charts.
//!
//! ```text
//!  request ─► limits ─► parameters ─► Access (who, which namespaces) ─► snapshot ─┬─► page, ETag, gzip
//!                                                                   └─► row of a chart ─┘
//! ```

mod chart;
mod charts;
mod document;
mod parameters;
mod problem;
mod repositories;
mod respond;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::access::{Access, AccessError, Caller, Visible};
use super::live::{Live, Loaded, View};
use super::metrics::ServeMetrics;
use super::snapshot::Repository;
use crate::api::NamespacedName;
use problem::Problem;
use respond::respond;

/// Path and query of a request. A cursor takes most of it.
const MAX_URI_BYTES: usize = 8 * 1024;
const MAX_IN_FLIGHT: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(10);

/// The parts that all requests share; a handle, cheap to clone.
#[derive(Clone)]
pub struct Site(Arc<Inner>);

struct Inner {
    live: Arc<Live>,
    access: Access,
    in_flight: Semaphore,
    /// The path before `/api`, such as `/catalog`; empty if there is none.
    prefix: String,
    metrics: ServeMetrics,
}

impl Site {
    #[must_use]
    pub fn new(live: Arc<Live>, access: Access, prefix: String, metrics: ServeMetrics) -> Self {
        Self(Arc::new(Inner {
            live,
            access,
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
            prefix,
            metrics,
        }))
    }

    pub fn routes(self) -> Router {
        let api = Router::new()
            .route("/openapi.json", get(document::show))
            .route("/whoami", get(whoami))
            .route("/repositories", get(repositories::list))
            .route("/repositories/{namespace}/{repository}", get(repositories::show))
            .route("/charts", get(charts::list))
            .route("/charts/{namespace}/{repository}/{chart}", get(chart::show))
            .route(
                "/charts/{namespace}/{repository}/{chart}/versions",
                get(chart::versions),
            )
            .route(
                "/charts/{namespace}/{repository}/{chart}/versions/{version}",
                get(chart::version),
            );
        let path = format!("{}/api/v1", self.0.prefix);
        Router::new()
            .nest(&path, api)
            .fallback(async || Problem::unknown_path())
            .method_not_allowed_fallback(async || Problem::method())
            .layer(from_fn_with_state(self.clone(), limit))
            .with_state(self)
    }

    fn live(&self) -> &Arc<Live> {
        &self.0.live
    }

    /// Identifies the caller, and refuses one that may not list in the namespace that the request names. A caller without
    /// credentials never learns that the database is away.
    async fn enter(&self, headers: &HeaderMap, namespace: Option<&str>) -> Result<Visit, Problem> {
        let view = self.0.live.view().await;
        let namespaces: &[String] = match &view {
            Ok(view) => &view.loaded.namespaces,
            Err(_) => &[],
        };
        let caller = self.0.access.caller(headers, namespaces, namespace).await?;
        match namespace {
            // Alike for one that does not exist.
            Some(namespace) if !caller.namespaces.contains(namespace) => Err(Problem::from(AccessError::Forbidden {
                user: caller.user.unwrap_or_default(),
                namespace: Some(namespace.to_owned()),
            })),
            _ => Ok(Visit { caller, view: view? }),
        }
    }
}

async fn limit(State(site): State<Site>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let response = respond_within_limits(&site, request, next).await;
    let code = response.status().as_u16();
    site.0.metrics.observe_request(code, started.elapsed());
    response
}

async fn respond_within_limits(site: &Site, request: Request, next: Next) -> Response {
    let uri = request.uri();
    if uri.path().len() + uri.query().map_or(0, str::len) > MAX_URI_BYTES {
        return Problem::uri_too_long(MAX_URI_BYTES).into_response();
    }
    let Ok(_permit) = site.0.in_flight.try_acquire() else {
        return Problem::busy().into_response();
    };
    let response = timeout(TIMEOUT, next.run(request)).await;
    response.unwrap_or_else(|_| Problem::late().into_response())
}

/// A caller, and what the catalog has at this time.
struct Visit {
    caller: Caller,
    view: View,
}

impl Visit {
    fn loaded(&self) -> &Loaded {
        &self.view.loaded
    }

    /// Returns the repositories in the caller's namespaces, by name. Nothing else of the snapshot may be shown.
    fn repositories(&self) -> impl Iterator<Item = (&NamespacedName, &Repository)> + Clone {
        let visible = &self.caller.namespaces;
        let all = self.view.loaded.snapshot.repositories().iter();
        all.filter(move |(name, _)| visible.contains(&name.namespace))
    }

    fn repository(&self, name: &NamespacedName) -> Result<&Repository, Problem> {
        let repository = self.view.loaded.snapshot.repositories().get(name);
        let visible = repository.filter(|_| self.caller.namespaces.contains(&name.namespace));
        visible.ok_or_else(|| Problem::not_found(format!("there is no repository {name}; see /api/v1/repositories")))
    }

    fn freshness(&self) -> Freshness {
        Freshness {
            stale: self.view.stale.is_some(),
            stale_seconds: self.view.stale.map(|age| age.as_secs()),
        }
    }
}

/// The age of the content, while the database can't be read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Freshness {
    stale: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_seconds: Option<u64>,
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

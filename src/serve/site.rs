//! The parts that all routes share: limits of a request, its caller, and what the caller may see of the snapshot.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::access::{Access, AccessError, Caller};
use super::api;
use super::helm::{self, Helm, HelmOptions};
use super::live::{Live, Loaded, View};
use super::metrics::ServeMetrics;
use super::problem::Problem;
use super::snapshot::Repository;
use crate::api::NamespacedName;
use crate::budget::Budgets;

/// Path and query of a request. A cursor takes most of it.
const MAX_URI_BYTES: usize = 8 * 1024;
const MAX_IN_FLIGHT: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(10);

pub struct SiteOptions {
    pub live: Arc<Live>,
    pub access: Access,
    /// The path before `/api`, such as `/catalog`; empty if there is none.
    pub prefix: String,
    /// Scheme and authority of `--external-url`, such as `https://charts.example`.
    pub external_origin: Option<String>,
    pub metrics: ServeMetrics,
    pub helm: HelmOptions,
    /// Memory of rows and renderings.
    pub budgets: Budgets,
}

/// A handle, cheap to clone.
#[derive(Clone)]
pub struct Site(Arc<Inner>);

struct Inner {
    helm: Helm,
    options: SiteOptions,
    in_flight: Semaphore,
}

impl Site {
    #[must_use]
    pub fn new(options: SiteOptions) -> Self {
        Self(Arc::new(Inner {
            helm: Helm::new(options.helm.clone(), &options.budgets),
            options,
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
        }))
    }

    pub fn routes(self) -> Router {
        let path = format!("{}/api/v1", self.prefix());
        Router::new()
            .nest(&path, api::routes())
            .nest(&format!("{}/helm", self.prefix()), helm::routes())
            .merge(at(self.prefix(), helm::hub_routes()))
            .fallback(async || Problem::unknown_path())
            .method_not_allowed_fallback(async || Problem::method())
            .layer(from_fn_with_state(self.clone(), limit))
            .with_state(self)
    }

    pub(super) fn live(&self) -> &Arc<Live> {
        &self.0.options.live
    }

    pub(super) fn helm(&self) -> &Helm {
        &self.0.helm
    }

    pub(super) fn external_origin(&self) -> Option<&str> {
        self.0.options.external_origin.as_deref()
    }

    pub(super) fn prefix(&self) -> &str {
        &self.0.options.prefix
    }

    /// Identifies the caller, and refuses one that may not list in the namespace that the request names. A caller without
    /// credentials never learns that the database is away.
    pub(super) async fn enter(&self, headers: &HeaderMap, namespace: Option<&str>) -> Result<Visit, Problem> {
        let view = self.live().view().await;
        let namespaces: &[String] = match &view {
            Ok(view) => &view.loaded.namespaces,
            Err(_) => &[],
        };
        let caller = self.0.options.access.caller(headers, namespaces, namespace).await?;
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

/// Nests routes below a prefix, which may be empty.
fn at(prefix: &str, routes: Router<Site>) -> Router<Site> {
    if prefix.is_empty() {
        routes
    } else {
        Router::new().nest(prefix, routes)
    }
}

async fn limit(State(site): State<Site>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let response = respond_within_limits(&site, request, next).await;
    let code = response.status().as_u16();
    site.0.options.metrics.observe_request(code, started.elapsed());
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
    let limit = helm::timeout_of(site.prefix(), uri.path()).unwrap_or(TIMEOUT);
    let response = timeout(limit, next.run(request)).await;
    response.unwrap_or_else(|_| Problem::late().into_response())
}

/// A caller, and what the catalog has at this time.
pub(super) struct Visit {
    pub(super) caller: Caller,
    view: View,
}

impl Visit {
    pub(super) fn loaded(&self) -> &Loaded {
        &self.view.loaded
    }

    /// Returns the repositories in the caller's namespaces, by name. Nothing else of the snapshot may be shown.
    pub(super) fn repositories(&self) -> impl Iterator<Item = (&NamespacedName, &Repository)> + Clone {
        let visible = &self.caller.namespaces;
        let all = self.view.loaded.snapshot.repositories().iter();
        all.filter(move |(name, _)| visible.contains(&name.namespace))
    }

    pub(super) fn repository(&self, name: &NamespacedName) -> Result<&Repository, Problem> {
        let repository = self.view.loaded.snapshot.repositories().get(name);
        let visible = repository.filter(|_| self.caller.namespaces.contains(&name.namespace));
        visible.ok_or_else(|| Problem::not_found(format!("there is no repository {name}; see /api/v1/repositories")))
    }

    pub(super) fn freshness(&self) -> Freshness {
        Freshness {
            stale: self.view.stale.is_some(),
            stale_seconds: self.view.stale.map(|age| age.as_secs()),
        }
    }
}

/// The age of the content, while the database can't be read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Freshness {
    stale: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_seconds: Option<u64>,
}

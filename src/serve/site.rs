//! The parts that all routes share: limits of a request, its caller, and what the caller may see of the snapshot.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use serde::Serialize;

use super::access::{Access, AccessError, Caller, CallerToken, ListedResource, Session, Sessions};
use super::api;
use super::cluster::ClusterReader;
use super::helm::{self, Helm, HelmOptions};
use super::limits::{Limit, Limiter, RequestLimits, TrustedProxies, limit};
use super::live::{Live, Loaded, View};
use super::metrics::ServeMetrics;
use super::pages;
use super::problem::Problem;
use super::releases::{self, ReleaseReader};
use super::rows::Rows;
use super::snapshot::Repository;
use crate::api::NamespacedName;
use crate::budget::Budgets;
use crate::server::tokens::TokenDigest;

pub struct SiteOptions {
    pub live: Arc<Live>,
    pub access: Access,
    /// The path before `/api`, such as `/catalog`; empty if there is none.
    pub prefix: String,
    /// Scheme and authority of `--external-url`, such as `https://charts.example`.
    pub external_origin: Option<String>,
    pub metrics: ServeMetrics,
    pub limits: RequestLimits,
    pub trusted_proxies: TrustedProxies,
    pub helm: HelmOptions,
    /// Reads Applications. `None` without an API server.
    pub cluster: Option<ClusterReader>,
    /// `None` unless this process watches releases.
    pub releases: Option<ReleaseReader>,
    /// Memory and CPU permits of rows and renderings.
    pub budgets: Budgets,
}

/// A handle, cheap to clone.
#[derive(Clone)]
pub struct Site(Arc<Inner>);

struct Inner {
    helm: Helm,
    options: SiteOptions,
    limiter: Limiter,
    rows: Rows,
    sessions: Sessions,
}

impl Site {
    #[must_use]
    pub fn new(options: SiteOptions) -> Self {
        let limiter = Limiter::new(
            options.limits,
            options.trusted_proxies.clone(),
            options.prefix.clone(),
            options.metrics.limits.clone(),
        );
        Self(Arc::new(Inner {
            rows: Rows::new(Arc::clone(&options.live), options.budgets.clone()),
            helm: Helm::new(options.helm.clone(), &options.budgets),
            sessions: Sessions::new(&options.prefix),
            options,
            limiter,
        }))
    }

    pub fn routes(self) -> Router {
        let path = format!("{}/api/v1", self.prefix());
        let sessions = from_fn_with_state(self.clone(), accept_session);
        Router::new()
            .nest(
                &path,
                api::routes().merge(releases::routes()).route_layer(sessions.clone()),
            )
            .nest(&format!("{}/helm", self.prefix()), helm::routes())
            .merge(at(self.prefix(), helm::hub_routes()))
            .merge(pages::routes(&self).route_layer(sessions))
            .fallback(async || Problem::unknown_path())
            .method_not_allowed_fallback(async || Problem::method())
            .layer(from_fn_with_state(self.clone(), limit))
            .layer(from_fn_with_state(self.clone(), pages::show_problems))
            .with_state(self)
    }

    pub(super) fn live(&self) -> &Arc<Live> {
        &self.0.options.live
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.0.rows
    }

    /// Returns a path with the scheme and the host of `--external-url`, if there is one.
    pub(super) fn external_url(&self, path: &str) -> String {
        let origin = self.0.options.external_origin.as_deref().unwrap_or_default();
        format!("{origin}{}{path}", self.prefix())
    }

    pub(super) fn helm(&self) -> &Helm {
        &self.0.helm
    }

    pub(super) fn external_origin(&self) -> Option<&str> {
        self.0.options.external_origin.as_deref()
    }

    pub(super) fn request_limits(&self) -> RequestLimits {
        self.0.options.limits
    }

    pub(super) fn prefix(&self) -> &str {
        &self.0.options.prefix
    }

    pub(super) fn limiter(&self) -> &Limiter {
        &self.0.limiter
    }

    pub(super) fn metrics(&self) -> &ServeMetrics {
        &self.0.options.metrics
    }

    /// Returns the token of a request if it was valid within the last hour.
    pub(super) fn known_token(&self, headers: &HeaderMap) -> Option<TokenDigest> {
        let access = &self.0.options.access;
        let of_session = || access.known(self.sessions().of(headers)?.token());
        access.known_token(headers).or_else(of_session)
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// Returns true if callers may sign in.
    pub(super) fn has_sign_in(&self) -> bool {
        self.0.options.access.has_sign_in()
    }

    /// Returns the owner of the token of a request, `None` for a request without credentials.
    pub(super) async fn owner(&self, headers: &HeaderMap) -> Result<Option<String>, AccessError> {
        let address = self.limiter().address_of_unknown_tokens();
        let owner = self.0.options.access.owner(headers, address).await;
        self.count_unknown_token(owner.as_ref().err());
        owner
    }

    /// Returns the token of a request, which is not reviewed yet.
    pub(super) fn token(&self, headers: &HeaderMap) -> Option<CallerToken> {
        self.0.options.access.token(headers)
    }

    pub(super) fn cluster(&self) -> Option<&ClusterReader> {
        self.0.options.cluster.as_ref()
    }

    pub(super) fn releases(&self) -> Option<&ReleaseReader> {
        self.0.options.releases.as_ref()
    }

    pub(super) fn count_unknown_token(&self, error: Option<&AccessError>) {
        if matches!(error, Some(AccessError::TooMany { .. })) {
            self.metrics().limits.count(Limit::UnknownTokens);
        }
    }

    /// Identifies the caller, and refuses one that may not list in the namespace that the request names. A caller without
    /// credentials never learns that the database is away.
    pub(super) async fn enter(&self, headers: &HeaderMap, namespace: Option<&str>) -> Result<Visit, Problem> {
        let view = self.live().view().await;
        let namespaces: &[String] = match &view {
            Ok(view) => &view.loaded.namespaces,
            Err(_) => &[],
        };
        let address = self.limiter().address_of_unknown_tokens();
        let caller = self
            .0
            .options
            .access
            .caller(headers, namespaces, namespace, address)
            .await;
        self.count_unknown_token(caller.as_ref().err());
        let caller = caller?;
        match namespace {
            // Alike for one that does not exist.
            Some(namespace) if !caller.namespaces.contains(namespace) => Err(Problem::from(AccessError::Forbidden {
                user: caller.user.unwrap_or_default(),
                resource: ListedResource::AppRepositories,
                namespace: Some(namespace.to_owned()),
            })),
            _ => Ok(Visit {
                session: self.sessions().in_use(headers).filter(|_| caller.user.is_some()),
                caller,
                view: view?,
            }),
        }
    }
}

/// Takes the token of a browser's session as the credentials of a request. Other clients than browsers have the Authorization
/// header, so no route of theirs needs this.
async fn accept_session(State(site): State<Site>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !headers.contains_key(header::AUTHORIZATION)
        && let Some(session) = site.sessions().of(headers)
    {
        *request.headers_mut() = session.authorize(request.headers());
    }
    next.run(request).await
}

/// Nests routes below a prefix, which may be empty.
pub(super) fn at(prefix: &str, routes: Router<Site>) -> Router<Site> {
    if prefix.is_empty() {
        routes
    } else {
        Router::new().nest(prefix, routes)
    }
}

/// A caller, and what the catalog has at this time.
pub(super) struct Visit {
    pub(super) caller: Caller,
    /// The caller signed in with a form, and may sign out.
    pub(super) session: Option<Session>,
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

    /// Returns the age of the content, while the database can't be read.
    pub(super) const fn stale(&self) -> Option<Duration> {
        self.view.stale
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

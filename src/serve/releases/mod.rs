//! Releases of the cluster and their judgements, for callers who may list `releases.portolan.dev` in the namespaces.
//!
//! ```text
//!  request ─► Site::enter: repositories ─┐
//!          └► access: releases ──────────┴► watched releases ─► page of the list
//! ```

mod find;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

pub(super) use find::{Found, Query, STATUSES};

use super::access::{Access, Visible};
use super::problem::Problem;
use super::respond::respond;
use super::site::{Freshness, Site, Visit};
use crate::releases::JudgedRelease;
use crate::releases::watched::{JudgedReleases, WatchedReleases};

/// The watched releases, and the reviews of those who ask for them.
pub struct ReleaseReader {
    pub releases: WatchedReleases,
    pub access: Access,
}

impl ReleaseReader {
    /// Returns the namespaces in which the caller may list releases. Refuses a caller who names another one.
    pub(super) async fn visible(
        &self,
        site: &Site,
        headers: &HeaderMap,
        releases: &JudgedReleases,
        namespace: Option<&str>,
    ) -> Result<Visible, Problem> {
        let address = site.limiter().address_of_unknown_tokens();
        let caller = self.access.caller(headers, &releases.namespaces, namespace, address);
        let caller = caller.await;
        site.count_unknown_token(caller.as_ref().err());
        Ok(caller?.namespaces)
    }
}

/// Returns what the caller may see of the catalog. If there are too many namespaces to review, only the one that is named.
pub(super) async fn enter(site: &Site, headers: &HeaderMap, namespace: Option<&str>) -> Result<Visit, Problem> {
    match site.enter(headers, None).await {
        Err(problem) if problem.needs_namespace && namespace.is_some() => site.enter(headers, namespace).await,
        entered => entered,
    }
}

/// The routes below `/api/v1`.
pub(super) fn routes() -> Router<Site> {
    Router::new().route("/releases", get(list))
}

#[derive(Serialize)]
struct List<'a> {
    items: Vec<JudgedRelease>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Some releases can't be read, are too many, or have not been compared yet.
    incomplete: bool,
    unreadable: Vec<&'a str>,
    #[serde(flatten)]
    freshness: Freshness,
}

async fn list(State(site): State<Site>, headers: HeaderMap, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let query = Query::parse(query.as_deref())?;
    let Some(reader) = site.releases() else {
        return Err(Problem::not_found(
            "this process watches no releases; start `portolan run` with --serve and --releases",
        ));
    };
    let visit = enter(&site, &headers, query.namespace()).await?;
    let releases = reader.releases.get();
    let visible = reader.visible(&site, &headers, &releases, query.namespace()).await?;
    let found = query.find(&releases, &visible, &visit.caller.namespaces)?;
    let list = List {
        items: found.items,
        next: found.next,
        incomplete: found.is_incomplete,
        unreadable: found.unreadable,
        freshness: visit.freshness(),
    };
    respond(&headers, &list)
}

//! Helm repositories: an index of each repository, its archives, and the search of `helm search hub`.
//!
//! ```text
//!  rows by chart ID ─► render ─► spool: plain and gzip ─► index.yaml
//!  request ─► access ─► row of the chart ─┬─► redirect to the stored URL
//!                                         └─► ArchiveSource ─► digest ─► body
//! ```

mod archive;
mod body;
mod hub;
mod index;
mod indexes;
mod permits;
mod render;
mod row;
mod source;
mod spool;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;

use super::site::Site;
use crate::budget::{Budget, Budgets};
pub(super) use hub::origin;
use indexes::Indexes;
use permits::ArchivePermits;
pub use source::{ArchiveError, ArchiveRequest, ArchiveSource, FetchedArchive};
use spool::IndexSpool;

/// Time within which an archive is fetched, once there is a permit. With the wait for it, less than the limit of the request.
const FETCH_TIMEOUT: Duration = Duration::from_secs(165);

/// The origin of archives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArchiveMode {
    /// Clients download archives of public repositories where the index of the repository says.
    #[default]
    Redirect,
    /// This process downloads archives with the credentials of their repository.
    Proxy,
}

impl ArchiveMode {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Redirect => "redirect",
            Self::Proxy => "proxy",
        }
    }
}

impl fmt::Display for ArchiveMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected redirect or proxy")]
pub struct InvalidArchiveMode;

impl FromStr for ArchiveMode {
    type Err = InvalidArchiveMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "redirect" => Ok(Self::Redirect),
            "proxy" => Ok(Self::Proxy),
            _ => Err(InvalidArchiveMode),
        }
    }
}

#[derive(Clone)]
pub struct HelmOptions {
    pub archives: ArchiveMode,
    /// Required to proxy archives.
    pub source: Option<Arc<dyn ArchiveSource>>,
    /// Bytes of all temporary files. Rendered indexes take at most half of it.
    pub spool: Budget,
    /// Directory of temporary files; `None` for the system's default.
    pub spool_dir: Option<PathBuf>,
}

impl Default for HelmOptions {
    fn default() -> Self {
        Self {
            archives: ArchiveMode::default(),
            source: None,
            spool: Budgets::default().spool,
            spool_dir: None,
        }
    }
}

/// The parts that requests share.
pub(super) struct Helm {
    archives: ArchiveMode,
    source: Option<Arc<dyn ArchiveSource>>,
    budgets: Budgets,
    indexes: Arc<Indexes>,
    permits: ArchivePermits,
}

impl Helm {
    pub(super) fn new(options: HelmOptions, budgets: &Budgets) -> Self {
        let spool = IndexSpool::new(options.spool, options.spool_dir, budgets.metrics());
        Self {
            archives: options.archives,
            source: options.source,
            budgets: budgets.clone(),
            indexes: Arc::new(Indexes::new(spool)),
            permits: ArchivePermits::new(budgets.metrics()),
        }
    }
}

/// The routes below `/helm`.
pub(super) fn routes() -> Router<Site> {
    Router::new()
        .route("/{namespace}/{repository}/index.yaml", get(index::show))
        .route(
            "/{namespace}/{repository}/archives/{chart}/{version}/{file}",
            get(archive::show),
        )
        .layer(map_response(demand_basic))
}

/// The routes of `helm search hub`, beside `/helm`.
pub(super) fn hub_routes() -> Router<Site> {
    Router::new()
        .route(
            "/api/chartsvc/v1/charts/search",
            get(hub::search).layer(map_response(demand_basic)),
        )
        .route("/charts/{repository}/{chart}", get(hub::redirect))
}

/// Helm and Flux send credentials as Basic only.
async fn demand_basic(mut response: Response) -> Response {
    if response.status() == StatusCode::UNAUTHORIZED {
        let basic = HeaderValue::from_static("Basic realm=\"portolan\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_archives_has_the_names_of_the_flag() {
        for mode in [ArchiveMode::Redirect, ArchiveMode::Proxy] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!("off".parse::<ArchiveMode>(), Err(InvalidArchiveMode));
    }
}

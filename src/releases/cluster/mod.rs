//! Reads the releases of a cluster: Helm's own, and those of Flux and Argo CD. Those of KubeVela are objects of Flux.

mod argo;
mod declared;
mod flux;
mod reader;
mod stored;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kube::Client;
use tokio::time::Instant;
use url::Url;

use super::{Release, is_link};
use crate::runtime::kube_client::ApiError;
use crate::text::public_url;
pub use declared::Declared;
use flux::FluxObjects;
use reader::Reader;
pub(super) use stored::Storage;

/// Releases that are read.
pub const MAX_RELEASES: usize = 10_000;
/// Messages about objects and kinds that can't be read.
pub const MAX_UNREADABLE: usize = 50;
/// Selects the installed revision of each release: older ones are superseded.
pub(super) const DEPLOYED: &str = "owner=helm,status=deployed";

/// Namespaces to read, all if empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub namespaces: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Releases that are read. Each namespace gets an equal share before one gets more.
    pub releases: usize,
    /// No request begins later.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            releases: MAX_RELEASES,
            time: Duration::from_secs(120),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// By namespace and name.
    pub releases: Vec<Release>,
    /// Objects and kinds with the reason, at most [`MAX_UNREADABLE`].
    pub unreadable: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to list releases: {0}{advice}", advice = advice(.0))]
pub struct ReleaseError(pub ApiError);

fn advice(error: &ApiError) -> &'static str {
    if error.is_forbidden() {
        "; it needs the rights to list and get Secrets"
    } else {
        ""
    }
}

/// Lists the releases of a scope. Kinds that are not installed have none; fails only if no kind can be read.
pub async fn list(client: &Client, scope: &Scope, limits: Limits) -> Result<Listing, ReleaseError> {
    let reader = Reader::new(client, scope, Instant::now() + limits.time);
    let (mut releases, flux, applications) = tokio::join!(
        stored::list(&reader, limits.releases),
        FluxObjects::list(&reader),
        argo::list(&reader),
    );
    let unreadable = reader.into_unreadable().map_err(ReleaseError)?;
    flux.add_to(&mut releases);
    releases.extend(argo::releases(applications));
    releases.sort_by(|a, b| (&a.namespace, &a.name, a.kind).cmp(&(&b.namespace, &b.name, b.kind)));
    Ok(Listing { releases, unreadable })
}

/// Returns a declared URL without credentials and query: it is sent to the catalog.
fn declared_url(text: &str) -> Option<String> {
    let url = Url::parse(text.trim()).ok().filter(Url::has_host)?;
    Some(public_url(&url)).filter(|url| is_link(url))
}

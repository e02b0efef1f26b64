//! Syncs an OCI registry: lists tags, pulls new manifests, and builds charts from stored metadata.
//!
//! Each manifest is pulled once and stored, so that an unchanged repository costs one tag list, and a restart resumes.
//! Removed tags are deleted in the transaction that deletes their charts. Retagged versions are found by checking all
//! digests, in complete syncs and at intervals.
//!
//! Stored data stays after transient errors, which are retried while other work continues. Tag lists, digests and pulls
//! each have the time limit of an index download.

mod budget;
mod charts;
mod forbidden;
mod listing;
mod pull;
mod repository;
mod tags;

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use url::Url;

use super::request::{SyncAborted, SyncError};
use super::{Found, Run, limits};
use crate::catalog::{self, OciRepository};
use crate::controllers::apprepository::decision::{self as decide, Mode};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::http::Fetcher;
use crate::jq::Filter;
use crate::oci::{self, OciError, Registry};
use budget::Patience;
use listing::{Listing, all_failed};
use repository::{Repository, TAGS};

const AT_ONCE: usize = 8;

enum Broken {
    Registry(Arc<OciError>),
    Catalog(catalog::Error),
}

impl From<OciError> for Broken {
    fn from(error: OciError) -> Self {
        Self::Registry(Arc::new(error))
    }
}

impl From<Arc<OciError>> for Broken {
    fn from(error: Arc<OciError>) -> Self {
        Self::Registry(error)
    }
}

impl From<catalog::Error> for Broken {
    fn from(error: catalog::Error) -> Self {
        Self::Catalog(error)
    }
}

impl Run<'_> {
    pub(super) async fn look_at_registry(
        &self,
        session: Fetcher,
        filter: Option<Filter>,
    ) -> Result<Found, SyncAborted> {
        let listing = match self.listing(session).await {
            Ok(listing) => listing,
            Err(Broken::Registry(error)) => return Ok(Found::Failed((&*error).into())),
            Err(Broken::Catalog(error)) => return Err(error.into()),
        };
        let digest = listing.digest();
        if let Some(refused) = self.refused().filter(|refused| refused.digest == digest) {
            return Ok(Found::Refused(refused));
        }
        let rest = listing.rest();
        if rest.is_none() && self.is_same_as_last(&digest) {
            // Removed tags have no charts.
            let gone = listing.gone(self.request.declaration.change_key.source());
            if !gone.is_empty() {
                let name = &self.request.declaration.name;
                self.catalog().forget_oci(name, &gone).await?;
            }
            return Ok(Found::Unchanged(None));
        }
        // Skips building charts that are already built, or if there are none.
        let is_made = || self.is_same_as_last(&digest) || self.is_same_as_last(&decide::cut_short(&digest));
        if let Some(failed) = rest.and_then(|rest| rest.failed)
            && (is_made() || !listing.has_charts())
        {
            return Ok(Found::Failed(failed));
        }
        self.charts(listing, digest, filter).await
    }

    async fn listing(&self, session: Fetcher) -> Result<Listing, Broken> {
        let declaration = &self.request.declaration;
        let url = Url::parse(&declaration.url).map_err(|error| OciError::InvalidUrl(error.to_string()))?;
        let bounds = oci::Limits {
            fetch: limits(declaration, &self.syncer.context.fetch_limits),
            ..oci::Limits::default()
        };
        let registry = Registry::new(session, &url, bounds)?;
        if self.request.mode == Mode::Complete {
            // Stored first, so that an interrupted complete sync is not repeated.
            let (catalog, started) = (self.catalog(), self.request.started);
            catalog.recheck_oci(&declaration.name, started).await?;
        }
        let names = self.names(&registry).await?;
        let mut listing = self.repositories(&registry, names).await?;
        all_failed(&listing.repositories)?;
        self.published_anew(&registry, &mut listing).await;
        self.remember(&mut listing).await?;
        self.pull_new(&registry, &mut listing).await?;
        if listing.interrupted.is_none() {
            all_failed(&listing.repositories)?;
        }
        if listing.is_stuck() {
            listing.interrupted = Some(Arc::new(self.out_of_time(&declaration.url)));
        }
        Ok(listing)
    }

    /// Returns the time limit for each kind of request: that of an index download.
    fn time(&self) -> Duration {
        limits(&self.request.declaration, &self.syncer.context.fetch_limits).total
    }

    /// Returns the declared repositories, or all of the registry.
    async fn names(&self, registry: &Registry) -> Result<BTreeSet<String>, OciError> {
        let declared = self.request.declaration.oci_repositories.iter();
        let declared: BTreeSet<String> = declared
            .map(|name| name.trim().trim_matches('/').to_owned())
            // A trailing comma in Kubeapps' dashboard leaves an empty name.
            .filter(|name| !name.is_empty())
            .collect();
        if declared.is_empty() {
            return Ok(registry.list().await?.into_iter().collect());
        }
        Ok(declared)
    }

    async fn repositories(&self, registry: &Registry, names: BTreeSet<String>) -> Result<Listing, Broken> {
        let (catalog, declaration) = (self.catalog(), &self.request.declaration);
        let remembered = catalog
            .oci_repositories(&declaration.name, declaration.change_key.source())
            .await?;
        let mut remembered: HashMap<String, OciRepository> = remembered
            .into_iter()
            .map(|memory| (memory.repository.clone(), memory))
            .collect();
        let looked_at: Vec<OciRepository> = (names.into_iter())
            .map(|name| {
                remembered.remove(&name).unwrap_or_else(|| OciRepository {
                    repository: name,
                    // Tags pulled now have current digests.
                    digests_checked: Some(self.request.started),
                    ..OciRepository::default()
                })
            })
            .collect();
        let patience = Patience::new(self.time());
        let mut repositories: Vec<Repository> = stream::iter(in_turn(looked_at, turn(self.request.started)))
            .map(|memory| self.tags(registry, &patience, memory))
            .buffered(AT_ONCE)
            .collect()
            .await;
        repositories.sort_unstable_by(|a, b| a.memory.repository.cmp(&b.memory.repository));
        let mut room = TAGS;
        for repository in &mut repositories {
            repository.fit(&mut room);
        }
        Ok(Listing {
            repositories,
            forgotten: remembered.into_keys().collect(),
            interrupted: patience.end().cloned(),
            ..Listing::default()
        })
    }

    /// Stores the changes. Removed tags stay for now.
    async fn remember(&self, listing: &mut Listing) -> Result<(), catalog::Error> {
        let RepositorySpec { name, change_key, .. } = &self.request.declaration;
        for repository in &mut listing.repositories {
            repository.settle();
            let changed = std::mem::take(&mut repository.changed);
            if std::mem::take(&mut repository.is_changed) || !changed.is_empty() {
                let (catalog, memory) = (self.catalog(), &repository.memory);
                catalog.save_oci(name, change_key.source(), memory, &changed).await?;
            }
        }
        Ok(())
    }
}

/// Alternates new and known repositories, and rotates both, so that each is listed at some time even if the time limit
/// is short.
fn in_turn(repositories: Vec<OciRepository>, turn: usize) -> Vec<OciRepository> {
    let (mut unknown, mut known): (Vec<_>, Vec<_>) =
        (repositories.into_iter()).partition(|memory| memory.tags.is_empty());
    let mut ordered = Vec::with_capacity(unknown.len() + known.len());
    for kind in [&mut unknown, &mut known] {
        if let Some(first) = turn.checked_rem(kind.len()) {
            kind.rotate_left(first);
        }
    }
    let (mut unknown, mut known) = (unknown.into_iter(), known.into_iter());
    while unknown.len() + known.len() > 0 {
        ordered.extend(unknown.next());
        ordered.extend(known.next());
    }
    ordered
}

/// Returns a pseudo-random number for `now`: scheduled times may share a factor with the number of repositories.
fn turn(now: Timestamp) -> usize {
    let mut hasher = DefaultHasher::new();
    now.as_nanosecond().hash(&mut hasher);
    usize::try_from(hasher.finish() >> 33).unwrap_or_default()
}

impl From<&OciError> for SyncError {
    fn from(error: &OciError) -> Self {
        Self {
            reason: error.reason().to_owned(),
            message: error.to_string(),
            transient: error.is_transient(),
            retry_after: error.retry_after(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::OciTag;

    fn order(known: &str, unknown: &str, turn: usize) -> String {
        let repository = |name: &str, tags: &[&str]| OciRepository {
            repository: name.to_owned(),
            tags: tags.iter().map(|tag| ((*tag).to_owned(), OciTag::default())).collect(),
            ..OciRepository::default()
        };
        let known = known.split_whitespace().map(|name| repository(name, &["1.0.0"]));
        let unknown = unknown.split_whitespace().map(|name| repository(name, &[]));
        let ordered = in_turn(known.chain(unknown).collect(), turn);
        let names: Vec<String> = ordered.into_iter().map(|memory| memory.repository).collect();
        names.join(" ")
    }

    #[test]
    fn each_repository_is_among_the_first_to_be_listed_at_some_time() {
        let orders = [0, 1, 2].map(|turn| order("a b c", "new", turn));
        assert_eq!(orders, ["new a b c", "new b c a", "new c a b"]);
        // Repositories without tags do not delay the others.
        assert_eq!(order("a b", "w x y z", 1), "x b y a z w");
        assert_eq!(order("", "", 7), "");
    }

    #[test]
    fn the_turn_is_another_at_each_tick_of_a_schedule() {
        let ticks = (0..200).map(|tick| Timestamp::from_second(1_750_000_200 + tick * 600).unwrap());
        let first: BTreeSet<usize> = ticks.map(|now| turn(now) % 10).collect();
        assert_eq!(first.len(), 10);
    }
}

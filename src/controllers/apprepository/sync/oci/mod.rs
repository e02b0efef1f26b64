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

use futures::{StreamExt, stream};
use jiff::Timestamp;
use url::Url;

use super::request::{SyncAborted, SyncError};
use super::{Prepared, SyncerRun};
use crate::budget::{Full, return_to_runtime};
use crate::catalog::{self, OciRepository};
use crate::controllers::apprepository::decision::{self, SyncMode};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::http::Fetcher;
use crate::oci::{self, OciError, Registry, TagMemory};
use budget::RegistryBudget;
use charts::build_charts;
use listing::{Listing, all_failed, tag_bytes};
use pull::pull_new;
use repository::{MAX_TAGS, Repository};
use tags::{list_tags, out_of_time, recheck_digests};

const CONCURRENCY: usize = 8;

enum ListingError {
    Registry(Arc<OciError>),
    Catalog(catalog::Error),
}

impl From<OciError> for ListingError {
    fn from(error: OciError) -> Self {
        Self::Registry(Arc::new(error))
    }
}

impl From<catalog::Error> for ListingError {
    fn from(error: catalog::Error) -> Self {
        Self::Catalog(error)
    }
}

pub(super) async fn prepare_registry(run: &SyncerRun<'_>, session: Fetcher) -> Result<Prepared, SyncAborted> {
    let name = &run.request.spec.name;
    let memory = TagMemory::new(run.syncer.context.budgets.tags.transfer(&name.namespace));
    // The tags are held until the charts are built.
    tokio::select! {
        full = memory.aborted() => Ok(Prepared::Failed(tags_full(&full))),
        prepared = prepare_listing(run, session, &memory) => prepared,
    }
}

async fn prepare_listing(run: &SyncerRun<'_>, session: Fetcher, memory: &TagMemory) -> Result<Prepared, SyncAborted> {
    let listing = match sync_listing(run, session, memory).await {
        Ok(listing) => listing,
        Err(ListingError::Registry(error)) => return Ok(Prepared::Failed((&*error).into())),
        Err(ListingError::Catalog(error)) => return Err(error.into()),
    };
    let digest = listing.digest();
    if let Some(refused) = run.last_refusal().filter(|refused| refused.digest == digest) {
        return Ok(Prepared::Refused(refused));
    }
    let remaining = listing.remaining();
    if remaining.is_none() && run.is_same_as_last(&digest) {
        // Removed tags have no charts.
        let gone = listing.gone(run.request.spec.change_key.source());
        if !gone.is_empty() {
            let name = &run.request.spec.name;
            run.catalog().delete_oci(name, &gone).await?;
        }
        return Ok(Prepared::Unchanged(None));
    }
    // Skips building charts that are already built, or if there are none.
    let is_built = || run.is_same_as_last(&digest) || run.is_same_as_last(&decision::partial_digest(&digest));
    if let Some(failed) = remaining.and_then(|remaining| remaining.error)
        && (is_built() || !listing.has_charts())
    {
        return Ok(Prepared::Failed(failed));
    }
    build_charts(run, listing, digest).await
}

/// Lists the tags of a registry, and pulls and stores what is new.
async fn sync_listing(run: &SyncerRun<'_>, session: Fetcher, memory: &TagMemory) -> Result<Listing, ListingError> {
    let spec = &run.request.spec;
    let url = Url::parse(&spec.url).map_err(|error| OciError::InvalidUrl(error.to_string()))?;
    let bounds = oci::Limits {
        fetch: run.fetch_limits(),
        ..oci::Limits::default()
    };
    let registry = Registry::new(session, &url, bounds)?.charging(memory.clone());
    if run.request.mode == SyncMode::Complete {
        // Stored first, so that an interrupted complete sync is not repeated.
        run.catalog().recheck_oci(&spec.name, run.request.started).await?;
    }
    let names = names(spec, &registry).await?;
    let mut listing = list_repositories(run, &registry, names, memory).await?;
    all_failed(&listing.repositories).map_err(ListingError::Registry)?;
    recheck_digests(run, &registry, &mut listing).await;
    store(run, &mut listing).await?;
    pull_new(run, &registry, &mut listing).await?;
    if listing.interrupted.is_none() {
        all_failed(&listing.repositories).map_err(ListingError::Registry)?;
    }
    if listing.is_stuck() {
        listing.interrupted = Some(Arc::new(out_of_time(run, &spec.url)));
    }
    Ok(listing)
}

async fn names(spec: &RepositorySpec, registry: &Registry) -> Result<BTreeSet<String>, OciError> {
    let names = spec.oci_repositories.iter();
    let declared: BTreeSet<String> = names
        .map(|name| name.trim().trim_matches('/').to_owned())
        // A trailing comma in Kubeapps' dashboard leaves an empty name.
        .filter(|name| !name.is_empty())
        .collect();
    if declared.is_empty() {
        return Ok(registry.list().await?.into_iter().collect());
    }
    Ok(declared)
}

async fn list_repositories(
    run: &SyncerRun<'_>,
    registry: &Registry,
    names: BTreeSet<String>,
    memory: &TagMemory,
) -> Result<Listing, ListingError> {
    let spec = &run.request.spec;
    let stored = run
        .catalog()
        .oci_repositories(&spec.name, spec.change_key.source())
        .await?;
    let tags = stored.iter().flat_map(|stored| &stored.tags);
    memory.charge(tags.map(|(name, tag)| tag_bytes(name, tag)).sum());
    let stored = stored.into_iter().map(|stored| (stored.repository.clone(), stored));
    let mut stored_by_name: HashMap<String, OciRepository> = stored.collect();
    let to_list = names.into_iter().map(|name| {
        stored_by_name.remove(&name).unwrap_or_else(|| OciRepository {
            repository: name,
            // Tags pulled now have current digests.
            digests_checked: Some(run.request.started),
            ..OciRepository::default()
        })
    });
    let to_list = interleave(to_list.collect(), rotation(run.request.started));
    let budget = RegistryBudget::new(run.fetch_limits().total);
    let lists = stream::iter(to_list).map(|stored| list_tags(run, registry, &budget, stored));
    let mut repositories: Vec<Repository> = lists.buffered(CONCURRENCY).collect().await;
    repositories.sort_unstable_by(|a, b| a.stored.repository.cmp(&b.stored.repository));
    let mut capacity = MAX_TAGS;
    for repository in &mut repositories {
        repository.limit_tags(&mut capacity);
    }
    // Large lists were decoded and sorted off the runtime; from here on, requests are waited for.
    return_to_runtime();
    Ok(Listing {
        repositories,
        removed: stored_by_name.into_keys().collect(),
        interrupted: budget.end().cloned(),
        memory: Some(memory.clone()),
        ..Listing::default()
    })
}

/// Stores the changes. Removed tags stay for now.
async fn store(run: &SyncerRun<'_>, listing: &mut Listing) -> Result<(), catalog::Error> {
    listing.unsaved_bytes = 0;
    let RepositorySpec { name, change_key, .. } = &run.request.spec;
    for repository in &mut listing.repositories {
        repository.update_validators();
        let changed = std::mem::take(&mut repository.changed);
        if std::mem::take(&mut repository.is_changed) || !changed.is_empty() {
            let (catalog, stored) = (run.catalog(), &repository.stored);
            catalog.save_oci(name, change_key.source(), stored, &changed).await?;
        }
    }
    Ok(())
}

fn tags_full(full: &Full) -> SyncError {
    let message = format!(
        "the tags of all registries together are too large: {full}, a quarter of --memory-budget; raise it, or set \
         spec.ociRepositories"
    );
    SyncError::transient("ResourceExhausted", message)
}

/// Alternates new and known repositories, and rotates both: each is listed sometime even if the limit is short.
fn interleave(repositories: Vec<OciRepository>, rotation: usize) -> Vec<OciRepository> {
    let (mut unknown, mut known): (Vec<_>, Vec<_>) =
        (repositories.into_iter()).partition(|stored| stored.tags.is_empty());
    let mut ordered = Vec::with_capacity(unknown.len() + known.len());
    for kind in [&mut unknown, &mut known] {
        if let Some(first) = rotation.checked_rem(kind.len()) {
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
fn rotation(now: Timestamp) -> usize {
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

    fn order(known: &str, unknown: &str, rotation: usize) -> String {
        let repository = |name: &str, tags: &[&str]| OciRepository {
            repository: name.to_owned(),
            tags: tags.iter().map(|tag| ((*tag).to_owned(), OciTag::default())).collect(),
            ..OciRepository::default()
        };
        let known = known.split_whitespace().map(|name| repository(name, &["1.0.0"]));
        let unknown = unknown.split_whitespace().map(|name| repository(name, &[]));
        let ordered = interleave(known.chain(unknown).collect(), rotation);
        let names: Vec<String> = ordered.into_iter().map(|stored| stored.repository).collect();
        names.join(" ")
    }

    #[test]
    fn each_repository_is_among_the_first_to_be_listed_at_some_time() {
        let orders = [0, 1, 2].map(|rotation| order("a b c", "new", rotation));
        assert_eq!(orders, ["new a b c", "new b c a", "new c a b"]);
        // Repositories without tags do not delay the others.
        assert_eq!(order("a b", "w x y z", 1), "x b y a z w");
        assert_eq!(order("", "", 7), "");
    }

    #[test]
    fn the_rotation_differs_at_each_tick() {
        let ticks = (0..200).map(|tick| Timestamp::from_second(1_750_000_200 + tick * 600).unwrap());
        let first: BTreeSet<usize> = ticks.map(|now| rotation(now) % 10).collect();
        assert_eq!(first.len(), 10);
    }
}

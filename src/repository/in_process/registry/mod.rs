//! Bringing what is remembered of an OCI registry in step with it, and making charts of that.
//!
//! ```text
//!  names ─► tags of each (one conditional request where nothing is new)
//!             └─► pulls: manifest and Chart.yaml of what is new, newest first ─► remembered as they come
//!                    └─► charts ─► the same way as those of an index
//! ```
//! A manifest is pulled once and remembered in the catalogue, so that an unchanged repository costs the lists of its tags, and
//! a process that dies on the way goes on where it was. A tag that was published anew shows only in its manifest's digest: those
//! are all asked for when everything is compared, and else once in a while.

mod charts;
mod pull;
mod tags;

use std::collections::{BTreeSet, HashMap, HashSet};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use url::Url;

use super::{Found, Rest, Run};
use crate::catalog::{self, OciChange, OciRepository, OciTag};
use crate::filter::Filter;
use crate::repository::decide::{self, Mode};
use crate::repository::declaration::Declaration;
use crate::repository::execute::{AttemptError, Failed};
use crate::source::fetch::{Fetcher, Validators};
use crate::source::index;
use crate::source::oci::{self, OciError, Registry};

/// Requests that one attempt has under way at once, within the limits of the host.
const AT_ONCE: usize = 8;

/// Tags that are remembered of one registry: some hundred bytes each, all in memory while it is synced.
const TAGS: usize = 200_000;

/// One repository of the registry: what is remembered of it, and what its list of tags says.
struct Repository {
    memory: OciRepository,
    /// The URL of its charts, but for the tag.
    url: String,
    /// Its tags that are versions, newest first.
    versions: Vec<String>,
    /// What the registry said of the list of its tags.
    validators: Validators,
    /// Why its tags can't be had.
    failed: Option<OciError>,
    /// What is to be written of it: more than its tags.
    is_changed: bool,
    /// Its tags that are to be written.
    changed: Vec<OciChange>,
    /// Its tags that are no more.
    gone: Vec<String>,
}

/// The registry as it is remembered once everything new has been pulled.
struct Listing {
    repositories: Vec<Repository>,
    /// Tags that are to be pulled yet.
    left: usize,
    /// Why no more was pulled, although that may pass by itself.
    interrupted: Option<OciError>,
}

/// Why the registry could not be looked at.
enum Broken {
    Registry(OciError),
    Catalog(catalog::Error),
}

impl From<OciError> for Broken {
    fn from(error: OciError) -> Self {
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
    ) -> Result<Found, AttemptError> {
        let listing = match self.listing(session).await {
            Ok(listing) => listing,
            Err(Broken::Registry(error)) => return Ok(Found::Failed(error.into())),
            Err(Broken::Catalog(error)) => return Err(error.into()),
        };
        let digest = listing.digest();
        if let Some(refused) = self.refused().filter(|refused| refused.digest == digest) {
            return Ok(Found::StillRefused(refused));
        }
        let rest = listing.rest();
        if rest.is_none() && self.is_same_as_last(&digest) {
            return Ok(Found::Unchanged(None));
        }
        // Charts are made of what there is, unless they were or there is nothing.
        let is_made = || self.is_same_as_last(&digest) || self.is_same_as_last(&decide::cut_short(&digest));
        if let Some(failed) = rest.and_then(|rest| rest.failed)
            && (is_made() || !listing.has_charts())
        {
            return Ok(Found::Failed(failed));
        }
        self.charts(listing, digest, filter).await
    }

    /// Brings what is remembered of the registry in step with it.
    async fn listing(&self, session: Fetcher) -> Result<Listing, Broken> {
        let declaration = &self.attempt.declaration;
        let url = Url::parse(&declaration.url).map_err(|error| OciError::InvalidUrl(error.to_string()))?;
        let limits = oci::Limits {
            fetch: self.tools.fetch_limits,
            ..oci::Limits::default()
        };
        let registry = Registry::new(session, &url, limits)?;
        if self.attempt.mode == Mode::Complete {
            // Written down first: an attempt that ends before its time is not followed by another of its kind.
            let (catalog, started) = (&self.tools.catalog, self.attempt.started);
            catalog.recheck_oci(&declaration.name, started).await?;
        }
        let names = self.names(&registry).await?;
        let mut repositories = self.repositories(&registry, names).await?;
        all_failed(&mut repositories)?;
        let mut listing = Listing {
            repositories,
            left: 0,
            interrupted: None,
        };
        self.published_anew(&registry, &mut listing).await;
        self.remember(&mut listing).await?;
        self.pull_new(&registry, &mut listing).await?;
        if listing.interrupted.is_none() {
            all_failed(&mut listing.repositories)?;
        }
        Ok(listing)
    }

    /// The repositories that are declared, or all that the registry has.
    async fn names(&self, registry: &Registry) -> Result<BTreeSet<String>, OciError> {
        let declared = self.attempt.declaration.oci_repositories.iter();
        let declared: BTreeSet<String> = declared
            .map(|name| name.trim().trim_matches('/').to_owned())
            // As it is left by a comma at the end of what a user typed into Kubeapps' dashboard.
            .filter(|name| !name.is_empty())
            .collect();
        if declared.is_empty() {
            return Ok(registry.list().await?.into_iter().collect());
        }
        Ok(declared)
    }

    /// These repositories with the lists of their tags. Others are forgotten.
    async fn repositories(&self, registry: &Registry, names: BTreeSet<String>) -> Result<Vec<Repository>, Broken> {
        let (catalog, declaration) = (&self.tools.catalog, &self.attempt.declaration);
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
                    // What is pulled now is as it is now.
                    digests_checked: Some(self.attempt.started),
                    ..OciRepository::default()
                })
            })
            .collect();
        let mut listed = stream::iter(looked_at)
            .map(|memory| self.tags(registry, memory))
            .buffered(AT_ONCE);
        let (mut repositories, mut room) = (Vec::new(), TAGS);
        while let Some(repository) = listed.next().await {
            let mut repository = repository?;
            repository.fit(&mut room);
            repositories.push(repository);
        }
        if !remembered.is_empty() {
            let kept: Vec<String> = (repositories.iter())
                .map(|repository| repository.memory.repository.clone())
                .collect();
            catalog.retain_oci(&declaration.name, &kept).await?;
        }
        Ok(repositories)
    }

    /// Writes down what has changed of the memory.
    async fn remember(&self, listing: &mut Listing) -> Result<(), catalog::Error> {
        let Declaration { name, change_key, .. } = &self.attempt.declaration;
        for repository in &mut listing.repositories {
            repository.settle();
            let (changed, gone) = (
                std::mem::take(&mut repository.changed),
                std::mem::take(&mut repository.gone),
            );
            if std::mem::take(&mut repository.is_changed) || !changed.is_empty() || !gone.is_empty() {
                let memory = &repository.memory;
                let source = change_key.source();
                self.tools
                    .catalog
                    .save_oci(name, source, memory, &changed, &gone)
                    .await?;
            }
        }
        Ok(())
    }
}

impl Listing {
    /// What is left of it, if there is anything.
    fn rest(&self) -> Option<Rest> {
        let failed = self.interrupted.as_ref();
        if self.left == 0 && failed.is_none() {
            return None;
        }
        let well = self
            .repositories
            .iter()
            .filter(|repository| repository.failed.is_none());
        let listed: u64 = well.map(|repository| repository.versions.len() as u64).sum();
        let left = self.left as u64;
        let pulled = listed.saturating_sub(left);
        Some(Rest {
            pulled,
            listed,
            failed: failed.map(|error| Failed {
                reason: error.reason().to_owned(),
                message: match left {
                    0 => error.to_string(),
                    _ => format!("{error}; {pulled} of {listed} versions are pulled"),
                },
                transient: true,
                retry_after: error.retry_after(),
            }),
        })
    }

    fn has_charts(&self) -> bool {
        let mut tags = self
            .repositories
            .iter()
            .flat_map(|repository| repository.memory.tags.values());
        tags.any(|tag| tag.problem.is_none())
    }
}

/// One of many may be gone, or be another's. If there is nothing but that, it is the declaration that is wrong.
fn all_failed(repositories: &mut [Repository]) -> Result<(), OciError> {
    if repositories.iter().any(|repository| repository.failed.is_none()) {
        return Ok(());
    }
    let first = repositories.first_mut().and_then(|repository| repository.failed.take());
    first.map_or(Ok(()), Err)
}

impl Repository {
    /// As it is remembered, until its tags are listed.
    fn remembered(url: String, memory: OciRepository) -> Self {
        Self {
            url,
            versions: newest_first(memory.tags.keys().cloned()),
            validators: Validators {
                etag: memory.etag.clone(),
                last_modified: memory.last_modified.clone(),
            },
            memory,
            failed: None,
            is_changed: false,
            changed: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// Takes the list of its tags. What is not in it is forgotten.
    fn take(&mut self, tags: Vec<String>, validators: Validators) {
        self.versions = newest_first(tags.into_iter().filter(|tag| oci::is_version(tag)));
        self.validators = validators;
        let listed: HashSet<&str> = self.versions.iter().map(String::as_str).collect();
        let gone = self.memory.tags.extract_if(.., |tag, _| !listed.contains(tag.as_str()));
        self.gone.extend(gone.map(|(tag, _)| tag));
    }

    /// Takes its part of the tags that there is room for in all. Where that is too little, only what is remembered stays of it.
    fn fit(&mut self, room: &mut usize) {
        if self.versions.len() > *room {
            self.failed = Some(OciError::TooMany {
                url: self.url.trim_end_matches(':').to_owned(),
                limit: TAGS as u64,
                what: "tags, with those of the repositories before it",
            });
            self.versions = newest_first(self.memory.tags.keys().cloned());
        }
        if self.memory.tags.len() > *room {
            self.take(Vec::new(), Validators::default());
        }
        *room -= self.versions.len().max(self.memory.tags.len());
    }

    /// That the list of tags is the same means that there is nothing to do only where all of them are remembered.
    fn settle(&mut self) {
        let is_whole = self.failed.is_none() && self.versions.len() == self.memory.tags.len();
        let known = if is_whole {
            self.validators.clone()
        } else {
            Validators::default()
        };
        if self.memory.etag != known.etag || self.memory.last_modified != known.last_modified {
            (self.memory.etag, self.memory.last_modified) = (known.etag, known.last_modified);
            self.is_changed = true;
        }
    }

    /// Has a tag pulled again. What is stored of it stays until then.
    fn pull_again(&mut self, tag: String, now: Timestamp) {
        let Some(known) = self.memory.tags.get(&tag).cloned() else {
            return;
        };
        self.remember(OciChange {
            name: tag,
            tag: OciTag {
                next_try: Some(now),
                ..known
            },
            metadata: None,
        });
    }

    fn remember(&mut self, change: OciChange) {
        self.memory.tags.insert(change.name.clone(), change.tag.clone());
        self.changed.push(change);
    }
}

/// Tags in the order of the versions that they stand for.
fn newest_first(tags: impl Iterator<Item = String>) -> Vec<String> {
    let mut tags: Vec<String> = tags.collect();
    tags.sort_by(|a, b| index::newest_first(&oci::version_of(a), &oci::version_of(b)).then_with(|| a.cmp(b)));
    tags
}

impl From<OciError> for Failed {
    fn from(error: OciError) -> Self {
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

    fn repository(listed: usize, remembered: usize) -> Repository {
        let tags = |count: usize| (0..count).map(|number| format!("1.{number}.0"));
        let memory = OciRepository {
            tags: tags(remembered).map(|tag| (tag, OciTag::default())).collect(),
            ..OciRepository::default()
        };
        let mut repository = Repository::remembered("oci://example.com/harbour:".to_owned(), memory);
        repository.take(tags(listed).collect(), Validators::default());
        repository
    }

    #[test]
    fn tags_that_there_is_no_room_for_are_told_of_and_what_is_remembered_stays_if_it_can() {
        for (listed, remembered, room, kept, left) in [
            (3, 0, 3, Some(3), 0),
            (3, 3, 5, Some(3), 2),
            (4, 2, 3, None, 1),
            (4, 4, 3, None, 3),
        ] {
            let (mut repository, mut room) = (repository(listed, remembered), room);
            repository.fit(&mut room);
            assert_eq!(room, left, "{listed} {remembered}");
            assert_eq!(repository.failed.is_none(), kept.is_some(), "{listed} {remembered}");
            assert!(kept.is_none_or(|kept| repository.versions.len() == kept));
            assert!(repository.memory.tags.len() <= repository.versions.len());
        }
    }
}

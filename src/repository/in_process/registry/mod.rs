//! Bringing what is remembered of an OCI registry in step with it, and making charts of that.
//!
//! ```text
//!  names ─► tags of each (one conditional request where nothing is new)
//!             └─► pulls: manifest and Chart.yaml of what is new, newest first ─► remembered as they come
//!                    └─► charts ─► the same way as those of an index
//! ```
//! A manifest is pulled once and remembered in the catalogue, so that an unchanged repository costs the lists of its tags, and
//! a process that dies on the way goes on where it was. What is no more is forgotten in the transaction that takes its charts
//! away. A tag that was published anew shows only in its manifest's digest: those are all asked for when everything is compared,
//! and else once in a while.
//!
//! Whatever fails for a while stays as it is remembered and is tried again, and the rest goes on; lists, digests and pulls each
//! have as much time in one attempt as the fetch of an index.

mod charts;
mod listing;
mod patience;
mod pull;
mod tags;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use url::Url;

use self::listing::{Listing, all_failed};
use self::patience::Patience;
use super::{Found, Run, limits};
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
    failed: Option<Arc<OciError>>,
    /// What is to be written of it: more than its tags.
    is_changed: bool,
    /// Its tags that are to be written.
    changed: Vec<OciChange>,
    /// Its tags that are no more. They are remembered until their charts go.
    gone: Vec<String>,
    /// Its tags that could not be pulled for now, and why.
    delayed: BTreeMap<String, String>,
}

/// Why the registry could not be looked at.
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
    ) -> Result<Found, AttemptError> {
        let listing = match self.listing(session).await {
            Ok(listing) => listing,
            Err(Broken::Registry(error)) => return Ok(Found::Failed((&*error).into())),
            Err(Broken::Catalog(error)) => return Err(error.into()),
        };
        let digest = listing.digest();
        if let Some(refused) = self.refused().filter(|refused| refused.digest == digest) {
            return Ok(Found::StillRefused(refused));
        }
        let rest = listing.rest();
        if rest.is_none() && self.is_same_as_last(&digest) {
            // Of what is gone there is no chart.
            let gone = listing.gone(self.attempt.declaration.change_key.source());
            if !gone.is_empty() {
                let name = &self.attempt.declaration.name;
                self.tools.catalog.forget_oci(name, &gone).await?;
            }
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
        let bounds = oci::Limits {
            fetch: limits(declaration, &self.tools.fetch_limits),
            ..oci::Limits::default()
        };
        let registry = Registry::new(session, &url, bounds)?;
        if self.attempt.mode == Mode::Complete {
            // Written down first: an attempt that ends before its time is not followed by another of its kind.
            let (catalog, started) = (&self.tools.catalog, self.attempt.started);
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
        Ok(listing)
    }

    /// How long this attempt may ask for one kind of thing: as long as for an index.
    fn time(&self) -> Duration {
        limits(&self.attempt.declaration, &self.tools.fetch_limits).total
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

    /// These repositories with the lists of their tags.
    async fn repositories(&self, registry: &Registry, names: BTreeSet<String>) -> Result<Listing, Broken> {
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
        let patience = Patience::new(self.time());
        let mut repositories: Vec<Repository> = stream::iter(in_turn(looked_at, self.attempt.started))
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

    /// Writes down what has been learnt. What is no more stays in the memory for now.
    async fn remember(&self, listing: &mut Listing) -> Result<(), catalog::Error> {
        let Declaration { name, change_key, .. } = &self.attempt.declaration;
        for repository in &mut listing.repositories {
            repository.settle();
            let changed = std::mem::take(&mut repository.changed);
            if std::mem::take(&mut repository.is_changed) || !changed.is_empty() {
                let (catalog, memory) = (&self.tools.catalog, &repository.memory);
                catalog.save_oci(name, change_key.source(), memory, &changed).await?;
            }
        }
        Ok(())
    }
}

/// What nothing is known of comes first, then the others, each time from another one on: where the time does not suffice for all
/// lists, all have their turn.
fn in_turn(mut repositories: Vec<OciRepository>, now: Timestamp) -> Vec<OciRepository> {
    repositories.sort_by_key(|memory| !memory.tags.is_empty());
    let unknown = repositories.iter().filter(|memory| memory.tags.is_empty()).count();
    let known = repositories.len() - unknown;
    let turn = usize::try_from(now.as_second()).unwrap_or_default();
    if let Some(first) = turn.checked_rem(known) {
        repositories[unknown..].rotate_left(first);
    }
    repositories
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
            delayed: BTreeMap::new(),
        }
    }

    /// Whether nobody knows for now which tags it has.
    fn is_in_the_dark(&self) -> bool {
        self.failed.as_ref().is_some_and(|error| error.is_transient())
    }

    /// Takes the list of its tags. What is not in it is gone.
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
            self.failed = Some(Arc::new(OciError::TooMany {
                url: self.shown().to_owned(),
                limit: TAGS as u64,
                what: "tags, with those of the repositories before it",
            }));
            self.versions = newest_first(self.memory.tags.keys().cloned());
        }
        if self.memory.tags.len() > *room {
            self.take(Vec::new(), Validators::default());
        }
        *room -= self.versions.len().max(self.memory.tags.len());
    }

    /// That the list of tags is the same means that there is nothing to do only where all of them are remembered.
    fn settle(&mut self) {
        // Nor must it bring back what is gone and still remembered.
        let known = if self.gone.is_empty() {
            self.known()
        } else {
            Validators::default()
        };
        if self.memory.etag != known.etag || self.memory.last_modified != known.last_modified {
            (self.memory.etag, self.memory.last_modified) = (known.etag, known.last_modified);
            self.is_changed = true;
        }
    }

    /// What to send with the next question for its tags, where these ones are all that is remembered.
    fn known(&self) -> Validators {
        let is_whole = self.failed.is_none() && self.versions.len() == self.memory.tags.len();
        if is_whole {
            self.validators.clone()
        } else {
            Validators::default()
        }
    }

    /// Its URL, as it is shown.
    fn shown(&self) -> &str {
        self.url.trim_end_matches(':')
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

impl From<&OciError> for Failed {
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

    #[test]
    fn each_repository_is_the_first_to_be_listed_at_some_time_and_unknown_ones_before_all() {
        let known = |name: &str| OciRepository {
            repository: name.to_owned(),
            tags: [("1.0.0".to_owned(), OciTag::default())].into(),
            ..OciRepository::default()
        };
        let new = OciRepository {
            repository: "new".to_owned(),
            ..OciRepository::default()
        };
        let order = |second| {
            let repositories = vec![known("a"), known("b"), new.clone(), known("c")];
            let ordered = in_turn(repositories, Timestamp::from_second(second).unwrap());
            let names: Vec<String> = ordered.into_iter().map(|memory| memory.repository).collect();
            names.join(" ")
        };
        assert_eq!([order(0), order(1), order(2)], ["new a b c", "new b c a", "new c a b"]);
        assert!(in_turn(Vec::new(), Timestamp::UNIX_EPOCH).is_empty());
    }

    #[test]
    fn a_list_is_not_known_again_by_what_is_gone() {
        let mut repository = repository(2, 3);
        repository.validators.etag = Some("new".to_owned());
        repository.memory.etag = Some("old".to_owned());
        repository.settle();
        assert_eq!((repository.gone.len(), repository.memory.etag.as_deref()), (1, None));
        assert_eq!(repository.known().etag.as_deref(), Some("new"));
    }
}

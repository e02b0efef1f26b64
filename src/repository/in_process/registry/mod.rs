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

use std::collections::{BTreeSet, HashMap};

use futures::{StreamExt, TryStreamExt, stream};
use url::Url;

use super::{Found, Run};
use crate::catalog::{self, OciRepository, OciTag};
use crate::filter::Filter;
use crate::repository::execute::{AttemptError, Failed};
use crate::source::fetch::{Fetcher, Validators};
use crate::source::oci::{self, OciError, Registry};

/// Requests that one attempt has under way at once, within the limits of the host.
const AT_ONCE: usize = 8;

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
    is_changed: bool,
}

/// The registry as it is remembered once everything new has been pulled.
struct Listing {
    repositories: Vec<Repository>,
    /// Nothing new is left to be pulled.
    is_complete: bool,
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
        if listing.is_complete && self.is_same_as_last(&digest) {
            return Ok(Found::Unchanged(None));
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
        let names: BTreeSet<String> = if declaration.oci_repositories.is_empty() {
            registry.list().await?.into_iter().collect()
        } else {
            declaration
                .oci_repositories
                .iter()
                .map(|name| name.trim_matches('/').to_owned())
                .collect()
        };
        let catalog = &self.tools.catalog;
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
        let mut repositories: Vec<Repository> = stream::iter(looked_at)
            .map(|memory| self.tags(&registry, memory))
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        // One of many may be gone, or be another's. If there is nothing but that, it is the declaration that is wrong.
        if repositories.iter().all(|repository| repository.failed.is_some())
            && let Some(error) = repositories.iter_mut().find_map(|repository| repository.failed.take())
        {
            return Err(error.into());
        }
        if !remembered.is_empty() {
            let kept: Vec<String> = repositories
                .iter()
                .map(|repository| repository.memory.repository.clone())
                .collect();
            catalog.retain_oci(&declaration.name, &kept).await?;
        }
        let mut listing = Listing {
            repositories,
            is_complete: true,
        };
        let (looked_at, changed) = self.published_anew(&registry, &listing).await?;
        self.pull_new(&registry, &mut listing, &changed).await?;
        if listing.is_complete {
            // Not before what has changed is there: who dies in between has to look again.
            for at in looked_at {
                listing.repositories[at].memory.digests_checked = Some(self.attempt.started);
                listing.repositories[at].is_changed = true;
            }
            self.remember(&mut listing).await?;
        }
        Ok(listing)
    }

    /// Writes down what has changed of the memory.
    async fn remember(&self, listing: &mut Listing) -> Result<(), catalog::Error> {
        let declaration = &self.attempt.declaration;
        for repository in &mut listing.repositories {
            repository.settle();
            if std::mem::take(&mut repository.is_changed) {
                let source = declaration.change_key.source();
                self.tools
                    .catalog
                    .save_oci(&declaration.name, source, &repository.memory)
                    .await?;
            }
        }
        Ok(())
    }
}

impl Repository {
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

    fn remember(&mut self, tag: OciTag) {
        self.is_changed = true;
        match self.memory.tags.iter_mut().find(|known| known.tag == tag.tag) {
            Some(known) => *known = tag,
            None => self.memory.tags.push(tag),
        }
    }
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

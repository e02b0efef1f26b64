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

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::SignedDuration;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::selection::{Selected, Selection, SelectionError};
use super::{Decoded, Found, Run};
use crate::catalog::{self, OciRepository, OciTag};
use crate::filter::{self, Filter};
use crate::repository::decide::Mode;
use crate::repository::execute::{AttemptError, Failed};
use crate::source::fetch::{Fetcher, Validators};
use crate::source::index::{self, DecodeLimits, Summary};
use crate::source::oci::{self, OciError, Registry, Tags};

/// Requests that one attempt has under way at once, within the limits of the host.
const AT_ONCE: usize = 8;

/// Manifests that one attempt pulls. What is left is for the next, which follows at once, so that a large registry shows the
/// newest versions of its charts early.
const PULLS: usize = 500;

/// Pulls after which what came of them is remembered.
const REMEMBERED_AFTER: usize = 64;

/// How long a tag that could not be pulled is left alone, at first and at most.
const TRIED_AGAIN: (SignedDuration, SignedDuration) = (SignedDuration::from_mins(10), SignedDuration::from_hours(24));

/// One repository of the registry: what is remembered of it, and what its list of tags says.
struct Repository {
    memory: OciRepository,
    /// The URL of its charts, but for the tag.
    url: String,
    /// Its tags that are versions, newest first.
    versions: Vec<String>,
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
        let changed = self.published_anew(&registry, &mut listing).await?;
        self.pull_new(&registry, &mut listing, &changed).await?;
        Ok(listing)
    }

    /// Lists the tags of one repository. That there is none, or that it is not for us, is told of it alone.
    async fn tags(&self, registry: &Registry, mut memory: OciRepository) -> Result<Repository, OciError> {
        let path = registry.repository(&memory.repository);
        let url = registry.chart_url(&path, "");
        let known = Validators {
            etag: memory.etag.clone(),
            last_modified: memory.last_modified.clone(),
        };
        let is_conditional = self.attempt.mode == Mode::Conditional && !self.has_other_credentials();
        let conditions = is_conditional.then_some(&known);
        let as_remembered = |memory: OciRepository, failed| Repository {
            url: url.clone(),
            versions: newest_first(memory.tags.iter().map(|tag| tag.tag.clone())),
            memory,
            failed,
            is_changed: false,
        };
        let (tags, failed) = match registry.tags(&path, conditions).await {
            Ok(Tags::NotModified) => {
                self.metrics.not_modified();
                return Ok(as_remembered(memory, None));
            }
            Ok(Tags::Listed { tags, validators }) => {
                (memory.etag, memory.last_modified) = (validators.etag, validators.last_modified);
                (tags, None)
            }
            Err(error) if error.is_not_found() => (Vec::new(), Some(error)),
            Err(error @ OciError::Unauthorized { .. }) => return Ok(as_remembered(memory, Some(error))),
            Err(error) => return Err(error),
        };
        let versions = newest_first(tags.into_iter().filter(|tag| oci::is_version(tag)));
        let listed: BTreeSet<&str> = versions.iter().map(String::as_str).collect();
        let before = memory.tags.len();
        memory.tags.retain(|tag| listed.contains(tag.tag.as_str()));
        let is_changed =
            known.etag != memory.etag || known.last_modified != memory.last_modified || memory.tags.len() != before;
        Ok(Repository {
            url,
            memory,
            versions,
            failed,
            is_changed,
        })
    }

    /// The tags whose manifest is another than the one that is remembered, where it is time to look.
    async fn published_anew(
        &self,
        registry: &Registry,
        listing: &mut Listing,
    ) -> Result<BTreeSet<(usize, String)>, Broken> {
        let now = self.attempt.started;
        let is_due = |repository: &Repository| {
            let age = repository.memory.digests_checked.map(|then| now.duration_since(then));
            self.attempt.mode == Mode::Complete || age.is_none_or(|age| age >= signed(self.tools.check_digests))
        };
        let mut looks = Vec::new();
        for (at, repository) in listing.repositories.iter_mut().enumerate() {
            if is_due(repository) {
                repository.memory.digests_checked = Some(now);
                repository.is_changed = true;
                let path = registry.repository(&repository.memory.repository);
                looks.extend(
                    (repository.memory.tags.iter()).map(|tag| (at, path.clone(), tag.tag.clone(), tag.digest.clone())),
                );
            }
        }
        let looks = stream::iter(looks).map(|(at, path, tag, digest)| async move {
            match registry.digest(&path, &tag).await {
                Ok(found) => Ok((found != digest).then_some((at, tag))),
                // It was listed a moment ago: pulling it tells what is the matter.
                Err(error) if error.is_not_found() => Ok(Some((at, tag))),
                Err(error) => Err(error),
            }
        });
        let changed: Vec<Option<(usize, String)>> = looks.buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(changed.into_iter().flatten().collect())
    }

    /// Pulls what is new, the newest version of each chart first, and remembers it as it comes.
    async fn pull_new(
        &self,
        registry: &Registry,
        listing: &mut Listing,
        changed: &BTreeSet<(usize, String)>,
    ) -> Result<(), Broken> {
        let mut wanted = Vec::new();
        for (at, repository) in listing.repositories.iter().enumerate() {
            let known: HashMap<&str, &OciTag> = (repository.memory.tags.iter())
                .map(|tag| (tag.tag.as_str(), tag))
                .collect();
            for (rank, tag) in repository.versions.iter().enumerate() {
                let before = known.get(tag.as_str()).copied();
                if self.is_wanted(before) || changed.contains(&(at, tag.clone())) {
                    wanted.push((rank, at, tag.clone(), before.map_or(0, |before| before.tries)));
                }
            }
        }
        wanted.sort_unstable();
        listing.is_complete = wanted.len() <= PULLS;
        wanted.truncate(PULLS);
        let paths: Vec<String> = (listing.repositories.iter())
            .map(|repository| registry.repository(&repository.memory.repository))
            .collect();
        let mut pulls = stream::iter(wanted)
            .map(|(_, at, tag, tries)| {
                let path = &paths[at];
                async move { (at, self.pull(registry, path, tag, tries).await) }
            })
            .buffer_unordered(AT_ONCE);
        let mut pulled = 0;
        while let Some((at, result)) = pulls.next().await {
            match result {
                Ok(tag) => {
                    listing.repositories[at].remember(tag);
                    pulled += 1;
                    if pulled % REMEMBERED_AFTER == 0 {
                        self.remember(listing).await?;
                    }
                }
                Err(error) => {
                    // What came before is not pulled again.
                    self.remember(listing).await?;
                    return Err(error.into());
                }
            }
        }
        drop(pulls);
        self.remember(listing).await.map_err(Broken::from)
    }

    fn is_wanted(&self, before: Option<&OciTag>) -> bool {
        before.is_none_or(|tag| {
            tag.next_try
                .is_some_and(|time| time <= self.attempt.started || self.attempt.mode == Mode::Complete)
        })
    }

    async fn remember(&self, listing: &mut Listing) -> Result<(), catalog::Error> {
        let declaration = &self.attempt.declaration;
        for repository in &mut listing.repositories {
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

    /// Pulls one tag. What is wrong with it alone is remembered, and is no failure of the others.
    async fn pull(&self, registry: &Registry, path: &str, tag: String, tries: u32) -> Result<OciTag, OciError> {
        self.metrics.oci_pull();
        let pulled = async {
            let manifest = registry.manifest(path, &tag).await?;
            let config = registry.config(path, &manifest).await?;
            Ok::<_, OciError>((manifest.digest, config))
        };
        let problem = match pulled.await {
            Ok((digest, config)) => match usable(&config, &self.tools.decode_limits) {
                Ok(metadata) => {
                    return Ok(OciTag {
                        tag,
                        digest,
                        metadata: Some(metadata),
                        ..OciTag::default()
                    });
                }
                Err(problem) => {
                    return Ok(OciTag {
                        tag,
                        digest,
                        problem: Some(problem),
                        ..OciTag::default()
                    });
                }
            },
            Err(error) if error.is_transient() || is_about_credentials(&error) => return Err(error),
            Err(error) => error,
        };
        let tries = tries.saturating_add(1);
        if let OciError::NotAChart { .. } = problem {
            // It becomes no chart by waiting: only another digest calls for another look.
            return Ok(OciTag {
                digest: registry.digest(path, &tag).await?,
                tag,
                problem: Some(problem.to_string()),
                ..OciTag::default()
            });
        }
        Ok(OciTag {
            tag,
            problem: Some(problem.to_string()),
            tries,
            next_try: Some(self.attempt.started + pause(tries)),
            ..OciTag::default()
        })
    }

    /// Makes charts of what is remembered.
    async fn charts(&self, listing: Listing, digest: String, filter: Option<Filter>) -> Result<Found, AttemptError> {
        let selection = self.selection(filter);
        let limits = self.tools.decode_limits;
        let is_complete = listing.is_complete;
        let task = filter::on_large_stack(move || select(selection, listing, &limits));
        let Ok(selected) = task.await else {
            tracing::error!(repository = %self.attempt.declaration.name, "making charts of a registry has panicked");
            let message = "the charts of the registry can't be read because of a defect in Portolan; please report it";
            let refused = self.refuse(Validators::default(), digest, "DecoderFailed", message.to_owned());
            return Ok(Found::Refused(refused));
        };
        match selected {
            Ok((selected, summary)) => Ok(self.judge(Decoded {
                spool: selected.spool,
                filtered_out: selected.filtered_out,
                summary: Summary {
                    digest: digest.clone(),
                    ..summary
                },
                sha256: digest,
                validators: Validators::default(),
                is_complete,
            })),
            Err(error) => self.unselected(error, Validators::default(), digest),
        }
    }
}

impl Repository {
    fn remember(&mut self, tag: OciTag) {
        self.is_changed = true;
        match self.memory.tags.iter_mut().find(|known| known.tag == tag.tag) {
            Some(known) => *known = tag,
            None => self.memory.tags.push(tag),
        }
    }
}

impl Listing {
    /// A digest of all that the charts are made of, whatever the order in which it came.
    fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for repository in &self.repositories {
            let tags: BTreeMap<&str, &OciTag> = (repository.memory.tags.iter())
                .map(|tag| (tag.tag.as_str(), tag))
                .collect();
            for (name, tag) in tags {
                let is_chart = if tag.metadata.is_some() { "chart" } else { "none" };
                for part in [&repository.memory.repository, name, &tag.digest, is_chart] {
                    hash.update(part);
                    hash.update([0]);
                }
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Makes one chart of each repository, from the metadata of its versions.
fn select(
    mut selection: Selection,
    listing: Listing,
    limits: &DecodeLimits,
) -> Result<(Selected, Summary), SelectionError> {
    let mut summary = Summary::default();
    for Repository {
        url,
        memory,
        versions,
        failed,
        ..
    } in listing.repositories
    {
        let path = memory.repository;
        if let Some(error) = failed {
            summary.skipped.add(&path, None, &error.to_string());
        }
        summary.names += u64::from(!versions.is_empty());
        summary.versions += versions.len() as u64;
        let mut entries = Vec::new();
        for tag in memory.tags {
            if let Some(problem) = &tag.problem {
                summary.skipped.add(&path, Some(&tag.tag), problem);
            }
            let Some(metadata) = &tag.metadata else { continue };
            let url = format!("{url}{}", tag.tag);
            let metadata = index::metadata(metadata.as_bytes(), limits)
                .and_then(|metadata| metadata.with_version(&oci::version_of(&tag.tag)))
                .map(|metadata| metadata.with_digest(tag.digest).with_urls(vec![url]));
            match metadata {
                Ok(metadata) => entries.push(metadata),
                Err(problem) => summary.skipped.add(&path, Some(&tag.tag), &problem),
            }
        }
        if entries.is_empty() {
            continue;
        }
        match index::chart(entries) {
            Ok(Some(chart)) => selection.take(chart, Some(&path))?,
            Ok(None) => summary.deprecated += 1,
            Err(problem) => summary.skipped.add(&path, None, &problem),
        }
    }
    Ok((selection.finish(), summary))
}

/// The metadata of a chart as it is remembered, if it is of use.
fn usable(config: &[u8], limits: &DecodeLimits) -> Result<String, String> {
    index::metadata(config, limits)?;
    String::from_utf8(config.to_vec()).map_err(|_| "its metadata is no text".to_owned())
}

/// Whether every other tag would fail alike.
fn is_about_credentials(error: &OciError) -> bool {
    matches!(error, OciError::Unauthorized { .. } | OciError::Challenge { .. })
}

fn newest_first(tags: impl Iterator<Item = String>) -> Vec<String> {
    let mut tags: Vec<String> = tags.collect();
    tags.sort_by(|a, b| index::newest_first(&oci::version_of(a), &oci::version_of(b)).then_with(|| a.cmp(b)));
    tags
}

fn pause(tries: u32) -> SignedDuration {
    let (first, longest) = TRIED_AGAIN;
    first
        .checked_mul(1 << tries.saturating_sub(1).min(16))
        .map_or(longest, |pause| pause.min(longest))
}

fn signed(duration: std::time::Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
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

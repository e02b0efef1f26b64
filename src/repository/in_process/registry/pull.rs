//! Pulling what is new: of each version the manifest, and the Chart.yaml that it names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt, future, stream};

use super::listing::Listing;
use super::patience::{Patience, wants_to_be_left_alone};
use super::{AT_ONCE, Repository};
use crate::catalog::{self, OciChange, OciTag};
use crate::queue::Backoff;
use crate::repository::in_process::Run;
use crate::source::index::{self, DecodeLimits};
use crate::source::oci::{OciError, Registry};

/// Manifests that one attempt pulls. What is left is for the next, which follows at once, so that a large registry shows the
/// newest versions of its charts early.
const PULLS: usize = 500;

/// Pulls after which what came of them is remembered.
const REMEMBERED_AFTER: usize = 64;

/// Bytes of what is remembered of a chart's metadata, which are those of a catalogue: descriptions have some hundred.
const METADATA_BYTES: usize = 64 * 1024;

/// A tag that is to be pulled.
struct Wanted {
    /// How many versions of its chart are newer.
    rank: usize,
    /// Place of its repository in the listing.
    at: usize,
    tag: String,
    /// What is known of it.
    known: Option<OciTag>,
}

/// How long a tag that could not be pulled is left alone, at first and at most.
const TRIED_AGAIN: Backoff = Backoff {
    base: Duration::from_mins(10),
    cap: Duration::from_hours(24),
};

/// The same where it may have passed by then: at first it is tried at each sync.
const TRIED_SOON: Backoff = Backoff {
    base: Duration::from_mins(1),
    cap: Duration::from_hours(1),
};

/// What came of a pull that was answered.
enum Pulled {
    Known(OciChange),
    /// A chart that can't be had any more, by what the answer says. A registry that has lost what it lists looks like that, so it
    /// stays what it was.
    Lost(OciError),
}

impl Run<'_> {
    /// Pulls what is new, the newest version of each chart first, and remembers it as it comes.
    pub(super) async fn pull_new(&self, registry: &Registry, listing: &mut Listing) -> Result<(), catalog::Error> {
        let mut wanted = self.wanted(listing);
        listing.left = wanted.len();
        if listing.interrupted.is_some() {
            return Ok(());
        }
        wanted.truncate(PULLS);
        let patience = Patience::new(self.time());
        let mut failed = self.pull_all(registry, listing, &patience, wanted).await?;
        listing.interrupted = patience.end().cloned();
        if !patience.is_over() && !failed.is_empty() {
            // What failed in passing is there by now, most likely. That all of these fail says nothing of the registry.
            let patience = patience.again();
            let again = failed.into_iter().map(|(wanted, _)| wanted).collect();
            failed = self.pull_all(registry, listing, &patience, again).await?;
            let end = patience.end().filter(|error| wants_to_be_left_alone(error));
            listing.interrupted = end.cloned();
        }
        for (wanted, error) in failed {
            self.note(&mut listing.repositories[wanted.at], wanted, TRIED_SOON, &error);
        }
        listing.left = self.wanted(listing).len();
        self.remember(listing).await
    }

    /// Pulls these, as far as it comes. Gives back those that have failed in a way that may pass.
    async fn pull_all(
        &self,
        registry: &Registry,
        listing: &mut Listing,
        patience: &Patience,
        wanted: Vec<Wanted>,
    ) -> Result<Vec<(Wanted, Arc<OciError>)>, catalog::Error> {
        let paths: Vec<String> = (listing.repositories.iter())
            .map(|repository| registry.repository(&repository.memory.repository))
            .collect();
        // Repositories that have refused a pull: the others of theirs are not asked for.
        let refused: Vec<AtomicBool> = paths.iter().map(|_| AtomicBool::new(false)).collect();
        let is_asked = |wanted: &Wanted| !patience.is_over() && !refused[wanted.at].load(Ordering::Relaxed);
        let mut pulls = stream::iter(wanted)
            .filter(|wanted| future::ready(is_asked(wanted)))
            .map(|wanted| {
                let path = &paths[wanted.at];
                async move {
                    let pulled = self.pull(registry, path, &wanted).await;
                    (wanted, pulled)
                }
            })
            .buffer_unordered(AT_ONCE);
        let (mut pulled, mut failed) = (0, Vec::new());
        while let Some((wanted, result)) = pulls.next().await {
            let at = wanted.at;
            match result {
                Ok(Pulled::Lost(error)) => {
                    patience.answered();
                    self.note(&mut listing.repositories[at], wanted, TRIED_AGAIN, &error);
                }
                Ok(Pulled::Known(change)) => {
                    patience.answered();
                    listing.repositories[at].remember(change);
                    pulled += 1;
                    if pulled % REMEMBERED_AFTER == 0 {
                        self.remember(listing).await?;
                    }
                }
                Err(error) if error.is_about_credentials() => {
                    patience.answered();
                    refused[at].store(true, Ordering::Relaxed);
                    listing.repositories[at].failed = Some(Arc::new(error));
                }
                Err(error) => {
                    let error = Arc::new(error);
                    patience.failed(&error);
                    if !wants_to_be_left_alone(&error) {
                        failed.push((wanted, error));
                    }
                }
            }
        }
        Ok(failed)
    }

    /// What there is to pull, the newest version of each chart first.
    fn wanted(&self, listing: &Listing) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let repositories = listing.repositories.iter().enumerate();
        for (at, repository) in repositories.filter(|(_, repository)| repository.failed.is_none()) {
            for (rank, tag) in repository.versions.iter().enumerate() {
                let before = repository.memory.tags.get(tag);
                let due = |before: &OciTag| before.next_try.is_some_and(|time| time <= self.attempt.started);
                if before.is_none_or(due) {
                    wanted.push(Wanted {
                        rank,
                        at,
                        tag: tag.clone(),
                        known: before.cloned(),
                    });
                }
            }
        }
        wanted.sort_unstable_by(|a, b| (a.rank, a.at, &a.tag).cmp(&(b.rank, b.at, &b.tag)));
        wanted
    }

    /// Pulls one tag. What is wrong with it alone is remembered, and is no failure of the others.
    async fn pull(&self, registry: &Registry, path: &str, wanted: &Wanted) -> Result<Pulled, OciError> {
        self.metrics.oci_pull();
        let (name, known) = (wanted.tag.clone(), wanted.known.as_ref());
        let pulled = async {
            let manifest = registry.manifest(path, &name).await?;
            let is_known = known.is_some_and(|known| known.is_chart() && known.digest == manifest.digest);
            let config = match is_known {
                true => None,
                false => Some(registry.config(path, &manifest).await?),
            };
            Ok::<_, OciError>((manifest.digest, config))
        };
        let (digest, config) = match pulled.await {
            Ok(pulled) => pulled,
            Err(error) if error.is_transient() || error.is_about_credentials() => return Err(error),
            Err(error) => {
                let problem = error.to_string();
                return Ok(match error {
                    // It becomes no chart by waiting: only another digest calls for another look.
                    OciError::NotAChart { digest, .. } => Pulled::Known(useless(name, digest, problem)),
                    error if known.is_some_and(OciTag::is_chart) => Pulled::Lost(error),
                    _ => Pulled::Known(self.failed(name, known.map_or(0, |known| known.tries), problem)),
                });
            }
        };
        let usable = config.map(|config| usable(&config, &self.tools.decode_limits));
        Ok(Pulled::Known(match usable.transpose() {
            Ok(metadata) => chart(name, digest, metadata),
            Err(problem) => useless(name, digest, problem),
        }))
    }

    /// A tag that is of no use, which may be put right by somebody. It has failed so many times before.
    fn failed(&self, name: String, tries: u32, problem: String) -> OciChange {
        let tag = OciTag {
            problem: Some(problem),
            tries: tries.saturating_add(1),
            next_try: Some(self.attempt.started + TRIED_AGAIN.delay(tries)),
            ..OciTag::default()
        };
        OciChange {
            name,
            tag,
            metadata: None,
        }
    }

    /// Has a tag stay what it was for now, and tried again later.
    fn note(&self, repository: &mut Repository, wanted: Wanted, again: Backoff, error: &OciError) {
        let Wanted { tag: name, known, .. } = wanted;
        let known = known.unwrap_or_default();
        repository.delayed.insert(name.clone(), error.to_string());
        let tag = OciTag {
            tries: known.tries.saturating_add(1),
            next_try: Some(self.attempt.started + again.delay(known.tries)),
            ..known
        };
        repository.remember(OciChange {
            name,
            tag,
            metadata: None,
        });
    }
}

/// A tag that is a chart; with the metadata that is stored already, if none is given.
fn chart(name: String, digest: String, metadata: Option<String>) -> OciChange {
    let tag = OciTag {
        digest,
        ..OciTag::default()
    };
    OciChange { name, tag, metadata }
}

/// A tag that stays of no use for as long as it stands for the same.
fn useless(name: String, digest: String, problem: String) -> OciChange {
    let tag = OciTag {
        digest,
        problem: Some(problem),
        ..OciTag::default()
    };
    OciChange {
        name,
        tag,
        metadata: None,
    }
}

/// The metadata of a chart as it is remembered, if it is of use.
fn usable(config: &[u8], limits: &DecodeLimits) -> Result<String, String> {
    let metadata = index::metadata(config, limits)?.to_json();
    if metadata.len() > METADATA_BYTES {
        let bytes = metadata.len();
        return Err(format!("its metadata has {bytes} bytes, more than {METADATA_BYTES}"));
    }
    Ok(metadata)
}

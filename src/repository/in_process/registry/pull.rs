//! Pulling what is new: of each version the manifest, and the Chart.yaml that it names.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt, future, stream};

use super::{AT_ONCE, Listing};
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

/// A tag that is to be pulled, in this order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    /// How many versions of its chart are newer.
    rank: usize,
    /// Place of its repository in the listing.
    at: usize,
    tag: String,
    tries: u32,
}

/// How long a tag that could not be pulled is left alone, at first and at most.
const TRIED_AGAIN: Backoff = Backoff {
    base: Duration::from_mins(10),
    cap: Duration::from_hours(24),
};

impl Run<'_> {
    /// Pulls what is new, the newest version of each chart first, and remembers it as it comes.
    pub(super) async fn pull_new(&self, registry: &Registry, listing: &mut Listing) -> Result<(), catalog::Error> {
        let mut wanted = self.wanted(listing);
        listing.left = wanted.len();
        if listing.interrupted.is_some() {
            return Ok(());
        }
        wanted.truncate(PULLS);
        let paths: Vec<String> = (listing.repositories.iter())
            .map(|repository| registry.repository(&repository.memory.repository))
            .collect();
        // Repositories that have refused a pull: the others of theirs are not asked for.
        let refused: Vec<AtomicBool> = paths.iter().map(|_| AtomicBool::new(false)).collect();
        let mut pulls = stream::iter(wanted)
            .filter(|wanted| future::ready(!refused[wanted.at].load(Ordering::Relaxed)))
            .map(|Wanted { at, tag, tries, .. }| {
                let path = &paths[at];
                async move { (at, self.pull(registry, path, tag, tries).await) }
            })
            .buffer_unordered(AT_ONCE);
        let mut pulled = 0;
        while let Some((at, result)) = pulls.next().await {
            match result {
                Ok(change) => {
                    listing.repositories[at].remember(change);
                    pulled += 1;
                    if pulled % REMEMBERED_AFTER == 0 {
                        self.remember(listing).await?;
                    }
                }
                Err(error) if error.is_about_credentials() => {
                    refused[at].store(true, Ordering::Relaxed);
                    listing.repositories[at].failed = Some(error);
                }
                Err(error) => {
                    listing.interrupted = Some(error);
                    break;
                }
            }
        }
        drop(pulls);
        listing.left = self.wanted(listing).len();
        self.remember(listing).await
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
                        tries: before.map_or(0, |before| before.tries),
                    });
                }
            }
        }
        wanted.sort_unstable();
        wanted
    }

    /// Pulls one tag. What is wrong with it alone is remembered, and is no failure of the others.
    async fn pull(&self, registry: &Registry, path: &str, name: String, tries: u32) -> Result<OciChange, OciError> {
        self.metrics.oci_pull();
        let pulled = async {
            let manifest = registry.manifest(path, &name).await?;
            let config = registry.config(path, &manifest).await?;
            Ok::<_, OciError>((manifest.digest, config))
        };
        let (digest, config) = match pulled.await {
            Ok(pulled) => pulled,
            Err(error) if error.is_transient() || error.is_about_credentials() => return Err(error),
            Err(error) => {
                let problem = error.to_string();
                return Ok(match error {
                    // It becomes no chart by waiting: only another digest calls for another look.
                    OciError::NotAChart { digest, .. } => useless(name, digest, problem),
                    _ => self.failed(name, tries.saturating_add(1), problem),
                });
            }
        };
        Ok(match usable(&config, &self.tools.decode_limits) {
            Ok(metadata) => OciChange {
                name,
                tag: OciTag {
                    digest,
                    ..OciTag::default()
                },
                metadata: Some(metadata),
            },
            Err(problem) => useless(name, digest, problem),
        })
    }

    fn failed(&self, name: String, tries: u32, problem: String) -> OciChange {
        let tag = OciTag {
            problem: Some(problem),
            tries,
            next_try: Some(self.attempt.started + TRIED_AGAIN.delay(tries.saturating_sub(1))),
            ..OciTag::default()
        };
        OciChange {
            name,
            tag,
            metadata: None,
        }
    }
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

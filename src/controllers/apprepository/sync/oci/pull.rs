//! Pulls the manifest and Chart.yaml of new versions.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};

use super::AT_ONCE;
use super::budget::{Patience, wants_to_be_left_alone};
use super::forbidden::Refusals;
use super::listing::Listing;
use crate::catalog::{self, OciChange, OciTag};
use crate::controllers::apprepository::sync::Run;
use crate::helm::index::{self, DecodeLimits};
use crate::oci::{OciError, Registry};
use crate::runtime::workqueue::Backoff;

/// Maximum number of manifests per sync. The next sync follows immediately, so that the newest versions of a large
/// registry appear early.
const PULLS: usize = 500;

const REMEMBERED_AFTER: usize = 64;

const METADATA_BYTES: usize = 64 * 1024;

struct Wanted {
    /// Number of newer versions of the chart.
    rank: usize,
    at: usize,
    tag: String,
    known: Option<OciTag>,
    failed: Option<Arc<OciError>>,
}

impl Wanted {
    fn tries(&self) -> u32 {
        self.known.as_ref().map_or(0, |known| known.tries)
    }
}

struct Puller<'a> {
    registry: &'a Registry,
    patience: Patience,
    paths: Vec<String>,
    refusals: Vec<Refusals>,
    /// Pulls left. Denied repositories do not count, since they would delay others.
    places: AtomicUsize,
}

impl<'a> Puller<'a> {
    fn new(registry: &'a Registry, listing: &Listing, patience: Patience) -> Self {
        let paths = (listing.repositories.iter()).map(|repository| registry.repository(&repository.memory.repository));
        Self {
            registry,
            patience,
            paths: paths.collect(),
            refusals: listing.repositories.iter().map(Refusals::of).collect(),
            places: AtomicUsize::new(PULLS),
        }
    }

    /// Reserves a pull of this repository.
    fn takes(&self, at: usize) -> bool {
        let next = |places: usize| places.checked_sub(1);
        !self.patience.is_over()
            && !self.refusals[at].is_all()
            && (self.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)).is_ok()
    }

    fn answered(&self, at: usize) {
        self.patience.answered();
        self.refusals[at].answered();
    }

    fn refused(&self, at: usize, error: &Arc<OciError>) {
        self.patience.answered();
        self.refusals[at].refused(error);
        if !self.refusals[at].has_answered() {
            self.places.fetch_add(1, Ordering::Relaxed);
        }
    }
}

const TRIED_AGAIN: Backoff = Backoff {
    base: Duration::from_mins(10),
    cap: Duration::from_hours(24),
};

const TRIED_SOON: Backoff = Backoff {
    base: Duration::from_mins(1),
    cap: Duration::from_hours(1),
};

enum Pulled {
    CachedIndex(OciChange),
    /// A stored chart whose manifest is missing. A registry that lost data looks the same, so that the chart stays.
    Lost(OciError),
}

impl Run<'_> {
    /// Pulls new tags, newest versions first, and stores them.
    pub(super) async fn pull_new(&self, registry: &Registry, listing: &mut Listing) -> Result<(), catalog::Error> {
        let wanted = self.wanted(listing);
        listing.left = wanted.len();
        if listing.interrupted.is_some() {
            return Ok(());
        }
        let puller = Puller::new(registry, listing, Patience::new(self.time()));
        let failed = self.pull_all(&puller, listing, wanted).await?;
        listing.interrupted = puller.patience.end().cloned();
        // Most transient failures succeed on a second try, unless earlier syncs failed too.
        let is_asked_again = |wanted: &Wanted| wanted.tries() == 0 && listing.repositories[wanted.at].failed.is_none();
        let (again, mut failed): (Vec<_>, Vec<_>) = failed.into_iter().partition(is_asked_again);
        if puller.patience.is_over() {
            failed.extend(again);
        } else {
            // Failures of the second try say nothing about the registry.
            let puller = Puller::new(registry, listing, puller.patience.again());
            failed.extend(self.pull_all(&puller, listing, again).await?);
            let end = puller.patience.end().filter(|error| wants_to_be_left_alone(error));
            listing.interrupted = end.cloned();
        }
        for wanted in failed {
            if let Some(error) = wanted.failed.clone() {
                self.note(listing, wanted, TRIED_SOON, &error);
            }
        }
        listing.left = self.wanted(listing).len();
        self.remember(listing).await
    }

    /// Pulls tags until the budget is exhausted. Returns those with transient failures.
    async fn pull_all(
        &self,
        puller: &Puller<'_>,
        listing: &mut Listing,
        wanted: Vec<Wanted>,
    ) -> Result<Vec<Wanted>, catalog::Error> {
        let mut pulls = stream::iter(wanted)
            .map(|wanted| async move {
                let pulled = match puller.takes(wanted.at) {
                    true => Some(self.pull(puller, &wanted).await),
                    false => None,
                };
                (wanted, pulled)
            })
            .buffer_unordered(AT_ONCE);
        let (mut pulled, mut failed, mut refused) = (0, Vec::new(), Vec::new());
        while let Some((mut wanted, result)) = pulls.next().await {
            let at = wanted.at;
            match result {
                None => failed.extend(wanted.failed.is_some().then_some(wanted)),
                Some(Ok(Pulled::Lost(error))) => {
                    puller.answered(at);
                    self.note(listing, wanted, TRIED_AGAIN, &error);
                }
                Some(Ok(Pulled::CachedIndex(change))) => {
                    puller.answered(at);
                    listing.pulled += 1;
                    listing.remember(at, change);
                    pulled += 1;
                    if pulled % REMEMBERED_AFTER == 0 {
                        self.remember(listing).await?;
                    }
                }
                Some(Err(error)) if error.is_about_credentials() => {
                    let error = Arc::new(error);
                    puller.refused(at, &error);
                    refused.push((wanted, error));
                }
                Some(Err(error)) => {
                    let error = Arc::new(error);
                    // A repeated failure says nothing about the registry.
                    let leave_alone = wants_to_be_left_alone(&error);
                    if wanted.tries() == 0 || leave_alone {
                        puller.patience.failed(&error);
                    }
                    if !leave_alone {
                        wanted.failed = Some(error);
                        failed.push(wanted);
                    }
                }
            }
        }
        drop(pulls);
        for (wanted, error) in refused {
            match puller.refusals[wanted.at].end() {
                Some(end) => listing.repositories[wanted.at].failed = Some(end),
                None => self.note(listing, wanted, TRIED_SOON, &error),
            }
        }
        Ok(failed)
    }

    /// Returns the tags to pull, the newest version of each chart first.
    fn wanted(&self, listing: &Listing) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let repositories = listing.repositories.iter().enumerate();
        for (at, repository) in repositories.filter(|(_, repository)| repository.failed.is_none()) {
            for (rank, tag) in repository.versions.iter().enumerate() {
                let before = repository.memory.tags.get(tag);
                // A time beyond the longest pause means that the clock was set back.
                let (now, longest) = (self.request.started, self.request.started + 2 * TRIED_AGAIN.cap);
                let due = |before: &OciTag| before.next_try.is_some_and(|time| time <= now || time > longest);
                if before.is_none_or(due) {
                    wanted.push(Wanted {
                        rank,
                        at,
                        tag: tag.clone(),
                        known: before.cloned(),
                        failed: None,
                    });
                }
            }
        }
        wanted.sort_unstable_by(|a, b| (a.rank, a.at, &a.tag).cmp(&(b.rank, b.at, &b.tag)));
        wanted
    }

    /// Pulls one tag. Permanent errors are stored and do not fail the sync.
    async fn pull(&self, puller: &Puller<'_>, wanted: &Wanted) -> Result<Pulled, OciError> {
        self.syncer.metrics.oci_pull();
        let (registry, path) = (puller.registry, puller.paths[wanted.at].as_str());
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
                    // Only a new digest can make it a chart.
                    OciError::NotAChart { digest, .. } => Pulled::CachedIndex(useless(name, digest, problem)),
                    error if known.is_some_and(OciTag::is_chart) => Pulled::Lost(error),
                    _ => Pulled::CachedIndex(self.failed(name, known.map_or(0, |known| known.tries), problem)),
                });
            }
        };
        let usable = config.map(|config| usable(&config, &self.syncer.context.decode_limits));
        Ok(Pulled::CachedIndex(match usable.transpose() {
            Ok(metadata) => chart(name, digest, metadata),
            Err(problem) => useless(name, digest, problem),
        }))
    }

    /// Stores a permanent error, with `tries` earlier failures.
    fn failed(&self, name: String, tries: u32, problem: String) -> OciChange {
        let tag = OciTag {
            problem: Some(problem),
            tries: tries.saturating_add(1),
            next_try: Some(self.request.started + spread(TRIED_AGAIN.delay(tries), &name)),
            ..OciTag::default()
        };
        OciChange {
            name,
            tag,
            metadata: None,
        }
    }

    /// Keeps the stored state of a tag, and retries it later.
    fn note(&self, listing: &mut Listing, wanted: Wanted, again: Backoff, error: &OciError) {
        let Wanted {
            at, tag: name, known, ..
        } = wanted;
        let known = known.unwrap_or_default();
        let tag = OciTag {
            tries: known.tries.saturating_add(1),
            next_try: Some(self.request.started + spread(again.delay(known.tries), &name)),
            ..known
        };
        (listing.repositories[at].delayed).insert(name.clone(), error.to_string());
        let change = OciChange {
            name,
            tag,
            metadata: None,
        };
        listing.remember(at, change);
    }
}

/// Adds up to a quarter to a pause, so that tags that failed together are retried at different times.
fn spread(pause: Duration, tag: &str) -> Duration {
    let mut hasher = DefaultHasher::new();
    tag.hash(&mut hasher);
    // In thousandths.
    let share = u32::try_from(hasher.finish() % 250).unwrap_or_default();
    pause.saturating_add(pause / 1000 * share)
}

/// Returns a change to a chart; `None` keeps the stored metadata.
fn chart(name: String, digest: String, metadata: Option<String>) -> OciChange {
    let tag = OciTag {
        digest,
        ..OciTag::default()
    };
    OciChange { name, tag, metadata }
}

/// Returns a change to an unusable tag, until its digest changes.
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

fn usable(config: &[u8], limits: &DecodeLimits) -> Result<String, String> {
    let metadata = index::metadata(config, limits)?.to_json();
    if metadata.len() > METADATA_BYTES {
        let bytes = metadata.len();
        return Err(format!("its metadata has {bytes} bytes, more than {METADATA_BYTES}"));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_a_quarter_longer_at_most_and_not_the_same_for_all() {
        let hour = Duration::from_hours(1);
        let pauses = (0..100).map(|number| spread(hour, &format!("1.{number}.0")));
        let pauses: std::collections::BTreeSet<Duration> = pauses.collect();
        assert!(pauses.len() > 50);
        assert!(pauses.iter().all(|pause| (hour..hour + hour / 4).contains(pause)));
    }
}

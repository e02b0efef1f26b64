//! Pulling what is new: of each version the manifest, and the Chart.yaml that it names.

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
    /// Why it could not be pulled in this attempt, although that may pass.
    failed: Option<Arc<OciError>>,
}

impl Wanted {
    /// How often it has failed in earlier attempts.
    fn tries(&self) -> u32 {
        self.known.as_ref().map_or(0, |known| known.tries)
    }
}

/// What the pulls of one attempt share.
struct Puller<'a> {
    registry: &'a Registry,
    patience: Patience,
    /// The paths of the listing's repositories.
    paths: Vec<String>,
    /// What was refused of each.
    refusals: Vec<Refusals>,
    /// Pulls that may be made yet. Those of a repository that gives nothing do not count: they would keep the others waiting.
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

    /// Whether one more is pulled of a repository, which then has a place.
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
    CachedIndex(OciChange),
    /// A chart that can't be had any more, by what the answer says. A registry that has lost what it lists looks like that, so it
    /// stays what it was.
    Lost(OciError),
}

impl Run<'_> {
    /// Pulls what is new, the newest version of each chart first, and remembers it as it comes.
    pub(super) async fn pull_new(&self, registry: &Registry, listing: &mut Listing) -> Result<(), catalog::Error> {
        let wanted = self.wanted(listing);
        listing.left = wanted.len();
        if listing.interrupted.is_some() {
            return Ok(());
        }
        let puller = Puller::new(registry, listing, Patience::new(self.time()));
        let failed = self.pull_all(&puller, listing, wanted).await?;
        listing.interrupted = puller.patience.end().cloned();
        // What failed in passing is there by now, most likely, unless it has failed in earlier attempts too.
        let is_asked_again = |wanted: &Wanted| wanted.tries() == 0 && listing.repositories[wanted.at].failed.is_none();
        let (again, mut failed): (Vec<_>, Vec<_>) = failed.into_iter().partition(is_asked_again);
        if puller.patience.is_over() {
            failed.extend(again);
        } else {
            // That all of these fail says nothing of the registry.
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

    /// Pulls these, as far as it comes. Gives back those that have failed in a way that may pass, now or before.
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
                Some(Err(error)) if error.is_credential_error() => {
                    let error = Arc::new(error);
                    puller.refused(at, &error);
                    refused.push((wanted, error));
                }
                Some(Err(error)) => {
                    let error = Arc::new(error);
                    // What has failed before says nothing of the registry.
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

    /// What there is to pull, the newest version of each chart first.
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

    /// Pulls one tag. What is wrong with it alone is remembered, and is no failure of the others.
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
            Err(error) if error.is_transient() || error.is_credential_error() => return Err(error),
            Err(error) => {
                let problem = error.to_string();
                return Ok(match error {
                    // It becomes no chart by waiting: only another digest calls for another look.
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

    /// A tag that is of no use, which may be put right by somebody. It has failed so many times before.
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

    /// Has a tag stay what it was for now, and tried again later.
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

/// A pause of this length for one tag, up to a quarter longer: tags that have failed together are not all tried at the same time.
fn spread(pause: Duration, tag: &str) -> Duration {
    let mut hasher = DefaultHasher::new();
    tag.hash(&mut hasher);
    // In thousandths.
    let share = u32::try_from(hasher.finish() % 250).unwrap_or_default();
    pause.saturating_add(pause / 1000 * share)
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

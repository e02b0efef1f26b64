use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;

use super::budget::{RegistryBudget, is_pause_requested};
use super::forbidden::DenialTracker;
use super::listing::Listing;
use super::{CONCURRENCY, store};
use crate::catalog::{self, OciChange, OciTag};
use crate::controllers::apprepository::sync::SyncerRun;
use crate::helm::index::{self, DecodeLimits};
use crate::oci::{OciError, Registry};
use crate::runtime::jitter::jitter_of;
use crate::runtime::workqueue::Backoff;

/// Per sync. The next sync follows immediately, so that the newest versions of a large registry appear early.
const MAX_PULLS: usize = 500;

const STORE_INTERVAL: usize = 64;

/// Metadata that a sync holds in memory while it waits for the registry.
const MAX_UNSAVED_BYTES: usize = METADATA_BYTES;

const METADATA_BYTES: usize = 64 * 1024;

struct PendingTag {
    /// Number of newer versions of the chart.
    rank: usize,
    at: usize,
    tag: String,
    stored: Option<OciTag>,
    failed: Option<Arc<OciError>>,
}

impl PendingTag {
    fn tries(&self) -> u32 {
        self.stored.as_ref().map_or(0, |stored| stored.tries)
    }
}

struct Puller<'a> {
    registry: &'a Registry,
    budget: RegistryBudget,
    paths: Vec<String>,
    denials: Vec<DenialTracker>,
    /// Pulls left. Denied repositories do not count, since they would delay others.
    permits: AtomicUsize,
}

impl<'a> Puller<'a> {
    fn new(registry: &'a Registry, listing: &Listing, budget: RegistryBudget) -> Self {
        let paths = (listing.repositories.iter()).map(|repository| registry.repository(&repository.stored.repository));
        Self {
            registry,
            budget,
            paths: paths.collect(),
            denials: listing.repositories.iter().map(DenialTracker::of).collect(),
            permits: AtomicUsize::new(MAX_PULLS),
        }
    }

    fn reserve(&self, at: usize) -> bool {
        let next = |permits: usize| permits.checked_sub(1);
        !self.budget.is_over()
            && !self.denials[at].is_denied()
            && (self.permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)).is_ok()
    }

    fn record_answer(&self, at: usize) {
        self.budget.record_answer();
        self.denials[at].record_answer();
    }

    fn record_denial(&self, at: usize, error: &Arc<OciError>) {
        self.budget.record_answer();
        self.denials[at].record_denial(error);
        if !self.denials[at].has_answered() {
            self.permits.fetch_add(1, Ordering::Relaxed);
        }
    }
}

const PERMANENT_BACKOFF: Backoff = Backoff {
    base: Duration::from_mins(10),
    cap: Duration::from_hours(24),
};

const TRANSIENT_BACKOFF: Backoff = Backoff {
    base: Duration::from_mins(1),
    cap: Duration::from_hours(1),
};

enum Pulled {
    Recorded(OciChange),
    /// A stored chart whose manifest is missing. A registry that lost data looks the same, so that the chart stays.
    Lost(OciError),
}

/// Pulls new tags, newest versions first, and stores them.
pub(super) async fn pull_new(
    run: &SyncerRun<'_>,
    registry: &Registry,
    listing: &mut Listing,
) -> Result<(), catalog::Error> {
    let started = run.request.started;
    let pending = pending_tags(listing, started);
    listing.left = pending.len();
    if listing.interrupted.is_some() {
        return Ok(());
    }
    let puller = Puller::new(registry, listing, RegistryBudget::new(run.fetch_limits().total));
    let failed = pull_all(run, &puller, listing, pending).await?;
    listing.interrupted = puller.budget.end().cloned();
    // Most transient failures succeed on a second try, unless earlier syncs failed too.
    let is_retried = |pending: &PendingTag| pending.tries() == 0 && listing.repositories[pending.at].failed.is_none();
    let (retry, mut failed): (Vec<_>, Vec<_>) = failed.into_iter().partition(is_retried);
    if puller.budget.is_over() {
        failed.extend(retry);
    } else {
        // Failures of the second try say nothing about the registry.
        let puller = Puller::new(registry, listing, puller.budget.retry());
        failed.extend(pull_all(run, &puller, listing, retry).await?);
        let end = puller.budget.end().filter(|error| is_pause_requested(error));
        listing.interrupted = end.cloned();
    }
    for pending in failed {
        if let Some(error) = pending.failed.clone() {
            delay(listing, pending, TRANSIENT_BACKOFF, &error, started);
        }
    }
    listing.left = pending_tags(listing, started).len();
    store(run, listing).await
}

/// Pulls tags until the budget is exhausted. Returns those with transient failures.
async fn pull_all(
    run: &SyncerRun<'_>,
    puller: &Puller<'_>,
    listing: &mut Listing,
    pending: Vec<PendingTag>,
) -> Result<Vec<PendingTag>, catalog::Error> {
    let started = run.request.started;
    let mut pulls = stream::iter(pending)
        .map(|pending| async move {
            if !puller.reserve(pending.at) {
                return (pending, None);
            }
            let pulled = pull(run, puller, &pending).await;
            (pending, Some(pulled))
        })
        .buffer_unordered(CONCURRENCY);
    let (mut pulled, mut failed, mut refused) = (0, Vec::new(), Vec::new());
    while let Some((mut pending, result)) = pulls.next().await {
        let at = pending.at;
        match result {
            None => failed.extend(pending.failed.is_some().then_some(pending)),
            Some(Ok(Pulled::Lost(error))) => {
                puller.record_answer(at);
                delay(listing, pending, PERMANENT_BACKOFF, &error, started);
            }
            Some(Ok(Pulled::Recorded(change))) => {
                puller.record_answer(at);
                listing.pulled += 1;
                listing.update(at, change);
                pulled += 1;
                if pulled % STORE_INTERVAL == 0 || listing.unsaved_bytes >= MAX_UNSAVED_BYTES {
                    store(run, listing).await?;
                }
            }
            Some(Err(error)) if error.is_credential_error() => {
                let error = Arc::new(error);
                puller.record_denial(at, &error);
                refused.push((pending, error));
            }
            Some(Err(error)) => {
                let error = Arc::new(error);
                // A repeated failure says nothing about the registry.
                let is_pause = is_pause_requested(&error);
                if pending.tries() == 0 || is_pause {
                    puller.budget.record_failure(&error);
                }
                if !is_pause {
                    pending.failed = Some(error);
                    failed.push(pending);
                }
            }
        }
    }
    drop(pulls);
    end_denied(puller, listing, refused, started);
    Ok(failed)
}

/// Ends the repositories that refuse the credentials, and delays the tags that others refuse.
fn end_denied(puller: &Puller<'_>, listing: &mut Listing, refused: Vec<(PendingTag, Arc<OciError>)>, now: Timestamp) {
    for (pending, error) in refused {
        match puller.denials[pending.at].end() {
            Some(end) => listing.repositories[pending.at].failed = Some(end),
            None => delay(listing, pending, TRANSIENT_BACKOFF, &error, now),
        }
    }
}

/// Returns the tags to pull, the newest version of each chart first.
fn pending_tags(listing: &Listing, now: Timestamp) -> Vec<PendingTag> {
    let mut pending = Vec::new();
    let repositories = listing.repositories.iter().enumerate();
    for (at, repository) in repositories.filter(|(_, repository)| repository.failed.is_none()) {
        for (rank, tag) in repository.versions.iter().enumerate() {
            let stored = repository.stored.tags.get(tag);
            // A time beyond the longest pause means that the clock was set back.
            let longest = now + 2 * PERMANENT_BACKOFF.cap;
            let is_due = |stored: &OciTag| stored.next_try.is_some_and(|time| time <= now || time > longest);
            if stored.is_none_or(is_due) {
                pending.push(PendingTag {
                    rank,
                    at,
                    tag: tag.clone(),
                    stored: stored.cloned(),
                    failed: None,
                });
            }
        }
    }
    pending.sort_unstable_by(|a, b| (a.rank, a.at, &a.tag).cmp(&(b.rank, b.at, &b.tag)));
    pending
}

/// Pulls one tag. Permanent errors are stored and do not fail the sync.
async fn pull(run: &SyncerRun<'_>, puller: &Puller<'_>, pending: &PendingTag) -> Result<Pulled, OciError> {
    run.syncer.metrics.oci_pull();
    let (registry, path) = (puller.registry, puller.paths[pending.at].as_str());
    let (name, stored) = (pending.tag.clone(), pending.stored.as_ref());
    let pulled = async {
        let manifest = registry.manifest(path, &name).await?;
        let is_stored = stored.is_some_and(|stored| stored.is_chart() && stored.digest == manifest.digest);
        let config = if is_stored {
            None
        } else {
            Some(registry.config(path, &manifest).await?)
        };
        Ok::<_, OciError>((manifest.digest, config))
    };
    let (digest, config) = match pulled.await {
        Ok(pulled) => pulled,
        Err(error) if error.is_transient() || error.is_credential_error() => return Err(error),
        Err(error) => {
            let problem = error.to_string();
            return Ok(match error {
                // Only a new digest can make it a chart.
                OciError::NotAChart { digest, .. } => Pulled::Recorded(pulled_tag(name, digest, None, Some(problem))),
                error if stored.is_some_and(OciTag::is_chart) => Pulled::Lost(error),
                _ => Pulled::Recorded(permanent_failure(name, pending.tries(), problem, run.request.started)),
            });
        }
    };
    let usable = config.map(|config| usable(&config, &run.syncer.context.decode_limits));
    Ok(Pulled::Recorded(match usable.transpose() {
        Ok(metadata) => pulled_tag(name, digest, metadata, None),
        Err(problem) => pulled_tag(name, digest, None, Some(problem)),
    }))
}

/// Returns the change that stores a permanent error, with `tries` earlier failures.
fn permanent_failure(name: String, tries: u32, problem: String, now: Timestamp) -> OciChange {
    let tag = OciTag {
        problem: Some(problem),
        tries: tries.saturating_add(1),
        next_try: Some(now + spread(&name, PERMANENT_BACKOFF.delay(tries))),
        ..OciTag::default()
    };
    OciChange {
        name,
        tag,
        metadata: None,
    }
}

fn delay(listing: &mut Listing, pending: PendingTag, retry: Backoff, error: &OciError, now: Timestamp) {
    let PendingTag {
        at, tag: name, stored, ..
    } = pending;
    let stored = stored.unwrap_or_default();
    let tag = OciTag {
        tries: stored.tries.saturating_add(1),
        next_try: Some(now + spread(&name, retry.delay(stored.tries))),
        ..stored
    };
    (listing.repositories[at].delayed).insert(name.clone(), error.to_string());
    let change = OciChange {
        name,
        tag,
        metadata: None,
    };
    listing.update(at, change);
}

/// Spreads the retries of tags that failed together.
fn spread(tag: &str, pause: Duration) -> Duration {
    jitter_of(tag, pause, 1.0..1.25)
}

/// Without a problem it is a chart; `metadata` of `None` keeps the stored one. A tag with a problem stays unusable
/// until its digest changes.
fn pulled_tag(name: String, digest: String, metadata: Option<String>, problem: Option<String>) -> OciChange {
    let tag = OciTag {
        digest,
        problem,
        ..OciTag::default()
    };
    OciChange { name, tag, metadata }
}

fn usable(config: &[u8], limits: &DecodeLimits) -> Result<String, String> {
    let metadata = index::metadata(config, limits)?.to_json();
    if metadata.len() > METADATA_BYTES {
        let bytes = metadata.len();
        return Err(format!("metadata has {bytes} bytes, limit is {METADATA_BYTES}"));
    }
    Ok(metadata)
}

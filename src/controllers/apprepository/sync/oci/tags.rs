use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::SignedDuration;

use super::budget::{RegistryBudget, is_pause_requested};
use super::forbidden::DenialTracker;
use super::listing::Listing;
use super::{CONCURRENCY, Repository};
use crate::catalog::OciRepository;
use crate::controllers::apprepository::decision;
use crate::controllers::apprepository::sync::SyncerRun;
use crate::http::{FetchError, Validators};
use crate::oci::{OciError, Registry, Tags};

/// Lists the tags of one repository. On errors, the stored charts stay, unless the repository does not exist.
pub(super) async fn list_tags(
    run: &SyncerRun<'_>,
    registry: &Registry,
    budget: &RegistryBudget,
    stored: OciRepository,
) -> Repository {
    let path = registry.repository(&stored.repository);
    let mut repository = Repository::from_stored(registry.chart_url(&path, ""), stored);
    // Validators of a response to other credentials do not apply.
    let validators = (!run.have_secrets_changed()).then_some(&repository.validators);
    if budget.is_over() {
        let error = budget.end().cloned();
        repository.failed = Some(error.unwrap_or_else(|| Arc::new(out_of_time(run, repository.shown()))));
        return repository;
    }
    match registry.tags(&path, validators).await {
        Ok(Tags::NotModified) => {
            budget.record_answer();
            repository.is_listed = true;
            run.syncer.metrics.not_modified();
        }
        Ok(Tags::Listed { tags, validators }) => {
            budget.record_answer();
            repository.set_tags(tags, validators);
        }
        Err(error) => {
            let error = Arc::new(error);
            if error.is_transient() {
                budget.record_failure(&error);
            } else {
                budget.record_answer();
            }
            if error.is_not_found() || matches!(*error, OciError::InvalidName(_)) {
                repository.set_tags(Vec::new(), Validators::default());
            }
            repository.failed = Some(error);
        }
    }
    repository
}

pub(super) fn out_of_time(run: &SyncerRun<'_>, url: &str) -> OciError {
    OciError::Fetch(FetchError::Timeout {
        url: url.to_owned(),
        limit: run.fetch_limits().total,
    })
}

/// Checks the digests of stored tags where due. Retagged versions are pulled again; until then, their charts stay.
pub(super) async fn recheck_digests(run: &SyncerRun<'_>, registry: &Registry, listing: &mut Listing) {
    if listing.interrupted.is_some() {
        return;
    }
    let (due, started) = (due(run, listing), run.request.started);
    let budget = RegistryBudget::new(run.fetch_limits().total);
    let check = check_digests(registry, &budget, &listing.repositories, &due).await;
    listing.interrupted = budget.end().cloned();
    for (at, error) in check.refused {
        listing.repositories[at].failed = Some(error);
    }
    for (at, tag) in check.changed {
        let repository = &mut listing.repositories[at];
        if repository.failed.is_none() {
            repository.pull_again(tag, started);
        }
    }
    // Repositories before the first unchecked tag are done.
    let first = check.left.first().map(|(at, _)| *at);
    let mut done = first.map_or(due.len(), |first| due.iter().take_while(|at| **at != first).count());
    if let Some(first) = first.filter(|_| listing.interrupted.is_none()) {
        // A repository may exceed the time of every sync: pull its remaining tags, which can be resumed.
        for (_, tag) in check.left.into_iter().filter(|(at, _)| *at == first) {
            listing.repositories[first].pull_again(tag, started);
        }
        done += 1;
    }
    let (done, left) = due.split_at(done);
    for at in done {
        let repository = &mut listing.repositories[*at];
        if repository.failed.is_none() {
            repository.set_digests_checked(Some(started));
            listing.made_progress = true;
        }
    }
    if listing.interrupted.is_none() {
        // Only these are due for the next sync.
        for at in left {
            listing.repositories[*at].set_digests_checked(None);
        }
        listing.is_unfinished = !left.is_empty();
    }
}

/// Returns the indexes of repositories whose digests are due, oldest check first. While a sync continues in parts,
/// only unchecked ones are due: otherwise the first would be due again before the last was checked.
fn due(run: &SyncerRun<'_>, listing: &Listing) -> Vec<usize> {
    let has_more = run.request.previous.as_ref().is_some_and(decision::has_more);
    let is_due = |repository: &Repository| match repository.stored.digests_checked {
        None => true,
        Some(_) if has_more => false,
        Some(then) => {
            let age = run.request.started.duration_since(then);
            // A time in the future means that the clock was set back.
            age.is_negative() || age >= signed(run.syncer.context.check_digests)
        }
    };
    let repositories = listing.repositories.iter().enumerate();
    let mut due: Vec<usize> = repositories
        .filter(|(_, repository)| repository.failed.is_none() && is_due(repository))
        .map(|(at, _)| at)
        .collect();
    due.sort_by_key(|at| listing.repositories[*at].stored.digests_checked);
    due
}

/// Requests the digests of one repository after the other, until the budget is exhausted.
async fn check_digests(
    registry: &Registry,
    budget: &RegistryBudget,
    repositories: &[Repository],
    due: &[usize],
) -> DigestCheck {
    let mut tags = Vec::new();
    for at in due {
        let stored = &repositories[*at].stored;
        let path: Arc<str> = registry.repository(&stored.repository).into();
        // Tags without a digest were never pulled, and have their own retry.
        let pulled = stored.tags.iter().filter(|(_, tag)| !tag.digest.is_empty());
        tags.extend(pulled.map(|(name, tag)| (*at, path.clone(), name.clone(), tag.digest.clone())));
    }
    let denials: Vec<DenialTracker> = repositories.iter().map(DenialTracker::of).collect();
    let denials = &denials;
    let checks = stream::iter(tags).map(|(at, path, tag, digest)| async move {
        if denials[at].is_denied() || budget.is_over() {
            return (at, tag, None);
        }
        let is_retagged = registry.digest(&path, &tag).await.map(|current| current != digest);
        (at, tag, Some(is_retagged))
    });
    let mut checks = checks.buffered(CONCURRENCY);
    let mut check = DigestCheck::default();
    while let Some((at, tag, result)) = checks.next().await {
        let denials = &denials[at];
        match result {
            None if denials.is_denied() => {}
            None => check.left.push((at, tag)),
            Some(Ok(is_retagged)) => {
                budget.record_answer();
                denials.record_answer();
                if is_retagged {
                    check.changed.push((at, tag));
                }
            }
            Some(Err(error)) if error.is_transient() => {
                let error = Arc::new(error);
                budget.record_failure(&error);
                check.add_failure(at, tag, &error);
            }
            Some(Err(error)) => {
                budget.record_answer();
                if error.is_credential_error() {
                    denials.record_denial(&Arc::new(error));
                } else {
                    denials.record_answer();
                }
                check.changed.push((at, tag));
            }
        }
    }
    let ends = due.iter().filter_map(|at| Some((*at, denials[*at].end()?)));
    check.refused = ends.collect();
    check
}

#[derive(Default)]
struct DigestCheck {
    /// Retagged versions, and those whose check failed: pulling them reports the error.
    changed: Vec<(usize, String)>,
    refused: Vec<(usize, Arc<OciError>)>,
    left: Vec<(usize, String)>,
}

impl DigestCheck {
    /// The tag was just listed: pulling it reports the error, unless the host asked for a pause.
    fn add_failure(&mut self, at: usize, tag: String, error: &OciError) {
        if is_pause_requested(error) {
            self.left.push((at, tag));
        } else {
            self.changed.push((at, tag));
        }
    }
}

fn signed(duration: std::time::Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

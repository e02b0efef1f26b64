//! Lists tags and finds retagged versions.

use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::SignedDuration;

use super::budget::{self as patience, Patience};
use super::forbidden::Refusals;
use super::listing::Listing;
use super::{AT_ONCE, Repository};
use crate::catalog::OciRepository;
use crate::controllers::apprepository::decision as decide;
use crate::controllers::apprepository::sync::Run;
use crate::http::{FetchError, Validators};
use crate::oci::{OciError, Registry, Tags};

impl Run<'_> {
    /// Lists the tags of one repository. On errors, the stored charts stay, unless the repository does not exist.
    pub(super) async fn tags(&self, registry: &Registry, patience: &Patience, memory: OciRepository) -> Repository {
        let path = registry.repository(&memory.repository);
        let mut repository = Repository::remembered(registry.chart_url(&path, ""), memory);
        // Validators of a response to other credentials do not apply.
        let known = (!self.has_other_credentials()).then_some(&repository.validators);
        if patience.is_over() {
            let given_up = patience.end().cloned();
            repository.failed = Some(given_up.unwrap_or_else(|| Arc::new(self.out_of_time(repository.shown()))));
            return repository;
        }
        match registry.tags(&path, known).await {
            Ok(Tags::NotModified) => {
                patience.answered();
                repository.take_unchanged();
                self.syncer.metrics.not_modified();
            }
            Ok(Tags::Listed { tags, validators }) => {
                patience.answered();
                repository.take(tags, validators);
            }
            Err(error) => {
                let error = Arc::new(error);
                if error.is_transient() {
                    patience.failed(&error);
                } else {
                    patience.answered();
                }
                if error.is_not_found() || matches!(*error, OciError::InvalidName(_)) {
                    repository.take(Vec::new(), Validators::default());
                }
                repository.failed = Some(error);
            }
        }
        repository
    }

    pub(super) fn out_of_time(&self, url: &str) -> OciError {
        OciError::Fetch(FetchError::Timeout {
            url: url.to_owned(),
            limit: self.time(),
        })
    }

    /// Checks the digests of stored tags where due. Retagged versions are pulled again; until then, their charts stay.
    pub(super) async fn published_anew(&self, registry: &Registry, listing: &mut Listing) {
        if listing.interrupted.is_some() {
            return;
        }
        let due = self.due(listing);
        let patience = Patience::new(self.time());
        let looked = self
            .look_at_digests(registry, &patience, &listing.repositories, &due)
            .await;
        listing.interrupted = patience.end().cloned();
        for (at, error) in looked.refused {
            listing.repositories[at].failed = Some(error);
        }
        for (at, tag) in looked.changed {
            let repository = &mut listing.repositories[at];
            if repository.failed.is_none() {
                repository.pull_again(tag, self.request.started);
            }
        }
        // Repositories before the first unchecked tag are done.
        let first = looked.left.first().map(|(at, _)| *at);
        let mut done = first.map_or(due.len(), |first| due.iter().take_while(|at| **at != first).count());
        if let Some(first) = first.filter(|_| listing.interrupted.is_none()) {
            // A repository may exceed the time of every sync: pull its remaining tags, which can be resumed.
            for (_, tag) in looked.left.into_iter().filter(|(at, _)| *at == first) {
                listing.repositories[first].pull_again(tag, self.request.started);
            }
            done += 1;
        }
        let (done, left) = due.split_at(done);
        for at in done {
            let repository = &mut listing.repositories[*at];
            if repository.failed.is_none() {
                repository.set_digests_checked(Some(self.request.started));
                listing.has_moved = true;
            }
        }
        if listing.interrupted.is_none() {
            // Only these are due for the next sync.
            left.iter()
                .for_each(|at| listing.repositories[*at].set_digests_checked(None));
            listing.is_unfinished = !left.is_empty();
        }
    }

    /// Returns the indexes of repositories whose digests are due, oldest check first. While a sync continues in parts,
    /// only unchecked ones are due: otherwise the first would be due again before the last was checked.
    fn due(&self, listing: &Listing) -> Vec<usize> {
        let goes_on = self.request.previous.as_ref().is_some_and(decide::goes_on);
        let is_due = |repository: &Repository| match repository.memory.digests_checked {
            None => true,
            Some(_) if goes_on => false,
            Some(then) => {
                let age = self.request.started.duration_since(then);
                // A time in the future means that the clock was set back.
                age.is_negative() || age >= signed(self.syncer.context.check_digests)
            }
        };
        let repositories = listing.repositories.iter().enumerate();
        let mut due: Vec<usize> = repositories
            .filter(|(_, repository)| repository.failed.is_none() && is_due(repository))
            .map(|(at, _)| at)
            .collect();
        due.sort_by_key(|at| listing.repositories[*at].memory.digests_checked);
        due
    }

    /// Requests the digests of one repository after the other, until the budget is exhausted.
    async fn look_at_digests(
        &self,
        registry: &Registry,
        patience: &Patience,
        repositories: &[Repository],
        due: &[usize],
    ) -> Looked {
        let mut tags = Vec::new();
        for at in due {
            let memory = &repositories[*at].memory;
            let path: Arc<str> = registry.repository(&memory.repository).into();
            // Tags without a digest were never pulled, and have their own retry.
            let known = memory.tags.iter().filter(|(_, known)| !known.digest.is_empty());
            tags.extend(known.map(|(tag, known)| (*at, path.clone(), tag.clone(), known.digest.clone())));
        }
        let refusals: Vec<Refusals> = repositories.iter().map(Refusals::of).collect();
        let refusals = &refusals;
        let looks = stream::iter(tags).map(|(at, path, tag, digest)| async move {
            let found = match refusals[at].is_all() || patience.is_over() {
                true => None,
                false => Some(registry.digest(&path, &tag).await.map(|found| found != digest)),
            };
            (at, tag, found)
        });
        let mut looks = looks.buffered(AT_ONCE);
        let mut looked = Looked::default();
        while let Some((at, tag, result)) = looks.next().await {
            let refusals = &refusals[at];
            match result {
                None if refusals.is_all() => {}
                None => looked.left.push((at, tag)),
                Some(Ok(is_other)) => {
                    patience.answered();
                    refusals.answered();
                    if is_other {
                        looked.changed.push((at, tag));
                    }
                }
                Some(Err(error)) if error.is_transient() => {
                    let error = Arc::new(error);
                    patience.failed(&error);
                    looked.failed(at, tag, &error);
                }
                Some(Err(error)) => {
                    patience.answered();
                    match error.is_about_credentials() {
                        true => refusals.refused(&Arc::new(error)),
                        false => refusals.answered(),
                    }
                    looked.changed.push((at, tag));
                }
            }
        }
        let ends = due.iter().filter_map(|at| Some((*at, refusals[*at].end()?)));
        looked.refused = ends.collect();
        looked
    }
}

/// Result of a digest check, with indexes of repositories in the listing.
#[derive(Default)]
struct Looked {
    /// Retagged versions, and those whose check failed: pulling them reports the error.
    changed: Vec<(usize, String)>,
    refused: Vec<(usize, Arc<OciError>)>,
    left: Vec<(usize, String)>,
}

impl Looked {
    /// The tag was just listed: pulling it reports the error, unless the host asked for a pause.
    fn failed(&mut self, at: usize, tag: String, error: &OciError) {
        if patience::wants_to_be_left_alone(error) {
            self.left.push((at, tag));
        } else {
            self.changed.push((at, tag));
        }
    }
}

fn signed(duration: std::time::Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

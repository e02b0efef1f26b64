//! Which tags there are, and which of them stand for something else than before.

use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::SignedDuration;

use super::{AT_ONCE, Listing, Repository};
use crate::catalog::OciRepository;
use crate::repository::in_process::Run;
use crate::source::fetch::Validators;
use crate::source::oci::{OciError, Registry, Tags};

impl Run<'_> {
    /// Lists the tags of one repository. What will not pass by itself is told of it alone, and its charts stay as they are
    /// remembered, but where it is no more.
    pub(super) async fn tags(&self, registry: &Registry, memory: OciRepository) -> Result<Repository, OciError> {
        let path = registry.repository(&memory.repository);
        let mut repository = Repository::remembered(registry.chart_url(&path, ""), memory);
        // What other credentials were shown is no measure of what these are.
        let known = (!self.has_other_credentials()).then_some(&repository.validators);
        match registry.tags(&path, known).await {
            Ok(Tags::NotModified) => self.metrics.not_modified(),
            Ok(Tags::Listed { tags, validators }) => repository.take(tags, validators),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                if error.is_not_found() || matches!(error, OciError::InvalidName(_)) {
                    repository.take(Vec::new(), Validators::default());
                }
                repository.failed = Some(error);
            }
        }
        Ok(repository)
    }

    /// Looks at the digests of the tags that are known, in those repositories where it is time to. What stands for something else
    /// than before is to be pulled again; until then it stays as it is.
    pub(super) async fn published_anew(&self, registry: &Registry, listing: &mut Listing) {
        let due: Vec<usize> = (listing.repositories.iter().enumerate())
            .filter(|(_, repository)| repository.failed.is_none() && self.is_due(repository))
            .map(|(at, _)| at)
            .collect();
        let looked = self.look_at_digests(registry, &listing.repositories, &due).await;
        let unfinished = match looked.broken_off {
            Some((at, error)) => {
                listing.interrupted = Some(error);
                at
            }
            None => usize::MAX,
        };
        for (at, error) in looked.refused {
            listing.repositories[at].failed = Some(error);
        }
        for (at, tag) in looked.changed {
            listing.repositories[at].pull_again(tag, self.attempt.started);
        }
        for at in due.into_iter().filter(|at| *at < unfinished) {
            let repository = &mut listing.repositories[at];
            if repository.failed.is_none() {
                repository.memory.digests_checked = Some(self.attempt.started);
                repository.is_changed = true;
            }
        }
    }

    fn is_due(&self, repository: &Repository) -> bool {
        let age = (repository.memory.digests_checked).map(|then| self.attempt.started.duration_since(then));
        age.is_none_or(|age| age >= signed(self.tools.check_digests))
    }

    /// Asks for the digests of one repository after the other, as far as it comes.
    async fn look_at_digests(&self, registry: &Registry, repositories: &[Repository], due: &[usize]) -> Looked {
        let mut tags = Vec::new();
        for at in due {
            let memory = &repositories[*at].memory;
            let path: Arc<str> = registry.repository(&memory.repository).into();
            // Without a digest it could not be pulled, and is tried again in its time.
            let known = memory.tags.iter().filter(|(_, known)| !known.digest.is_empty());
            tags.extend(known.map(|(tag, known)| (*at, path.clone(), tag.clone(), known.digest.clone())));
        }
        let looks = stream::iter(tags).map(|(at, path, tag, digest)| async move {
            let found = registry.digest(&path, &tag).await;
            (at, tag, found.map(|found| found != digest))
        });
        let mut looks = looks.buffered(AT_ONCE);
        let mut looked = Looked::default();
        while let Some((at, tag, result)) = looks.next().await {
            match result {
                Ok(false) => {}
                Err(error) if error.is_transient() => {
                    looked.broken_off = Some((at, error));
                    break;
                }
                Err(error) if error.is_about_credentials() => looked.refused.push((at, error)),
                // It was listed a moment ago: pulling it tells what is the matter.
                Ok(true) | Err(_) => looked.changed.push((at, tag)),
            }
        }
        looked
    }
}

/// What came of a look at digests. Repositories are given by their place in the listing.
#[derive(Default)]
struct Looked {
    changed: Vec<(usize, String)>,
    refused: Vec<(usize, OciError)>,
    /// In which it ended before its time, and why.
    broken_off: Option<(usize, OciError)>,
}

fn signed(duration: std::time::Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

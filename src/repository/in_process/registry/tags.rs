//! Which tags there are, and which of them stand for something else than before.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use jiff::SignedDuration;

use super::{AT_ONCE, Broken, Listing, Repository};
use crate::catalog::OciRepository;
use crate::repository::decide::Mode;
use crate::repository::in_process::Run;
use crate::source::fetch::Validators;
use crate::source::oci::{OciError, Registry, Tags};

impl Run<'_> {
    /// Lists the tags of one repository. What will not pass by itself is told of it alone, and its charts stay as they are
    /// remembered, but where it is no more.
    pub(super) async fn tags(&self, registry: &Registry, memory: OciRepository) -> Result<Repository, OciError> {
        let path = registry.repository(&memory.repository);
        let mut repository = Repository::remembered(registry.chart_url(&path, ""), memory);
        let conditions = (self.attempt.mode == Mode::Conditional).then_some(&repository.validators);
        match registry.tags(&path, conditions).await {
            Ok(Tags::NotModified) => self.metrics.not_modified(),
            Ok(Tags::Listed { tags, validators }) => repository.take(tags, validators),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                if error.is_not_found() {
                    repository.take(Vec::new(), Validators::default());
                }
                repository.failed = Some(error);
            }
        }
        Ok(repository)
    }

    /// The repositories whose digests were looked at, where it was time to, and of these the tags whose manifest is another than
    /// the one that is remembered.
    pub(super) async fn published_anew(
        &self,
        registry: &Registry,
        listing: &mut Listing,
    ) -> Result<(Vec<usize>, BTreeSet<(usize, String)>), Broken> {
        let now = self.attempt.started;
        let is_due = |repository: &Repository| {
            if repository.failed.is_some() {
                return false;
            }
            let age = repository.memory.digests_checked.map(|then| now.duration_since(then));
            self.attempt.mode == Mode::Complete || age.is_none_or(|age| age >= signed(self.tools.check_digests))
        };
        let due = || {
            listing
                .repositories
                .iter()
                .enumerate()
                .filter(|(_, repository)| is_due(repository))
        };
        let mut looked_at: BTreeSet<usize> = due().map(|(at, _)| at).collect();
        let looks: Vec<_> = due()
            .flat_map(|(at, repository)| {
                let path = registry.repository(&repository.memory.repository);
                let tags = repository.memory.tags.iter();
                // Without a digest it could not be pulled, and is tried again in its time.
                tags.filter(|(_, known)| !known.digest.is_empty())
                    .map(move |(tag, known)| (at, path.clone(), tag.clone(), known.digest.clone()))
            })
            .collect();
        let looks = stream::iter(looks).map(|(at, path, tag, digest)| async move {
            let found = registry.digest(&path, &tag).await;
            (at, tag, found.map(|found| found != digest))
        });
        let mut looks = looks.buffered(AT_ONCE);
        let mut changed = BTreeSet::new();
        while let Some((at, tag, result)) = looks.next().await {
            match result {
                Ok(false) => {}
                Err(error) if error.is_transient() => return Err(error.into()),
                Err(error) if error.is_about_credentials() => {
                    looked_at.remove(&at);
                    listing.repositories[at].failed = Some(error);
                }
                // It was listed a moment ago: pulling it tells what is the matter.
                Ok(true) | Err(_) => {
                    changed.insert((at, tag));
                }
            }
        }
        Ok((looked_at.into_iter().collect(), changed))
    }
}

fn signed(duration: std::time::Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

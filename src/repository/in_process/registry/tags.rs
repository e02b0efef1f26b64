//! Which tags there are, and which of them stand for something else than before.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::SignedDuration;

use super::{AT_ONCE, Broken, Listing, Repository};
use crate::catalog::OciRepository;
use crate::repository::decide::Mode;
use crate::repository::in_process::Run;
use crate::source::fetch::Validators;
use crate::source::index;
use crate::source::oci::{self, OciError, Registry, Tags};

impl Run<'_> {
    /// Lists the tags of one repository. That there is none, or that it is not for us, is told of it alone.
    pub(super) async fn tags(&self, registry: &Registry, mut memory: OciRepository) -> Result<Repository, OciError> {
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
            validators: known.clone(),
            versions: newest_first(memory.tags.iter().map(|tag| tag.tag.clone())),
            memory,
            failed,
            is_changed: false,
        };
        let (tags, validators, failed) = match registry.tags(&path, conditions).await {
            Ok(Tags::NotModified) => {
                self.metrics.not_modified();
                return Ok(as_remembered(memory, None));
            }
            Ok(Tags::Listed { tags, validators }) => (tags, validators, None),
            Err(error) if error.is_not_found() => (Vec::new(), Validators::default(), Some(error)),
            Err(error) if error.is_refused() => return Ok(as_remembered(memory, Some(error))),
            Err(error) => return Err(error),
        };
        let versions = newest_first(tags.into_iter().filter(|tag| oci::is_version(tag)));
        let listed: BTreeSet<&str> = versions.iter().map(String::as_str).collect();
        let before = memory.tags.len();
        memory.tags.retain(|tag| listed.contains(tag.tag.as_str()));
        Ok(Repository {
            url,
            validators,
            is_changed: memory.tags.len() != before,
            memory,
            versions,
            failed,
        })
    }

    /// The repositories whose digests were looked at, where it was time to, and of these the tags whose manifest is another than
    /// the one that is remembered.
    pub(super) async fn published_anew(
        &self,
        registry: &Registry,
        listing: &Listing,
    ) -> Result<(Vec<usize>, BTreeSet<(usize, String)>), Broken> {
        let now = self.attempt.started;
        let is_due = |repository: &Repository| {
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
        let looks: Vec<_> = due()
            .flat_map(|(at, repository)| {
                let path = registry.repository(&repository.memory.repository);
                let tags = repository.memory.tags.iter();
                tags.map(move |tag| (at, path.clone(), tag.tag.clone(), tag.digest.clone()))
            })
            .collect();
        let looks = stream::iter(looks).map(|(at, path, tag, digest)| async move {
            match registry.digest(&path, &tag).await {
                Ok(found) => Ok((found != digest).then_some((at, tag))),
                // It was listed a moment ago: pulling it tells what is the matter.
                Err(error) if error.is_not_found() => Ok(Some((at, tag))),
                Err(error) => Err(error),
            }
        });
        let changed: Vec<Option<(usize, String)>> = looks.buffer_unordered(AT_ONCE).try_collect().await?;
        let looked_at = due().map(|(at, _)| at).collect();
        Ok((looked_at, changed.into_iter().flatten().collect()))
    }
}

fn newest_first(tags: impl Iterator<Item = String>) -> Vec<String> {
    let mut tags: Vec<String> = tags.collect();
    tags.sort_by(|a, b| index::newest_first(&oci::version_of(a), &oci::version_of(b)).then_with(|| a.cmp(b)));
    tags
}

fn signed(duration: std::time::Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

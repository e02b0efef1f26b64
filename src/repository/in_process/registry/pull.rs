//! Pulling what is new: of each version the manifest, and the Chart.yaml that it names.

use std::collections::{BTreeSet, HashMap};

use futures::{StreamExt, stream};
use jiff::SignedDuration;

use super::{AT_ONCE, Broken, Listing};
use crate::catalog::OciTag;
use crate::repository::decide::Mode;
use crate::repository::in_process::Run;
use crate::source::index::{self, DecodeLimits};
use crate::source::oci::{OciError, Registry};

/// Manifests that one attempt pulls. What is left is for the next, which follows at once, so that a large registry shows the
/// newest versions of its charts early.
const PULLS: usize = 500;

/// Pulls after which what came of them is remembered.
const REMEMBERED_AFTER: usize = 64;

/// How long a tag that could not be pulled is left alone, at first and at most.
const TRIED_AGAIN: (SignedDuration, SignedDuration) = (SignedDuration::from_mins(10), SignedDuration::from_hours(24));

impl Run<'_> {
    /// Pulls what is new, the newest version of each chart first, and remembers it as it comes.
    pub(super) async fn pull_new(
        &self,
        registry: &Registry,
        listing: &mut Listing,
        changed: &BTreeSet<(usize, String)>,
    ) -> Result<(), Broken> {
        let mut wanted = Vec::new();
        for (at, repository) in listing.repositories.iter().enumerate() {
            let known: HashMap<&str, &OciTag> = (repository.memory.tags.iter())
                .map(|tag| (tag.tag.as_str(), tag))
                .collect();
            for (rank, tag) in repository.versions.iter().enumerate() {
                let before = known.get(tag.as_str()).copied();
                if self.is_wanted(before) || changed.contains(&(at, tag.clone())) {
                    wanted.push((rank, at, tag.clone(), before.map_or(0, |before| before.tries)));
                }
            }
        }
        wanted.sort_unstable();
        listing.is_complete = wanted.len() <= PULLS;
        wanted.truncate(PULLS);
        let paths: Vec<String> = (listing.repositories.iter())
            .map(|repository| registry.repository(&repository.memory.repository))
            .collect();
        let mut pulls = stream::iter(wanted)
            .map(|(_, at, tag, tries)| {
                let path = &paths[at];
                async move { (at, self.pull(registry, path, tag, tries).await) }
            })
            .buffer_unordered(AT_ONCE);
        let mut pulled = 0;
        while let Some((at, result)) = pulls.next().await {
            match result {
                Ok(tag) => {
                    listing.repositories[at].remember(tag);
                    pulled += 1;
                    if pulled % REMEMBERED_AFTER == 0 {
                        self.remember(listing).await?;
                    }
                }
                Err(error) => {
                    // What came before is not pulled again.
                    self.remember(listing).await?;
                    return Err(error.into());
                }
            }
        }
        drop(pulls);
        self.remember(listing).await.map_err(Broken::from)
    }

    fn is_wanted(&self, before: Option<&OciTag>) -> bool {
        before.is_none_or(|tag| {
            tag.next_try
                .is_some_and(|time| time <= self.attempt.started || self.attempt.mode == Mode::Complete)
        })
    }

    /// Pulls one tag. What is wrong with it alone is remembered, and is no failure of the others.
    async fn pull(&self, registry: &Registry, path: &str, tag: String, tries: u32) -> Result<OciTag, OciError> {
        self.metrics.oci_pull();
        let pulled = async {
            let manifest = registry.manifest(path, &tag).await?;
            let config = registry.config(path, &manifest).await?;
            Ok::<_, OciError>((manifest.digest, config))
        };
        let problem = match pulled.await {
            Ok((digest, config)) => match usable(&config, &self.tools.decode_limits) {
                Ok(metadata) => {
                    return Ok(OciTag {
                        tag,
                        digest,
                        metadata: Some(metadata),
                        ..OciTag::default()
                    });
                }
                Err(problem) => {
                    return Ok(OciTag {
                        tag,
                        digest,
                        problem: Some(problem),
                        ..OciTag::default()
                    });
                }
            },
            Err(error) if error.is_transient() || is_about_credentials(&error) => return Err(error),
            Err(error) => error,
        };
        let tries = tries.saturating_add(1);
        if let OciError::NotAChart { .. } = problem {
            // It becomes no chart by waiting: only another digest calls for another look.
            return Ok(OciTag {
                digest: registry.digest(path, &tag).await?,
                tag,
                problem: Some(problem.to_string()),
                ..OciTag::default()
            });
        }
        Ok(OciTag {
            tag,
            problem: Some(problem.to_string()),
            tries,
            next_try: Some(self.attempt.started + pause(tries)),
            ..OciTag::default()
        })
    }
}

/// The metadata of a chart as it is remembered, if it is of use.
fn usable(config: &[u8], limits: &DecodeLimits) -> Result<String, String> {
    index::metadata(config, limits)?;
    String::from_utf8(config.to_vec()).map_err(|_| "its metadata is no text".to_owned())
}

/// Whether every other tag would fail alike.
fn is_about_credentials(error: &OciError) -> bool {
    matches!(error, OciError::Unauthorized { .. } | OciError::Challenge { .. })
}

fn pause(tries: u32) -> SignedDuration {
    let (first, longest) = TRIED_AGAIN;
    first
        .checked_mul(1 << tries.saturating_sub(1).min(16))
        .map_or(longest, |pause| pause.min(longest))
}

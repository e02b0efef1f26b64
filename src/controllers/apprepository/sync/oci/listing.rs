use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::Repository;
use crate::catalog::{OciChange, OciRemovals, OciRepository, OciTag};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::controllers::apprepository::sync::rows;
use crate::controllers::apprepository::sync::{Remaining, Retain};
use crate::oci::{OciError, TagMemory};
use crate::text::hex;

/// Repositories and tags of an OCI registry, as stored and as listed.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) repositories: Vec<Repository>,
    /// Stored repositories that are no longer in the registry.
    pub(super) removed: Vec<String>,
    pub(super) left: usize,
    pub(super) pulled: usize,
    /// A tag was pulled, noted or checked by this sync.
    pub(super) made_progress: bool,
    /// The time was over before all due digests were checked.
    pub(super) is_unfinished: bool,
    /// Transient error that stopped the requests.
    pub(super) interrupted: Option<Arc<OciError>>,
    /// Charged with pulled tags.
    pub(super) memory: Option<TagMemory>,
    /// Metadata that is not stored yet.
    pub(super) unsaved_bytes: usize,
}

/// Memory of a stored tag besides its texts: tree, strings and fields.
const TAG_BYTES: usize = 160;

pub(super) fn tag_bytes(name: &str, tag: &OciTag) -> usize {
    TAG_BYTES + name.len() + tag.digest.len() + tag.problem.as_ref().map_or(0, String::len)
}

impl Listing {
    pub(super) fn remaining(&self) -> Option<Remaining> {
        let unlisted = || (self.repositories.iter()).filter(|repository| repository.listing_failed());
        let first = || unlisted().find_map(|repository| repository.failed.as_ref());
        // Errors are reported only when no other work is left.
        let failed = match &self.interrupted {
            None if self.has_more() => None,
            interrupted => interrupted.as_ref().or_else(first),
        };
        if !self.has_more() && failed.is_none() {
            return None;
        }
        let usable = (self.repositories.iter()).filter(|repository| repository.failed.is_none());
        let (mut listed, mut known) = (0, 0);
        for repository in usable {
            let tag = |tag: &String| repository.stored.tags.get(tag);
            listed += repository.versions.len() as u64;
            // Tags waiting for a retry are not pulled either.
            known += (repository.versions.iter())
                .filter(|name| tag(name).is_some_and(|tag| !tag.is_pending()))
                .count() as u64;
        }
        let left = self.left as u64;
        let (pulled, unlisted) = (known.min(listed.saturating_sub(left)), unlisted().count());
        let error = failed.map(|error| {
            let mut failed = SyncError::from(&**error);
            if unlisted > 0 {
                let all = self.repositories.len();
                failed.message.push_str(&format!(
                    "; {unlisted} of {all} repositories could not be listed, keeping their charts"
                ));
            }
            if left > 0 {
                let progress = format!("; {pulled} of {listed} versions are pulled");
                failed.message.push_str(&progress);
            }
            failed
        });
        Some(Remaining {
            pulled,
            listed,
            listing_failed: unlisted > 0,
            made_progress: self.pulled > 0,
            error,
        })
    }

    pub(super) fn update(&mut self, at: usize, change: OciChange) {
        if let Some(memory) = &self.memory {
            memory.charge(tag_bytes(&change.name, &change.tag));
        }
        self.unsaved_bytes += change.metadata.as_ref().map_or(0, String::len);
        self.repositories[at].update(change);
        self.made_progress = true;
    }

    /// Returns true if work is left and this sync made no progress: the next one would not either.
    pub(super) const fn is_stuck(&self) -> bool {
        self.has_more() && !self.made_progress && self.interrupted.is_none()
    }

    /// Returns true if work is left that exceeds the limits of one sync.
    const fn has_more(&self) -> bool {
        self.left > 0 || self.is_unfinished
    }

    /// Returns the charts to retain: all of them until everything is listed, since missing ones may follow.
    pub(super) fn retain(&self, spec: &RepositorySpec) -> Retain {
        if self.has_more() || self.interrupted.is_some() {
            return Retain::All;
        }
        let retained = self.repositories.iter().filter_map(|repository| {
            let id = rows::chart_id(spec, &repository.stored.repository);
            Some((id, repository.retained_part()?))
        });
        Retain::Charts(retained.collect())
    }

    pub(super) fn gone(&self, source: &str) -> OciRemovals {
        let shorter = (self.repositories.iter()).filter(|repository| !repository.gone.is_empty());
        let tags = shorter.map(|repository| {
            let validators = repository.list_validators();
            let head = OciRepository {
                repository: repository.stored.repository.clone(),
                etag: validators.etag,
                last_modified: validators.last_modified,
                digests_checked: repository.stored.digests_checked,
                ..OciRepository::default()
            };
            (head, repository.gone.clone())
        });
        OciRemovals {
            source: source.to_owned(),
            repositories: self.removed.clone(),
            tags: tags.collect(),
        }
    }

    pub(super) fn has_charts(&self) -> bool {
        let mut repositories = self.repositories.iter();
        repositories.any(|repository| repository.stored.tags.values().any(OciTag::is_chart))
    }

    pub(super) fn digest(&self) -> String {
        let mut digest = PartsDigest::default();
        for repository in &self.repositories {
            // Permanent errors change the skipped entries. Transient errors are reported as the sync's failure.
            let failed = repository.failed.as_ref().filter(|_| !repository.listing_failed());
            digest.add(&repository.stored.repository);
            digest.add(failed.map_or("", |error| error.reason()));
            for (name, tag) in &repository.stored.tags {
                let kind = match tag {
                    tag if tag.is_outdated() => "outdated",
                    tag if tag.is_chart() => "chart",
                    tag if tag.is_pending() => "pending",
                    _ => "none",
                };
                for part in [name, &tag.digest, kind] {
                    digest.add(part);
                }
            }
            digest.add("");
        }
        digest.finish()
    }

    /// Returns a digest of the listed tags. It does not change while they are pulled, so that users can confirm it.
    pub(super) fn tags_digest(&self) -> String {
        let mut digest = PartsDigest::default();
        for repository in (self.repositories.iter()).filter(|repository| !repository.versions.is_empty()) {
            digest.add(&repository.stored.repository);
            repository.versions.iter().for_each(|tag| digest.add(tag));
            digest.add("");
        }
        digest.finish()
    }
}

#[derive(Default)]
struct PartsDigest(Sha256);

impl PartsDigest {
    fn add(&mut self, part: &str) {
        self.0.update(part);
        self.0.update([0]);
    }

    fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// The spec is wrong, or the registry is down. A single failure may be a deleted or private repository.
pub(super) fn all_failed(repositories: &[Repository]) -> Result<(), Arc<OciError>> {
    if repositories.iter().any(|repository| repository.failed.is_none()) {
        return Ok(());
    }
    let errors = || repositories.iter().filter_map(|repository| repository.failed.as_ref());
    let transient = errors().find(|error| error.is_transient());
    let error = transient.or_else(|| errors().next());
    error.map_or(Ok(()), |error| Err(error.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Validators;

    #[test]
    fn a_listing_with_work_but_without_progress_is_stuck() {
        let listing = |left, is_unfinished, made_progress| Listing {
            left,
            is_unfinished,
            made_progress,
            ..Listing::default()
        };
        assert!(listing(1, false, false).is_stuck());
        assert!(listing(0, true, false).is_stuck());
        assert!(!listing(1, true, true).is_stuck());
        assert!(!listing(0, false, false).is_stuck());
        let interrupted = Listing {
            interrupted: Some(Arc::new(OciError::InvalidUrl(String::new()))),
            ..listing(1, false, false)
        };
        assert!(!interrupted.is_stuck());
    }

    #[test]
    fn failed_tags_are_not_counted_as_pulled() {
        let tags = ["1.0.0", "1.1.0", "1.2.0"].map(str::to_owned);
        let mut repository = Repository::from_stored(String::new(), OciRepository::default());
        repository.set_tags(tags.to_vec(), Validators::default());
        let digest = "sha256:00".to_owned();
        let chart = OciTag {
            digest,
            ..OciTag::default()
        };
        repository.stored.tags = [("1.0.0".to_owned(), chart), ("1.1.0".to_owned(), OciTag::default())].into();
        let listing = Listing {
            repositories: vec![repository],
            left: 1,
            made_progress: true,
            ..Listing::default()
        };
        let remaining = listing.remaining().unwrap();
        assert_eq!((remaining.pulled, remaining.listed), (1, 3));
    }
}

//! A registry as it is remembered once everything new has been pulled, and what that means for its charts.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::Repository;
use crate::catalog::{OciChange, OciRemovals, OciRepository, OciTag};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::controllers::apprepository::sync::rows;
use crate::controllers::apprepository::sync::{Rest, Stays};
use crate::oci::OciError;
use crate::text::hex;

/// The registry as it is remembered once everything new has been pulled.
#[derive(Default)]
pub(super) struct Listing {
    /// In the order of their names.
    pub(super) repositories: Vec<Repository>,
    /// Repositories that are remembered and are no more.
    pub(super) forgotten: Vec<String>,
    /// Tags that are to be pulled yet.
    pub(super) left: usize,
    /// Tags that were pulled.
    pub(super) pulled: usize,
    /// Whether anything was learnt of tags: pulled, noted or looked at. It is not asked for again at once.
    pub(super) has_moved: bool,
    /// Whether the time was over before all digests were looked at that were to be.
    pub(super) is_unfinished: bool,
    /// Why the registry is asked no more for now, although that may pass by itself.
    pub(super) interrupted: Option<Arc<OciError>>,
}

impl Listing {
    /// What is left of it, if there is anything.
    pub(super) fn rest(&self) -> Option<Rest> {
        let dark = || {
            self.repositories
                .iter()
                .filter(|repository| repository.is_in_the_dark())
        };
        let first = || dark().find_map(|repository| repository.failed.as_ref());
        // What can be had is had at once, and what fails beside it waits for that.
        let failed = match &self.interrupted {
            None if self.goes_on() => None,
            interrupted => interrupted.as_ref().or_else(first),
        };
        if !self.goes_on() && failed.is_none() {
            return None;
        }
        let well = (self.repositories.iter()).filter(|repository| repository.failed.is_none());
        let (mut listed, mut known) = (0, 0);
        for repository in well {
            let tag = |tag: &String| repository.memory.tags.get(tag);
            listed += repository.versions.len() as u64;
            // Those that could not be pulled and wait for their time are not pulled either.
            known += (repository.versions.iter())
                .filter(|name| tag(name).is_some_and(|tag| !tag.is_pending()))
                .count() as u64;
        }
        let left = self.left as u64;
        let (pulled, dark) = (known.min(listed.saturating_sub(left)), dark().count());
        let failed = failed.map(|error| {
            let mut failed = SyncError::from(&**error);
            if dark > 0 {
                let all = self.repositories.len();
                failed.message.push_str(&format!(
                    "; {dark} of {all} repositories could not be listed, and their charts stay as they are"
                ));
            }
            if left > 0 {
                failed
                    .message
                    .push_str(&format!("; {pulled} of {listed} versions are pulled"));
            }
            failed
        });
        Some(Rest {
            pulled,
            listed,
            is_in_the_dark: dark > 0,
            has_come_on: self.pulled > 0,
            failed,
        })
    }

    /// Remembers what was found of a tag of the repository at this place.
    pub(super) fn remember(&mut self, at: usize, change: OciChange) {
        self.repositories[at].remember(change);
        self.has_moved = true;
    }

    /// Whether there is more to do, although this attempt has done nothing of it: the next would do no more.
    pub(super) const fn is_stuck(&self) -> bool {
        self.goes_on() && !self.has_moved && self.interrupted.is_none()
    }

    /// Whether there is more to do than one attempt does.
    const fn goes_on(&self) -> bool {
        self.left > 0 || self.is_unfinished
    }

    /// What stays in the catalogue. While some of the registry is still to be looked at nothing goes that was there: it is most likely
    /// among that.
    pub(super) fn stays(&self, declaration: &RepositorySpec) -> Stays {
        if self.goes_on() || self.interrupted.is_some() {
            return Stays::All;
        }
        let held = self.repositories.iter().filter_map(|repository| {
            let id = rows::chart_id(declaration, &repository.memory.repository);
            Some((id, repository.held()?))
        });
        Stays::Held(held.collect())
    }

    /// What is remembered and is no more.
    pub(super) fn gone(&self, source: &str) -> OciRemovals {
        let shorter = self
            .repositories
            .iter()
            .filter(|repository| !repository.gone.is_empty());
        let tags = shorter.map(|repository| {
            let known = repository.known();
            let head = OciRepository {
                repository: repository.memory.repository.clone(),
                etag: known.etag,
                last_modified: known.last_modified,
                digests_checked: repository.memory.digests_checked,
                ..OciRepository::default()
            };
            (head, repository.gone.clone())
        });
        OciRemovals {
            source: source.to_owned(),
            repositories: self.forgotten.clone(),
            tags: tags.collect(),
        }
    }

    pub(super) fn has_charts(&self) -> bool {
        let mut tags = self
            .repositories
            .iter()
            .flat_map(|repository| repository.memory.tags.values());
        tags.any(OciTag::is_chart)
    }

    /// A digest of all that the charts are made of, whatever the order in which it came.
    pub(super) fn digest(&self) -> String {
        let mut digest = Parts::default();
        for repository in &self.repositories {
            // That one can't be had any more is told of, although its charts are what they were. What may pass is told of as the
            // failure of the attempt.
            let failed = repository.failed.as_ref().filter(|_| !repository.is_in_the_dark());
            digest.add(&repository.memory.repository);
            digest.add(failed.map_or("", |error| error.reason()));
            for (name, tag) in &repository.memory.tags {
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

    /// A digest of what the registry offers by its lists of tags. It stays the same while that is pulled, so that a user can confirm it.
    pub(super) fn offer(&self) -> String {
        let mut digest = Parts::default();
        for repository in self
            .repositories
            .iter()
            .filter(|repository| !repository.versions.is_empty())
        {
            digest.add(&repository.memory.repository);
            repository.versions.iter().for_each(|tag| digest.add(tag));
            digest.add("");
        }
        digest.finish()
    }
}

/// A digest of texts, each ended by a byte that is in none of them.
#[derive(Default)]
struct Parts(Sha256);

impl Parts {
    fn add(&mut self, part: &str) {
        self.0.update(part);
        self.0.update([0]);
    }

    fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// One of many may be gone, or be another's. If there is nothing but that, it is the declaration that is wrong, or the registry that
/// is away.
pub(super) fn all_failed(repositories: &[Repository]) -> Result<(), Arc<OciError>> {
    if repositories.iter().any(|repository| repository.failed.is_none()) {
        return Ok(());
    }
    let errors = || repositories.iter().filter_map(|repository| repository.failed.as_ref());
    let passing = errors().find(|error| error.is_transient());
    passing
        .or_else(|| errors().next())
        .map_or(Ok(()), |error| Err(error.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Validators;

    #[test]
    fn what_has_more_to_do_and_did_nothing_is_stuck() {
        let listing = |left, is_unfinished, has_moved| Listing {
            left,
            is_unfinished,
            has_moved,
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
    fn what_could_not_be_pulled_is_not_counted_as_pulled() {
        let tags = ["1.0.0", "1.1.0", "1.2.0"].map(str::to_owned);
        let mut repository = Repository::remembered(String::new(), OciRepository::default());
        repository.take(tags.to_vec(), Validators::default());
        let digest = "sha256:00".to_owned();
        let chart = OciTag {
            digest,
            ..OciTag::default()
        };
        repository.memory.tags = [("1.0.0".to_owned(), chart), ("1.1.0".to_owned(), OciTag::default())].into();
        let listing = Listing {
            repositories: vec![repository],
            left: 1,
            has_moved: true,
            ..Listing::default()
        };
        let rest = listing.rest().unwrap();
        assert_eq!((rest.pulled, rest.listed), (1, 3));
    }
}

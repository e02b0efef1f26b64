use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::catalog::{OciChange, OciRepository, OciTag, RetainedPart};
use crate::helm::index;
use crate::http::Validators;
use crate::oci::{self, OciError};

/// Maximum number of tags of a registry; each takes a few hundred bytes of memory.
pub(super) const MAX_TAGS: usize = 200_000;

pub(super) struct Repository {
    pub(super) stored: OciRepository,
    pub(super) url: String,
    /// Tags that are versions, newest first.
    pub(super) versions: Vec<String>,
    pub(super) validators: Validators,
    /// The tags are known: the list succeeded, or the repository does not exist.
    pub(super) is_listed: bool,
    pub(super) failed: Option<Arc<OciError>>,
    pub(super) is_changed: bool,
    pub(super) changed: Vec<OciChange>,
    /// Removed tags, stored until their charts are removed.
    pub(super) gone: Vec<String>,
    /// Tags whose retry is due later, with the problem.
    pub(super) delayed: BTreeMap<String, String>,
}

impl Repository {
    pub(super) fn from_stored(url: String, stored: OciRepository) -> Self {
        Self {
            url,
            versions: newest_first(stored.tags.keys().cloned()),
            validators: Validators {
                etag: stored.etag.clone(),
                last_modified: stored.last_modified.clone(),
            },
            stored,
            is_listed: false,
            failed: None,
            is_changed: false,
            changed: Vec::new(),
            gone: Vec::new(),
            delayed: BTreeMap::new(),
        }
    }

    /// Returns true if the tags are unknown due to a transient error.
    pub(super) fn listing_failed(&self) -> bool {
        self.failed.as_ref().is_some_and(|error| error.is_transient())
    }

    /// Applies the tag list; other stored tags are removed.
    pub(super) fn set_tags(&mut self, tags: Vec<String>, validators: Validators) {
        self.is_listed = true;
        self.versions = newest_first(tags.into_iter().filter(|tag| oci::is_version(tag)));
        self.validators = validators;
        let listed: HashSet<&str> = self.versions.iter().map(String::as_str).collect();
        let gone = self.stored.tags.extract_if(.., |tag, _| !listed.contains(tag.as_str()));
        self.gone.extend(gone.map(|(tag, _)| tag));
    }

    /// Returns what to retain of the stored chart, because its metadata is missing.
    pub(super) fn retained_part(&self) -> Option<RetainedPart> {
        if !self.is_listed {
            return Some(RetainedPart::Chart);
        }
        let is_unknown = |tag: &&String| self.stored.tags.get(*tag).is_none_or(|stored| stored.digest.is_empty());
        let tags = self.versions.iter().filter(is_unknown);
        let versions: HashSet<String> = tags.map(|tag| oci::version_of(tag)).collect();
        (!versions.is_empty()).then_some(RetainedPart::Versions(versions))
    }

    /// Takes tags from the shared capacity. Falls back to the stored tags, then to none; the stored chart stays.
    pub(super) fn limit_tags(&mut self, capacity: &mut usize) {
        if self.versions.len() > *capacity {
            self.failed = Some(Arc::new(OciError::TooMany {
                url: self.shown().to_owned(),
                limit: MAX_TAGS as u64,
                what: "tags in total",
            }));
            self.is_listed = false;
            self.versions = newest_first(self.stored.tags.keys().cloned());
        }
        if self.stored.tags.len() > *capacity {
            // The tags stay in the database.
            self.stored.tags.clear();
            self.versions.clear();
        }
        *capacity -= self.versions.len().max(self.stored.tags.len());
    }

    /// Stores validators only if all listed tags are stored: then an unchanged list means no work.
    pub(super) fn update_validators(&mut self) {
        // Removed tags that are still stored must not reappear.
        let validators = if self.gone.is_empty() {
            self.list_validators()
        } else {
            Validators::default()
        };
        if self.stored.etag != validators.etag || self.stored.last_modified != validators.last_modified {
            (self.stored.etag, self.stored.last_modified) = (validators.etag, validators.last_modified);
            self.is_changed = true;
        }
    }

    /// Returns the validators for the next tag list, if all listed tags are stored.
    pub(super) fn list_validators(&self) -> Validators {
        let is_complete = self.failed.is_none() && self.versions.len() == self.stored.tags.len();
        if is_complete {
            self.validators.clone()
        } else {
            Validators::default()
        }
    }

    pub(super) fn shown(&self) -> &str {
        self.url.trim_end_matches(':')
    }

    /// Schedules a tag to be pulled again. Its stored state stays until then.
    pub(super) fn pull_again(&mut self, tag: String, now: Timestamp) {
        let Some(stored) = self.stored.tags.get(&tag).cloned() else {
            return;
        };
        self.update(OciChange {
            name: tag,
            tag: OciTag {
                next_try: Some(now),
                ..stored
            },
            metadata: None,
        });
    }

    pub(super) fn set_digests_checked(&mut self, time: Option<Timestamp>) {
        self.is_changed |= self.stored.digests_checked != time;
        self.stored.digests_checked = time;
    }

    pub(super) fn update(&mut self, change: OciChange) {
        self.stored.tags.insert(change.name.clone(), change.tag.clone());
        self.changed.push(change);
    }
}

fn newest_first(tags: impl Iterator<Item = String>) -> Vec<String> {
    let mut tags: Vec<String> = tags.collect();
    tags.sort_by(|a, b| index::newest_first(&oci::version_of(a), &oci::version_of(b)).then_with(|| a.cmp(b)));
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(listed: usize, from_stored: usize) -> Repository {
        let tags = |count: usize| (0..count).map(|number| format!("1.{number}.0"));
        let chart = OciTag {
            digest: "sha256:00".to_owned(),
            ..OciTag::default()
        };
        let stored = OciRepository {
            tags: tags(from_stored).map(|tag| (tag, chart.clone())).collect(),
            ..OciRepository::default()
        };
        let mut repository = Repository::from_stored("oci://example.com/harbour:".to_owned(), stored);
        repository.set_tags(tags(listed).collect(), Validators::default());
        repository
    }

    #[test]
    fn tags_over_the_limit_are_reported_and_stored_ones_stay_if_they_fit() {
        for (listed, from_stored, capacity, kept, left) in [
            (3, 0, 3, Some(3), 0),
            (3, 3, 5, Some(3), 2),
            (4, 2, 3, None, 1),
            (4, 4, 3, None, 3),
        ] {
            let (mut repository, mut capacity) = (repository(listed, from_stored), capacity);
            repository.limit_tags(&mut capacity);
            assert_eq!(capacity, left, "{listed} {from_stored}");
            assert_eq!(repository.failed.is_none(), kept.is_some(), "{listed} {from_stored}");
            assert!(kept.is_none_or(|kept| repository.versions.len() == kept));
            assert!(repository.stored.tags.len() <= repository.versions.len());
            // The registry still has these tags.
            assert!(repository.gone.is_empty(), "{listed} {from_stored}");
            let unknown = kept.filter(|kept| *kept > from_stored).is_some();
            let held = match kept {
                None => matches!(repository.retained_part(), Some(RetainedPart::Chart)),
                Some(_) => matches!(repository.retained_part(), Some(RetainedPart::Versions(_))) == unknown,
            };
            assert!(held, "{listed} {from_stored} {:?}", repository.retained_part());
        }
    }

    #[test]
    fn nothing_of_a_removed_repository_is_retained() {
        let mut repository = repository(0, 2);
        assert_eq!((repository.retained_part(), repository.gone.len()), (None, 2));
        repository.is_listed = false;
        assert_eq!(repository.retained_part(), Some(RetainedPart::Chart));
    }

    #[test]
    fn validators_are_not_stored_while_removed_tags_are() {
        let mut repository = repository(2, 3);
        repository.validators.etag = Some("new".to_owned());
        repository.stored.etag = Some("old".to_owned());
        repository.update_validators();
        assert_eq!((repository.gone.len(), repository.stored.etag.as_deref()), (1, None));
        assert_eq!(repository.list_validators().etag.as_deref(), Some("new"));
    }
}

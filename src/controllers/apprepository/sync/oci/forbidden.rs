//! Detects when the registry denies access to a whole repository, not only to single tags.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Repository;
use crate::oci::OciError;

/// In a row, for all tags to count as denied: registries block single images that are quarantined or vulnerable.
const MAX_DENIALS: usize = 3;

/// Denied requests of one repository in one sync, shared by concurrent requests.
pub(super) struct DenialTracker {
    limit: usize,
    denials: AtomicUsize,
    has_answered: AtomicBool,
    first: Mutex<Option<Arc<OciError>>>,
}

impl DenialTracker {
    pub(super) fn of(repository: &Repository) -> Self {
        Self::for_tags(repository.versions.len())
    }

    /// If all of a few tags are denied, the repository is.
    fn for_tags(tags: usize) -> Self {
        Self {
            limit: tags.clamp(1, MAX_DENIALS),
            denials: AtomicUsize::new(0),
            has_answered: AtomicBool::new(false),
            first: Mutex::new(None),
        }
    }

    pub(super) fn record_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    pub(super) fn record_denial(&self, error: &Arc<OciError>) {
        self.first.lock().get_or_insert_with(|| error.clone());
        self.denials.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_denied(&self) -> bool {
        !self.has_answered() && self.denials.load(Ordering::Relaxed) >= self.limit
    }

    /// Returns the first denial, if the repository is denied.
    pub(super) fn end(&self) -> Option<Arc<OciError>> {
        self.is_denied().then(|| self.first.lock().clone()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(number: usize) -> Arc<OciError> {
        Arc::new(OciError::Unauthorized {
            url: format!("https://example.com/{number}"),
            problem: "it wants a password".to_owned(),
        })
    }

    #[test]
    fn enough_denials_count_for_the_whole_repository_unless_a_request_succeeds() {
        for (tags, answers, denials, is_denied) in [
            (1, 0, 1, true),
            (2, 0, 1, false),
            (2, 0, 2, true),
            (100, 0, 2, false),
            (100, 0, 3, true),
            (100, 1, 3, false),
            (100, 1, 99, false),
        ] {
            let sums = DenialTracker::for_tags(tags);
            (0..answers).for_each(|_| sums.record_answer());
            (0..denials).for_each(|number| sums.record_denial(&refusal(number)));
            assert_eq!(sums.is_denied(), is_denied, "{answers} and {denials} of {tags}");
            let end = sums.end().map(|error| error.to_string());
            assert_eq!(end.is_some_and(|end| end.contains("/0 ")), is_denied);
        }
    }
}

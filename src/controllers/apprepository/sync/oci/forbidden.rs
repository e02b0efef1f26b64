//! Detects when the registry denies access to a whole repository, not only to single tags.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Repository;
use crate::oci::OciError;

/// Consecutive denials that count for all tags. A single tag may be denied: registries block quarantined or vulnerable
/// images.
const ENOUGH: usize = 3;

/// Denied requests of one repository in one sync, shared by concurrent requests.
pub(super) struct Refusals {
    enough: usize,
    refused: AtomicUsize,
    has_answered: AtomicBool,
    why: Mutex<Option<Arc<OciError>>>,
}

impl Refusals {
    pub(super) fn of(repository: &Repository) -> Self {
        Self::out_of(repository.versions.len())
    }

    /// Creates a tracker for this many tags. If all are denied, the repository is.
    fn out_of(tags: usize) -> Self {
        Self {
            enough: tags.clamp(1, ENOUGH),
            refused: AtomicUsize::new(0),
            has_answered: AtomicBool::new(false),
            why: Mutex::new(None),
        }
    }

    pub(super) fn answered(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self, error: &Arc<OciError>) {
        self.why().get_or_insert_with(|| error.clone());
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_all(&self) -> bool {
        !self.has_answered() && self.refused.load(Ordering::Relaxed) >= self.enough
    }

    /// Returns the first denial, if the repository is denied.
    pub(super) fn end(&self) -> Option<Arc<OciError>> {
        self.is_all().then(|| self.why().clone()).flatten()
    }

    fn why(&self) -> std::sync::MutexGuard<'_, Option<Arc<OciError>>> {
        // The value is set as a whole, so that a panic elsewhere leaves it consistent.
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn some_refusals_stand_for_all_unless_something_is_had() {
        for (tags, answers, refusals, is_all) in [
            (1, 0, 1, true),
            (2, 0, 1, false),
            (2, 0, 2, true),
            (100, 0, 2, false),
            (100, 0, 3, true),
            (100, 1, 3, false),
            (100, 1, 99, false),
        ] {
            let sums = Refusals::out_of(tags);
            (0..answers).for_each(|_| sums.answered());
            (0..refusals).for_each(|number| sums.refused(&refusal(number)));
            assert_eq!(sums.is_all(), is_all, "{answers} and {refusals} of {tags}");
            let end = sums.end().map(|error| error.to_string());
            assert_eq!(end.is_some_and(|end| end.contains("/0 ")), is_all);
        }
    }
}

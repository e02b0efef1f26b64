//! Permits of archives: 16 at once, 4 of a namespace.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::source::ArchiveError;
use crate::budget::{self, Budget, Reservation};

const ARCHIVES: u64 = 16;
const ARCHIVES_OF_NAMESPACE: usize = 4;
const WAIT: Duration = Duration::from_secs(10);
/// In seconds.
const RETRY_AFTER: u64 = 5;

pub(super) struct ArchivePermits {
    all: Budget,
    namespaces: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Held until the end of the body, so that slow readers don't fill the spool.
pub(super) struct ArchivePermit {
    _all: Reservation,
    _namespace: OwnedSemaphorePermit,
}

impl ArchivePermits {
    pub(super) fn new(metrics: &budget::Metrics) -> Self {
        Self {
            all: Budget::with_metrics("archives", ARCHIVES, metrics.of("archives", ARCHIVES)),
            namespaces: Mutex::default(),
        }
    }

    pub(super) async fn acquire(&self, namespace: &str) -> Result<ArchivePermit, ArchiveError> {
        let busy = ArchiveError::Busy {
            retry_after: RETRY_AFTER,
        };
        let semaphore = self.semaphore(namespace);
        // First that of the namespace: its requests then take no permits of others while they wait.
        let acquire = async {
            let namespace_permit = semaphore.acquire_owned().await.ok()?;
            Some(ArchivePermit {
                _all: self.all.acquire(namespace, 1).await,
                _namespace: namespace_permit,
            })
        };
        timeout(WAIT, acquire).await.ok().flatten().ok_or(busy)
    }

    fn semaphore(&self, namespace: &str) -> Arc<Semaphore> {
        let mut namespaces = self.namespaces.lock();
        if let Some(semaphore) = namespaces.get(namespace).and_then(Weak::upgrade) {
            return semaphore;
        }
        namespaces.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(ARCHIVES_OF_NAMESPACE));
        namespaces.insert(namespace.to_owned(), Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_has_a_part_of_the_permits() {
        let permits = ArchivePermits::new(&budget::Metrics::default());
        let mut held = Vec::new();
        for _ in 0..ARCHIVES_OF_NAMESPACE {
            held.push(permits.acquire("team-a").await.unwrap());
        }
        assert!(permits.acquire("team-a").await.is_err());
        for namespace in ["team-b", "team-c", "team-d"] {
            for _ in 0..ARCHIVES_OF_NAMESPACE {
                held.push(permits.acquire(namespace).await.unwrap());
            }
        }
        assert!(permits.acquire("team-e").await.is_err());
        held.clear();
        assert!(permits.acquire("team-a").await.is_ok());
    }
}

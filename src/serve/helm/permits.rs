//! Permits of archives: 16 at once, 4 of a namespace, 3 of a user in it.

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
/// Fewer, so that a slow reader does not block a namespace, such as that of global repositories.
const ARCHIVES_OF_USER: usize = 3;
const WAIT: Duration = Duration::from_secs(10);
/// In seconds.
const RETRY_AFTER: u64 = 5;

pub(super) struct ArchivePermits {
    all: Budget,
    namespaces: Semaphores,
    /// By namespace and user.
    users: Semaphores,
}

/// Held until the end of the body, so that slow readers don't fill the spool.
pub(super) struct ArchivePermit {
    _all: Reservation,
    _namespace: OwnedSemaphorePermit,
    /// `None`: an anonymous caller.
    _user: Option<OwnedSemaphorePermit>,
}

impl ArchivePermits {
    pub(super) fn new(metrics: &budget::Metrics) -> Self {
        Self {
            all: Budget::with_metrics("archives", ARCHIVES, metrics.of("archives", ARCHIVES)),
            namespaces: Semaphores::new(ARCHIVES_OF_NAMESPACE),
            users: Semaphores::new(ARCHIVES_OF_USER),
        }
    }

    pub(super) async fn acquire(&self, namespace: &str, user: Option<&str>) -> Result<ArchivePermit, ArchiveError> {
        let busy = ArchiveError::Busy {
            retry_after: RETRY_AFTER,
        };
        let of_user = user.map(|user| self.users.get(&format!("{namespace}/{user}")));
        let of_namespace = self.namespaces.get(namespace);
        // First the narrowest: requests then take no permits of others while they wait.
        let acquire = async {
            let user_permit = match of_user {
                Some(semaphore) => Some(semaphore.acquire_owned().await.ok()?),
                None => None,
            };
            let namespace_permit = of_namespace.acquire_owned().await.ok()?;
            Some(ArchivePermit {
                _all: self.all.acquire(namespace, 1).await,
                _namespace: namespace_permit,
                _user: user_permit,
            })
        };
        timeout(WAIT, acquire).await.ok().flatten().ok_or(busy)
    }
}

/// Semaphores by name, each as long as it is in use.
struct Semaphores {
    permits: usize,
    in_use: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Semaphores {
    fn new(permits: usize) -> Self {
        Self {
            permits,
            in_use: Mutex::default(),
        }
    }

    fn get(&self, name: &str) -> Arc<Semaphore> {
        let mut in_use = self.in_use.lock();
        if let Some(semaphore) = in_use.get(name).and_then(Weak::upgrade) {
            return semaphore;
        }
        in_use.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(self.permits));
        in_use.insert(name.to_owned(), Arc::downgrade(&semaphore));
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
            held.push(permits.acquire("team-a", None).await.unwrap());
        }
        assert!(permits.acquire("team-a", None).await.is_err());
        for namespace in ["team-b", "team-c", "team-d"] {
            for _ in 0..ARCHIVES_OF_NAMESPACE {
                held.push(permits.acquire(namespace, None).await.unwrap());
            }
        }
        assert!(permits.acquire("team-e", None).await.is_err());
        held.clear();
        assert!(permits.acquire("team-a", None).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_leaves_a_permit_of_the_namespace_to_others() {
        let permits = ArchivePermits::new(&budget::Metrics::default());
        let mut held = Vec::new();
        for _ in 0..ARCHIVES_OF_USER {
            held.push(permits.acquire("team-a", Some("slow")).await.unwrap());
        }
        assert!(permits.acquire("team-a", Some("slow")).await.is_err());
        held.push(permits.acquire("team-a", Some("other")).await.unwrap());
        held.push(permits.acquire("team-b", Some("slow")).await.unwrap());
        held.clear();
        assert!(permits.acquire("team-a", Some("slow")).await.is_ok());
    }
}

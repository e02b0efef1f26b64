//! Permits of archives: 16 at once, 4 of a namespace, 8 of a user, and 3 of a user in a namespace.

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
const ARCHIVES_OF_USER: usize = 8;
/// Fewer, so that a slow reader does not block a namespace, such as that of global repositories.
const ARCHIVES_OF_USER_IN_NAMESPACE: usize = 3;
const WAIT: Duration = Duration::from_secs(10);
/// In seconds.
const RETRY_AFTER: u64 = 5;

pub(super) struct ArchivePermits {
    all: Budget,
    namespaces: Semaphores,
    /// By the name of the user; empty for all without credentials.
    users: Semaphores,
    /// By namespace and user, without callers who have no name.
    users_in_namespace: Semaphores,
}

/// A semaphore of each name that has holders or waiters.
struct Semaphores {
    permits: usize,
    by_name: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Held until the end of the body, so that slow readers don't fill the spool.
pub(super) struct ArchivePermit {
    _all: Reservation,
    _namespace: OwnedSemaphorePermit,
    _user: OwnedSemaphorePermit,
    _user_in_namespace: Option<OwnedSemaphorePermit>,
}

impl ArchivePermits {
    pub(super) fn new(metrics: &budget::Metrics) -> Self {
        Self {
            all: Budget::with_metrics("archives", ARCHIVES, metrics.of("archives", ARCHIVES)),
            namespaces: Semaphores::new(ARCHIVES_OF_NAMESPACE),
            users: Semaphores::new(ARCHIVES_OF_USER),
            users_in_namespace: Semaphores::new(ARCHIVES_OF_USER_IN_NAMESPACE),
        }
    }

    pub(super) async fn acquire(&self, namespace: &str, user: Option<&str>) -> Result<ArchivePermit, ArchiveError> {
        let busy = ArchiveError::Busy {
            retry_after: RETRY_AFTER,
        };
        let of_user = self.users.get(user.unwrap_or_default());
        let in_namespace = user.map(|user| self.users_in_namespace.get(&format!("{namespace}/{user}")));
        let of_namespace = self.namespaces.get(namespace);
        // First the narrowest: requests then take no permits of others while they wait.
        let acquire = async {
            let user_in_namespace = match in_namespace {
                Some(semaphore) => Some(semaphore.acquire_owned().await.ok()?),
                None => None,
            };
            let user_permit = of_user.acquire_owned().await.ok()?;
            let namespace_permit = of_namespace.acquire_owned().await.ok()?;
            Some(ArchivePermit {
                _all: self.all.acquire(namespace, 1).await,
                _namespace: namespace_permit,
                _user: user_permit,
                _user_in_namespace: user_in_namespace,
            })
        };
        timeout(WAIT, acquire).await.ok().flatten().ok_or(busy)
    }
}

impl Semaphores {
    fn new(permits: usize) -> Self {
        Self {
            permits,
            by_name: Mutex::default(),
        }
    }

    fn get(&self, name: &str) -> Arc<Semaphore> {
        let mut by_name = self.by_name.lock();
        if let Some(semaphore) = by_name.get(name).and_then(Weak::upgrade) {
            return semaphore;
        }
        by_name.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(self.permits));
        by_name.insert(name.to_owned(), Arc::downgrade(&semaphore));
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
        for user in ["a", "b", "c", "d"] {
            held.push(permits.acquire("team-a", Some(user)).await.unwrap());
        }
        assert!(permits.acquire("team-a", Some("e")).await.is_err());
        for namespace in ["team-b", "team-c", "team-d"] {
            for user in ["a", "b", "c", "d"] {
                held.push(permits.acquire(namespace, Some(user)).await.unwrap());
            }
        }
        assert!(permits.acquire("team-e", Some("e")).await.is_err());
        held.clear();
        assert!(permits.acquire("team-a", Some("e")).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_of_many_namespaces_leaves_permits_to_others() {
        let permits = ArchivePermits::new(&budget::Metrics::default());
        for user in [None, Some("a")] {
            let mut held = Vec::new();
            for number in 0..ARCHIVES_OF_USER {
                let namespace = format!("team-{}", number / 2);
                held.push(permits.acquire(&namespace, user).await.unwrap());
            }
            assert!(permits.acquire("team-c", user).await.is_err());
            assert!(permits.acquire("team-c", Some("b")).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_leaves_a_permit_of_the_namespace_to_others() {
        let permits = ArchivePermits::new(&budget::Metrics::default());
        let mut held = Vec::new();
        for _ in 0..ARCHIVES_OF_USER_IN_NAMESPACE {
            held.push(permits.acquire("team-a", Some("slow")).await.unwrap());
        }
        assert!(permits.acquire("team-a", Some("slow")).await.is_err());
        held.push(permits.acquire("team-a", Some("other")).await.unwrap());
        held.push(permits.acquire("team-b", Some("slow")).await.unwrap());
        held.clear();
        assert!(permits.acquire("team-a", Some("slow")).await.is_ok());
    }
}

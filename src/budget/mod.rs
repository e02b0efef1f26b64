//! Budgets of what all tenants share: memory, CPU permits, spool bytes, tags of registries and requests to hosts.
//!
//! ```text
//!  reserve(namespace, amount) ─┬─ fits, and no queue ─────────────────► Reservation ─► shrink, drop
//!                              └─ queue of the namespace ─► its turn ─►      │
//!                                        ▲                                   │
//!                                        └──────── returned amount ◄─────────┘
//!
//!  try_share(namespace, amount) ─► Reservation, or none: what would be held is read again when it is needed
//!  transfer(namespace) ─► grow, as bytes are written ─► full: the largest namespace's transfer is aborted
//! ```
//! A namespace holds at most half of a budget while another waits. Namespaces are served in turn, and first in, first out
//! within one. A task that holds memory never waits for more: it reserves its maximum and returns what it does not use.
//! Order of acquisition: sync slot, host permit, spool, memory, CPU permit, database connection.

mod cgroup;
mod interleave;
mod metrics;
mod offload;
mod parsed;
mod shares;
#[cfg(test)]
mod tests;
mod transfer;
mod work;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

pub use cgroup::{memory_left, memory_limit};
pub use interleave::interleave;
pub use metrics::{Metrics, ResourceMetrics};
#[cfg(test)]
pub use offload::has_left_runtime;
pub use offload::{SMALL_JSON, leave_runtime, leave_runtime_if_large, offloadable_watch, return_to_runtime};
pub use parsed::{ParsedSize, parsed_bytes, parsed_size};
use shares::Shares;
use transfer::OpenTransfers;
pub use transfer::{Full, Transfer};
pub use work::{Budgets, Sizes, WorkError};

/// A shared quantity in bytes or permits. Clones share it.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    resource: &'static str,
    limit: u64,
    state: Mutex<State>,
    metrics: ResourceMetrics,
}

struct State {
    shares: Shares<oneshot::Sender<Reservation>>,
    transfers: OpenTransfers,
}

/// The deadline of a wait has passed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {resource} available within {} s", waited.as_secs())]
pub struct Exhausted {
    pub resource: &'static str,
    pub waited: Duration,
}

impl Budget {
    #[must_use]
    pub fn new(resource: &'static str, limit: u64) -> Self {
        Self::with_metrics(resource, limit, ResourceMetrics::unregistered())
    }

    /// Creates a budget that may share its metrics with others.
    #[must_use]
    pub fn with_metrics(resource: &'static str, limit: u64, metrics: ResourceMetrics) -> Self {
        Self(Arc::new(Inner {
            resource,
            limit,
            state: Mutex::new(State {
                shares: Shares::new(limit, metrics.clone()),
                transfers: OpenTransfers::default(),
            }),
            metrics,
        }))
    }

    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.state.lock().shares.used()
    }

    /// Returns the maximum that one namespace holds while another waits: half, rounded up.
    #[must_use]
    pub fn share(&self) -> u64 {
        self.0.limit.div_ceil(2)
    }

    /// Returns true if the namespace holds more than its share while another waits. Its holders should return something.
    #[must_use]
    pub fn is_over_share(&self, namespace: &str) -> bool {
        let state = self.0.state.lock();
        state.shares.held(namespace) > self.share() && state.shares.has_waiters_besides(namespace)
    }

    /// Reserves `amount`, or the share of a namespace if that is less, as soon as it is the namespace's turn. Dropping
    /// the future gives up the place in the queue.
    pub async fn reserve(&self, namespace: &str, amount: u64, deadline: Duration) -> Result<Reservation, Exhausted> {
        let exhausted = |_| Exhausted {
            resource: self.0.resource,
            waited: deadline,
        };
        timeout(deadline, self.acquire(namespace, amount))
            .await
            .map_err(exhausted)
    }

    /// Same as [`Self::reserve`] without a deadline.
    pub async fn acquire(&self, namespace: &str, amount: u64) -> Reservation {
        let amount = amount.min(self.share());
        let _timer = self.0.metrics.start_wait();
        match self.try_reserve(namespace, amount) {
            Some(reservation) => reservation,
            None => self.wait(namespace, amount).await,
        }
    }

    /// Reserves without waiting, unless the namespace would then hold more than remains for others: half of the budget
    /// if it is alone, a third if another holds as much. For data that can be dropped and read again.
    #[must_use]
    pub fn try_share(&self, namespace: &str, amount: u64) -> Option<Reservation> {
        let namespace = Arc::from(namespace);
        let is_taken = self.0.state.lock().shares.take_share(&namespace, amount);
        is_taken.then(|| self.reservation(namespace, amount))
    }

    /// Returns false if [`Self::try_share`] would refuse `amount` even if all other namespaces returned what they hold.
    #[must_use]
    pub fn can_share(&self, namespace: &str, amount: u64) -> bool {
        let held = self.0.state.lock().shares.held(namespace);
        held.saturating_add(amount) <= self.0.limit / 2
    }

    /// Returns the largest holder, if it holds more than `namespace` would with `amount`. If [`Self::try_share`] has
    /// refused `amount`, the holder should return something.
    #[must_use]
    pub fn larger_holder(&self, namespace: &str, amount: u64) -> Option<Arc<str>> {
        let state = self.0.state.lock();
        let (largest, held) = state.shares.largest()?;
        (held > state.shares.held(namespace).saturating_add(amount)).then_some(largest)
    }

    /// Reserves `amount` without waiting: for a task that holds a part of the budget already.
    #[must_use]
    pub fn try_reserve_more(&self, namespace: &str, amount: u64) -> Option<Reservation> {
        self.try_reserve(namespace, amount.min(self.share()))
    }

    /// Reserves `amount` if it is available and the queues are empty.
    fn try_reserve(&self, namespace: &str, amount: u64) -> Option<Reservation> {
        let namespace = Arc::from(namespace);
        let mut state = self.0.state.lock();
        let is_taken = state.shares.take(&namespace, amount);
        drop(state);
        is_taken.then(|| self.reservation(namespace, amount))
    }

    async fn wait(&self, namespace: &str, amount: u64) -> Reservation {
        let (granted, grant) = oneshot::channel();
        let id = self.0.state.lock().shares.wait(namespace, amount, granted);
        // If the grant comes while the place is given up, the channel drops the reservation.
        let _place = PlaceInQueue { budget: self, id };
        self.grant();
        match grant.await {
            Ok(reservation) => reservation,
            // The sender is dropped only by a grant, or after this future.
            Err(_) => std::future::pending().await,
        }
    }

    fn grant(&self) {
        let mut grants = Vec::new();
        {
            let mut state = self.0.state.lock();
            while let Some(grant) = state.shares.grant() {
                let reservation = self.reservation(grant.namespace, grant.amount);
                grants.push((grant.notify, reservation));
            }
        }
        // Sent without the lock, because a waiter may be gone, which drops the reservation.
        for (notify, reservation) in grants {
            let _ = notify.send(reservation);
        }
    }

    fn reservation(&self, namespace: Arc<str>, amount: u64) -> Reservation {
        Reservation {
            budget: self.clone(),
            namespace,
            amount,
        }
    }

    fn give_back(&self, namespace: &Arc<str>, amount: u64) {
        if amount == 0 {
            return;
        }
        {
            let mut state = self.0.state.lock();
            state.shares.give_back(namespace, amount);
        }
        self.grant();
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("resource", &self.0.resource)
            .field("limit", &self.0.limit)
            .field("used", &self.used())
            .finish()
    }
}

/// Leaves the queue on drop. Without this waiter, others may be next.
struct PlaceInQueue<'a> {
    budget: &'a Budget,
    id: u64,
}

impl Drop for PlaceInQueue<'_> {
    fn drop(&mut self) {
        let was_waiting = self.budget.0.state.lock().shares.leave(self.id);
        if was_waiting {
            self.budget.grant();
        }
    }
}

/// A part of a budget, returned on drop. It grows only by another reservation.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    namespace: Arc<str>,
    amount: u64,
}

impl Reservation {
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// Adds the amount of another reservation of the same budget and namespace.
    pub fn absorb(&mut self, mut other: Self) {
        self.amount += std::mem::take(&mut other.amount);
    }

    pub fn shrink(&mut self, amount: u64) {
        let returned = self.amount.saturating_sub(amount);
        self.amount -= returned;
        self.budget.give_back(&self.namespace, returned);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(&self.namespace, self.amount);
    }
}

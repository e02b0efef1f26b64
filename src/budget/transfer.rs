//! Reservations that grow as bytes arrive and never wait.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Budget, Reservation, State};

/// The budget is full, and this transfer was aborted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {limit} bytes is reached")]
pub struct Full {
    pub limit: u64,
}

#[derive(Default)]
pub(super) struct OpenTransfers {
    open: HashMap<u64, OpenTransfer>,
    next_id: u64,
}

struct OpenTransfer {
    namespace: Arc<str>,
    amount: u64,
    aborted: CancellationToken,
}

/// If the budget is full, the largest transfer of the namespace that holds most is aborted: its amount counts as
/// returned, since its owner drops the bytes as soon as it sees the abort.
pub struct Transfer {
    budget: Budget,
    id: u64,
    aborted: CancellationToken,
}

impl Budget {
    #[must_use]
    pub fn transfer(&self, namespace: &str) -> Transfer {
        let aborted = CancellationToken::new();
        let mut state = self.0.state.lock();
        let id = state.transfers.next_id;
        state.transfers.next_id += 1;
        let open = OpenTransfer {
            namespace: Arc::from(namespace),
            amount: 0,
            aborted: aborted.clone(),
        };
        state.transfers.open.insert(id, open);
        Transfer {
            budget: self.clone(),
            id,
            aborted,
        }
    }
}

impl State {
    /// Returns the transfer to abort when `requester` needs `bytes` more: the largest of the namespace that would hold
    /// most, which may be the requester. Only transfers free bytes: finished ones can't be aborted, so a namespace
    /// without others is not chosen.
    fn victim(&self, requester: u64, namespace: &str, bytes: u64) -> u64 {
        let would_hold = self.transfers.open.iter().map(|(id, transfer)| {
            let amount = transfer.amount + if *id == requester { bytes } else { 0 };
            let more = if *transfer.namespace == *namespace { bytes } else { 0 };
            let held = self.shares.held(&transfer.namespace) + more;
            (held, &transfer.namespace, amount, *id)
        });
        let largest = would_hold.filter(|(_, _, amount, _)| *amount > 0).max();
        largest.map_or(requester, |(.., id)| id)
    }

    fn close(&mut self, id: u64) -> Option<OpenTransfer> {
        let closed = self.transfers.open.remove(&id)?;
        self.shares.give_back(&closed.namespace, closed.amount);
        Some(closed)
    }
}

impl Transfer {
    pub fn grow(&mut self, bytes: u64) -> Result<(), Full> {
        let full = Full {
            limit: self.budget.0.limit,
        };
        let mut state = self.budget.0.state.lock();
        loop {
            let State { shares, transfers } = &mut *state;
            let Some(open) = transfers.open.get_mut(&self.id) else {
                return Err(full);
            };
            if shares.take(&open.namespace, bytes) {
                open.amount += bytes;
                return Ok(());
            }
            let can_fit = open.amount + bytes <= full.limit;
            let namespace = Arc::clone(&open.namespace);
            let victim = if can_fit {
                state.victim(self.id, &namespace, bytes)
            } else {
                self.id
            };
            if let Some(closed) = state.close(victim) {
                closed.aborted.cancel();
            }
            if victim == self.id {
                return Err(full);
            }
        }
    }

    pub fn aborted(&self) -> impl Future<Output = Full> + use<> {
        let (aborted, limit) = (self.aborted.clone(), self.budget.0.limit);
        async move {
            aborted.cancelled().await;
            Full { limit }
        }
    }

    /// Ends the transfer. The bytes stay reserved.
    pub fn finish(self) -> Result<Reservation, Full> {
        let full = Full {
            limit: self.budget.0.limit,
        };
        let mut state = self.budget.0.state.lock();
        let OpenTransfer { namespace, amount, .. } = state.transfers.open.remove(&self.id).ok_or(full)?;
        drop(state);
        Ok(self.budget.reservation(namespace, amount))
    }
}

impl std::fmt::Debug for Transfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transfer").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut state = self.budget.0.state.lock();
        let _ = state.close(self.id);
    }
}

//! The share of a namespace: its receivers in memory, and its rates.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::poll::Poll;
use super::receiver::Receiver;
use super::{GUESS_BURST, GUESS_RATE};
use crate::serve::limits::RateTable;

/// Receivers in memory; namespaces have equal shares. A right key stays known until its receiver gives way to others.
const MAX_RECEIVERS: usize = 4096;
/// Time for which a receiver is not read again: a changed or deleted Secret has an effect after it.
const FRESH: Duration = Duration::from_secs(60);
/// Guesses per second in a namespace, so that the others have some left.
const NAMESPACE_GUESS_RATE: NonZeroU32 = NonZeroU32::new(5).unwrap();
const NAMESPACE_GUESS_BURST: NonZeroU32 = NonZeroU32::new(32).unwrap();
/// Requests with right addresses per second. Each waits for its turn, at most one a second for a repository.
const RATE: NonZeroU32 = NonZeroU32::new(20).unwrap();
const BURST: NonZeroU32 = NonZeroU32::new(100).unwrap();

pub(super) struct Namespace {
    max_receivers: usize,
    guesses: RateTable<()>,
    rate: RateTable<()>,
    receivers: Mutex<HashMap<String, Arc<Entry>>>,
}

pub(super) struct Entry {
    pub(super) receiver: Receiver,
    pub(super) poll: Arc<Poll>,
    read: Instant,
}

impl Entry {
    pub(super) fn is_fresh(&self) -> bool {
        self.read.elapsed() < FRESH
    }
}

impl Namespace {
    /// Creates one of `count` namespaces.
    pub(super) fn new(count: usize) -> Self {
        let (rate, burst) = if count == 1 {
            (GUESS_RATE, GUESS_BURST)
        } else {
            (NAMESPACE_GUESS_RATE, NAMESPACE_GUESS_BURST)
        };
        Self {
            max_receivers: (MAX_RECEIVERS / count.max(1)).max(1),
            guesses: RateTable::new(rate, burst, 1),
            rate: RateTable::new(RATE, BURST, 1),
            receivers: Mutex::default(),
        }
    }

    pub(super) fn check_guess(&self) -> Result<(), Duration> {
        self.guesses.check(())
    }

    pub(super) fn check_rate(&self) -> Result<(), Duration> {
        self.rate.check(())
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Entry>> {
        self.receivers.lock().get(name).cloned()
    }

    pub(super) fn forget(&self, name: &str) {
        self.receivers.lock().remove(name);
    }

    /// Stores a receiver. If the share is full, it replaces the receiver that was read first.
    pub(super) fn store(&self, name: &str, receiver: Receiver) -> Arc<Entry> {
        let mut receivers = self.receivers.lock();
        let poll = receivers.remove(name).map(|before| Arc::clone(&before.poll));
        if receivers.len() >= self.max_receivers {
            let oldest = receivers.iter().min_by_key(|(_, entry)| entry.read);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                receivers.remove(&name);
            }
        }
        let entry = Arc::new(Entry {
            receiver,
            poll: poll.unwrap_or_default(),
            read: Instant::now(),
        });
        receivers.insert(name.to_owned(), Arc::clone(&entry));
        entry
    }
}

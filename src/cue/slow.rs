//! Namespaces whose templates take long. Together they leave a process to all others: in turns with them, each evaluation
//! of milliseconds would wait for one of seconds.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::budget::{Budget, Reservation};

/// Time after a slow evaluation for which its namespace counts as slow.
const SLOW_FOR: Duration = Duration::from_secs(60);
/// Part of the time limit of an evaluation from which it is slow.
const SLOW_PART: u32 = 10;
/// Number of namespaces from which those that are no longer slow are removed.
const MAX_KNOWN: usize = 1_000;

pub(super) struct SlowNamespaces {
    /// Permits besides those of the processes.
    permits: Budget,
    slow_from: Duration,
    /// The end of the last slow evaluation.
    known: Mutex<HashMap<String, Instant>>,
}

impl SlowNamespaces {
    pub(super) fn new(workers: usize, timeout: Duration) -> Self {
        Self {
            permits: Budget::new("cue_slow_workers", workers.saturating_sub(1).max(1) as u64),
            slow_from: timeout / SLOW_PART,
            known: Mutex::default(),
        }
    }

    /// Waits for the turn of a slow namespace. Others don't wait.
    pub(super) async fn acquire(&self, namespace: &str) -> Option<Reservation> {
        if self.contains(namespace) {
            Some(self.permits.acquire(namespace, 1).await)
        } else {
            None
        }
    }

    pub(super) fn contains(&self, namespace: &str) -> bool {
        let known = self.known.lock();
        known.get(namespace).is_some_and(|end| end.elapsed() < SLOW_FOR)
    }

    /// Measures an evaluation until the timer is dropped.
    pub(super) fn time<'a>(&'a self, namespace: &'a str) -> Timer<'a> {
        Timer {
            namespaces: self,
            namespace,
            start: Instant::now(),
        }
    }

    fn record(&self, namespace: &str, duration: Duration) {
        if duration < self.slow_from {
            return;
        }
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, end| end.elapsed() < SLOW_FOR);
        }
        known.insert(namespace.to_owned(), Instant::now());
    }
}

pub(super) struct Timer<'a> {
    namespaces: &'a SlowNamespaces,
    namespace: &'a str,
    start: Instant,
}

/// An evaluation that was canceled counts too.
impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.namespaces.record(self.namespace, self.start.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn slow_namespaces_share_all_processes_but_one_until_they_are_fast_again() {
        let slow = SlowNamespaces::new(2, Duration::from_secs(10));
        for namespace in ["a", "b"] {
            let timer = slow.time(namespace);
            advance(Duration::from_secs(1)).await;
            drop(timer);
        }
        drop(slow.time("honest"));
        let first = slow.acquire("a").await.unwrap();
        assert!(slow.acquire("b").now_or_never().is_none());
        assert!(slow.acquire("honest").await.is_none());
        drop(first);
        assert!(slow.acquire("b").await.is_some());
        advance(SLOW_FOR).await;
        assert!(slow.acquire("a").await.is_none());
    }
}

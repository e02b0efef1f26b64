//! Permits for connections, shared between namespaces.
//!
//! Without them one namespace could hold every connection in long commits, and a deletion would wait for all of them.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::budget::ResourceMetrics;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::catalog) enum Usage {
    Call,
    /// At most half of the connections are in commits of one namespace.
    Commit,
    /// Clean-up: may take the reserved connection, and goes first.
    Reserved,
}

#[derive(Clone, Debug)]
pub(super) struct Permits(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    reserved: usize,
    /// Commits of one namespace.
    max_commits: usize,
    /// Commits of all namespaces: the rest is for short calls, with which every reconcile begins.
    max_all_commits: usize,
    state: Mutex<State>,
    metrics: ResourceMetrics,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    commits: usize,
    turn: u64,
    /// The last turn of each namespace that waits or holds permits.
    turns: HashMap<String, u64>,
    held: HashMap<String, Held>,
    waiting: Vec<Waiter>,
}

#[derive(Debug, Default)]
struct Held {
    permits: usize,
    commits: usize,
}

#[derive(Debug)]
struct Waiter {
    usage: Usage,
    namespace: String,
    sender: oneshot::Sender<Permit>,
}

/// Returned to its [`Permits`] when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    shared: Arc<Shared>,
    usage: Usage,
    namespace: String,
}

impl Permits {
    /// Creates permits for `limit` connections. One is reserved for clean-up, unless it is the only one.
    pub(super) fn new(limit: usize, metrics: ResourceMetrics) -> Self {
        metrics.set_limit(limit as u64);
        Self(Arc::new(Shared {
            limit,
            reserved: usize::from(limit > 1),
            max_commits: (limit / 2).max(1),
            max_all_commits: limit.saturating_sub(3).max(1),
            state: Mutex::default(),
            metrics,
        }))
    }

    /// Waits for a permit. Returns `None` after `timeout`.
    pub(super) async fn acquire(&self, usage: Usage, namespace: &str, timeout: Duration) -> Option<Permit> {
        let started = Instant::now();
        let (sender, receiver) = oneshot::channel();
        self.0.state.lock().waiting.push(Waiter {
            usage,
            namespace: namespace.to_owned(),
            sender,
        });
        self.0.dispatch();
        let permit = tokio::time::timeout(timeout, receiver).await;
        self.0.metrics.observe_wait(started.elapsed());
        permit.ok()?.ok()
    }
}

impl Shared {
    /// Grants free permits: clean-up first, then namespaces that hold the fewest, then namespaces in turn, then first in,
    /// first out.
    fn dispatch(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            state.waiting.retain(|waiter| !waiter.sender.is_closed());
            let waiting = state.waiting.iter().enumerate();
            let next = waiting
                .filter(|(_, waiter)| self.can_grant(&state, waiter))
                .min_by_key(|(at, waiter)| {
                    let namespace = &waiter.namespace;
                    let turn = state.turns.get(namespace).copied();
                    (waiter.usage != Usage::Reserved, state.permits(namespace), turn, *at)
                });
            let Some((at, _)) = next else { return };
            let waiter = state.waiting.remove(at);
            state.used += 1;
            state.take_turn(&waiter.namespace);
            state.commits += usize::from(waiter.usage == Usage::Commit);
            let held = state.held.entry(waiter.namespace.clone()).or_default();
            held.permits += 1;
            held.commits += usize::from(waiter.usage == Usage::Commit);
            self.metrics.add_used(1);
            // A permit that can't be delivered is dropped, which takes the lock again.
            drop(state);
            let _ = waiter.sender.send(Permit {
                shared: Arc::clone(self),
                usage: waiter.usage,
                namespace: waiter.namespace,
            });
        }
    }

    fn can_grant(&self, state: &State, waiter: &Waiter) -> bool {
        match waiter.usage {
            Usage::Reserved => state.used < self.limit,
            Usage::Call => state.used < self.limit - self.reserved,
            Usage::Commit => {
                let commits = state.held.get(&waiter.namespace).map_or(0, |held| held.commits);
                state.used < self.limit - self.reserved
                    && commits < self.max_commits
                    && state.commits < self.max_all_commits
            }
        }
    }
}

impl State {
    fn take_turn(&mut self, namespace: &str) {
        self.turn += 1;
        self.turns.insert(namespace.to_owned(), self.turn);
        let Self {
            turns, held, waiting, ..
        } = self;
        if turns.len() > held.len() + waiting.len() + 1 {
            turns.retain(|name, _| {
                name == namespace || held.contains_key(name) || waiting.iter().any(|waiter| waiter.namespace == *name)
            });
        }
    }

    fn permits(&self, namespace: &str) -> usize {
        self.held.get(namespace).map_or(0, |held| held.permits)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.used -= 1;
        state.commits -= usize::from(self.usage == Usage::Commit);
        if let Some(held) = state.held.get_mut(&self.namespace) {
            held.permits -= 1;
            held.commits -= usize::from(self.usage == Usage::Commit);
            if held.permits == 0 {
                state.held.remove(&self.namespace);
            }
        }
        self.shared.metrics.subtract_used(1);
        drop(state);
        self.shared.dispatch();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    fn permits(limit: usize) -> Permits {
        Permits::new(limit, ResourceMetrics::unregistered())
    }

    async fn take(permits: &Permits, usage: Usage, namespace: &str) -> Permit {
        let permit = permits.acquire(usage, namespace, SOON).now_or_never();
        permit.flatten().expect("a permit is free")
    }

    #[tokio::test]
    async fn one_connection_is_kept_for_clean_up() {
        let permits = permits(3);
        let _calls = (
            take(&permits, Usage::Call, "a").await,
            take(&permits, Usage::Call, "b").await,
        );
        assert!(permits.acquire(Usage::Call, "c", SOON).now_or_never().is_none());
        take(&permits, Usage::Reserved, "c").await;
    }

    #[tokio::test]
    async fn one_namespace_has_at_most_half_of_the_connections_in_commits() {
        let permits = permits(10);
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(take(&permits, Usage::Commit, "a").await);
        }
        assert!(permits.acquire(Usage::Commit, "a", SOON).now_or_never().is_none());
        take(&permits, Usage::Call, "a").await;
        take(&permits, Usage::Commit, "b").await;
    }

    #[tokio::test]
    async fn a_free_connection_goes_to_the_namespace_that_holds_the_fewest() {
        let permits = permits(4);
        let first = take(&permits, Usage::Call, "a").await;
        let _second = take(&permits, Usage::Call, "a").await;
        let _other = take(&permits, Usage::Call, "b").await;
        let mut greedy = Box::pin(permits.acquire(Usage::Call, "a", SOON));
        let mut modest = Box::pin(permits.acquire(Usage::Call, "c", SOON));
        assert!(greedy.as_mut().now_or_never().is_none());
        assert!(modest.as_mut().now_or_never().is_none());
        drop(first);
        assert!(modest.await.is_some());
        assert!(greedy.await.is_some(), "the permit of the other call is free again");
    }

    #[tokio::test]
    async fn namespaces_take_turns_for_a_single_connection() {
        let permits = permits(1);
        let first = take(&permits, Usage::Commit, "a").await;
        let mut greedy: Vec<_> = (0..3)
            .map(|_| Box::pin(permits.acquire(Usage::Commit, "a", SOON)))
            .collect();
        for waiter in &mut greedy {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        let mut other = Box::pin(permits.acquire(Usage::Call, "b", SOON));
        assert!(other.as_mut().now_or_never().is_none());
        drop(first);
        let held = other.await.expect("the turn of the other namespace");
        assert!(greedy[0].as_mut().now_or_never().is_none());
        drop(held);
        assert!(greedy.remove(0).await.is_some());
        drop(greedy);
        take(&permits, Usage::Call, "c").await;
        assert_eq!(
            permits.0.state.lock().turns.len(),
            1,
            "only that of the last one is kept"
        );
    }

    #[tokio::test]
    async fn commits_of_all_namespaces_leave_connections_for_short_calls() {
        let permits = permits(10);
        let mut held = Vec::new();
        for namespace in ["a", "a", "a", "b", "b", "b", "c"] {
            held.push(take(&permits, Usage::Commit, namespace).await);
        }
        assert!(permits.acquire(Usage::Commit, "d", SOON).now_or_never().is_none());
        take(&permits, Usage::Call, "d").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_gave_up_holds_no_permit() {
        let permits = permits(1);
        let held = take(&permits, Usage::Call, "a").await;
        assert!(permits.acquire(Usage::Call, "b", SOON).await.is_none(), "timed out");
        assert!(
            permits.acquire(Usage::Call, "b", SOON).now_or_never().is_none(),
            "canceled"
        );
        drop(held);
        take(&permits, Usage::Commit, "c").await;
    }
}

//! Permits for connections, shared between namespaces.
//!
//! Without them one namespace could hold every connection in long commits, and a deletion would wait for all of them.
//!
//! There are as many as `--database-connections`, or as the server grants: fewer once it refuses one, and one more after a
//! pause while a call waits.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::budget::ResourceMetrics;

/// Pause after the server refused a connection.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// Pause between two connections that are tried afterwards.
const TRIAL_PAUSE: Duration = Duration::from_secs(1);

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
    max: usize,
    state: Mutex<State>,
    metrics: ResourceMetrics,
}

#[derive(Debug, Default)]
struct State {
    /// At most the configured number, and at least one.
    limit: usize,
    /// The time from which a permit more than the server granted is tried; `None` if it refused none.
    next_trial: Option<Instant>,
    /// A refusal was logged, and the configured number was not reached since.
    has_warned: bool,
    used: usize,
    commits: usize,
    turn: u64,
    /// The last turn of each namespace that waits or holds permits.
    turns: HashMap<String, u64>,
    held: HashMap<String, Held>,
    waiting: Vec<PermitWaiter>,
}

#[derive(Debug, Default)]
struct Held {
    permits: usize,
    commits: usize,
}

#[derive(Debug)]
struct PermitWaiter {
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
    /// Creates permits for `limit` connections. One permit is reserved for clean-up, unless it is the only one.
    pub(super) fn new(limit: usize, metrics: ResourceMetrics) -> Self {
        metrics.set_limit(limit as u64);
        Self(Arc::new(Shared {
            max: limit,
            state: Mutex::new(State {
                limit,
                ..State::default()
            }),
            metrics,
        }))
    }

    pub(super) fn is_reduced(&self) -> bool {
        self.0.state.lock().limit < self.0.max
    }

    pub(super) fn are_all_used(&self) -> bool {
        let state = self.0.state.lock();
        state.used >= state.limit
    }

    /// Lowers the number of permits to the number of `open` connections, after the server refused another.
    pub(super) fn record_refusal(&self, open: usize) {
        let mut state = self.0.state.lock();
        state.limit = open.clamp(1, state.limit);
        state.next_trial = Some(Instant::now() + REFUSED_PAUSE);
        self.0.metrics.set_limit(state.limit as u64);
        if state.limit < self.0.max && !std::mem::replace(&mut state.has_warned, true) {
            tracing::warn!(
                granted = state.limit,
                configured = self.0.max,
                "the database grants fewer connections than --database-connections, using as many as it grants; raise \
                 max_connections of the server or CONNECTION LIMIT of the user, or lower the flag"
            );
        }
    }

    pub(super) fn record_open(&self, open: usize) {
        let mut state = self.0.state.lock();
        if state.limit < open && state.limit < self.0.max {
            state.limit = open.min(self.0.max);
            self.0.metrics.set_limit(state.limit as u64);
        }
        if state.limit == self.0.max {
            state.has_warned = false;
        }
        drop(state);
        self.0.dispatch();
    }

    /// Waits for a permit. Returns `None` after `timeout`.
    pub(super) async fn acquire(&self, usage: Usage, namespace: &str, timeout: Duration) -> Option<Permit> {
        let started = Instant::now();
        let (sender, receiver) = oneshot::channel();
        self.0.state.lock().waiting.push(PermitWaiter {
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
    /// Order: clean-up, namespaces that hold the fewest, namespaces in turn, first in first out.
    fn dispatch(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            state.waiting.retain(|waiter| !waiter.sender.is_closed());
            let waiting = state.waiting.iter().enumerate();
            let next = waiting
                .filter(|(_, waiter)| state.can_grant(waiter))
                .min_by_key(|(at, waiter)| {
                    let namespace = &waiter.namespace;
                    let turn = state.turns.get(namespace).copied();
                    (waiter.usage != Usage::Reserved, state.permits(namespace), turn, *at)
                });
            let Some((at, _)) = next else {
                if state.waiting.is_empty() || !state.try_one_more(self.max) {
                    return;
                }
                self.metrics.set_limit(state.limit as u64);
                continue;
            };
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
}

impl State {
    fn can_grant(&self, waiter: &PermitWaiter) -> bool {
        let reserved = usize::from(self.limit > 1);
        match waiter.usage {
            Usage::Reserved => self.used < self.limit,
            Usage::Call => self.used < self.limit - reserved,
            Usage::Commit => {
                let commits = self.held.get(&waiter.namespace).map_or(0, |held| held.commits);
                let max_commits = (self.limit / 2).max(1);
                // The others are for short calls, with which every reconcile begins.
                let max_all_commits = self.limit.saturating_sub(3).max(1);
                self.used < self.limit - reserved && commits < max_commits && self.commits < max_all_commits
            }
        }
    }

    fn try_one_more(&mut self, max: usize) -> bool {
        let now = Instant::now();
        let is_due = self.next_trial.is_some_and(|next| next <= now);
        if !is_due || self.limit >= max {
            return false;
        }
        self.limit += 1;
        self.next_trial = Some(now + TRIAL_PAUSE);
        true
    }

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
    async fn permits_follow_what_the_server_grants() {
        let permits = permits(10);
        let first = take(&permits, Usage::Call, "a").await;
        let second = take(&permits, Usage::Call, "b").await;
        permits.record_refusal(1);
        drop(second);
        assert!(permits.is_reduced() && permits.are_all_used());
        assert!(
            permits.acquire(Usage::Call, "b", SOON).await.is_none(),
            "one connection"
        );
        drop(first);
        // A second connection was on its way when the third one was refused.
        permits.record_open(2);
        let _calls = (
            take(&permits, Usage::Call, "a").await,
            take(&permits, Usage::Reserved, "b").await,
        );
        assert!(permits.acquire(Usage::Reserved, "c", SOON).await.is_none());
        tokio::time::advance(REFUSED_PAUSE).await;
        let _third = take(&permits, Usage::Reserved, "c").await;
        assert!(permits.acquire(Usage::Reserved, "d", SOON).now_or_never().is_none());
        permits.record_open(3);
        tokio::time::advance(TRIAL_PAUSE).await;
        take(&permits, Usage::Reserved, "d").await;
        permits.record_refusal(0);
        assert_eq!(permits.0.state.lock().limit, 1, "at least one");
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

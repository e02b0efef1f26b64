//! A semaphore whose waiters are served in turn, by class and then by group, so that one group cannot starve the others.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::budget::ResourceMetrics;

#[derive(Debug, Clone, Copy)]
pub struct FairLimits {
    pub total: usize,
    pub per_object: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requester {
    /// Classes are served in turn.
    pub class: String,
    /// Groups of a class are served in turn.
    pub group: String,
    /// Empty for no object.
    pub object: String,
}

/// A handle; clones share the permits.
#[derive(Clone)]
pub struct FairSemaphore(Arc<Inner>);

struct Inner {
    limits: FairLimits,
    metrics: ResourceMetrics,
    state: Mutex<State>,
}

/// Entries exist only while a permit is held or waited for.
#[derive(Default)]
struct State {
    held: usize,
    held_by_object: HashMap<String, usize>,
    classes: VecDeque<NamedQueue<NamedQueue<Waiter>>>,
}

struct NamedQueue<T> {
    name: String,
    items: VecDeque<T>,
}

struct Waiter {
    requester: Requester,
    granted: oneshot::Sender<FairPermit>,
}

/// A permit, returned when it is dropped.
pub struct FairPermit {
    semaphore: FairSemaphore,
    /// `None` if the semaphore has taken it back.
    requester: Option<Requester>,
}

impl FairSemaphore {
    #[must_use]
    pub fn new(limits: FairLimits, metrics: ResourceMetrics) -> Self {
        metrics.set_limit(limits.total as u64);
        Self(Arc::new(Inner {
            limits,
            metrics,
            state: Mutex::default(),
        }))
    }

    /// Waits for a permit. A canceled waiter loses its turn.
    pub async fn acquire(&self, requester: Requester) -> FairPermit {
        let _timer = self.0.metrics.start_wait();
        match self.enqueue(requester).await {
            Ok(permit) => permit,
            // A waiter leaves the queue only with a permit or after it was canceled.
            Err(_) => std::future::pending().await,
        }
    }

    fn enqueue(&self, requester: Requester) -> oneshot::Receiver<FairPermit> {
        let (granted, permit) = oneshot::channel();
        let mut state = self.0.state.lock();
        let class = queue_of(&mut state.classes, &requester.class);
        let group = queue_of(&mut class.items, &requester.group);
        group.items.retain(|waiter| !waiter.granted.is_closed());
        group.items.push_back(Waiter { requester, granted });
        self.grant(&mut state);
        permit
    }

    fn grant(&self, state: &mut State) {
        while let Some(waiter) = state.next(&self.0.limits) {
            let permit = FairPermit {
                semaphore: self.clone(),
                requester: Some(waiter.requester.clone()),
            };
            state.add(&waiter.requester);
            self.0.metrics.add_used(1);
            if let Err(mut unclaimed) = waiter.granted.send(permit) {
                // The waiter was canceled. Its permit must not lock the state again.
                unclaimed.requester = None;
                state.remove(&waiter.requester);
                self.0.metrics.subtract_used(1);
            }
        }
    }
}

fn queue_of<'a, T>(queues: &'a mut VecDeque<NamedQueue<T>>, name: &str) -> &'a mut NamedQueue<T> {
    let at = queues.iter().position(|queue| queue.name == name);
    let at = at.unwrap_or_else(|| {
        let (name, items) = (name.to_owned(), VecDeque::new());
        queues.push_back(NamedQueue { name, items });
        queues.len() - 1
    });
    &mut queues[at]
}

impl State {
    /// Takes the next waiter that the limits allow, and moves its class and group to the back.
    fn next(&mut self, limits: &FairLimits) -> Option<Waiter> {
        if self.held >= limits.total {
            return None;
        }
        let held = |object: &str| self.held_by_object.get(object).copied().unwrap_or_default();
        let mut place = None;
        'search: for (class_at, class) in self.classes.iter().enumerate() {
            for (group_at, group) in class.items.iter().enumerate() {
                let mut waiters = group.items.iter();
                let is_allowed = |object: &str| object.is_empty() || held(object) < limits.per_object;
                let at = waiters.position(|waiter| is_allowed(&waiter.requester.object));
                if let Some(at) = at {
                    place = Some((class_at, group_at, at));
                    break 'search;
                }
            }
        }
        let (class_at, group_at, at) = place?;
        let mut class = self.classes.remove(class_at)?;
        let mut group = class.items.remove(group_at)?;
        let waiter = group.items.remove(at);
        if !group.items.is_empty() {
            class.items.push_back(group);
        }
        if !class.items.is_empty() {
            self.classes.push_back(class);
        }
        waiter
    }

    fn add(&mut self, requester: &Requester) {
        self.held += 1;
        *self.held_by_object.entry(requester.object.clone()).or_default() += 1;
    }

    fn remove(&mut self, requester: &Requester) {
        self.held = self.held.saturating_sub(1);
        if let Some(count) = self.held_by_object.get_mut(&requester.object) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.held_by_object.remove(&requester.object);
            }
        }
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        if let Some(requester) = self.requester.take() {
            let mut state = self.semaphore.0.state.lock();
            state.remove(&requester);
            self.semaphore.0.metrics.subtract_used(1);
            self.semaphore.grant(&mut state);
        }
    }
}

impl fmt::Debug for FairSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairSemaphore")
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FairPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairPermit")
            .field("requester", &self.requester)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::time::timeout;

    use super::*;

    const UNLIMITED: usize = usize::MAX;

    fn semaphore(total: usize, per_object: usize) -> FairSemaphore {
        FairSemaphore::new(FairLimits { total, per_object }, ResourceMetrics::unregistered())
    }

    fn requester(class: &str, group: &str, object: &str) -> Requester {
        Requester {
            class: class.to_owned(),
            group: group.to_owned(),
            object: object.to_owned(),
        }
    }

    fn of_group(group: &str) -> Requester {
        requester("", group, group)
    }

    fn try_acquire(semaphore: &FairSemaphore, requester: Requester) -> Option<FairPermit> {
        semaphore.acquire(requester).now_or_never()
    }

    /// Enqueues waiters while no permit is free, then returns the order in which they are served one by one.
    async fn order(waiters: &[Requester]) -> Vec<String> {
        let semaphore = semaphore(1, UNLIMITED);
        let first = try_acquire(&semaphore, of_group("first")).unwrap();
        let served = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = waiters
            .iter()
            .map(|waiter| {
                let permit = semaphore.enqueue(waiter.clone());
                let (served, object) = (Arc::clone(&served), waiter.object.clone());
                tokio::spawn(async move {
                    let _permit = permit.await.unwrap();
                    served.lock().push(object);
                })
            })
            .collect();
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        let served = served.lock();
        served.clone()
    }

    #[tokio::test]
    async fn groups_and_classes_are_served_in_turn() {
        let waiters = ["a1", "a2", "a3", "b1", "c1"].map(|name| requester("", &name[..1], name));
        assert_eq!(order(&waiters).await, ["a1", "b1", "c1", "a2", "a3"]);
        let waiters = [("x", "a1"), ("x", "b1"), ("x", "c1"), ("y", "d1"), ("y", "d2")];
        let waiters = waiters.map(|(class, name)| requester(class, &name[..1], name));
        assert_eq!(order(&waiters).await, ["a1", "d1", "b1", "d2", "c1"]);
    }

    #[tokio::test]
    async fn an_object_at_its_limit_does_not_block_others_of_its_group() {
        let semaphore = semaphore(8, 2);
        let object = |name| requester("", "a", name);
        let _held: Vec<_> = (0..2).map(|_| try_acquire(&semaphore, object("x")).unwrap()).collect();
        let mut third = semaphore.enqueue(object("x"));
        assert!(try_acquire(&semaphore, object("y")).is_some());
        assert!(third.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn canceled_waiters_lose_no_permit_and_leave_the_queue() {
        let semaphore = semaphore(1, 1);
        let held = try_acquire(&semaphore, of_group("a")).unwrap();
        for _ in 0..100 {
            let waiting = semaphore.acquire(of_group("b"));
            assert!(timeout(Duration::from_secs(1), waiting).await.is_err());
        }
        let waiting: usize = semaphore
            .0
            .state
            .lock()
            .classes
            .iter()
            .flat_map(|class| &class.items)
            .map(|group| group.items.len())
            .sum();
        assert!(waiting <= 1, "{waiting}");
        // Granted, but never received.
        let granted = semaphore.enqueue(of_group("c"));
        drop(held);
        drop(granted);
        assert!(try_acquire(&semaphore, of_group("d")).is_some());
        let state = semaphore.0.state.lock();
        assert!(state.held == 0 && state.classes.is_empty() && state.held_by_object.is_empty());
    }
}

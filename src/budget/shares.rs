//! The state of a budget: amounts by namespace, and the queues of waiters.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::ResourceMetrics;

pub(super) struct Shares<T> {
    metrics: ResourceMetrics,
    limit: u64,
    used: u64,
    held: HashMap<Arc<str>, u64>,
    /// Namespaces with waiters, in the order of their turns.
    waiting: VecDeque<(Arc<str>, VecDeque<ShareWaiter<T>>)>,
    next_id: u64,
}

struct ShareWaiter<T> {
    id: u64,
    amount: u64,
    notify: T,
}

pub(super) struct Grant<T> {
    pub(super) namespace: Arc<str>,
    pub(super) amount: u64,
    pub(super) notify: T,
}

impl<T> Shares<T> {
    pub(super) fn new(limit: u64, metrics: ResourceMetrics) -> Self {
        Self {
            metrics,
            limit,
            used: 0,
            held: HashMap::new(),
            waiting: VecDeque::new(),
            next_id: 0,
        }
    }

    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn held(&self, namespace: &str) -> u64 {
        self.held.get(namespace).copied().unwrap_or_default()
    }

    /// Returns the namespace that holds most.
    pub(super) fn largest(&self) -> Option<(Arc<str>, u64)> {
        let largest = self.held.iter().max_by_key(|(_, held)| **held)?;
        Some((Arc::clone(largest.0), *largest.1))
    }

    /// Takes an amount if it is free and the queues are empty.
    pub(super) fn take(&mut self, namespace: &Arc<str>, amount: u64) -> bool {
        let is_free = self.waiting.is_empty() && amount <= self.limit.saturating_sub(self.used);
        if is_free {
            self.add(namespace, amount);
        }
        is_free
    }

    /// Takes an amount if the namespace then holds no more than is free.
    pub(super) fn take_share(&mut self, namespace: &Arc<str>, amount: u64) -> bool {
        let free = self.limit.saturating_sub(self.used).saturating_sub(amount);
        self.held(namespace).saturating_add(amount) <= free && self.take(namespace, amount)
    }

    fn add(&mut self, namespace: &Arc<str>, amount: u64) {
        self.used += amount;
        self.metrics.add_used(amount);
        *self.held.entry(Arc::clone(namespace)).or_default() += amount;
    }

    pub(super) fn give_back(&mut self, namespace: &Arc<str>, amount: u64) {
        self.used -= amount;
        self.metrics.subtract_used(amount);
        if let Some(held) = self.held.get_mut(namespace) {
            *held -= amount;
            if *held == 0 {
                self.held.remove(namespace);
            }
        }
    }

    /// Adds a waiter and returns its ID.
    pub(super) fn wait(&mut self, namespace: &str, amount: u64, notify: T) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let waiter = ShareWaiter { id, amount, notify };
        match self.waiting.iter_mut().find(|(name, _)| **name == *namespace) {
            Some((_, queue)) => queue.push_back(waiter),
            None => self.waiting.push_back((Arc::from(namespace), VecDeque::from([waiter]))),
        }
        id
    }

    pub(super) fn has_waiters_besides(&self, namespace: &str) -> bool {
        self.waiting.iter().any(|(name, _)| **name != *namespace)
    }

    /// Removes a waiter. Returns false if it was already served.
    pub(super) fn leave(&mut self, id: u64) -> bool {
        let mut has_left = false;
        for (_, queue) in &mut self.waiting {
            let before = queue.len();
            queue.retain(|waiter| waiter.id != id);
            has_left |= queue.len() < before;
        }
        self.waiting.retain(|(_, queue)| !queue.is_empty());
        has_left
    }

    /// Serves the first namespace in turn that holds less than its share. A waiter whose amount is not free yet is not
    /// overtaken, or else large amounts would wait forever beside small ones.
    pub(super) fn grant(&mut self) -> Option<Grant<T>> {
        let has_others = self.waiting.len() > 1;
        let at = (self.waiting.iter()).position(|(namespace, queue)| {
            let amount = queue.front().map_or(0, |waiter| waiter.amount);
            let held = self.held(namespace);
            !has_others || held == 0 || held + amount <= self.limit.div_ceil(2)
        })?;
        let amount = self.waiting.get(at)?.1.front()?.amount;
        if amount > self.limit.saturating_sub(self.used) {
            return None;
        }
        let (namespace, mut queue) = self.waiting.remove(at)?;
        let waiter = queue.pop_front()?;
        if !queue.is_empty() {
            self.waiting.push_back((Arc::clone(&namespace), queue));
        }
        self.add(&namespace, amount);
        Some(Grant {
            namespace,
            amount,
            notify: waiter.notify,
        })
    }
}

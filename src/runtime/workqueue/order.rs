//! Order of the ready keys of a class: by priority, then namespaces in turn, then first in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::Priority;

/// After a restart all repositories have low priority, and a steady stream of user changes must not starve them.
const MAX_SKIPS: u32 = 9;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ticket(u64);

pub(super) struct Order<K> {
    /// Contains only priorities with ready keys.
    levels: BTreeMap<Reverse<Priority>, NamespaceLevel<K>>,
    next_ticket: u64,
    len: usize,
}

struct NamespaceLevel<K> {
    /// Contains only namespaces with ready keys.
    namespaces: HashMap<Arc<str>, Namespace<K>>,
    turns: BTreeMap<Ticket, Arc<str>>,
    /// Dequeues of higher priorities since the last dequeue of this priority.
    skipped: u32,
}

struct Namespace<K> {
    turn: Ticket,
    keys: BTreeMap<Ticket, Arc<K>>,
}

impl<K> Order<K> {
    pub(super) fn new() -> Self {
        Self {
            levels: BTreeMap::new(),
            next_ticket: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, namespace: &str, key: Arc<K>, priority: Priority) -> Ticket {
        let ticket = self.ticket();
        self.insert(namespace, key, ticket, priority);
        ticket
    }

    /// Changes the priority of a key, which keeps its place among the keys of its namespace.
    pub(super) fn raise(&mut self, namespace: &str, ticket: Ticket, from: Priority, to: Priority) {
        if let Some(key) = self.remove(namespace, ticket, from) {
            self.insert(namespace, key, ticket, to);
        }
    }

    pub(super) fn namespaces(&self) -> HashSet<&str> {
        let levels = self.levels.values();
        levels
            .flat_map(|level| level.namespaces.keys().map(|name| &**name))
            .collect()
    }

    pub(super) fn can_pop(&self, has_room: impl Fn(&str) -> bool) -> bool {
        self.levels.values().any(|level| level.next(&has_room).is_some())
    }

    pub(super) fn pop(&mut self, has_room: impl Fn(&str) -> bool) -> Option<(Arc<K>, Priority)> {
        let next =
            |(priority, level): (&Reverse<Priority>, &NamespaceLevel<K>)| Some((*priority, level.next(&has_room)?));
        let mut waiting = self.levels.iter().filter(|(_, level)| level.skipped >= MAX_SKIPS).rev();
        let (priority, namespace) = waiting.find_map(next).or_else(|| self.levels.iter().find_map(next))?;
        for (_, lower) in self.levels.iter_mut().filter(|(lower, _)| **lower > priority) {
            lower.skipped += 1;
        }
        let turn = self.ticket();
        let level = self.levels.get_mut(&priority)?;
        level.skipped = 0;
        let ticket = level.take_turn(&namespace, turn)?;
        Some((self.remove(&namespace, ticket, priority.0)?, priority.0))
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn insert(&mut self, namespace: &str, key: Arc<K>, ticket: Ticket, priority: Priority) {
        let turn = self.ticket();
        let level = self.levels.entry(Reverse(priority)).or_insert_with(NamespaceLevel::new);
        if !level.namespaces.contains_key(namespace) {
            let namespace: Arc<str> = namespace.into();
            level.turns.insert(turn, Arc::clone(&namespace));
            let keys = BTreeMap::new();
            level.namespaces.insert(namespace, Namespace { turn, keys });
        }
        if let Some(waiting) = level.namespaces.get_mut(namespace) {
            waiting.keys.insert(ticket, key);
            self.len += 1;
        }
    }

    pub(super) fn remove(&mut self, namespace: &str, ticket: Ticket, priority: Priority) -> Option<Arc<K>> {
        let level = self.levels.get_mut(&Reverse(priority))?;
        let waiting = level.namespaces.get_mut(namespace)?;
        let key = waiting.keys.remove(&ticket)?;
        self.len -= 1;
        if waiting.keys.is_empty() {
            let turn = waiting.turn;
            level.turns.remove(&turn);
            level.namespaces.remove(namespace);
        }
        if level.namespaces.is_empty() {
            self.levels.remove(&Reverse(priority));
        }
        Some(key)
    }
}

impl<K> NamespaceLevel<K> {
    fn new() -> Self {
        Self {
            namespaces: HashMap::new(),
            turns: BTreeMap::new(),
            skipped: 0,
        }
    }

    fn next(&self, has_room: impl Fn(&str) -> bool) -> Option<Arc<str>> {
        self.turns.values().find(|namespace| has_room(namespace)).cloned()
    }

    /// Moves a namespace behind the others; returns the ticket of its first key.
    fn take_turn(&mut self, namespace: &Arc<str>, turn: Ticket) -> Option<Ticket> {
        let waiting = self.namespaces.get_mut(namespace)?;
        self.turns.remove(&waiting.turn);
        waiting.turn = turn;
        self.turns.insert(turn, Arc::clone(namespace));
        waiting.keys.first_key_value().map(|(ticket, _)| *ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(keys: &[(&str, &'static str, i32)]) -> Order<&'static str> {
        let mut order = Order::new();
        for (namespace, key, priority) in keys {
            order.push(namespace, Arc::new(*key), Priority(*priority));
        }
        order
    }

    fn drain(order: &mut Order<&'static str>, has_room: impl Fn(&str) -> bool) -> Vec<&'static str> {
        let next = || order.pop(&has_room).map(|(key, _)| *key);
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn the_highest_priority_is_first_and_keys_of_a_namespace_keep_their_order() {
        let mut order = order(&[
            ("a", "low 1", -100),
            ("a", "user 1", 0),
            ("a", "user 2", 0),
            ("a", "low 2", -100),
        ]);
        assert_eq!(drain(&mut order, |_| true), ["user 1", "user 2", "low 1", "low 2"]);
        assert_eq!(order.len(), 0);
        assert!(order.levels.is_empty());
    }

    #[test]
    fn namespaces_of_a_priority_take_turns() {
        let mut order = order(&[
            ("a", "a 1", 0),
            ("a", "a 2", 0),
            ("a", "a 3", 0),
            ("b", "b 1", 0),
            ("b", "b 2", 0),
            ("c", "c 1", 0),
        ]);
        assert_eq!(order.pop(|_| true).map(|(key, _)| *key), Some("a 1"));
        order.push("d", Arc::new("d 1"), Priority::USER);
        let rest = drain(&mut order, |_| true);
        assert_eq!(rest, ["b 1", "c 1", "a 2", "d 1", "b 2", "a 3"]);
    }

    #[test]
    fn a_namespace_without_room_is_skipped_and_keeps_its_turn() {
        let mut order = order(&[("a", "a 1", 0), ("b", "b 1", -100), ("a", "a 2", 0), ("c", "c 1", 0)]);
        assert_eq!(drain(&mut order, |namespace| namespace == "b"), ["b 1"]);
        assert!(!order.can_pop(|namespace| namespace == "b"));
        assert_eq!(drain(&mut order, |_| true), ["a 1", "c 1", "a 2"]);
    }

    #[test]
    fn a_raised_key_keeps_its_place_in_its_namespace() {
        let mut order = order(&[("a", "low 1", -100)]);
        let raised = order.push("a", Arc::new("raised"), Priority::LOW);
        order.push("a", Arc::new("user"), Priority::USER);
        order.raise("a", raised, Priority::LOW, Priority::USER);
        assert_eq!(drain(&mut order, |_| true), ["raised", "user", "low 1"]);
    }

    #[test]
    fn each_waiting_priority_gets_a_turn_in_ten() {
        let mut order = order(&[("a", "low 1", -100), ("a", "lowest", -200), ("a", "low 2", -100)]);
        for _ in 0..40 {
            order.push("a", Arc::new("user"), Priority::USER);
        }
        let turns = drain(&mut order, |_| true);
        let position = |key| turns.iter().position(|turn| *turn == key).unwrap();
        assert_eq!(position("lowest"), 9);
        assert_eq!(position("low 1"), 10);
        assert!(position("low 2") <= 20, "{turns:?}");
    }
}

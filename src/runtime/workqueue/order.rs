//! Order of ready keys: priority, then first in, with lanes and protection against starvation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Bound;
use std::sync::Arc;

use super::Priority;

/// Number of times in a row that a lower priority may be skipped. After a restart all repositories have low priority,
/// and a steady stream of user changes must not starve them.
const MAX_SKIPS: u32 = 9;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ticket(u64);

type Place = (Reverse<Priority>, Ticket);

pub(super) struct Order<L, K> {
    /// Contains only lanes with ready keys.
    lines: HashMap<L, Line<K>>,
    next_ticket: u64,
    /// Dequeues since a lower priority last had its turn, over all lanes.
    skipped: u32,
    len: usize,
}

struct Line<K> {
    by_priority: BTreeMap<Reverse<Priority>, BTreeMap<Ticket, Arc<K>>>,
    /// The same per lane: a lane that rarely has capacity must not lose each turn to another lane.
    skipped: u32,
}

impl<L: Copy + Eq + Hash, K> Order<L, K> {
    pub(super) fn new() -> Self {
        Self {
            lines: HashMap::new(),
            next_ticket: 0,
            skipped: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, lane: L, key: Arc<K>, priority: Priority) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.insert(lane, key, (Reverse(priority), ticket));
        ticket
    }

    /// Changes the priority of a key, which keeps its ticket.
    pub(super) fn raise(&mut self, lane: L, ticket: Ticket, from: Priority, to: Priority) {
        if let Some(key) = self.remove(lane, ticket, from) {
            self.insert(lane, key, (Reverse(to), ticket));
        }
    }

    pub(super) fn remove(&mut self, lane: L, ticket: Ticket, priority: Priority) -> Option<Arc<K>> {
        let line = self.lines.get_mut(&lane)?;
        let equals = line.by_priority.get_mut(&Reverse(priority))?;
        let key = equals.remove(&ticket)?;
        if equals.is_empty() {
            line.by_priority.remove(&Reverse(priority));
        }
        if line.by_priority.is_empty() {
            self.lines.remove(&lane);
        }
        self.len -= 1;
        Some(key)
    }

    pub(super) fn has_open(&self, is_open: impl Fn(&L) -> bool) -> bool {
        self.lines.keys().any(is_open)
    }

    pub(super) fn pop(&mut self, is_open: impl Fn(&L) -> bool) -> Option<(Arc<K>, Priority)> {
        let (best_lane, best) = self
            .lines
            .iter()
            .filter(|(lane, _)| is_open(lane))
            .filter_map(|(lane, line)| Some((*lane, line.first()?)))
            .min_by_key(|(_, place)| *place)?;
        let best_priority = best.0.0;

        // The lane skipped most often; then the one whose key has waited longest.
        let behind = self
            .lines
            .iter()
            .filter(|(lane, _)| is_open(lane))
            .filter_map(|(lane, line)| Some((line.skipped, *lane, line.oldest_below(best_priority)?)))
            .max_by_key(|(skipped, _, place)| (*skipped, Reverse(place.1)));
        let (lane, place) = match behind {
            Some((skipped, lane, place)) if skipped >= MAX_SKIPS || self.skipped >= MAX_SKIPS => {
                self.skipped = 0;
                if let Some(line) = self.lines.get_mut(&lane) {
                    line.skipped = 0;
                }
                (lane, place)
            }
            Some(_) => {
                self.skipped += 1;
                for (_, line) in self.lines.iter_mut().filter(|(lane, _)| is_open(lane)) {
                    if line.has_below(best_priority) {
                        line.skipped += 1;
                    }
                }
                (best_lane, best)
            }
            None => (best_lane, best),
        };
        let priority = place.0.0;
        Some((self.remove(lane, place.1, priority)?, priority))
    }

    fn insert(&mut self, lane: L, key: Arc<K>, (priority, ticket): Place) {
        let line = self.lines.entry(lane).or_insert_with(|| Line {
            by_priority: BTreeMap::new(),
            skipped: 0,
        });
        line.by_priority.entry(priority).or_default().insert(ticket, key);
        self.len += 1;
    }
}

impl<K> Line<K> {
    fn first(&self) -> Option<Place> {
        let (priority, equals) = self.by_priority.first_key_value()?;
        Some((*priority, *equals.first_key_value()?.0))
    }

    fn has_below(&self, priority: Priority) -> bool {
        self.by_priority
            .last_key_value()
            .is_some_and(|(lowest, _)| lowest.0 < priority)
    }

    /// Returns the longest waiting key of a lower priority, so that none waits forever.
    fn oldest_below(&self, priority: Priority) -> Option<Place> {
        self.by_priority
            .range((Bound::Excluded(Reverse(priority)), Bound::Unbounded))
            .filter_map(|(lower, equals)| Some((*lower, *equals.first_key_value()?.0)))
            .min_by_key(|(_, ticket)| *ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(keys: &[(char, &'static str, i32)]) -> Order<char, &'static str> {
        let mut order = Order::new();
        for (lane, key, priority) in keys {
            order.push(*lane, Arc::new(*key), Priority(*priority));
        }
        order
    }

    fn drain(order: &mut Order<char, &'static str>, is_open: impl Fn(&char) -> bool) -> Vec<&'static str> {
        std::iter::from_fn(|| order.pop(&is_open))
            .map(|(key, _)| *key)
            .collect()
    }

    #[test]
    fn the_highest_priority_is_first_and_equal_ones_keep_their_order() {
        let mut order = order(&[
            ('a', "low 1", -100),
            ('b', "user 1", 0),
            ('a', "user 2", 0),
            ('b', "low 2", -100),
        ]);
        assert_eq!(drain(&mut order, |_| true), ["user 1", "user 2", "low 1", "low 2"]);
        assert_eq!(order.len(), 0);
    }

    #[test]
    fn a_raised_key_keeps_its_order_of_arrival() {
        let mut order = order(&[('a', "low 1", -100)]);
        let raised = order.push('a', Arc::new("raised"), Priority::LOW);
        order.push('a', Arc::new("user"), Priority::USER);
        order.raise('a', raised, Priority::LOW, Priority::USER);
        assert_eq!(drain(&mut order, |_| true), ["raised", "user", "low 1"]);
    }

    #[test]
    fn a_closed_lane_is_skipped_and_keeps_its_order() {
        let mut order = order(&[('a', "a 1", 0), ('b', "b 1", -100), ('a', "a 2", 0)]);
        assert_eq!(drain(&mut order, |lane| *lane == 'b'), ["b 1"]);
        assert!(!order.has_open(|lane| *lane == 'b'));
        assert_eq!(drain(&mut order, |_| true), ["a 1", "a 2"]);
    }

    #[test]
    fn every_tenth_turn_goes_to_the_longest_waiting_lower_priority() {
        let mut order = order(&[('a', "low 1", -100), ('a', "lowest", -200), ('a', "low 2", -100)]);
        for _ in 0..30 {
            order.push('a', Arc::new("user"), Priority::USER);
        }
        let turns = drain(&mut order, |_| true);
        assert_eq!([turns[9], turns[19], turns[29]], ["low 1", "lowest", "low 2"]);
        assert_eq!(turns.iter().filter(|key| **key == "user").count(), 30);
    }

    #[test]
    fn a_lane_of_low_priority_is_not_starved_by_a_lane_of_high_priority() {
        let mut order = order(&[('b', "low", -100)]);
        for _ in 0..30 {
            order.push('a', Arc::new("user"), Priority::USER);
        }
        assert_eq!(
            drain(&mut order, |_| true).iter().position(|key| *key == "low"),
            Some(9)
        );
    }

    #[test]
    fn a_rarely_open_lane_gets_its_own_turns_for_low_priority() {
        let mut order = Order::new();
        for key in 0..200 {
            order.push('a', Arc::new(("a user", key)), Priority::USER);
            order.push('b', Arc::new(("b user", key)), Priority::USER);
            order.push('b', Arc::new(("b low", key)), Priority::LOW);
        }
        order.push('a', Arc::new(("a low", 0)), Priority::LOW);
        // Lane `a` has capacity once in ten dequeues, never on the one reserved for lane `b`.
        let mut turns_of_a = Vec::new();
        for turn in 0..120 {
            let opened = if turn % 10 == 0 { 'a' } else { 'b' };
            let (key, _) = order.pop(|lane| *lane == opened).unwrap();
            if opened == 'a' {
                turns_of_a.push(key.0);
            }
        }
        assert!(turns_of_a[..10].contains(&"a low"), "{turns_of_a:?}");
    }
}

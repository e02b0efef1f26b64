//! Objects that another controller changes again each time they are restored.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// An object that is restored so often within [`WINDOW`] is fought over.
const MAX_RESTORES: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
const FIRST_DELAY: Duration = Duration::from_secs(30);
/// Objects that are remembered. When there are more, the half that was restored longest ago is forgotten.
const MAX_OBJECTS: usize = 10_000;

/// Restores of objects by state-keep. `K` identifies an object, and what of it is restored.
#[derive(Debug)]
pub struct Fights<K> {
    /// Longest time between two restores.
    max_delay: Duration,
    objects: HashMap<K, FoughtObject>,
}

#[derive(Debug, Default)]
struct FoughtObject {
    restores: VecDeque<Timestamp>,
    /// Set while the object is fought over.
    delay: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restore {
    Now,
    /// Not before this time. `is_new` is true once for a fight: the user should know.
    At {
        time: Timestamp,
        is_new: bool,
    },
}

impl<K: Clone + Eq + Hash> Fights<K> {
    #[must_use]
    pub fn new(max_delay: Duration) -> Self {
        Self {
            max_delay,
            objects: HashMap::new(),
        }
    }

    /// Decides about restoring an object at `now`, and counts it if it may be restored.
    pub fn restore(&mut self, object: &K, now: Timestamp) -> Restore {
        if self.objects.len() >= MAX_OBJECTS && !self.objects.contains_key(object) {
            self.forget_oldest();
        }
        let max_delay = self.max_delay;
        let object = self.objects.entry(object.clone()).or_default();
        let last = object.restores.back().copied();
        let quiet = last.map_or(Duration::ZERO, |last| elapsed(last, now));
        if object.delay.is_some_and(|delay| quiet > delay + WINDOW) {
            // The last restore was not undone.
            *object = FoughtObject::default();
        }
        match (object.delay, last) {
            (Some(delay), Some(last)) if quiet < delay => Restore::At {
                time: last.checked_add(delay).unwrap_or(Timestamp::MAX),
                is_new: false,
            },
            (Some(delay), _) => {
                object.delay = Some((delay * 2).min(max_delay));
                object.count(now);
                Restore::Now
            }
            (None, last) => {
                object.restores.retain(|time| elapsed(*time, now) < WINDOW);
                match last.filter(|_| object.restores.len() >= MAX_RESTORES) {
                    Some(last) => {
                        let delay = FIRST_DELAY.min(max_delay);
                        object.delay = Some(delay);
                        let time = last.checked_add(delay).unwrap_or(Timestamp::MAX);
                        Restore::At { time, is_new: true }
                    }
                    None => {
                        object.count(now);
                        Restore::Now
                    }
                }
            }
        }
    }

    /// Takes back a restore that failed: nothing has undone it.
    pub fn take_back(&mut self, object: &K) {
        if let Some(object) = self.objects.get_mut(object) {
            object.restores.pop_back();
            // The restore has doubled it.
            object.delay = object
                .delay
                .map(|delay| (delay / 2).max(FIRST_DELAY.min(self.max_delay)));
        }
    }

    fn forget_oldest(&mut self) {
        let mut times: Vec<_> = self
            .objects
            .values()
            .map(|object| object.restores.back().copied())
            .collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        self.objects
            .retain(|_, object| object.restores.back().copied() > median);
    }
}

impl FoughtObject {
    fn count(&mut self, now: Timestamp) {
        self.restores.push_back(now);
        if self.restores.len() > MAX_RESTORES {
            self.restores.pop_front();
        }
    }
}

/// Zero if the clock was set back.
fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

/// Returns the manager that changed an object last, besides ourselves, by its managed fields.
#[must_use]
pub fn last_other_manager<'a>(live: &'a Value, our_manager: &str) -> Option<&'a str> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let others = entries.iter().filter_map(|entry| {
        let manager = entry.get("manager")?.as_str()?;
        let time = entry.get("time").and_then(Value::as_str).unwrap_or_default();
        let is_status = entry.get("subresource").is_some();
        (manager != our_manager && !is_status).then_some((time, manager))
    });
    others.max_by_key(|(time, _)| *time).map(|(_, manager)| manager)
}

//! In-memory state per object.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

/// States of objects by name. Missing entries have the default state, and default entries are dropped.
#[derive(Debug)]
pub struct ObjectStates<K, S>(Mutex<HashMap<K, S>>);

impl<K, S> Default for ObjectStates<K, S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, S: Default + PartialEq> ObjectStates<K, S> {
    /// Reads a state while holding the lock.
    pub fn read<T>(&self, name: &K, read: impl FnOnce(&S) -> T) -> T {
        match self.0.lock().get(name) {
            Some(state) => read(state),
            None => read(&S::default()),
        }
    }

    /// Changes a state while holding the lock.
    pub fn update<T>(&self, name: &K, change: impl FnOnce(&mut S) -> T) -> T {
        let mut states = self.0.lock();
        let state = states.entry(name.clone()).or_default();
        let result = change(state);
        if *state == S::default() {
            states.remove(name);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_becomes_the_default_is_dropped() {
        let states = ObjectStates::<&str, u8>::default();
        states.update(&"a", |state| *state = 7);
        states.update(&"b", |state| *state += 1);
        assert_eq!(states.read(&"a", |state| *state), 7);
        assert_eq!(states.update(&"a", std::mem::take), 7);
        assert_eq!(states.read(&"a", |state| *state), 0);
        assert_eq!(states.0.lock().len(), 1);
    }
}

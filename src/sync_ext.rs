//! State that a controller keeps in memory for each object.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

/// The states of objects, by name. An object without an entry has the default state; an entry that becomes the default is
/// dropped, so that nothing remains of an object whose state was reset.
#[derive(Debug)]
pub struct ObjectStates<K, S>(Mutex<HashMap<K, S>>);

impl<K, S> Default for ObjectStates<K, S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, S: Default + PartialEq> ObjectStates<K, S> {
    /// Reads the state of an object. The lock is held meanwhile.
    pub fn read<T>(&self, name: &K, read: impl FnOnce(&S) -> T) -> T {
        match self.0.lock().get(name) {
            Some(state) => read(state),
            None => read(&S::default()),
        }
    }

    /// Changes the state of an object, and returns what `change` returns. The lock is held meanwhile.
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

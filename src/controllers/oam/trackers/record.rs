use std::collections::{HashMap, HashSet};

use super::entry::EntryKey;
use crate::api::oam::ManagedResource;

/// Adds objects, or returns `None` if nothing changes. Other entries stay: they record what exists.
#[must_use]
pub fn record(recorded: &[ManagedResource], objects: &[ManagedResource]) -> Option<Vec<ManagedResource>> {
    let mut positions: HashMap<_, _> = recorded.iter().map(EntryKey::of).zip(0..).collect();
    let mut entries = recorded.to_vec();
    let mut is_changed = false;
    for object in objects {
        let next = entries.len();
        let position = *positions.entry(EntryKey::of(object)).or_insert(next);
        match entries.get_mut(position) {
            None => entries.push(object.clone()),
            Some(entry) if entry == object => continue,
            Some(entry) => *entry = object.clone(),
        }
        is_changed = true;
    }
    is_changed.then_some(entries)
}

/// Removes creators, which earlier versions wrote; `None` if there are none. KubeVela takes an entry with a creator for
/// another object and records it twice. The last of the pair stays, by which KubeVela keeps the object.
#[must_use]
pub fn without_creators(recorded: &[ManagedResource]) -> Option<Vec<ManagedResource>> {
    if recorded.iter().all(|entry| entry.creator.is_empty()) {
        return None;
    }
    let last: HashMap<_, _> = recorded.iter().map(EntryKey::of).zip(recorded).collect();
    let mut seen = HashSet::new();
    let first = recorded.iter().map(EntryKey::of).filter(|key| seen.insert(*key));
    let entries = first.filter_map(|key| last.get(&key)).map(|entry| ManagedResource {
        creator: String::new(),
        ..(*entry).clone()
    });
    Some(entries.collect())
}

/// Returns the entries without objects that are gone, or `None` if nothing changes.
#[must_use]
pub fn remove(recorded: &[ManagedResource], gone: &[ManagedResource]) -> Option<Vec<ManagedResource>> {
    let gone: HashSet<_> = gone.iter().map(EntryKey::of).collect();
    let (removed, kept): (Vec<_>, Vec<_>) = recorded.iter().partition(|entry| gone.contains(&EntryKey::of(entry)));
    (!removed.is_empty()).then(|| kept.into_iter().cloned().collect())
}

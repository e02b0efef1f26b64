//! Changes of the entries of a tracker.

use std::collections::{HashMap, HashSet};

use super::entry::EntryKey;
use crate::api::oam::ManagedResource;

/// Comparison of the entries of a tracker with a new list of objects.
#[derive(Debug, Default, PartialEq)]
pub struct Diff<'a> {
    pub added: Vec<&'a ManagedResource>,
    /// New entries whose recorded ones differ.
    pub changed: Vec<&'a ManagedResource>,
    pub unchanged: Vec<&'a ManagedResource>,
    /// Recorded entries that the new list lacks.
    pub removed: Vec<&'a ManagedResource>,
}

/// Compares the entries of a tracker with a new list of objects.
#[must_use]
pub fn diff<'a>(recorded: &'a [ManagedResource], wanted: &'a [ManagedResource]) -> Diff<'a> {
    let known: HashMap<_, _> = recorded.iter().map(|entry| (EntryKey::of(entry), entry)).collect();
    let mut diff = Diff::default();
    for entry in wanted {
        match known.get(&EntryKey::of(entry)) {
            None => diff.added.push(entry),
            Some(known) if *known == entry => diff.unchanged.push(entry),
            Some(_) => diff.changed.push(entry),
        }
    }
    let wanted: HashSet<_> = wanted.iter().map(EntryKey::of).collect();
    diff.removed = (recorded.iter())
        .filter(|entry| !wanted.contains(&EntryKey::of(entry)))
        .collect();
    diff
}

/// Returns the entries of a tracker after objects were added to it, or `None` if nothing changes. Other entries stay: they
/// are the record of what exists.
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
            Some(known) if known == object => continue,
            Some(known) => *known = object.clone(),
        }
        is_changed = true;
    }
    is_changed.then_some(entries)
}

/// Returns the entries after objects are marked as deleted by the workflow, or `None` if nothing changes. State-keep
/// deletes such objects again.
#[must_use]
pub fn mark_deleted(recorded: &[ManagedResource], objects: &[ManagedResource]) -> Option<Vec<ManagedResource>> {
    let marked: Vec<_> = objects
        .iter()
        .map(|object| ManagedResource {
            raw: None,
            deleted: true,
            skip_gc: false,
            ..object.clone()
        })
        .collect();
    record(recorded, &marked)
}

/// Returns the entries without those of objects that are gone, or `None` if nothing changes.
#[must_use]
pub fn remove(recorded: &[ManagedResource], gone: &[ManagedResource]) -> Option<Vec<ManagedResource>> {
    let gone: HashSet<_> = gone.iter().map(EntryKey::of).collect();
    let (removed, kept): (Vec<_>, Vec<_>) = recorded.iter().partition(|entry| gone.contains(&EntryKey::of(entry)));
    (!removed.is_empty()).then(|| kept.into_iter().cloned().collect())
}

//! Guard of garbage collection: older trackers are only deleted when the current tracker is complete.

use std::collections::HashSet;

use super::entry::ResourceKey;
use super::inventory::{Inventory, Tracker};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "no resourcetracker of the current version exists while older ones do; \
         confirm with `portolan vela gc --confirm`, or set keepLegacyResource"
    )]
    NoCurrentTracker,
    #[error(
        "the current resourcetracker {tracker} is empty while older ones are not; \
         confirm with `portolan vela gc --confirm`, or set keepLegacyResource"
    )]
    EmptyTracker { tracker: String },
    #[error("the current resourcetracker lacks {missing} of the applied objects, the first is {kind} {name}")]
    Incomplete { kind: String, name: String, missing: usize },
}

/// Fails if the current tracker is missing, empty or incomplete: deleting older trackers could delete objects in use.
pub fn check_mark(inventory: &Inventory, applied: &HashSet<ResourceKey>, is_confirmed: bool) -> Result<(), Refusal> {
    if inventory.history.is_empty() {
        return Ok(());
    }
    let recorded = |tracker: Option<&Tracker>| -> HashSet<ResourceKey> {
        let entries = tracker.into_iter().flat_map(|tracker| &tracker.entries);
        entries.map(ResourceKey::of).collect()
    };
    // A tracker that is being deleted is as good as none: it takes its objects with it.
    let current_tracker = inventory.current.as_ref().filter(|tracker| !tracker.is_deleting());
    let (current, root) = (recorded(current_tracker), recorded(inventory.root.as_ref()));
    let mut missing: Vec<_> = applied
        .iter()
        .filter(|key| !current.contains(key) && !root.contains(key))
        .collect();
    missing.sort();
    if let Some(first) = missing.first() {
        return Err(Refusal::Incomplete {
            kind: first.kind.clone(),
            name: first.name.clone(),
            missing: missing.len(),
        });
    }
    let history_is_filled = inventory.history.iter().any(|tracker| !tracker.entries.is_empty());
    // Objects that live as long as the application stand in the root tracker; there may be no others.
    let is_in_root = !applied.is_empty() && applied.iter().all(|key| root.contains(key));
    match current_tracker {
        _ if is_confirmed || is_in_root || !history_is_filled => Ok(()),
        None => Err(Refusal::NoCurrentTracker),
        Some(tracker) if current.is_empty() => Err(Refusal::EmptyTracker {
            tracker: tracker.name().to_owned(),
        }),
        Some(_) => Ok(()),
    }
}

use std::collections::HashMap;

use super::entry::ResourceKey;
use super::inventory::{Inventory, Tracker};
use crate::api::oam::ManagedResource;

#[derive(Debug)]
pub struct Owners<'a>(HashMap<ResourceKey, &'a Tracker>);

impl<'a> Owners<'a> {
    /// Finds the owners: the newest tracker that records an object and is not being deleted, or else the newest of all.
    #[must_use]
    pub fn of(inventory: &'a Inventory) -> Self {
        let mut owners: HashMap<ResourceKey, &Tracker> = HashMap::new();
        for tracker in inventory.in_order() {
            for entry in &tracker.entries {
                let owner = owners.entry(ResourceKey::of(entry)).or_insert(tracker);
                if !tracker.is_deleting() || owner.is_deleting() {
                    *owner = tracker;
                }
            }
        }
        Self(owners)
    }

    #[must_use]
    pub fn owner(&self, key: &ResourceKey) -> Option<&'a Tracker> {
        self.0.get(key).copied()
    }

    /// Iterates over the entries that a tracker owns. When it is deleted, so are their objects.
    pub fn owned_by<'t>(&self, tracker: &'t Tracker) -> impl Iterator<Item = &'t ManagedResource> {
        let owns = |entry: &&ManagedResource| {
            let owner = self.owner(&ResourceKey::of(entry));
            owner.is_some_and(|owner| owner.name() == tracker.name())
        };
        tracker.entries.iter().filter(owns)
    }
}

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use super::{CachedApplication, CachedTracker, is_changed};
use crate::api::NamespacedName;
use crate::api::oam::{DefinitionKind, labels};
use crate::controllers::oam::NAME;
use crate::runtime::controller::Key;
use crate::runtime::watch::{Cached, Change, Store, Stored};
use crate::runtime::workqueue::{Priority, Queue};

/// Objects of an Application change many times within moments.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Enqueues Applications. Never blocks.
#[derive(Clone)]
pub struct CacheEventHandler {
    pub queue: Queue<Key>,
    pub applications: Store<Cached<CachedApplication>>,
}

impl CacheEventHandler {
    pub fn on_application(&self, change: &Change<Cached<CachedApplication>>) {
        match change {
            Change::Applied { old, new, is_listed } => {
                let before = old.as_ref().and_then(Cached::object);
                let needs_pass = match (before, new.object()) {
                    (Some(old), Some(new)) => new.needs_pass(old),
                    _ => true,
                };
                if needs_pass {
                    let priority = if *is_listed { Priority::LOW } else { Priority::USER };
                    self.queue.add(key(&new.key()), priority);
                }
            }
            // The pass forgets the Application.
            Change::Deleted(old) | Change::MissingFromList(old) => self.queue.add(key(&old.key()), Priority::LOW),
            Change::Synced { .. } => {}
        }
    }

    pub fn on_tracker(&self, change: &Change<Cached<CachedTracker>>) {
        let tracker = match change {
            Change::Applied { old, new, .. } => {
                let old = old.as_ref().and_then(Cached::object).map(Arc::as_ref);
                let new = new.object().map(Arc::as_ref);
                new.filter(|new| is_changed(old, *new)).map(kube::Resource::meta)
            }
            Change::Deleted(old) | Change::MissingFromList(old) => Some(old.meta()),
            Change::Synced { .. } => None,
        };
        if let Some(name) = tracker.and_then(super::application_of_tracker) {
            self.on_objects(&name);
        }
    }

    pub fn on_objects(&self, name: &NamespacedName) {
        self.queue.add_after(key(name), DEBOUNCE, Priority::USER);
    }

    /// A definition has changed: Applications with autoUpdate that use it get a new revision.
    pub fn on_definition(&self, kind: DefinitionKind, namespace: &str, name: &str, definition_namespace: &str) {
        for application in self.applications.names() {
            let is_in_reach = namespace == definition_namespace || namespace == application.namespace;
            let cached = self.applications.get(&application).filter(|_| is_in_reach);
            let cached = cached.as_ref().and_then(Cached::object);
            // A missing definition is why an Application is not parsed.
            let is_affected = |app: &CachedApplication| {
                (app.annotations().contains_key(labels::AUTO_UPDATE) || !app.is_parsed()) && app.may_use(kind, name)
            };
            if cached.is_some_and(|app| is_affected(app)) {
                self.queue.add_after(key(&application), DEBOUNCE, Priority::LOW);
            }
        }
    }
}

#[must_use]
pub fn key(name: &NamespacedName) -> Key {
    Key {
        class: NAME,
        name: name.clone(),
    }
}

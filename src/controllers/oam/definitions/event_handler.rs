use std::sync::Arc;

use super::cached::CachedDefinition;
use super::caches::{CacheChange, DefinitionCaches};
use super::class;
use super::kinds::{CachedKind, ChangedKind};
use crate::api::NamespacedName;
use crate::api::oam::{DefinitionKind, DefinitionRevision};
use crate::runtime::controller::Key;
use crate::runtime::watch::{Cached, Change, Stored};
use crate::runtime::workqueue::{Priority, Queue};

/// Never blocks.
#[derive(Clone)]
pub(super) struct DefinitionEventHandler {
    /// `None` if this process has no reconcilers of definitions.
    pub(super) queue: Option<Queue<Key>>,
    /// The namespace whose definitions are reconciled; all namespaces if `None`.
    pub(super) namespace: Option<Arc<str>>,
}

impl DefinitionEventHandler {
    pub(super) fn definition_listener<D: CachedKind>(
        &self,
        kind: DefinitionKind,
    ) -> impl Fn(&CacheChange<D>) + Clone + Send + Sync + 'static {
        let handler = self.clone();
        move |change| {
            let Change::Applied { old, new, is_listed } = change else {
                // The garbage collector deletes the revisions.
                return;
            };
            if old.as_ref().is_none_or(|old| has_changed(old, new)) {
                // The first list must not delay a definition that a user has just changed.
                let priority = if *is_listed { Priority::LOW } else { Priority::USER };
                handler.enqueue(kind, new.key(), priority);
            }
        }
    }

    /// Enqueues the definition of a revision that another client changed or deleted.
    pub(super) fn on_revision(&self, change: &CacheChange<DefinitionRevision>) {
        let old = match change {
            Change::Applied {
                old: Some(old), new, ..
            } if has_changed(old, new) => old,
            Change::Deleted(old) | Change::MissingFromList(old) => old,
            Change::Applied { .. } | Change::Synced { .. } => return,
        };
        let definition = old.object().and_then(|revision| revision.used_as());
        if let Some((ChangedKind::Definition(kind), name)) = definition {
            self.enqueue(*kind, NamespacedName::new(old.namespace(), name), Priority::LOW);
        }
    }

    fn enqueue(&self, kind: DefinitionKind, name: NamespacedName, priority: Priority) {
        let is_watched = self
            .namespace
            .as_ref()
            .is_none_or(|namespace| **namespace == *name.namespace);
        if let Some(queue) = self.queue.as_ref().filter(|_| is_watched) {
            queue.add(
                Key {
                    class: class(kind),
                    name,
                },
                priority,
            );
        }
    }
}

/// Compares all but the version. The cache already holds our own writes.
fn has_changed<D: CachedKind>(old: &Cached<CachedDefinition<D>>, new: &Cached<CachedDefinition<D>>) -> bool {
    match (old.object(), new.object()) {
        (Some(old), Some(new)) => !old.is_same(new),
        _ => true,
    }
}

pub fn enqueue_all(caches: &DefinitionCaches, queue: &Queue<Key>) {
    let handler = DefinitionEventHandler {
        queue: Some(queue.clone()),
        namespace: caches.namespace.clone(),
    };
    let names = [
        (DefinitionKind::Component, caches.components.names()),
        (DefinitionKind::Trait, caches.traits.names()),
        (DefinitionKind::Policy, caches.policies.names()),
        (DefinitionKind::WorkflowStep, caches.steps.names()),
    ];
    for (kind, names) in names {
        for name in names {
            handler.enqueue(kind, name, Priority::LOW);
        }
    }
}

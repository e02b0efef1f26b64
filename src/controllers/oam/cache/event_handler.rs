//! Maps events to keys of the work queue.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use super::is_changed;
use crate::api::NamespacedName;
use crate::api::oam::{AppPolicy, Application, ApplicationSpec, DefinitionKind, ResourceTracker, labels};
use crate::controllers::oam::NAME;
use crate::controllers::oam::parse::TypeName;
use crate::controllers::oam::reconciler::PARSED;
use crate::runtime::controller::Key;
use crate::runtime::watch::{Cached, Change, Store, Stored};
use crate::runtime::workqueue::{Priority, Queue};

/// Objects of an Application change many times within moments.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Enqueues Applications. Never blocks.
#[derive(Clone)]
pub struct EventHandler {
    pub queue: Queue<Key>,
    pub applications: Store<Cached<Application>>,
}

impl EventHandler {
    pub fn on_application(&self, change: &Change<Cached<Application>>) {
        match change {
            Change::Applied { old, new, is_listed } => {
                let before = old.as_ref().and_then(Cached::object);
                let needs_pass = match (before, new.object()) {
                    (Some(old), Some(new)) => needs_pass(old, new),
                    _ => true,
                };
                if needs_pass {
                    let priority = if *is_listed { Priority::LOW } else { Priority::USER };
                    self.queue.add(key(&new.key()), priority);
                }
            }
            // What is remembered of it is dropped.
            Change::Deleted(old) | Change::MissingFromList(old) => self.queue.add(key(&old.key()), Priority::LOW),
            Change::Synced { .. } => {}
        }
    }

    pub fn on_tracker(&self, change: &Change<Cached<ResourceTracker>>) {
        let tracker = match change {
            Change::Applied { old, new, .. } => {
                let old = old.as_ref().and_then(Cached::object).map(Arc::as_ref);
                let new = new.object().map(Arc::as_ref);
                new.filter(|new| is_changed(old, *new)).map(|new| &new.metadata)
            }
            Change::Deleted(old) | Change::MissingFromList(old) => Some(old.meta()),
            Change::Synced { .. } => None,
        };
        if let Some(name) = tracker.and_then(super::application_of_tracker) {
            self.on_objects(&name);
        }
    }

    /// Objects that an Application manages may have changed.
    pub fn on_objects(&self, name: &NamespacedName) {
        self.queue.add_after(key(name), DEBOUNCE, Priority::USER);
    }

    /// A definition has changed: Applications with autoUpdate that use it get a new revision.
    pub fn on_definition(&self, kind: DefinitionKind, namespace: &str, name: &str, definition_namespace: &str) {
        for application in self.applications.names() {
            let is_in_reach = namespace == definition_namespace || namespace == application.namespace;
            let cached = self.applications.get(&application).filter(|_| is_in_reach);
            let cached = cached.as_ref().and_then(Cached::object);
            // A missing definition is why an Application has failed.
            let waits = |app: &Application| {
                app.status.as_ref().is_none_or(|status| {
                    let mut conditions = status.conditions.iter();
                    status.latest_revision.is_none()
                        || conditions.any(|condition| condition.type_ == PARSED && condition.status == "False")
                })
            };
            let is_affected = |app: &Application| {
                (app.annotations().contains_key(labels::AUTO_UPDATE) || waits(app)) && uses(&app.spec, kind, name)
            };
            if cached.is_some_and(|app| is_affected(app)) {
                self.queue.add_after(key(&application), DEBOUNCE, Priority::LOW);
            }
        }
    }
}

/// Returns true if another client has changed an input of a pass. The store holds our own writes.
fn needs_pass(old: &Application, new: &Application) -> bool {
    let (was, is) = (&old.metadata, &new.metadata);
    let workflow = |app: &Application| app.status.as_ref().and_then(|status| status.workflow.clone());
    was.uid != is.uid
        || was.generation != is.generation
        || was.labels != is.labels
        || was.annotations != is.annotations
        || was.deletion_timestamp.is_some() != is.deletion_timestamp.is_some()
        || was.finalizers != is.finalizers
        || workflow(old) != workflow(new)
}

/// Returns true if a spec uses a definition, in any version.
fn uses(spec: &ApplicationSpec, kind: DefinitionKind, name: &str) -> bool {
    names_type(spec, kind, |type_| {
        TypeName::parse(type_).is_ok_and(|parsed| parsed.name == name)
    })
}

/// Returns true if a spec names a revision of a definition, as `webservice@v2` names webservice-v2.
#[must_use]
pub fn uses_revision(spec: &ApplicationSpec, kind: DefinitionKind, revision: &str) -> bool {
    names_type(spec, kind, |type_| {
        let parsed = TypeName::parse(type_);
        parsed.is_ok_and(|parsed| parsed.revision_name().is_some_and(|name| name == revision))
    })
}

fn names_type(spec: &ApplicationSpec, kind: DefinitionKind, is_named: impl Fn(&str) -> bool) -> bool {
    match kind {
        DefinitionKind::Component => spec.components.iter().any(|component| is_named(&component.type_)),
        DefinitionKind::Trait => {
            let mut traits = spec.components.iter().flat_map(|component| &component.traits);
            traits.any(|one| is_named(&one.type_))
        }
        DefinitionKind::Policy => spec.policies.iter().any(|policy: &AppPolicy| is_named(&policy.type_)),
        DefinitionKind::WorkflowStep => {
            let steps = spec.workflow.iter().flat_map(|workflow| &workflow.steps);
            let mut steps = steps.flat_map(|step| std::iter::once(step).chain(&step.sub_steps));
            steps.any(|step| is_named(&step.type_))
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

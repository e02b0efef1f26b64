//! Which changes call for a reconcile of an Application: those of itself, and those of its components.

use std::sync::Arc;
use std::time::Duration;

use super::adopt::application_kind;
use super::declared::Declared;
use super::index::Index;
use super::judge::Judgement;
use super::known::Known;
use super::memory::Memory;
use crate::controller::{Key, Kind};
use crate::informer::{Change, ObjectName, Seen};
use crate::objects::{GroupKind, Told, Watches};
use crate::queue::{Priority, Queue};

/// How long changes of components are gathered: a Deployment that becomes ready changes many times within moments.
const GATHERED: Duration = Duration::from_millis(50);

/// Turns changes of components into keys in the queue.
#[derive(Clone)]
pub struct ComponentTrigger {
    /// The Applications by what they select.
    pub index: Index,
    /// Where keys go.
    pub queue: Queue<Key>,
}

impl ComponentTrigger {
    /// Takes note of what has happened to a kind. Never waits.
    pub fn on_told(&self, kind: &GroupKind, told: &Told<Judgement>) {
        let names = match told {
            Told::Object { old, new } => self.index.concerned(kind, old.as_deref(), new.as_deref()),
            Told::Kind => self.index.users(kind),
        };
        for name in names {
            self.queue.add_after(key(&name), GATHERED, Priority::USER);
        }
    }
}

/// Turns changes of Applications into keys in the queue, and says what has to be watched for them.
pub struct Trigger {
    /// The Applications by what they select.
    pub index: Index,
    /// Where keys go.
    pub queue: Queue<Key>,
    /// The watches of components.
    pub watches: Watches<ObjectName, Judgement>,
    /// What was written last.
    pub memory: Memory,
}

impl Trigger {
    /// Takes note of a change. Never waits.
    pub fn on_change(&self, change: Change<Known>) {
        match change {
            Change::Applied {
                name,
                old,
                new,
                initial,
            } => match new {
                Seen::Object(new) if new.metadata.deletion_timestamp.is_none() => {
                    self.declared(&name, &new.declared);
                    let old = old.as_ref().and_then(Seen::object);
                    if old.is_none_or(|old| !self.is_own_write(&name, old, &new)) {
                        // The list at start is no user's event: it must not delay the one that a user has just changed.
                        let priority = if initial { Priority::LOW } else { Priority::USER };
                        self.queue.add(key(&name), priority);
                    }
                }
                // What is being deleted is left to the collector of garbage; what can't be read is left as it is.
                Seen::Object(_) | Seen::Undecodable { .. } => self.gone(&name),
            },
            Change::Removed { name, .. } => self.gone(&name),
            Change::Listed => {}
        }
    }

    fn declared(&self, name: &ObjectName, declared: &Arc<Declared>) {
        let kinds = declared.watched().cloned().collect();
        let before = self.index.get(name);
        let is_changed = before.as_ref() != Some(declared);
        // Before the watches: they may tell at once.
        self.index.insert(Arc::clone(declared));
        if is_changed {
            self.ask_others(name);
        }
        self.watches.need(name.clone(), &name.namespace, kinds);
    }

    /// Whether an Application may adopt another depends on what that declares, which no watch of components tells.
    fn ask_others(&self, name: &ObjectName) {
        let users = self.index.users(&application_kind());
        for other in users
            .iter()
            .filter(|other| other.namespace == name.namespace && *other != name)
        {
            self.queue.add_after(key(other), GATHERED, Priority::USER);
        }
    }

    fn gone(&self, name: &ObjectName) {
        self.index.remove(name);
        self.watches.release(name);
        // What is remembered goes after what is under way.
        self.queue.add(key(name), Priority::LOW);
    }

    /// Whether nothing has changed but what we have written ourselves.
    fn is_own_write(&self, name: &ObjectName, old: &Known, new: &Known) -> bool {
        old.declared.is_declared_as(&new.declared) && self.memory.holds(name, new)
    }
}

/// The key of an Application in the queue.
#[must_use]
pub fn key(name: &ObjectName) -> Key {
    Key {
        kind: Kind::Application,
        name: name.clone(),
    }
}

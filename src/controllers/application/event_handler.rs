//! Which changes call for a reconcile of an Application: those of itself, and those of its components.

use std::sync::Arc;
use std::time::Duration;

use super::cached::CachedApplication;
use super::index::Index;
use super::owner_plan::application_kind;
use super::readiness::Readiness;
use super::spec::AppSpec;
use crate::api::NamespacedName;
use crate::runtime::controller::Key;
use crate::runtime::informer::{Change, Seen};
use crate::runtime::watch::{GroupKind, KindEvent, WatchManager};
use crate::runtime::workqueue::{Priority, Queue};

/// How long changes of components are gathered: a Deployment that becomes ready changes many times within moments.
const GATHERED: Duration = Duration::from_millis(50);

/// Turns changes of components into keys in the queue.
#[derive(Clone)]
pub struct ComponentEventHandler {
    /// The Applications by what they select.
    pub index: Index,
    /// Where keys go.
    pub queue: Queue<Key>,
}

impl ComponentEventHandler {
    /// Takes note of what has happened to a kind. Never waits.
    pub fn on_told(&self, kind: &GroupKind, told: &KindEvent<Readiness>) {
        let names = match told {
            KindEvent::Object { old, new } => self.index.concerned(kind, old.as_deref(), new.as_deref()),
            KindEvent::Kind => self.index.users(kind),
        };
        for name in names {
            self.queue.add_after(key(&name), GATHERED, Priority::USER);
        }
    }
}

/// Turns changes of Applications into keys in the queue, and says what has to be watched for them.
pub struct EventHandler {
    /// The Applications by what they select.
    pub index: Index,
    /// Where keys go.
    pub queue: Queue<Key>,
    /// The watches of components.
    pub watches: WatchManager<NamespacedName, Readiness>,
}

impl EventHandler {
    /// Takes note of a change. Never waits.
    pub fn on_change(&self, change: Change<CachedApplication>) {
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
                    if old.is_none_or(|old| is_news(old, &new)) {
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

    fn declared(&self, name: &NamespacedName, declared: &Arc<AppSpec>) {
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
    fn ask_others(&self, name: &NamespacedName) {
        let users = self.index.users(&application_kind());
        for other in users
            .iter()
            .filter(|other| other.namespace == name.namespace && *other != name)
        {
            self.queue.add_after(key(other), GATHERED, Priority::USER);
        }
    }

    fn gone(&self, name: &NamespacedName) {
        self.index.remove(name);
        self.watches.release(name);
        // What is remembered goes after what is under way.
        self.queue.add(key(name), Priority::LOW);
    }
}

/// Returns true if an Application needs a reconcile. The store shows our own writes before their events come.
fn is_news(old: &CachedApplication, new: &CachedApplication) -> bool {
    !old.declared.is_declared_as(&new.declared) || old.said != new.said
}

/// The key of an Application in the queue.
#[must_use]
pub fn key(name: &NamespacedName) -> Key {
    Key {
        class: super::NAME,
        name: name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::Application;

    fn application(version: &str, generation: i64, ready: &str, annotations: &Value) -> CachedApplication {
        let application: Application = serde_json::from_value(json!({
            "metadata": {
                "name": "shop", "namespace": "team", "uid": "u", "resourceVersion": version,
                "generation": generation, "annotations": annotations,
            },
            "status": { "componentsReady": ready },
        }))
        .unwrap();
        application.into()
    }

    #[rstest]
    #[case::our_own_status("3", 1, "1/1", json!({}), false)]
    #[case::our_own_record("4", 1, "1/1", json!({ "portolan.dev/owned-kinds": "Pod" }), false)]
    #[case::a_status_of_others("4", 1, "5/5", json!({}), true)]
    #[case::a_new_spec("4", 2, "1/1", json!({}), true)]
    fn only_what_we_have_not_written_ourselves_calls_for_a_reconcile(
        #[case] version: &str,
        #[case] generation: i64,
        #[case] ready: &str,
        #[case] annotations: Value,
        #[case] expected: bool,
    ) {
        // The store holds what we wrote last.
        let stored = application("3", 1, "1/1", &json!({}));
        let shown = application(version, generation, ready, &annotations);
        assert_eq!(is_news(&stored, &shown), expected);
    }
}

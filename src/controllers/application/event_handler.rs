use std::sync::Arc;
use std::time::Duration;

use super::cached::CachedApplication;
use super::index::{Index, ObservedDeletion};
use super::kinds::application_kind;
use super::owners::finalizer::{has_finalizer, must_release};
use super::readiness::Readiness;
use super::spec::AppSpec;
use crate::api::NamespacedName;
use crate::runtime::controller::Key;
use crate::runtime::watch::{Cached, Change, GroupKind, KindEvent, Stored, WatchManager};
use crate::runtime::workqueue::{Priority, Queue};

/// A Deployment that becomes ready changes many times within moments.
const DEBOUNCE: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct ComponentEventHandler {
    pub index: Index,
    pub queue: Queue<Key>,
}

impl ComponentEventHandler {
    /// Never blocks.
    pub fn on_event(&self, kind: &GroupKind, event: &KindEvent<Readiness>) {
        let (names, priority) = match event {
            KindEvent::Object { old, new } => {
                let names = self.index.affected(kind, old.as_deref(), new.as_deref());
                (names, Priority::USER)
            }
            // All users of a kind must not delay an Application that a user has just changed.
            KindEvent::Kind => (self.index.users(kind), Priority::LOW),
        };
        for name in names {
            self.queue.add_after(key(&name), DEBOUNCE, priority);
        }
    }
}

pub struct ApplicationEventHandler {
    pub index: Index,
    pub queue: Queue<Key>,
    pub watches: WatchManager<NamespacedName, Readiness>,
}

impl ApplicationEventHandler {
    /// Never blocks.
    pub fn on_change(&self, change: Change<Cached<CachedApplication>>) {
        match change {
            Change::Applied { old, new, is_listed } => match &new {
                Cached::Object(object) if object.metadata.deletion_timestamp.is_none() => {
                    let (name, old) = (new.key(), old.as_ref().and_then(Cached::object));
                    self.on_applied(&name, &object.spec);
                    if old.is_none_or(|old| needs_reconcile(old, object)) {
                        // The initial list must not delay an Application that a user has just changed.
                        let priority = if is_listed { Priority::LOW } else { Priority::USER };
                        self.queue.add(key(&name), priority);
                    }
                }
                Cached::Object(object) => {
                    let old = old.as_ref().and_then(Cached::object).filter(|_| !is_listed);
                    self.on_deleting(&new.key(), old.map(Arc::as_ref), object);
                }
                // Left unchanged.
                Cached::Invalid { .. } => self.on_deleted(&new.key()),
            },
            Change::Deleted(old) | Change::MissingFromList(old) => self.on_deleted(&old.key()),
            Change::Synced { .. } => {}
        }
    }

    fn on_applied(&self, name: &NamespacedName, spec: &Arc<AppSpec>) {
        let previous = self.index.get(name);
        if previous.as_ref() == Some(spec) {
            return;
        }
        let may_be_in_cycle = |spec: &AppSpec| spec.kinds.contains(&application_kind());
        let affects_others = may_be_in_cycle(spec) || previous.as_deref().is_some_and(may_be_in_cycle);
        let spec = previous.map_or_else(|| Arc::clone(spec), |previous| AppSpec::with_record_of(spec, &previous));
        // Before the subscription: watches may notify immediately.
        self.index.insert(Arc::clone(&spec));
        if affects_others {
            self.enqueue_other_adopters(name);
        }
        let kinds = spec.watched_kinds().cloned().collect();
        self.watches.subscribe(name.clone(), &name.namespace, kinds);
    }

    /// Cycle detection depends on the specs of other Applications, which component watches do not report.
    fn enqueue_other_adopters(&self, name: &NamespacedName) {
        for other in self.index.users_in(&application_kind(), &name.namespace) {
            if other != *name {
                self.queue.add_after(key(&other), DEBOUNCE, Priority::USER);
            }
        }
    }

    /// Leaves components to the garbage collector. `old` is the previous state if no event was missed since.
    fn on_deleting(&self, name: &NamespacedName, old: Option<&CachedApplication>, deleting: &CachedApplication) {
        let (meta, uid) = (&deleting.metadata, &deleting.spec.uid);
        if !has_finalizer(meta) {
            return self.on_deleted(name);
        }
        let is_begin_observed =
            old.is_some_and(|old| old.spec.uid == *uid && old.metadata.deletion_timestamp.is_none());
        let deletion = ObservedDeletion {
            uid: uid.clone(),
            must_release: must_release(meta, is_begin_observed),
        };
        self.index.begin_deletion(name, deletion);
        self.watches.unsubscribe(name);
        self.queue.add(key(name), Priority::USER);
    }

    fn on_deleted(&self, name: &NamespacedName) {
        self.index.remove(name);
        self.watches.unsubscribe(name);
        // Cached state is removed after the reconcile in progress.
        self.queue.add(key(name), Priority::LOW);
    }
}

/// Returns true if the Application needs a reconcile. The store already contains our own writes.
fn needs_reconcile(old: &CachedApplication, new: &CachedApplication) -> bool {
    let has_lost_record = || {
        let is_kept = |kind| new.spec.recorded_kinds.contains(kind);
        !old.spec.recorded_kinds.iter().all(is_kept)
    };
    !old.spec.has_same_spec_as(&new.spec) || old.status != new.status || has_lost_record()
}

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

    fn application(version: &str, generation: i64, ready: &str, annotations: &Value) -> CachedApplication {
        let application = json!({
            "metadata": {
                "name": "shop", "namespace": "team", "uid": "u", "resourceVersion": version,
                "generation": generation, "annotations": annotations,
            },
            "status": { "componentsReady": ready },
        });
        let cached = CachedApplication::convert(serde_json::from_str(&application.to_string()).unwrap());
        CachedApplication::clone(cached.object().unwrap())
    }

    #[rstest]
    #[case::our_own_status("3", 1, "1/1", json!({}), false)]
    #[case::our_own_record("4", 1, "1/1", json!({ "portolan.dev/owned-kinds": "Pod" }), false)]
    #[case::a_status_of_others("4", 1, "5/5", json!({}), true)]
    #[case::a_new_spec("4", 2, "1/1", json!({}), true)]
    fn only_changes_by_others_need_a_reconcile(
        #[case] version: &str,
        #[case] generation: i64,
        #[case] ready: &str,
        #[case] annotations: Value,
        #[case] expected: bool,
    ) {
        // The store holds our last write.
        let stored = application("3", 1, "1/1", &json!({}));
        let observed = application(version, generation, ready, &annotations);
        assert_eq!(needs_reconcile(&stored, &observed), expected);
    }
}

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::ObjectMeta;
use tokio::sync::Notify;

use super::CachedRepository;
use super::running_syncs::RunningSyncs;
use super::spec::{Defaults, RepositorySpec};
use super::state::RepositoryStates;
use crate::api::NamespacedName;
use crate::runtime::controller::Key;
use crate::runtime::cron::CronTrigger;
use crate::runtime::watch::{Cached, Change, Store, Stored};
use crate::runtime::workqueue::{Priority, Queue};

pub struct RepositoryEventHandler {
    pub queue: Queue<Key>,
    pub running_syncs: RunningSyncs,
    pub states: RepositoryStates,
    /// Notified after each complete list, to compare the catalog with it.
    pub listed: Arc<Notify>,
    pub schedule: CronTrigger<NamespacedName>,
    pub defaults: Defaults,
}

impl RepositoryEventHandler {
    pub fn on_change(&self, change: Change<Cached<CachedRepository>>) {
        match change {
            Change::Applied { old, new, is_listed } => self.handle_change(&new.key(), old.as_ref(), &new, is_listed),
            Change::Deleted(old) => {
                let name = old.key();
                self.handle_removal(&name);
                if !self.queue.is_paused() {
                    let uid = old.uid().to_owned();
                    self.states.update(&name, |state| state.approved_removal = Some(uid));
                    self.queue.add(cleanup_key(&name), Priority::USER);
                }
            }
            // These are compared as a whole once the list is complete.
            Change::MissingFromList(old) => self.handle_removal(&old.key()),
            Change::Synced { .. } => self.listed.notify_one(),
        }
    }

    fn handle_removal(&self, name: &NamespacedName) {
        self.running_syncs.cancel(name);
        self.schedule.remove(name);
    }

    fn handle_change(
        &self,
        name: &NamespacedName,
        old: Option<&Cached<CachedRepository>>,
        new: &Cached<CachedRepository>,
        is_listed: bool,
    ) {
        self.states.update(name, |state| state.approved_removal = None);
        if let Some(old) = old {
            if is_sync_obsolete(old.meta(), new.meta()) {
                self.running_syncs.cancel(name);
            }
            if !needs_reconcile(old, new) {
                return;
            }
        }
        self.schedule(name, new);
        let priority = if is_listed && old.is_none() {
            initial_priority(new)
        } else {
            Priority::USER
        };
        let is_being_deleted = new.meta().deletion_timestamp.is_some();
        let key = if is_being_deleted { cleanup_key(name) } else { key(name) };
        self.queue.add(key, priority);
    }

    fn schedule(&self, name: &NamespacedName, new: &Cached<CachedRepository>) {
        let spec = new
            .object()
            .map(|object| RepositorySpec::of(object, &self.defaults, false));
        match spec.filter(|spec| !spec.suspended && new.meta().deletion_timestamp.is_none()) {
            Some(spec) => self.schedule.set(name, &spec.cron, spec.jitter()),
            None => self.schedule.remove(name),
        }
    }
}

/// Must not delay a user's change. Objects that changed while Portolan was down come first.
fn initial_priority(cached: &Cached<CachedRepository>) -> Priority {
    let is_observed = cached.object().map(|object| {
        let observed = object.status.as_ref().and_then(|status| status.observed_generation);
        observed == object.metadata.generation
    });
    match is_observed {
        Some(false) => Priority::MISSED,
        Some(true) | None => Priority::LOW,
    }
}

/// Enqueues all declared repositories: for a new leader, and after catalog tables were recreated.
pub fn enqueue_all(store: &Store<Cached<CachedRepository>>, queue: &Queue<Key>) {
    for name in store.names() {
        if let Some(seen) = store.get(&name) {
            queue.add(key(&name), initial_priority(&seen));
        }
    }
}

#[must_use]
pub fn key(name: &NamespacedName) -> Key {
    Key {
        class: super::NAME,
        name: name.clone(),
    }
}

#[must_use]
pub fn cleanup_key(name: &NamespacedName) -> Key {
    Key {
        class: super::CLEANUP,
        name: name.clone(),
    }
}

fn is_sync_obsolete(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    old.uid != new.uid || (old.deletion_timestamp.is_none() && new.deletion_timestamp.is_some())
}

/// Returns true if the change needs a reconcile. Our own status and metadata writes are ignored to avoid a hot loop.
fn needs_reconcile(old: &Cached<CachedRepository>, new: &Cached<CachedRepository>) -> bool {
    match (old, new) {
        (Cached::Object(before), Cached::Object(after)) => {
            before.spec != after.spec || reconcile_inputs(&before.metadata) != reconcile_inputs(&after.metadata)
        }
        (
            Cached::Invalid {
                meta: before,
                error: was,
            },
            Cached::Invalid { meta: after, error: is },
        ) => was != is || reconcile_inputs(before) != reconcile_inputs(after),
        _ => true,
    }
}

pub(super) type ReconcileInputs<'a> = (Option<&'a str>, Option<i64>, bool, Option<&'a BTreeMap<String, String>>);

pub(super) fn reconcile_inputs(meta: &ObjectMeta) -> ReconcileInputs<'_> {
    // The status must observe each new generation. None of our own writes raises it.
    (
        meta.uid.as_deref(),
        meta.generation,
        meta.deletion_timestamp.is_some(),
        meta.annotations.as_ref(),
    )
}

#[cfg(test)]
mod tests {
    use kube::core::DeserializeGuard;
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::*;
    use crate::api::{AppRepository, Guarded};
    use crate::runtime::workqueue::{QueueSettings, WorkqueueMetrics};

    fn seen(name: &str, generation: Option<i64>, observed: Option<i64>) -> Change<Cached<CachedRepository>> {
        let object = json!({
            "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
            "metadata": { "name": name, "namespace": "team", "uid": name, "generation": generation },
            "spec": { "type": if name == "odd" { json!(7) } else { json!("helm") }, "url": "https://charts.example.com" },
            "status": observed.map(|observed| json!({ "observedGeneration": observed })),
        });
        let object: Guarded<AppRepository> = serde_json::from_value(object).unwrap();
        let object = DeserializeGuard(object.0.0.map(CachedRepository::from));
        assert_eq!(object.0.is_ok(), name != "odd");
        Change::Applied {
            old: None,
            new: object.into(),
            is_listed: !name.starts_with("just"),
        }
    }

    fn handler() -> RepositoryEventHandler {
        RepositoryEventHandler {
            queue: Queue::new(
                QueueSettings::default(),
                &WorkqueueMetrics::register(&mut Registry::default()),
            ),
            running_syncs: RunningSyncs::default(),
            states: RepositoryStates::default(),
            listed: Arc::default(),
            schedule: CronTrigger::default(),
            defaults: Defaults::usual(),
        }
    }

    #[tokio::test]
    async fn a_deletion_approves_the_removal_of_charts_until_the_name_is_declared_again() {
        let handler = handler();
        let name = NamespacedName::new("team", "a");
        let is_approved = || handler.states.read(&name, |state| state.approved_removal.is_some());
        let Change::Applied { new: old, .. } = seen("a", Some(1), None) else {
            unreachable!()
        };
        handler.on_change(Change::MissingFromList(old.clone()));
        assert!(!is_approved(), "missing from a list proves no deletion");
        handler.on_change(Change::Deleted(old.clone()));
        assert!(is_approved());
        handler.on_change(seen("a", Some(1), None));
        assert!(!is_approved());

        handler.queue.pause();
        handler.on_change(Change::Deleted(old));
        assert!(!is_approved(), "a new leader compares all names instead");
    }

    #[tokio::test]
    async fn only_active_repositories_have_a_schedule() {
        let handler = handler();
        let scheduled = |change| {
            handler.on_change(change);
            handler.schedule.len()
        };
        assert_eq!(scheduled(seen("a", Some(1), None)), 1);
        assert_eq!(scheduled(seen("b", Some(1), None)), 2);
        assert_eq!(scheduled(seen("odd", Some(1), None)), 2);
        let Change::Applied { new: old, .. } = seen("a", Some(1), None) else {
            unreachable!()
        };
        let mut suspended = AppRepository::clone(&**old.object().unwrap());
        suspended.metadata.generation = Some(2);
        suspended.spec.suspend = true;
        let suspend = Change::Applied {
            old: Some(old.clone()),
            new: Cached::Object(Arc::new(suspended.into())),
            is_listed: false,
        };
        assert_eq!(scheduled(suspend), 1);
        let resume = seen("a", Some(3), None);
        assert_eq!(scheduled(resume), 2);
        assert_eq!(scheduled(Change::MissingFromList(old)), 1);
    }

    #[tokio::test]
    async fn changed_objects_of_the_initial_list_come_first() {
        let handler = handler();
        let queue = handler.queue.clone();
        let list = [
            ("a", Some(1), Some(1)),
            ("changed", Some(2), Some(1)),
            ("odd", Some(2), Some(1)),
            ("b", Some(3), Some(3)),
            ("in-a-folder", None, None),
            ("made", Some(1), None),
        ];
        for (name, generation, observed) in list {
            handler.on_change(seen(name, generation, observed));
        }
        handler.on_change(seen("just-made", Some(1), None));
        let mut order = Vec::new();
        while order.len() <= list.len() {
            order.push(queue.get().await.unwrap().key().name.name.clone());
        }
        assert_eq!(order, ["just-made", "changed", "made", "a", "odd", "b", "in-a-folder"]);
    }
}

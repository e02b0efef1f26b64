//! Which changes of declarations call for a reconcile, and what else has to know of them at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::ObjectMeta;
use tokio::sync::Notify;

use super::activity::Activity;
use super::removals::Removals;
use crate::api::AppRepository;
use crate::controller::{Key, Kind};
use crate::informer::{Change, ObjectName, Seen};
use crate::queue::{Priority, Queue};

/// Turns changes of declarations into keys in the queue.
pub struct Trigger {
    /// Where keys go.
    pub queue: Queue<Key>,
    /// The syncs under way.
    pub activity: Activity,
    /// What may be removed.
    pub removals: Removals,
    /// Told when a complete list has been seen, so that the catalogue is compared with it.
    pub listed: Arc<Notify>,
    /// Told of names that are not declared any more, so that nothing is scheduled for them.
    pub gone: Box<dyn Fn(&ObjectName) + Send + Sync>,
}

impl Trigger {
    /// Takes note of a change. Never waits.
    pub fn on_change(&self, change: Change<AppRepository>) {
        match change {
            Change::Applied {
                name,
                old,
                new,
                initial,
            } => self.applied(&name, old.as_ref(), &new, initial),
            Change::Removed { name, vanished, .. } => {
                self.activity.cancel(&name);
                (self.gone)(&name);
                // What a cut watch has missed is judged all together, once the list is complete.
                if !vanished {
                    self.removals.approve(name.clone());
                    self.queue.add(key(&name), Priority::USER);
                }
            }
            Change::Listed => self.listed.notify_one(),
        }
    }

    fn applied(&self, name: &ObjectName, old: Option<&Seen<AppRepository>>, new: &Seen<AppRepository>, initial: bool) {
        self.removals.withdraw(name);
        match old {
            None => self
                .queue
                .add(key(name), if initial { at_start(new) } else { Priority::USER }),
            Some(old) => {
                if is_another(old.meta(), new.meta()) {
                    self.activity.cancel(name);
                }
                if calls_for_reconcile(old, new) {
                    self.queue.add(key(name), Priority::USER);
                }
            }
        }
    }
}

/// The list at start is no user's event: it must not delay the one that a user has just changed. Of what is in it, that comes
/// first which nobody has looked at since its last change.
fn at_start(seen: &Seen<AppRepository>) -> Priority {
    let looked_at = seen.object().map(|object| {
        let observed = object.status.as_ref().and_then(|status| status.observed_generation);
        observed == object.metadata.generation
    });
    match looked_at {
        Some(false) => Priority::MISSED,
        Some(true) | None => Priority::LOW,
    }
}

/// The key of a repository in the queue.
#[must_use]
pub fn key(name: &ObjectName) -> Key {
    Key {
        kind: Kind::Repository,
        name: name.clone(),
    }
}

/// Whether the sync of the old object has lost its meaning.
fn is_another(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    old.uid != new.uid || (old.deletion_timestamp.is_none() && new.deletion_timestamp.is_some())
}

/// Whether anything has changed that a reconcile looks at. Our own writes (status, finalizer, bookkeeping of the server) are
/// none of it, or each would call for the next.
fn calls_for_reconcile(old: &Seen<AppRepository>, new: &Seen<AppRepository>) -> bool {
    match (old, new) {
        (Seen::Object(before), Seen::Object(after)) => {
            before.spec != after.spec || facts(&before.metadata) != facts(&after.metadata)
        }
        (
            Seen::Undecodable {
                meta: before,
                error: was,
            },
            Seen::Undecodable { meta: after, error: is },
        ) => was != is || facts(before) != facts(after),
        _ => true,
    }
}

type Facts<'a> = (Option<&'a str>, Option<i64>, bool, Option<&'a BTreeMap<String, String>>);

fn facts(meta: &ObjectMeta) -> Facts<'_> {
    // A generation may rise without a change that we see, and the status has to say that it was looked at. None of our own
    // writes raises it.
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
    use crate::queue::{Metrics, Settings};

    fn seen(name: &str, generation: Option<i64>, observed: Option<i64>) -> Change<AppRepository> {
        let object = json!({
            "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
            "metadata": { "name": name, "namespace": "team", "uid": name, "generation": generation },
            "spec": { "type": if name == "odd" { json!(7) } else { json!("helm") }, "url": "https://charts.example.com" },
            "status": observed.map(|observed| json!({ "observedGeneration": observed })),
        });
        let object: DeserializeGuard<AppRepository> = serde_json::from_value(object).unwrap();
        assert_eq!(object.0.is_ok(), name != "odd");
        Change::Applied {
            name: ObjectName {
                namespace: "team".to_owned(),
                name: name.to_owned(),
            },
            old: None,
            new: object.into(),
            initial: !name.starts_with("just"),
        }
    }

    #[tokio::test]
    async fn at_a_start_what_was_changed_meanwhile_comes_before_what_only_has_its_turn() {
        let queue = Queue::new(Settings::new("test"), &Metrics::register(&mut Registry::default()));
        let trigger = Trigger {
            queue: queue.clone(),
            activity: Activity::default(),
            removals: Removals::default(),
            listed: Arc::default(),
            gone: Box::new(|_| ()),
        };
        let list = [
            ("a", Some(1), Some(1)),
            ("changed", Some(2), Some(1)),
            ("odd", Some(2), Some(1)),
            ("b", Some(3), Some(3)),
            ("in-a-folder", None, None),
            ("made", Some(1), None),
        ];
        for (name, generation, observed) in list {
            trigger.on_change(seen(name, generation, observed));
        }
        trigger.on_change(seen("just-made", Some(1), None));
        let mut order = Vec::new();
        while order.len() <= list.len() {
            order.push(queue.get().await.unwrap().key().name.name.clone());
        }
        assert_eq!(order, ["just-made", "changed", "made", "a", "odd", "b", "in-a-folder"]);
    }
}

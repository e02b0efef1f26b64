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
            // The list at start is no user's event: it must not delay the one that a user has just changed.
            None => self
                .queue
                .add(key(name), if initial { Priority::LOW } else { Priority::USER }),
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

/// The key of a repository in the queue.
#[must_use]
pub fn key(name: &ObjectName) -> Key {
    Key {
        kind: Kind::Repository,
        namespace: name.namespace.clone(),
        name: name.name.clone(),
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

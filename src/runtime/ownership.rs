//! The objects that belong to this process.
//!
//! ```text
//!  label selector: watched? ─► label: of this process? ─► UID: of a shard that this process owns? ─► reconcile
//! ```

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Resource;
use kube::core::ObjectMeta;

use super::controller::{Action, Key, Reconcile, ReconcileError};
use super::shards::Shards;
use super::watch::{Cached, Scope, Selection, Store};
use super::workqueue::Priority;

/// Decides which objects belong to this process. Clones share the shards.
#[derive(Clone, Debug)]
pub struct OwnershipFilter {
    shards: Shards,
    label_selector: Option<String>,
    shard_label: Option<ShardLabel>,
}

/// A label that names the process of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardLabel {
    pub name: &'static str,
    /// The value that names this process.
    pub id: String,
    /// The process of objects without the label, and of work that is done once for all objects.
    pub default_id: &'static str,
}

impl ShardLabel {
    fn selects(&self, meta: &ObjectMeta) -> bool {
        let id = meta.labels.as_ref().and_then(|labels| labels.get(self.name));
        let id = id.map(String::as_str).filter(|id| !id.is_empty());
        id.unwrap_or(self.default_id) == self.id
    }
}

impl OwnershipFilter {
    /// `label_selector` selects the objects to watch; all objects if `None`.
    #[must_use]
    pub fn new(shards: Shards, label_selector: Option<String>) -> Self {
        Self {
            shards,
            label_selector,
            shard_label: None,
        }
    }

    /// Returns the filter of a process that owns all objects.
    #[must_use]
    pub fn all() -> Self {
        Self::new(Shards::all(), None)
    }

    /// Limits the objects by the label that names their process.
    #[must_use]
    pub fn with_shard_label(self, shard_label: Option<ShardLabel>) -> Self {
        Self { shard_label, ..self }
    }

    /// Returns the objects to watch.
    #[must_use]
    pub fn selection(&self, scope: Scope) -> Selection {
        Selection {
            scope,
            labels: self.label_selector.clone(),
        }
    }

    /// Returns true if lists are incomplete: a missing object may belong to another process.
    #[must_use]
    pub fn has_partial_lists(&self) -> bool {
        self.label_selector.is_some()
    }

    /// Returns true if no other process owns objects.
    #[must_use]
    pub fn owns_all(&self) -> bool {
        self.shards.is_single() && self.shard_label.is_none()
    }

    /// Returns false if this process never does the work that is done once for all objects.
    #[must_use]
    pub fn can_be_primary(&self) -> bool {
        let label = self.shard_label.as_ref();
        label.is_none_or(|label| label.id == label.default_id)
    }

    /// Returns true if this process does the work that is done once for all objects.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.can_be_primary() && self.shards.is_primary()
    }

    #[must_use]
    pub fn owns(&self, meta: &ObjectMeta) -> bool {
        let label = self.shard_label.as_ref();
        label.is_none_or(|label| label.selects(meta)) && self.shards.owns(meta.uid.as_deref().unwrap_or_default())
    }

    /// Returns a reconciler that leaves objects of other shards alone. It reconciles keys without an object, so that each
    /// process forgets its memory of the object.
    #[must_use]
    pub fn filter_owned<K>(&self, store: &Store<Cached<K>>, reconciler: Arc<dyn Reconcile>) -> Arc<dyn Reconcile>
    where
        K: Resource + Clone + Send + Sync + 'static,
    {
        let (ownership, store) = (self.clone(), store.clone());
        self.filter(reconciler, move |key| {
            let object = store.get(&key.name);
            object.is_none_or(|object| ownership.owns(object.meta()))
        })
    }

    /// Returns a reconciler that leaves all objects to the primary process.
    #[must_use]
    pub fn filter_primary(&self, reconciler: Arc<dyn Reconcile>) -> Arc<dyn Reconcile> {
        let ownership = self.clone();
        self.filter(reconciler, move |_| ownership.is_primary())
    }

    fn filter(
        &self,
        reconciler: Arc<dyn Reconcile>,
        owns: impl Fn(&Key) -> bool + Send + Sync + 'static,
    ) -> Arc<dyn Reconcile> {
        if self.owns_all() {
            return reconciler;
        }
        Arc::new(OwnedReconciler {
            reconciler,
            owns: Box::new(owns),
        })
    }
}

struct OwnedReconciler {
    reconciler: Arc<dyn Reconcile>,
    owns: Box<dyn Fn(&Key) -> bool + Send + Sync>,
}

impl Reconcile for OwnedReconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        if (self.owns)(key) {
            return self.reconciler.reconcile(key, priority);
        }
        // All objects are enqueued again when this process takes a shard.
        async { Ok(Action::Done) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DeserializeGuard;
    use kube::runtime::watcher::Event;
    use parking_lot::Mutex;
    use rstest::rstest;

    use super::*;
    use crate::api::NamespacedName;

    fn meta(shard: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            labels: shard.map(|shard| [("shard".to_owned(), shard.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    #[rstest]
    #[case::of_this_process("a", Some("a"), true)]
    #[case::of_another("a", Some("b"), false)]
    #[case::without_the_label("a", None, false)]
    #[case::without_the_label_for_the_default("master", None, true)]
    #[case::with_an_empty_label_for_the_default("master", Some(""), true)]
    #[case::of_another_than_the_default("master", Some("a"), false)]
    fn a_label_names_the_process_of_an_object(#[case] id: &str, #[case] shard: Option<&str>, #[case] expected: bool) {
        let label = ShardLabel {
            name: "shard",
            id: id.to_owned(),
            default_id: "master",
        };
        let ownership = OwnershipFilter::all().with_shard_label(Some(label));
        assert_eq!(ownership.owns(&meta(shard)), expected);
        assert_eq!(ownership.is_primary(), id == "master");
        assert!(OwnershipFilter::all().owns(&meta(shard)));
    }

    #[derive(Default)]
    struct Reconciled(Mutex<Vec<String>>);

    impl Reconcile for Reconciled {
        fn reconcile<'a>(&'a self, key: &'a Key, _: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
            self.0.lock().push(key.name.name.clone());
            async { Ok(Action::Done) }.boxed()
        }
    }

    #[tokio::test]
    async fn objects_of_other_shards_are_not_reconciled_but_missing_ones_are() {
        let store: Store<Cached<ConfigMap>> = Store::default();
        for name in ["a", "b", "c", "d"] {
            let mut object = ConfigMap::default();
            (object.metadata.namespace, object.metadata.name) = (Some("team".to_owned()), Some(name.to_owned()));
            object.metadata.uid = Some(format!("uid-{name}"));
            store.apply(Event::Apply(DeserializeGuard(Ok(object)).into()));
        }
        let names = ["a", "b", "c", "d", "missing"];
        let reconciled_by = async |shard: u32, is_owned: bool| {
            let shards = Shards::new(2);
            shards.add(shard);
            let ownership = OwnershipFilter::new(shards, None);
            let reconciled = Arc::new(Reconciled::default());
            let reconciler = if is_owned {
                ownership.filter_owned(&store, reconciled.clone())
            } else {
                ownership.filter_primary(reconciled.clone())
            };
            for name in names {
                let key = Key {
                    class: "test",
                    name: NamespacedName::new("team", name),
                };
                reconciler.reconcile(&key, Priority::USER).await.unwrap();
            }
            reconciled.0.lock().clone()
        };
        let by_shard = [reconciled_by(0, true).await, reconciled_by(1, true).await];
        let mut all = by_shard.concat();
        all.sort();
        assert_eq!(all, ["a", "b", "c", "d", "missing", "missing"]);
        assert!(by_shard.iter().all(|names| names.len() > 1), "{by_shard:?}");
        assert_eq!(reconciled_by(0, false).await, names);
        assert!(reconciled_by(1, false).await.is_empty());
    }
}

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

use super::kinds::application_kind;
use super::spec::AppSpec;
use crate::api::NamespacedName;
use crate::runtime::watch::{GroupKind, KindView, Object};

/// All Applications by the kinds they watch. Clones share the index.
#[derive(Clone, Debug, Default)]
pub struct Index(Arc<RwLock<IndexTables>>);

#[derive(Debug, Default)]
struct IndexTables {
    by_name: HashMap<NamespacedName, Arc<AppSpec>>,
    by_kind: HashMap<GroupKind, HashMap<String, BTreeMap<String, Arc<AppSpec>>>>,
    /// Applications that are being deleted and have our finalizer.
    deletions: HashMap<NamespacedName, ObservedDeletion>,
}

/// The begin of a deletion, as observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedDeletion {
    pub uid: String,
    /// The components must survive it.
    pub must_release: bool,
}

impl Index {
    pub fn insert(&self, spec: impl Into<Arc<AppSpec>>) {
        self.0.write().insert(spec.into());
    }

    /// Replaces a spec if it is still the current one. Returns true in that case.
    #[must_use]
    pub fn replace(&self, old: &Arc<AppSpec>, new: &Arc<AppSpec>) -> bool {
        let mut tables = self.0.write();
        let is_current = tables.by_name.get(&old.name).is_some_and(|now| Arc::ptr_eq(now, old));
        if is_current {
            tables.insert(Arc::clone(new));
        }
        is_current
    }

    pub fn remove(&self, name: &NamespacedName) {
        let mut tables = self.0.write();
        tables.remove(name);
        tables.deletions.remove(name);
    }

    /// Replaces a spec by the begin of its deletion. Later states of the same object do not replace it.
    pub fn begin_deletion(&self, name: &NamespacedName, deletion: ObservedDeletion) {
        let mut tables = self.0.write();
        tables.remove(name);
        let is_known = (tables.deletions.get(name)).is_some_and(|current| current.uid == deletion.uid);
        if !is_known {
            tables.deletions.insert(name.clone(), deletion);
        }
    }

    #[must_use]
    pub fn deletion(&self, name: &NamespacedName) -> Option<ObservedDeletion> {
        self.0.read().deletions.get(name).cloned()
    }

    #[must_use]
    pub fn get(&self, name: &NamespacedName) -> Option<Arc<AppSpec>> {
        self.0.read().by_name.get(name).cloned()
    }

    #[must_use]
    pub fn users(&self, kind: &GroupKind) -> Vec<NamespacedName> {
        let tables = self.0.read();
        let namespaces = tables.by_kind.get(kind).into_iter().flatten();
        namespaces
            .flat_map(|(_, specs)| specs.values().map(|spec| spec.name.clone()))
            .collect()
    }

    #[must_use]
    pub fn users_in(&self, kind: &GroupKind, namespace: &str) -> Vec<NamespacedName> {
        let tables = self.0.read();
        let specs = tables
            .by_kind
            .get(kind)
            .and_then(|namespaces| namespaces.get(namespace));
        specs
            .into_iter()
            .flat_map(BTreeMap::values)
            .map(|spec| spec.name.clone())
            .collect()
    }

    /// Returns the Applications that select or own the object in its old or new state.
    #[must_use]
    pub fn affected<K>(
        &self,
        kind: &GroupKind,
        old: Option<&Object<K>>,
        new: Option<&Object<K>>,
    ) -> Vec<NamespacedName> {
        let tables = self.0.read();
        let Some(namespaces) = tables.by_kind.get(kind) else {
            return Vec::new();
        };
        let namespace = old.or(new).and_then(|object| object.namespace.as_deref());
        let is_affected = |spec: &&Arc<AppSpec>| {
            let affects = |object: &Object<K>| is_component(spec, kind, object) || is_owned(spec, object);
            old.is_some_and(affects) || new.is_some_and(affects)
        };
        namespaces
            .iter()
            // A cluster-scoped object may affect Applications of any namespace.
            .filter(|(name, _)| namespace.is_none_or(|namespace| namespace == name.as_str()))
            .flat_map(|(_, specs)| specs.values())
            .filter(is_affected)
            .map(|spec| spec.name.clone())
            .collect()
    }
}

impl Index {
    /// Returns the Applications of the namespace that lead back to this one by selection.
    #[must_use]
    pub fn selectors_of<K>(&self, spec: &AppSpec, view: &KindView<K>) -> BTreeSet<String> {
        self.find_leading(spec, view, |_| true)
    }

    /// Returns the Applications of the namespace that lead back to this one by adoption.
    #[must_use]
    pub fn adopters_of<K>(&self, spec: &AppSpec, view: &KindView<K>) -> BTreeSet<String> {
        self.find_leading(spec, view, |other| other.add_owner_ref)
    }

    fn find_leading<K>(
        &self,
        spec: &AppSpec,
        view: &KindView<K>,
        counts: impl Fn(&AppSpec) -> bool,
    ) -> BTreeSet<String> {
        let name_of = |object: &Object<K>| NamespacedName::new(&spec.name.namespace, &*object.name);
        let mut others: Vec<_> = (view.objects.iter())
            .filter_map(|object| self.get(&name_of(object)))
            .filter(|other| counts(other) && other.name != spec.name)
            .collect();
        let objects: HashMap<&str, &Arc<Object<K>>> =
            view.objects.iter().map(|object| (&*object.uid, object)).collect();
        let mut open: Vec<&Arc<Object<K>>> = view.objects.iter().filter(|object| *object.uid == *spec.uid).collect();
        let mut leading = BTreeSet::new();
        while let Some(selected) = open.pop() {
            let selectors: Vec<Arc<AppSpec>>;
            (selectors, others) = others
                .into_iter()
                .partition(|other| is_component(other, &application_kind(), selected));
            leading.extend(selectors.iter().map(|other| other.name.name.clone()));
            open.extend(selectors.iter().filter_map(|other| objects.get(other.uid.as_str())));
        }
        leading
    }
}

pub(super) fn is_component<K>(spec: &AppSpec, kind: &GroupKind, object: &Object<K>) -> bool {
    spec.kinds.contains(kind)
        && spec
            .selection
            .as_ref()
            .is_ok_and(|selection| selection.matches(&object.labels))
}

pub(super) fn is_owned<K>(spec: &AppSpec, object: &Object<K>) -> bool {
    object.owner_references.has(&spec.uid)
}

impl IndexTables {
    fn insert(&mut self, spec: Arc<AppSpec>) {
        self.remove(&spec.name);
        let name = &spec.name;
        for kind in spec.watched_kinds() {
            let namespaces = self.by_kind.entry(kind.clone()).or_default();
            namespaces
                .entry(name.namespace.clone())
                .or_default()
                .insert(name.name.clone(), Arc::clone(&spec));
        }
        self.deletions.remove(name);
        self.by_name.insert(name.clone(), spec);
    }

    fn remove(&mut self, name: &NamespacedName) {
        let Some(spec) = self.by_name.remove(name) else {
            return;
        };
        for kind in spec.watched_kinds() {
            let Some(namespaces) = self.by_kind.get_mut(kind) else {
                continue;
            };
            if let Some(names) = namespaces.get_mut(&name.namespace) {
                names.remove(&name.name);
                if names.is_empty() {
                    namespaces.remove(&name.namespace);
                }
            }
            if namespaces.is_empty() {
                self.by_kind.remove(kind);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn app_spec(namespace: &str, name: &str, kind: &str, app: &str) -> AppSpec {
        let application = serde_json::from_value(json!({
            "apiVersion": "app.k8s.io/v1beta1", "kind": "Application",
            "metadata": { "name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}") },
            "spec": { "componentKinds": [{ "group": "", "kind": kind }], "selector": { "matchLabels": { "app": app } } }
        }));
        AppSpec::of(&NamespacedName::new(namespace, name), &application.unwrap())
    }

    fn object(namespace: Option<&str>, app: &str, owner: Option<&str>) -> Object<()> {
        let owners: Vec<_> = owner
            .iter()
            .map(|uid| json!({ "apiVersion": "v1", "kind": "X", "name": "x", "uid": uid }))
            .collect();
        let meta = json!({ "name": "o", "namespace": namespace, "labels": { "app": app }, "ownerReferences": owners });
        Object::new(serde_json::from_value(meta).unwrap(), ())
    }

    fn affected(index: &Index, old: Option<&Object<()>>, new: Option<&Object<()>>) -> Vec<String> {
        let mut names: Vec<_> = index
            .affected(&GroupKind::new("", "Pod"), old, new)
            .iter()
            .map(ToString::to_string)
            .collect();
        names.sort();
        names
    }

    fn index() -> Index {
        let index = Index::default();
        for (namespace, name, kind, app) in [
            ("shop", "web", "Pod", "web"),
            ("shop", "db", "Pod", "db"),
            ("shop", "other", "Service", "web"),
            ("bank", "web", "Pod", "web"),
        ] {
            index.insert(app_spec(namespace, name, kind, app));
        }
        index
    }

    #[test]
    fn applications_that_select_an_object_in_their_namespace_are_affected() {
        assert_eq!(
            affected(&index(), None, Some(&object(Some("shop"), "web", None))),
            ["shop/web"]
        );
        assert!(affected(&index(), None, Some(&object(Some("shop"), "none", None))).is_empty());
    }

    #[test]
    fn an_application_that_selected_the_object_before_is_affected() {
        let (old, new) = (object(Some("shop"), "web", None), object(Some("shop"), "db", None));
        assert_eq!(affected(&index(), Some(&old), Some(&new)), ["shop/db", "shop/web"]);
        assert_eq!(affected(&index(), Some(&old), None), ["shop/web"]);
    }

    #[test]
    fn an_owner_is_affected_even_if_it_does_not_select_the_object() {
        let owned = object(Some("shop"), "none", Some("uid-shop-db"));
        assert_eq!(affected(&index(), None, Some(&owned)), ["shop/db"]);
    }

    #[test]
    fn a_cluster_scoped_object_affects_applications_of_all_namespaces() {
        assert_eq!(
            affected(&index(), None, Some(&object(None, "web", None))),
            ["bank/web", "shop/web"]
        );
    }

    #[test]
    fn removed_and_updated_applications_are_not_affected() {
        let index = index();
        index.remove(&NamespacedName::new("shop", "web"));
        index.insert(app_spec("bank", "web", "Service", "web"));
        assert!(affected(&index, None, Some(&object(None, "web", None))).is_empty());
        let users = index.users(&GroupKind::new("", "Service"));
        assert_eq!(users.len(), 2, "{users:?}");
        index.remove(&NamespacedName::new("bank", "web"));
        assert_eq!(index.users(&GroupKind::new("", "Service")).len(), 1);
    }
}

//! Which Applications a change of a component concerns.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::spec::AppSpec;
use crate::api::NamespacedName;
use crate::runtime::watch::{GroupKind, Object};

/// All Applications by what they select. A handle: clones are the same index.
#[derive(Clone, Debug, Default)]
pub struct Index(Arc<RwLock<Tables>>);

#[derive(Debug, Default)]
struct Tables {
    by_name: HashMap<NamespacedName, Arc<AppSpec>>,
    /// By the kinds of components, then by namespace.
    by_kind: HashMap<GroupKind, HashMap<String, BTreeSet<String>>>,
}

impl Index {
    /// Takes an Application in, in place of what it declared before.
    pub fn insert(&self, declared: impl Into<Arc<AppSpec>>) {
        let declared = declared.into();
        let mut tables = self.0.write().unwrap_or_else(PoisonError::into_inner);
        tables.remove(&declared.name);
        let name = &declared.name;
        for kind in declared.watched() {
            let namespaces = tables.by_kind.entry(kind.clone()).or_default();
            namespaces
                .entry(name.namespace.clone())
                .or_default()
                .insert(name.name.clone());
        }
        tables.by_name.insert(name.clone(), declared);
    }

    /// Takes an Application out.
    pub fn remove(&self, name: &NamespacedName) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// What the Application of this name declares.
    #[must_use]
    pub fn get(&self, name: &NamespacedName) -> Option<Arc<AppSpec>> {
        self.read().by_name.get(name).cloned()
    }

    /// All Applications that look at a kind.
    #[must_use]
    pub fn users(&self, kind: &GroupKind) -> Vec<NamespacedName> {
        let tables = self.read();
        let namespaces = tables.by_kind.get(kind).into_iter().flatten();
        namespaces
            .flat_map(|(namespace, names)| names.iter().map(|name| named(namespace, name)))
            .collect()
    }

    /// The Applications that an object of this kind concerns as it was, or as it is: those that select it, and those that own it.
    #[must_use]
    pub fn concerned<K>(
        &self,
        kind: &GroupKind,
        old: Option<&Object<K>>,
        new: Option<&Object<K>>,
    ) -> Vec<NamespacedName> {
        let tables = self.read();
        let Some(namespaces) = tables.by_kind.get(kind) else {
            return Vec::new();
        };
        let namespace = old.or(new).and_then(|object| object.namespace.as_deref());
        let is_concerned = |name: &NamespacedName| {
            tables.by_name.get(name).is_some_and(|declared| {
                let concerns = |object: &Object<K>| is_component(declared, kind, object) || is_owned(declared, object);
                old.is_some_and(concerns) || new.is_some_and(concerns)
            })
        };
        namespaces
            .iter()
            // An object without a namespace may concern Applications of any.
            .filter(|(own, _)| namespace.is_none_or(|namespace| namespace == own.as_str()))
            .flat_map(|(namespace, names)| names.iter().map(|name| named(namespace, name)))
            .filter(is_concerned)
            .collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Tables> {
        // Nothing that can panic runs under the lock, so what it holds is whole.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the object, which is of this kind, is a component of the Application.
pub(super) fn is_component<K>(declared: &AppSpec, kind: &GroupKind, object: &Object<K>) -> bool {
    declared.kinds.contains(kind)
        && declared
            .selection
            .as_ref()
            .is_ok_and(|selection| selection.matches(&object.labels))
}

/// Whether the Application stands among the owners of the object.
pub(super) fn is_owned<K>(declared: &AppSpec, object: &Object<K>) -> bool {
    object.owner_references.has(&declared.uid)
}

impl Tables {
    fn remove(&mut self, name: &NamespacedName) {
        let Some(declared) = self.by_name.remove(name) else {
            return;
        };
        for kind in declared.watched() {
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

fn named(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared(namespace: &str, name: &str, kind: &str, app: &str) -> AppSpec {
        let application = serde_json::from_value(json!({
            "apiVersion": "app.k8s.io/v1beta1", "kind": "Application",
            "metadata": { "name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}") },
            "spec": { "componentKinds": [{ "group": "", "kind": kind }], "selector": { "matchLabels": { "app": app } } }
        }));
        AppSpec::of(&named(namespace, name), &application.unwrap())
    }

    fn object(namespace: Option<&str>, app: &str, owner: Option<&str>) -> Object<()> {
        let owners: Vec<_> = owner
            .iter()
            .map(|uid| json!({ "apiVersion": "v1", "kind": "X", "name": "x", "uid": uid }))
            .collect();
        let meta = json!({ "name": "o", "namespace": namespace, "labels": { "app": app }, "ownerReferences": owners });
        Object::new(serde_json::from_value(meta).unwrap(), ())
    }

    fn concerned(index: &Index, old: Option<&Object<()>>, new: Option<&Object<()>>) -> Vec<String> {
        let mut names: Vec<_> = index
            .concerned(&GroupKind::new("", "Pod"), old, new)
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
            index.insert(declared(namespace, name, kind, app));
        }
        index
    }

    #[test]
    fn those_are_concerned_that_select_an_object_in_their_namespace() {
        assert_eq!(
            concerned(&index(), None, Some(&object(Some("shop"), "web", None))),
            ["shop/web"]
        );
        assert!(concerned(&index(), None, Some(&object(Some("shop"), "none", None))).is_empty());
    }

    #[test]
    fn who_selected_an_object_before_is_concerned_too() {
        let (old, new) = (object(Some("shop"), "web", None), object(Some("shop"), "db", None));
        assert_eq!(concerned(&index(), Some(&old), Some(&new)), ["shop/db", "shop/web"]);
        assert_eq!(concerned(&index(), Some(&old), None), ["shop/web"]);
    }

    #[test]
    fn who_owns_an_object_is_concerned_although_it_does_not_select_it() {
        let owned = object(Some("shop"), "none", Some("uid-shop-db"));
        assert_eq!(concerned(&index(), None, Some(&owned)), ["shop/db"]);
    }

    #[test]
    fn an_object_without_a_namespace_concerns_those_of_any() {
        assert_eq!(
            concerned(&index(), None, Some(&object(None, "web", None))),
            ["bank/web", "shop/web"]
        );
    }

    #[test]
    fn what_was_taken_out_or_declared_otherwise_is_not_concerned() {
        let index = index();
        index.remove(&named("shop", "web"));
        index.insert(declared("bank", "web", "Service", "web"));
        assert!(concerned(&index, None, Some(&object(None, "web", None))).is_empty());
        let users = index.users(&GroupKind::new("", "Service"));
        assert_eq!(users.len(), 2, "{users:?}");
        index.remove(&named("bank", "web"));
        assert_eq!(index.users(&GroupKind::new("", "Service")).len(), 1);
    }
}

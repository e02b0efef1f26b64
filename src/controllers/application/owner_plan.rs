//! Who is to own what: pure.
//!
//! An Application that adopts is an owner of each of its components, so that they go when it goes; of what is no component any
//! more it ceases to be one. Nothing that would make the collector of garbage take too much is ever done: an object without a
//! namespace can't be owned by one that has one, and Applications never own each other in a circle.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::index::{Index, is_component, is_owned};
use super::spec::AppSpec;
use super::status::Problem;
use crate::api::NamespacedName;
use crate::runtime::owner_refs::{self as owners, Change, Target};
use crate::runtime::watch::{GroupKind, KindState, Object, Resource, View};

/// The API version that stands in owner references.
const API_VERSION: &str = "app.k8s.io/v1beta1";

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Owners to be changed.
    pub changes: Vec<Planned>,
    /// Why some components are not adopted.
    pub problems: Vec<Problem>,
    /// The kinds of which something is owned now.
    pub owned_kinds: BTreeSet<GroupKind>,
    /// The kinds of which nothing is owned for certain.
    pub clean_kinds: BTreeSet<GroupKind>,
}

/// One change.
#[derive(Debug)]
pub struct Planned {
    /// The kind of the object.
    pub kind: GroupKind,
    /// Which it is, as it is known.
    pub target: Target,
    /// What is to be done to its owners.
    pub change: Change,
}

impl Planned {
    /// Whether the Application is to become an owner, rather than to cease to be one.
    #[must_use]
    pub fn is_set(&self) -> bool {
        matches!(self.change, Change::Set(_))
    }
}

impl Plan {
    /// The kinds that have to be on record before the first change is made: those of which something is or will be owned, and
    /// those of which that can't be ruled out.
    #[must_use]
    pub fn record(&self, declared: &AppSpec) -> BTreeSet<GroupKind> {
        let adopted = self.changes.iter().filter(|planned| planned.is_set());
        let adopted = adopted.map(|planned| &planned.kind);
        let not_clean = declared.recorded.iter().filter(|kind| !self.clean_kinds.contains(kind));
        let kinds = self.owned_kinds.iter().chain(adopted).chain(not_clean);
        kinds.cloned().collect()
    }
}

/// The kind of Applications themselves.
#[must_use]
pub fn application_kind() -> GroupKind {
    GroupKind::new("app.k8s.io", "Application")
}

/// What has to be done to the objects that are known, so that those are owned that should be, and no others.
#[must_use]
pub fn plan<K>(declared: &AppSpec, kinds: &[(GroupKind, KindState<K>)], index: &Index) -> Plan {
    let mut plan = Plan::default();
    if declared.selection.is_err() {
        // What is to be owned is not known.
        return plan;
    }
    for (kind, look) in kinds {
        if let KindState::Objects(view) = look {
            plan.add(declared, kind, view, index);
        }
    }
    plan
}

impl Plan {
    fn add<K>(&mut self, declared: &AppSpec, kind: &GroupKind, view: &View<K>, index: &Index) {
        let is_of_applications = declared.adopts && *kind == application_kind();
        let circle = if is_of_applications {
            circle(declared, view, index)
        } else {
            BTreeSet::new()
        };
        let (mut homeless, mut in_circle, mut is_clean) = (0, Vec::new(), view.polled.is_none());
        for object in &view.objects {
            let is_owned = is_owned(declared, object);
            if is_owned {
                self.owned_kinds.insert(kind.clone());
                is_clean = false;
            }
            // What is being deleted needs nothing any more.
            if object.is_being_deleted {
                continue;
            }
            let mut is_wanted = declared.adopts && is_component(declared, kind, object) && *object.uid != *declared.uid;
            if is_wanted && !view.resource.is_namespaced {
                homeless += 1;
                is_wanted = false;
            }
            if is_wanted && circle.contains(&*object.name) {
                in_circle.push(object.name.to_string());
                is_wanted = false;
            }
            let change = if is_wanted {
                Some(Change::Set(owner(declared)))
            } else {
                is_owned.then(|| Change::Remove(declared.uid.clone()))
            };
            if let Some(change) =
                change.filter(|change| owners::changed(&object.owner_references.to_vec(), change).is_some())
            {
                self.changes.push(Planned {
                    kind: kind.clone(),
                    target: target(&view.resource, object),
                    change,
                });
            }
        }
        if is_clean {
            self.clean_kinds.insert(kind.clone());
        }
        if homeless > 0 {
            self.problems.push(Problem::aside(format!(
                "{homeless} of {kind} are not adopted: what is in no namespace can't be owned by what is in one"
            )));
        }
        if !in_circle.is_empty() {
            self.problems.push(Problem::aside(format!(
                "not adopted, since they would adopt this Application in turn: {}",
                in_circle.join(", ")
            )));
        }
    }
}

fn owner(declared: &AppSpec) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: "Application".to_owned(),
        name: declared.name.name.clone(),
        uid: declared.uid.clone(),
        controller: Some(false),
        block_owner_deletion: Some(true),
    }
}

fn target<K>(resource: &Resource, object: &Object<K>) -> Target {
    Target {
        resource: resource.clone(),
        namespace: object.namespace.as_deref().map(str::to_owned),
        name: object.name.to_string(),
        uid: object.uid.to_string(),
        version: object.version.to_string(),
        owners: object.owner_references.to_vec(),
    }
}

/// The Applications of the namespace from which adoption leads back to this one: found from this one backwards.
fn circle<K>(declared: &AppSpec, view: &View<K>, index: &Index) -> BTreeSet<String> {
    let name_of = |object: &Object<K>| NamespacedName {
        namespace: declared.name.namespace.clone(),
        name: object.name.to_string(),
    };
    let mut adopters: Vec<_> = view
        .objects
        .iter()
        .filter_map(|object| index.get(&name_of(object)))
        .filter(|other| other.adopts && other.name != declared.name)
        .collect();
    let mut open: Vec<&Arc<Object<K>>> = view
        .objects
        .iter()
        .filter(|object| *object.uid == *declared.uid)
        .collect();
    let mut leading_back = BTreeSet::new();
    while let Some(adopted) = open.pop() {
        let (found, others) = adopters
            .into_iter()
            .partition(|other| is_component(other, &application_kind(), adopted));
        adopters = others;
        let found: Vec<Arc<AppSpec>> = found;
        leading_back.extend(found.iter().map(|other| other.name.name.clone()));
        let is_found = |object: &&Arc<Object<K>>| found.iter().any(|other| *other.uid == *object.uid);
        open.extend(view.objects.iter().filter(is_found));
    }
    leading_back
}

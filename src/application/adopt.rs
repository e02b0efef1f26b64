//! Who is to own what: pure.
//!
//! An Application that adopts is an owner of each of its components, so that they go when it goes; of what is no component any
//! more it ceases to be one. Nothing that would make the collector of garbage take too much is ever done: an object without a
//! namespace can't be owned by one that has one, and Applications never own each other in a circle.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::assess::Problem;
use super::declared::Declared;
use super::index::{Index, is_component, is_owned};
use crate::api::ComponentStatus;
use crate::informer::ObjectName;
use crate::objects::owners::{self, Change, Target};
use crate::objects::{GroupKind, Look, Object, Resource, View};

/// The API version that stands in owner references.
const API_VERSION: &str = "app.k8s.io/v1beta1";

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Owners to be changed.
    pub changes: Vec<(Target, Change)>,
    /// Why some components are not adopted.
    pub problems: Vec<Problem>,
}

/// The kind of Applications themselves.
#[must_use]
pub fn application_kind() -> GroupKind {
    GroupKind::new("app.k8s.io", "Application")
}

/// What has to be done to the objects that are known, so that those are owned that should be, and no others.
#[must_use]
pub fn plan<K>(declared: &Declared, kinds: &[(GroupKind, Look<K>)], index: &Index) -> Plan {
    let mut plan = Plan::default();
    if declared.selection.is_err() {
        // What is to be owned is not known.
        return plan;
    }
    for (kind, look) in kinds {
        let Look::Objects(view) = look else { continue };
        let circle = if *kind == application_kind() {
            circle(declared, view, index)
        } else {
            BTreeSet::new()
        };
        let (mut homeless, mut in_circle) = (0, Vec::new());
        // What is being deleted needs nothing any more.
        for object in view.objects.iter().filter(|object| !object.is_being_deleted) {
            let mut is_wanted = declared.adopts && is_component(declared, object) && *object.uid != *declared.uid;
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
                is_owned(declared, object).then(|| Change::Remove(declared.uid.clone()))
            };
            if let Some(change) = change.filter(|change| owners::changed(&object.owner_references, change).is_some()) {
                plan.changes.push((target(&view.resource, object), change));
            }
        }
        if homeless > 0 {
            plan.problems.push(Problem::aside(format!(
                "{homeless} of {kind} are not adopted: what is in no namespace can't be owned by what is in one"
            )));
        }
        if !in_circle.is_empty() {
            plan.problems.push(Problem::aside(format!(
                "not adopted, since they would adopt this Application in turn: {}",
                in_circle.join(", ")
            )));
        }
    }
    plan
}

/// What is to be let go of kinds that are not looked at any more: all that the status still names. It is asked of the API server
/// whether each is owned at all.
#[must_use]
pub fn left_behind(
    declared: &Declared,
    before: &[ComponentStatus],
    resource: impl Fn(&GroupKind) -> Option<Resource>,
) -> Vec<(Target, Change)> {
    let is_looked_at = |kind: &GroupKind| declared.selects_anything() && declared.kinds.contains(kind);
    before
        .iter()
        .filter_map(|component| {
            let kind = GroupKind::new(component.group.clone().unwrap_or_default(), component.kind.clone()?);
            let resource = if is_looked_at(&kind) { None } else { resource(&kind) }?;
            let target = Target {
                namespace: resource.is_namespaced.then(|| declared.name.namespace.clone()),
                resource,
                name: component.name.clone()?,
                uid: None,
            };
            Some((target, Change::Remove(declared.uid.clone())))
        })
        .collect()
}

fn owner(declared: &Declared) -> OwnerReference {
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
        uid: Some(object.uid.to_string()),
    }
}

/// The Applications of the namespace from which adoption leads back to this one.
fn circle<K>(declared: &Declared, view: &View<K>, index: &Index) -> BTreeSet<String> {
    let adopted_by = |name: &str| -> Vec<&str> {
        let name = ObjectName {
            namespace: declared.name.namespace.clone(),
            name: name.to_owned(),
        };
        let Some(other) = index
            .get(&name)
            .filter(|other| other.adopts && other.kinds.contains(&application_kind()))
        else {
            return Vec::new();
        };
        let components = view
            .objects
            .iter()
            .filter(|object| is_component(&other, object) && *object.uid != *other.uid);
        components.map(|object| &*object.name).collect()
    };
    let leads_back = |start: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(name) = open.pop() {
            if name == declared.name.name {
                return true;
            }
            if seen.insert(name) {
                open.extend(adopted_by(name));
            }
        }
        false
    };
    let others = view.objects.iter().filter(|object| *object.uid != *declared.uid);
    others
        .map(|object| &*object.name)
        .filter(|name| leads_back(name))
        .map(str::to_owned)
        .collect()
}

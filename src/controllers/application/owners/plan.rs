//! Decides which owner references to add and remove, without I/O.
//!
//! An Application with `addOwnerRef` owns its components and gives up objects that are no longer components. Three rules
//! protect against excessive garbage collection: namespaced objects never own cluster-scoped ones, Applications never
//! own each other in a cycle, and kinds that restrict tenants are owned only if the operator names them.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::controllers::application::index::{Index, is_component, is_owned};
use crate::controllers::application::kinds::{ComponentKinds, application_kind, to_watch};
use crate::controllers::application::spec::AppSpec;
use crate::controllers::application::status::Problem;
use crate::runtime::owner_refs::{self as owners, OwnerChange, OwnerTarget};
use crate::runtime::watch::{GroupKind, KindState, KindView, Object, Resource};

const API_VERSION: &str = "app.k8s.io/v1beta1";

#[derive(Debug, Default)]
pub struct OwnersPlan {
    pub changes: Vec<PlannedChange>,
    pub problems: Vec<Problem>,
    pub owned_kinds: BTreeSet<GroupKind>,
    /// Kinds that certainly have no owned object.
    pub clean_kinds: BTreeSet<GroupKind>,
}

#[derive(Debug)]
pub struct PlannedChange {
    pub kind: GroupKind,
    pub target: OwnerTarget,
    pub change: OwnerChange,
}

impl PlannedChange {
    #[must_use]
    pub fn is_set(&self) -> bool {
        matches!(self.change, OwnerChange::Set(_))
    }
}

impl OwnersPlan {
    #[must_use]
    pub fn adopts(&self) -> bool {
        self.changes.iter().any(PlannedChange::is_set)
    }

    /// Returns the kinds to record before the first write: kinds with objects that are, will be, or may be owned.
    #[must_use]
    pub fn record(&self, spec: &AppSpec) -> BTreeSet<GroupKind> {
        let adopted = self.changes.iter().filter(|planned| planned.is_set());
        let not_clean = (spec.recorded_kinds.iter()).filter(|kind| !self.clean_kinds.contains(kind));
        let kinds = (self.owned_kinds.iter())
            .chain(adopted.map(|planned| &planned.kind))
            .chain(not_clean);
        kinds.cloned().collect()
    }
}

#[must_use]
pub fn plan<K>(
    spec: &AppSpec,
    kinds: &[(GroupKind, KindState<K>)],
    index: &Index,
    allowed: &ComponentKinds,
) -> OwnersPlan {
    let mut plan = OwnersPlan::default();
    if spec.selection.is_err() {
        // An invalid selector does not say which objects are components.
        return plan;
    }
    for (kind, state) in kinds {
        if let KindState::Objects(view) = state {
            plan.add(spec, kind, view, index, allowed.may_adopt(kind));
        }
    }
    plan
}

impl OwnersPlan {
    fn add<K>(&mut self, spec: &AppSpec, kind: &GroupKind, view: &KindView<K>, index: &Index, may_adopt: bool) {
        let is_of_applications = spec.add_owner_ref && *kind == application_kind();
        let cycle = if is_of_applications {
            index.adopters_of(spec, view)
        } else {
            BTreeSet::new()
        };
        let (set, remove) = (OwnerChange::Set(owner(spec)), OwnerChange::Remove(spec.uid.clone()));
        let (mut cluster_scoped, mut protected) = (0, 0);
        let (mut in_cycle, mut is_clean) = (Vec::new(), view.polled.is_none());
        for object in &view.objects {
            let is_owned = is_owned(spec, object);
            if is_owned {
                self.owned_kinds.insert(kind.clone());
                is_clean = false;
            }
            // An object being deleted needs no owners.
            if object.is_being_deleted {
                continue;
            }
            let mut is_desired = spec.add_owner_ref && is_component(spec, kind, object) && *object.uid != *spec.uid;
            if is_desired && !view.resource.is_namespaced {
                cluster_scoped += 1;
                is_desired = false;
            }
            if is_desired && !may_adopt {
                protected += 1;
                is_desired = false;
            }
            if is_desired && cycle.contains(&*object.name) {
                in_cycle.push(object.name.to_string());
                is_desired = false;
            }
            let change = match (is_desired, is_owned) {
                (true, _) => &set,
                (false, true) => &remove,
                (false, false) => continue,
            };
            if owners::changed(&object.owner_references.to_vec(), change).is_some() {
                self.changes.push(PlannedChange {
                    kind: kind.clone(),
                    target: target(&view.resource, object),
                    change: change.clone(),
                });
            }
        }
        if is_clean {
            self.clean_kinds.insert(kind.clone());
        }
        if cluster_scoped > 0 {
            self.problems.push(Problem::minor(format!(
                "{cluster_scoped} {kind} objects not adopted: cluster-scoped objects cannot have a namespaced owner"
            )));
        }
        if protected > 0 {
            self.problems.push(Problem::minor(format!(
                "{protected} {kind} objects not adopted: the kind is protected; {}",
                to_watch(kind)
            )));
        }
        if !in_cycle.is_empty() {
            self.problems.push(Problem::minor(format!(
                "not adopted to avoid an ownership cycle: {}",
                in_cycle.join(", ")
            )));
        }
    }
}

fn owner(spec: &AppSpec) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: "Application".to_owned(),
        name: spec.name.name.clone(),
        uid: spec.uid.clone(),
        controller: Some(false),
        block_owner_deletion: Some(true),
    }
}

fn target<K>(resource: &Resource, object: &Object<K>) -> OwnerTarget {
    OwnerTarget {
        resource: resource.clone(),
        namespace: object.namespace.as_deref().map(str::to_owned),
        name: object.name.to_string(),
        uid: object.uid.to_string(),
        version: object.version.to_string(),
        owners: object.owner_references.to_vec(),
    }
}

//! Which owners were changed of late: the store shows a write only after a while, and what it shows meanwhile is not done again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::adopt::{Plan, Planned};
use super::declared::Declared;
use crate::informer::ObjectName;
use crate::objects::GroupKind;

/// How long the store may take to show what was written.
pub(super) const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// What was changed of late: the store may not show it yet, and where a kind is only listed now and then it will not for long.
///
/// Ten thousand objects may be adopted before the first of these notes can go, so texts are kept as hashes of 64 bits, whose key
/// nobody knows: two that are alike in one Application are not to be expected.
#[derive(Default)]
pub struct Changed {
    by_name: Mutex<HashMap<ObjectName, Lately>>,
    hash: RandomState,
}

/// What was changed for one Application.
#[derive(Default)]
struct Lately {
    /// The UID of the Application: another of the same name has changed nothing yet.
    owner: String,
    /// By the hashes of the objects' UIDs.
    done: HashMap<u64, Done>,
}

struct Done {
    /// The kind of the object, which it shares with the others of its kind.
    kind: Arc<GroupKind>,
    /// Hash of the version of the object that the store showed then.
    version: u64,
    /// Whether the Application became an owner, or ceased to be one.
    is_set: bool,
    at: Instant,
}

impl Changed {
    /// Takes the memory of an Application away that is gone.
    pub fn forget(&self, name: &ObjectName) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectName, Lately>> {
        // The map is whole between any two statements, so a panic elsewhere leaves nothing to mend.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of the plan was not done yet to the objects as they are shown. What was done is remembered no longer than for `at_most`,
    /// and only while it is shown as it was; but that something was adopted until it is shown, as long as the store may be behind.
    pub(super) fn rest<'a>(&self, declared: &Declared, plan: &'a Plan, at_most: Duration) -> Vec<&'a Planned> {
        let mut all = self.lock();
        let before = all.remove(&declared.name).filter(|lately| lately.owner == declared.uid);
        let Some(mut lately) = before else {
            return plan.changes.iter().collect();
        };
        let (done, rest): (Vec<_>, Vec<_>) = plan.changes.iter().partition(|planned| {
            let done = lately.done.get(&self.hash(&planned.target.uid));
            let version = self.hash(&planned.target.version);
            done.is_some_and(|done| done.is(version, planned.is_set()) && done.at.elapsed() < at_most)
        });
        let held: HashSet<_> = done.iter().map(|planned| self.hash(&planned.target.uid)).collect();
        let shown: HashSet<_> = plan.owned.iter().map(|uid| self.hash(uid)).collect();
        lately
            .done
            .retain(|uid, done| held.contains(uid) || (done.is_late_adoption() && !shown.contains(uid)));
        if !lately.done.is_empty() {
            all.insert(declared.name.clone(), lately);
        }
        rest
    }

    /// The kinds of which something was adopted so lately that the store may not show it.
    pub(super) fn just_adopted(&self, declared: &Declared) -> BTreeSet<GroupKind> {
        let all = self.lock();
        let lately = all.get(&declared.name).filter(|lately| lately.owner == declared.uid);
        let done = lately.into_iter().flat_map(|lately| lately.done.values());
        done.filter(|done| done.is_late_adoption())
            .map(|done| GroupKind::clone(&done.kind))
            .collect()
    }

    pub(super) fn note(&self, declared: &Declared, planned: &Planned) {
        let mut all = self.lock();
        let lately = all.entry(declared.name.clone()).or_default();
        if lately.owner != declared.uid {
            *lately = Lately {
                owner: declared.uid.clone(),
                ..Lately::default()
            };
        }
        let known = lately.done.values().find(|done| *done.kind == planned.kind);
        let done = Done {
            kind: known.map_or_else(|| Arc::new(planned.kind.clone()), |done| Arc::clone(&done.kind)),
            version: self.hash(&planned.target.version),
            is_set: planned.is_set(),
            at: Instant::now(),
        };
        lately.done.insert(self.hash(&planned.target.uid), done);
    }

    fn hash(&self, text: &str) -> u64 {
        self.hash.hash_one(text)
    }
}

impl Done {
    /// Whether just this was done to an object that is shown in this version.
    fn is(&self, version: u64, is_set: bool) -> bool {
        self.version == version && self.is_set == is_set
    }

    /// Whether it is an adoption that the store may not show yet.
    fn is_late_adoption(&self) -> bool {
        self.is_set && self.at.elapsed() < SHOWN_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::application::adopt::plan;
    use crate::application::index::Index;
    use crate::application::judge::{ComponentState, Judgement};
    use crate::objects::{Look, Object, Resource, View};

    const LONG: Duration = Duration::from_secs(120);

    fn declared(uid: &str, adopts: bool) -> Declared {
        let application = serde_json::from_value(json!({
            "metadata": { "name": "shop", "namespace": "team", "uid": uid },
            "spec": {
                "componentKinds": [{ "group": "", "kind": "Pod" }], "addOwnerRef": adopts,
                "selector": { "matchLabels": { "app": "shop" } },
            },
        }));
        let name = ObjectName {
            namespace: "team".to_owned(),
            name: "shop".to_owned(),
        };
        Declared::of(&name, &application.unwrap())
    }

    /// What there is to do to one pod in this version.
    fn planned(declared: &Declared, version: &str, owner: Option<&str>) -> Plan {
        let owner = owner.map(
            |uid| json!([{ "apiVersion": "app.k8s.io/v1beta1", "kind": "Application", "name": "shop", "uid": uid }]),
        );
        let meta = json!({
            "name": "web", "namespace": "team", "uid": "uid-web", "resourceVersion": version,
            "labels": { "app": "shop" }, "ownerReferences": owner,
        });
        let judgement = Judgement {
            state: ComponentState::Ready,
            why: None,
        };
        let object = Object::new(serde_json::from_value(meta).unwrap(), judgement);
        let view = View {
            resource: Resource {
                api: kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("", "v1", "Pod")),
                is_namespaced: true,
                can_list: true,
            },
            objects: vec![std::sync::Arc::new(object)],
            polled: None,
        };
        plan(
            declared,
            &[(GroupKind::new("", "Pod"), Look::Objects(view))],
            &Index::default(),
        )
    }

    fn count(changed: &Changed, declared: &Declared, plan: &Plan) -> usize {
        changed.rest(declared, plan, LONG).len()
    }

    /// One that adopts, and the memory of its first adoption.
    fn adopted() -> (Declared, Changed) {
        let (declared, changed) = (declared("u", true), Changed::default());
        let plan = planned(&declared, "1", None);
        assert_eq!(count(&changed, &declared, &plan), 1);
        changed.note(&declared, &plan.changes[0]);
        (declared, changed)
    }

    #[test]
    fn what_was_done_is_not_done_again_while_the_store_shows_it_as_it_was() {
        let (declared, changed) = adopted();
        for _ in 0..2 {
            assert_eq!(count(&changed, &declared, &planned(&declared, "1", None)), 0);
        }
        let pods = BTreeSet::from([GroupKind::new("", "Pod")]);
        assert_eq!(changed.just_adopted(&declared), pods);
        let plan = planned(&declared, "1", None);
        assert_eq!(changed.rest(&declared, &plan, Duration::ZERO).len(), 1, "not for ever");
    }

    #[rstest]
    #[case::in_another_version("u", true, "2", None)]
    #[case::of_another_application("v", true, "1", None)]
    #[case::that_is_the_opposite("u", false, "1", Some("u"))]
    fn what_is_to_be_done_to_an_object(
        #[case] uid: &str,
        #[case] adopts: bool,
        #[case] version: &str,
        #[case] owner: Option<&str>,
    ) {
        let (_, changed) = adopted();
        let declared = declared(uid, adopts);
        assert_eq!(count(&changed, &declared, &planned(&declared, version, owner)), 1);
    }

    #[test]
    fn an_adoption_is_remembered_until_the_store_shows_it() {
        let (declared, changed) = adopted();
        // Its labels were taken off: nothing is to be done, and nothing is owned as far as is shown.
        let mut otherwise = planned(&declared, "1", None);
        otherwise.changes.clear();
        assert_eq!(count(&changed, &declared, &otherwise), 0);
        assert_eq!(changed.just_adopted(&declared).len(), 1);
        assert_eq!(count(&changed, &declared, &planned(&declared, "2", Some("u"))), 0);
        assert!(changed.lock().is_empty(), "ten thousand notes would be some megabytes");
    }

    #[test]
    fn of_an_application_that_is_gone_nothing_is_remembered() {
        let (declared, changed) = adopted();
        changed.forget(&declared.name);
        assert!(changed.just_adopted(&declared).is_empty());
    }

    #[test]
    fn what_was_let_go_of_again_is_not_just_adopted() {
        let (_, changed) = adopted();
        let declared = declared("u", false);
        let plan = planned(&declared, "2", Some("u"));
        assert_eq!(count(&changed, &declared, &plan), 1);
        changed.note(&declared, &plan.changes[0]);
        assert!(changed.just_adopted(&declared).is_empty());
        assert_eq!(count(&changed, &declared, &planned(&declared, "3", None)), 0);
        assert!(changed.lock().is_empty(), "nothing of it is kept once it is shown");
    }
}

//! The objects of older versions that a run removes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use kube::ResourceExt;

use super::clusters::ComparedClusters;
use super::target::DiffTarget;
use crate::api::oam::{ManagedResource, labels};
use crate::cmd::vela::objects;
use crate::controllers::oam::collect::{self, Subject};
use crate::controllers::oam::objects::{ObjectError, ObjectId};
use crate::controllers::oam::trackers::{ResourceKey, display_name};

impl DiffTarget {
    /// Returns a line for each object of older versions that is collected after the run, and for each object and cluster
    /// that can't be read.
    pub async fn collected(&self, clusters: &ComparedClusters, wanted: &HashSet<ResourceKey>) -> Vec<String> {
        let rules = &self.parsed.rules;
        if rules.garbage_collect.keep_legacy_resource {
            return Vec::new();
        }
        let identity = objects::identity(&self.application);
        let subject = Subject {
            app: &identity,
            rules: &rules.garbage_collect,
            read_only: &rules.read_only,
            orphans_all: self
                .application
                .finalizers()
                .iter()
                .any(|finalizer| finalizer == labels::ORPHAN_FINALIZER),
            is_deleting: false,
            dependents: &BTreeMap::new(),
        };
        let mut lines = Vec::new();
        let mut problems = BTreeSet::new();
        for entry in self.unwanted(wanted) {
            let cluster = match clusters.of(&entry.cluster).await {
                Ok(cluster) => cluster,
                Err(problem) => {
                    problems.insert(format!("unknown   objects of older versions: {problem}"));
                    continue;
                }
            };
            let live = match cluster.objects.read(&ObjectId::of_entry(entry)).await {
                Ok(live) => live,
                // Its objects are gone with it.
                Err(ObjectError::NotInstalled { .. }) => None,
                Err(error) => {
                    problems.insert(format!("unknown   {}: {error}", display_name(entry)));
                    continue;
                }
            };
            let decision = live.map(|live| collect::decide(&subject, entry, &live));
            match decision {
                Some(collect::GarbageDecision::Delete { .. }) => {
                    lines.push(format!("remove    {}", display_name(entry)))
                }
                Some(collect::GarbageDecision::Release(_)) => lines.push(format!("release   {}", display_name(entry))),
                _ => {}
            }
        }
        lines.extend(problems);
        lines
    }

    /// Returns the newest records of objects that only older versions have.
    fn unwanted(&self, wanted: &HashSet<ResourceKey>) -> Vec<&ManagedResource> {
        let (current, root) = (self.inventory.current.iter(), self.inventory.root.iter());
        let (old, kept) = if self.has_new_tracker {
            (Some(current), None)
        } else {
            (None, Some(current))
        };
        let kept = root
            .chain(kept.into_iter().flatten())
            .flat_map(|tracker| &tracker.entries);
        let mut seen: HashSet<ResourceKey> = kept.map(ResourceKey::of).collect();
        let old = self.inventory.history.iter().chain(old.into_iter().flatten());
        let entries = old.rev().flat_map(|tracker| &tracker.entries);
        let unwanted = entries.filter(|entry| {
            let key = ResourceKey::of(entry);
            let is_left = entry.deleted || self.plan.may_apply(entry);
            !is_left && !wanted.contains(&key) && seen.insert(key)
        });
        unwanted.collect()
    }
}

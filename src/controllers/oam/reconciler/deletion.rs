//! Garbage collection and deletion of an Application.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;

use super::conditions::{self, Failure, phase};
use super::metadata::{ORPHAN_FINALIZER, TRACKER_FINALIZER};
use super::pass::{End, Pass, Stop};
use super::revision::Current;
use crate::api::oam::Component;
use crate::controllers::oam::collect::{Mark, Progress, Subject};
use crate::controllers::oam::parse::Parsed;
use crate::controllers::oam::policies::Policies;
use crate::controllers::oam::revisions::{expendable, in_use};
use crate::controllers::oam::trackers::{Inventory, ResourceKey};

/// Time until a deletion that waits is looked at again, if no event comes first.
const WAIT: Duration = Duration::from_secs(3);
/// Annotation: the guard of garbage collection is lifted for a generation, set by `portolan app gc --confirm`.
pub const CONFIRMED: &str = "portolan.dev/confirm-collection";

impl Pass<'_> {
    /// Deletes the objects of an Application that is being deleted, then its revisions, then its finalizers.
    pub(super) async fn delete(&mut self) -> Result<End, Stop> {
        let finalizers = self.app.finalizers().to_vec();
        let is_ours = |finalizer: &String| [TRACKER_FINALIZER, ORPHAN_FINALIZER].contains(&finalizer.as_str());
        if !finalizers.iter().any(is_ours) {
            return Ok(End::Gone);
        }
        phase::DELETING.clone_into(&mut self.status.phase);
        let spec = self.app.spec.clone();
        // Invalid policies must not keep an Application from being deleted.
        let policies = Policies::parse(&spec.policies, false).unwrap_or_default();
        let progress = self.collect(&policies, &spec.components, Mark::All).await?;
        if let Progress::Waiting { message } = progress {
            conditions::deleting(&mut self.status, &message, self.now);
            self.look_again_in(WAIT);
            return Ok(End::Waiting);
        }
        let revisions = self.reconciler.caches.revisions_of(self.name);
        let names: Vec<String> = revisions.iter().map(|revision| revision.name_any()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let deleted = self
            .reconciler
            .collector
            .delete_revisions(&self.name.namespace, &names)
            .await;
        deleted.map_err(|error| Failure::synced("FailedGC", error.to_string()))?;
        let finalizers: Vec<String> = finalizers.into_iter().filter(|finalizer| !is_ours(finalizer)).collect();
        match self.patch_metadata(json!({ "finalizers": finalizers })).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(self.stop(&error)),
        }
        Ok(End::Gone)
    }

    /// Goes on with the collection of trackers that are being deleted.
    pub(super) async fn collect_unmarked(&mut self, parsed: &Parsed) -> Result<(), Stop> {
        let progress = self.collect(&parsed.rules, &parsed.spec.components, Mark::No).await?;
        self.wait_for(&progress);
        Ok(())
    }

    /// Collects objects of older versions, and revisions beyond the limit.
    pub(super) async fn collect_marked(&mut self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        let applied: HashSet<ResourceKey> = self
            .inventory
            .current
            .iter()
            .chain(&self.inventory.root)
            .flat_map(|tracker| &tracker.entries)
            .map(ResourceKey::of)
            .collect();
        let generation = self.app.metadata.generation.unwrap_or_default().to_string();
        let is_confirmed = self.app.annotations().get(CONFIRMED) == Some(&generation);
        let mark = Mark::History {
            applied: &applied,
            is_confirmed,
        };
        let progress = self.collect(&parsed.rules, &parsed.spec.components, mark).await?;
        self.wait_for(&progress);
        self.delete_old_revisions(current, parsed).await
    }

    fn wait_for(&mut self, progress: &Progress) {
        if let Progress::Waiting { .. } = progress {
            self.look_again_in(WAIT);
        }
    }

    async fn collect(
        &mut self,
        policies: &Policies,
        components: &[Component],
        mark: Mark<'_>,
    ) -> Result<Progress, Stop> {
        let identity = self.identity();
        let dependents = dependents(components);
        let subject = Subject {
            app: &identity,
            rules: &policies.garbage_collect,
            read_only: &policies.read_only,
            orphans_all: self.app.finalizers().iter().any(|one| one == ORPHAN_FINALIZER),
            dependents: &dependents,
        };
        let mut inventory: Inventory = std::mem::take(&mut self.inventory);
        let result = self.reconciler.collector.collect(&subject, &mut inventory, mark).await;
        self.inventory = inventory;
        result.map_err(|error| Failure::synced("FailedGC", error.to_string()).into())
    }

    async fn delete_old_revisions(&self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        let revisions = self.reconciler.caches.revisions_of(self.name);
        let names: Vec<String> = revisions.iter().map(|revision| revision.name_any()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let current = current.name();
        let mut used = in_use(self.status.latest_revision.as_ref(), &self.inventory);
        used.insert(&current);
        let rules = &parsed.rules.garbage_collect;
        let limit = rules.revision_limit().unwrap_or(self.reconciler.options.revision_limit);
        let old = expendable(&names, &used, limit);
        if old.is_empty() {
            return Ok(());
        }
        let deleted = self
            .reconciler
            .collector
            .delete_revisions(&self.name.namespace, &old)
            .await;
        deleted.map_err(|error| Failure::synced("FailedGC", error.to_string()).into())
    }
}

/// Returns the components that depend on each component, by `dependsOn` or by an input from its outputs.
fn dependents(components: &[Component]) -> BTreeMap<String, BTreeSet<String>> {
    let mut dependents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for component in components {
        let provides = |other: &&Component| {
            let is_input = |output: &crate::api::oam::StepOutput| {
                let from = component
                    .inputs
                    .iter()
                    .map(|input| input.from.split('.').next().unwrap_or_default());
                from.into_iter().any(|from| from == output.name)
            };
            other.outputs.iter().any(is_input)
        };
        let providers = components.iter().filter(provides).map(|other| &other.name);
        for dependency in component.depends_on.iter().chain(providers) {
            dependents
                .entry(dependency.clone())
                .or_default()
                .insert(component.name.clone());
        }
    }
    dependents
}

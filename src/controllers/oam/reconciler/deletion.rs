//! Garbage collection and deletion of an Application.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use kube::api::ListParams;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::conditions::{self, Failure, phase};
use super::metadata::TRACKER_FINALIZER;
use super::pass::{End, Pass, Stop};
use super::revision::Current;
use crate::api::oam::{Component, labels};
use crate::controllers::oam::collect::{Collector, Mark, Progress, Subject};
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::parse::Parsed;
use crate::controllers::oam::policies::Policies;
use crate::controllers::oam::revisions::{expendable, in_use};
use crate::controllers::oam::trackers::{Inventory, ResourceKey};
use crate::runtime::kube_client::call;

/// Trackers that are looked for before the finalizers are removed.
const MAX_LISTED: u32 = 100;
/// Time until a deletion that waits is looked at again, if no event comes first.
const WAIT: Duration = Duration::from_secs(3);
/// Annotation: the guard of garbage collection is lifted for a generation, set by `portolan vela gc --confirm`.
pub const CONFIRMED: &str = "portolan.dev/confirm-collection";

impl Pass<'_> {
    /// Deletes the objects of an Application that is being deleted, then its revisions, then its finalizers.
    pub(super) async fn delete(&mut self) -> Result<End, Stop> {
        let finalizers = self.app.finalizers().to_vec();
        let is_ours = |finalizer: &String| [TRACKER_FINALIZER, labels::ORPHAN_FINALIZER].contains(&finalizer.as_str());
        if !finalizers.iter().any(is_ours) {
            return Ok(End::Gone);
        }
        phase::DELETING.clone_into(&mut self.status.phase);
        let (policies, components) = self.policies_of_deletion()?;
        let progress = self.collect(&policies, &components, Mark::All).await?;
        if let Progress::Waiting { message } = progress {
            conditions::deleting(&mut self.status, &message, self.now);
            self.look_again_in(WAIT);
            return Ok(End::Waiting);
        }
        if self.has_trackers().await? {
            return Err(Stop::Stale);
        }
        let held = self.delete_revisions().await?;
        if let Some(first) = held.first() {
            let (namespace, count) = (&self.name.namespace, held.len());
            let message = format!(
                "Waiting for ApplicationRevision {first} (Namespace: {namespace}) to delete. \
                 (At least {count} resources are deleting.)"
            );
            conditions::deleting(&mut self.status, &message, self.now);
            self.look_again_in(WAIT);
            return Ok(End::Waiting);
        }
        let finalizers: Vec<String> = finalizers.into_iter().filter(|finalizer| !is_ours(finalizer)).collect();
        match self.patch_metadata(json!({ "finalizers": finalizers })).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(self.stop(&error)),
        }
        Ok(End::Gone)
    }

    /// Deletes the revisions of the Application. Returns the names of those that finalizers of others hold.
    async fn delete_revisions(&self) -> Result<Vec<String>, Stop> {
        let (names, mut held) = self.revision_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let deleted = self
            .reconciler
            .collector
            .delete_revisions(&self.name.namespace, &names)
            .await;
        held.extend(deleted.map_err(|error| Failure::synced("FailedGC", error.to_string()))?);
        held.sort();
        Ok(held)
    }

    /// Returns the names of the revisions, those that are being deleted apart.
    fn revision_names(&self) -> (Vec<String>, Vec<String>) {
        let (mut names, mut deleting) = (Vec::new(), Vec::new());
        for revision in self.reconciler.caches.revisions_of(self.name) {
            match revision.meta().deletion_timestamp {
                None => names.push(revision.name_any()),
                Some(_) => deleting.push(revision.name_any()),
            }
        }
        (names, deleting)
    }

    /// Returns the policies and components by which an Application is deleted. If its policies are invalid, those of its
    /// revision decide: they may keep objects. Without objects there is nothing to decide.
    fn policies_of_deletion(&self) -> Result<(Policies, Vec<Component>), Stop> {
        let mut trackers = self.inventory.in_order().chain(&self.inventory.component_revision);
        if trackers.next().is_none() {
            return Ok((Policies::default(), Vec::new()));
        }
        let is_release = self.app.annotations().contains_key(labels::PUBLISH_VERSION);
        let declared = Policies::parse(&self.app.spec.policies, false);
        // A revision that can't be read must not keep an Application whose own policies are valid.
        if !is_release && let Ok(policies) = declared {
            return Ok((policies, self.app.spec.components.clone()));
        }
        if let Some(latest) = self.latest_revision()? {
            let spec = &latest.contents.application.spec;
            if let Ok(policies) = Policies::parse(&spec.policies, false) {
                return Ok((policies, spec.components.clone()));
            }
        }
        let cause = match declared {
            Ok(policies) => return Ok((policies, self.app.spec.components.clone())),
            Err(cause) => cause,
        };
        let message = format!("failed to parsePolicies: {cause}; fix the policies, which decide about objects to keep");
        Err(Failure::synced("FailedGC", message).into())
    }

    /// Asks the API server for trackers of the Application: the cache may lack one that was just created.
    async fn has_trackers(&self) -> Result<bool, Stop> {
        let selector = format!(
            "{}={},{}={}",
            labels::APP_NAME,
            self.name.name,
            labels::APP_NAMESPACE,
            self.name.namespace
        );
        let parameters = ListParams::default().labels(&selector).limit(MAX_LISTED);
        let list = call(self.trackers().list_metadata(&parameters)).await;
        let list = list.map_err(|error| Failure::synced("FailedGC", error.to_string()))?;
        let uid = self.app.uid();
        let is_own =
            |labels: &BTreeMap<String, String>| labels.get(labels::APP_UID).is_none_or(|own| Some(own) == uid.as_ref());
        Ok(list.items.iter().any(|tracker| is_own(tracker.labels())))
    }

    /// Goes on with the collection of trackers that are being deleted.
    pub(super) async fn collect_unmarked(&mut self, parsed: &Parsed) -> Result<(), Stop> {
        let progress = self.collect(&parsed.rules, &parsed.spec.components, Mark::No).await?;
        self.wait_for(&progress);
        Ok(())
    }

    /// Collects objects of older versions, and revisions beyond the limit.
    pub(super) async fn collect_marked(&mut self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        // Without all that is declared, it is not known what may go.
        let Some(applied) = self.declared.clone() else {
            return self.collect_unmarked(parsed).await;
        };
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

    /// Collects after a failed run, if all that is declared is recorded: objects of components that failed stay.
    pub(super) async fn collect_after_failure(&mut self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        self.declare_all(current, parsed).await?;
        let recorded = self.inventory.current.iter().chain(&self.inventory.root);
        let recorded: HashSet<ResourceKey> = recorded
            .flat_map(|tracker| &tracker.entries)
            .map(ResourceKey::of)
            .collect();
        let is_complete = |declared: &HashSet<ResourceKey>| declared.is_subset(&recorded);
        match self.declared.as_ref().is_some_and(is_complete) {
            true => self.collect_marked(current, parsed).await,
            false => self.collect_unmarked(parsed).await,
        }
    }

    /// Shows what a collection waits for.
    fn wait_for(&mut self, progress: &Progress) {
        if let Progress::Waiting { message } = progress {
            conditions::deleting(&mut self.status, message, self.now);
            self.waits_for_collection = true;
            self.look_again_in(WAIT);
        }
    }

    async fn collect(
        &mut self,
        policies: &Policies,
        components: &[Component],
        mark: Mark<'_>,
    ) -> Result<Progress, Stop> {
        let _timer = self.reconciler.metrics.time(PassStage::Collect);
        let identity = self.identity();
        let dependents = dependents(components);
        let subject = Subject {
            app: &identity,
            rules: &policies.garbage_collect,
            read_only: &policies.read_only,
            orphans_all: self.app.finalizers().iter().any(|one| one == labels::ORPHAN_FINALIZER),
            dependents: &dependents,
        };
        let mut inventory: Inventory = std::mem::take(&mut self.inventory);
        let collector = Collector {
            objects: self.objects.clone(),
            ..self.reconciler.collector.clone()
        };
        let result = collector.collect(&subject, &mut inventory, mark).await;
        self.inventory = inventory;
        result.map_err(|error| Failure::synced("FailedGC", error.to_string()).into())
    }

    async fn delete_old_revisions(&self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        let (names, _) = self.revision_names();
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
        // Those that are held are waited for when the Application is deleted.
        deleted
            .map(drop)
            .map_err(|error| Failure::synced("FailedGC", error.to_string()).into())
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

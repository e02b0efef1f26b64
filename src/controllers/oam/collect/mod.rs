//! Garbage collection: the objects of older versions of an Application, and of deleted Applications.
//!
//! ```text
//!  mark: delete trackers ─► finalize: delete, release or hand over their objects ─► sweep: remove their finalizers
//! ```
//!
//! The finalizer keeps a tracker until its objects are gone or recorded by a newer tracker. All state is in the API
//! server, so a pass may end after any request.

mod candidates;
mod decide;
mod failures;
mod order;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use kube::{Client, ResourceExt};

use super::clusters::ClusterError;
use super::objects::{ObjectError, ObjectId, Objects};
use super::policies::{GarbageCollect, SelectedResources};
use super::trackers::{AppIdentity, Inventory, ResourceKey, Tracker, check_mark, cluster_name};
use crate::api::oam::{ManagedResource, labels};
use candidates::{EntryState, GarbageCandidate};
pub use decide::{GarbageDecision, decide, is_managed};
pub use failures::CollectError;
use failures::CollectFailures;

#[derive(Clone)]
pub struct Collector {
    /// With the rights of the Application.
    pub objects: Objects,
    /// For trackers and revisions, which belong to the controller.
    pub client: Client,
    /// Maximum number of requests at the same time.
    pub write_limit: usize,
}

pub struct Subject<'a> {
    pub app: &'a AppIdentity,
    pub rules: &'a GarbageCollect,
    pub read_only: &'a SelectedResources,
    /// All objects stay, without the labels of the Application (finalizer `app.oam.dev/orphan-resource`).
    pub orphans_all: bool,
    pub is_deleting: bool,
    /// The components that depend on a component, by `dependsOn` or by an input from its outputs.
    pub dependents: &'a BTreeMap<String, BTreeSet<String>>,
}

/// The trackers to delete.
#[derive(Clone, Copy, Debug)]
pub enum Mark<'a> {
    /// None. The collection of trackers that are being deleted goes on.
    No,
    /// The trackers of older versions, after the workflow applied these objects.
    History {
        applied: &'a HashSet<ResourceKey>,
        is_confirmed: bool,
    },
    All,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectProgress {
    Done,
    /// Objects remain.
    Waiting {
        message: String,
        /// All of them are in clusters that can't be reached, or wait for those. A cluster that can be reached again is
        /// reported.
        is_unreachable: bool,
    },
}

impl Collector {
    /// Updates trackers that are marked or gone in `inventory`. A failed request does not stop the others.
    pub async fn collect(
        &self,
        subject: &Subject<'_>,
        inventory: &mut Inventory,
        mark: Mark<'_>,
    ) -> Result<CollectProgress, CollectError> {
        retain(inventory, |tracker| !tracker.is_deleting() || has_finalizer(tracker));
        let is_marked = match mark {
            Mark::No => false,
            Mark::History { .. } => !inventory.history.is_empty(),
            Mark::All => inventory.all().next().is_some(),
        };
        if !is_marked && !inventory.all().any(Tracker::is_deleting) {
            return Ok(CollectProgress::Done);
        }
        let mut failures = CollectFailures::default();
        let unresolved = self.clear_namespaces(subject, inventory, &mut failures).await?;
        self.mark(subject, inventory, mark, &mut failures).await?;
        let is_ordered =
            !subject.dependents.is_empty() && (subject.rules.is_ordered_by_dependency() || matches!(mark, Mark::All));
        let finalized = self.finalize(subject, inventory, is_ordered, &unresolved, &mut failures);
        let (released, progress) = finalized.await;
        self.sweep(inventory, &released, &mut failures).await;
        failures.result().map(|()| progress)
    }

    /// Returns the revisions that remain until their finalizers are removed. A failed request does not stop the others.
    pub async fn delete_revisions(&self, namespace: &str, names: &[&str]) -> Result<Vec<String>, CollectError> {
        let delete = async |name: &str| {
            (
                name.to_owned(),
                requests::delete_revision(&self.client, namespace, name).await,
            )
        };
        let results: Vec<_> = self.concurrently(names.iter().copied().map(delete)).await;
        let (mut held, mut failures) = (Vec::new(), CollectFailures::default());
        for (name, result) in results {
            match result {
                Ok(true) => held.push(name),
                Ok(false) => {}
                Err(error) => failures.push(format!("failed to delete applicationrevision {name}: {error}")),
            }
        }
        held.sort();
        failures.result().map(|()| held)
    }

    /// Sends requests. Boxed, because the compiler can't tell that the lazy requests are `Send`.
    fn concurrently<'a, F>(&self, requests: impl Iterator<Item = F> + Send + 'a) -> BoxFuture<'a, Vec<F::Output>>
    where
        F: Future<Output: Send> + Send + 'a,
    {
        let limit = self.write_limit.max(1);
        stream::iter(requests).buffer_unordered(limit).collect().boxed()
    }

    /// Clears the namespaces of cluster-scoped objects, which old versions of KubeVela recorded. The same object would
    /// otherwise have two keys, and be deleted because the newer tracker seems to lack it. Returns the state of all objects
    /// in joined clusters that don't tell: they stay, even if their cluster answers later in the pass.
    async fn clear_namespaces(
        &self,
        subject: &Subject<'_>,
        inventory: &mut Inventory,
        failures: &mut CollectFailures,
    ) -> Result<Unresolved, CollectError> {
        let is_cleared = |entry: &ManagedResource| entry.namespace.is_empty();
        let kinds: BTreeMap<ClusterKind, ObjectId> = inventory
            .all()
            .flat_map(|tracker| &tracker.entries)
            .filter(|entry| !is_cleared(entry))
            .map(|entry| (kind_of(entry), ObjectId::of_entry(entry)))
            .collect();
        let (mut cluster_scoped, mut unresolved) = (HashSet::new(), Unresolved::new());
        for (kind, id) in kinds {
            match self.objects.is_namespaced(&id).await {
                Ok(false) => {
                    cluster_scoped.insert(kind);
                }
                Ok(true) | Err(ObjectError::NotInstalled { .. }) => {}
                // All objects go, whatever their keys.
                Err(ObjectError::Cluster(_)) if subject.is_deleting => {}
                Err(ObjectError::Cluster(error)) => drop(unresolved.insert(id.cluster, EntryState::Unreachable(error))),
                Err(error) => {
                    let failure = format!("failed to discover {}: {error}", id.kind);
                    if id.is_local() {
                        return Err(CollectError::Failed(failure));
                    }
                    failures.push(failure);
                    unresolved.insert(id.cluster, EntryState::Failed);
                }
            }
        }
        if cluster_scoped.is_empty() {
            return Ok(unresolved);
        }
        for entry in inventory.all_mut().flat_map(|tracker| &mut tracker.entries) {
            if !is_cleared(entry) && cluster_scoped.contains(&kind_of(entry)) {
                entry.namespace.clear();
            }
        }
        Ok(unresolved)
    }

    async fn mark(
        &self,
        subject: &Subject<'_>,
        inventory: &mut Inventory,
        mark: Mark<'_>,
        failures: &mut CollectFailures,
    ) -> Result<(), CollectError> {
        let marked: Vec<&Tracker> = match mark {
            Mark::No => return Ok(()),
            Mark::History { .. } if subject.rules.keep_legacy_resource => {
                self.find_empty_trackers(subject, inventory).await
            }
            Mark::History { applied, is_confirmed } => {
                check_mark(inventory, applied, is_confirmed)?;
                inventory.history.iter().collect()
            }
            Mark::All => inventory.all().collect(),
        };
        let marked = marked.into_iter().filter(|tracker| !tracker.is_deleting());
        let delete = async |tracker: &Tracker| {
            let result = requests::delete_tracker(&self.client, tracker).await;
            (tracker.name().to_owned(), result)
        };
        for (name, result) in self.concurrently(marked.map(delete)).await {
            match result {
                Ok(Some(meta)) => {
                    if let Some(tracker) = inventory.all_mut().find(|tracker| tracker.name() == name) {
                        Arc::make_mut(&mut tracker.object).metadata = meta;
                    }
                }
                Ok(None) => retain(inventory, |tracker| tracker.name() != name),
                Err(error) => failures.push(format!("failed to delete resourcetracker {name}: {error}")),
            }
        }
        Ok(())
    }

    /// Processes the objects of trackers that are being deleted. Returns the names of trackers whose objects are gone.
    async fn finalize(
        &self,
        subject: &Subject<'_>,
        inventory: &Inventory,
        is_ordered: bool,
        unresolved: &Unresolved,
        failures: &mut CollectFailures,
    ) -> (HashSet<String>, CollectProgress) {
        let mut candidates = self.candidates(subject, inventory);
        set_unresolved(&mut candidates, unresolved);
        self.look_up(subject, &mut candidates, is_ordered, failures).await;
        if is_ordered {
            order::hold_back(&mut candidates, subject.dependents);
        }
        self.write(&mut candidates, failures).await;
        let kept: HashSet<_> = (candidates.iter())
            .filter(|candidate| !matches!(candidate.state, EntryState::Gone))
            .map(|candidate| candidate.tracker.name())
            .collect();
        let released = inventory
            .all()
            .filter(|tracker| tracker.is_deleting() && !kept.contains(tracker.name()))
            .map(|tracker| tracker.name().to_owned())
            .collect();
        (released, progress(&candidates))
    }

    async fn sweep(&self, inventory: &mut Inventory, released: &HashSet<String>, failures: &mut CollectFailures) {
        let remove = async |tracker: &Tracker| {
            let result = requests::remove_finalizer(&self.client, tracker).await;
            (tracker.name().to_owned(), result)
        };
        let trackers = inventory.all().filter(|tracker| released.contains(tracker.name()));
        for (name, result) in self.concurrently(trackers.map(remove)).await {
            match result {
                Ok(()) => retain(inventory, |tracker| tracker.name() != name),
                Err(error) => failures.push(format!(
                    "failed to remove the finalizer of resourcetracker {name}: {error}"
                )),
            }
        }
    }
}

fn progress(candidates: &[GarbageCandidate<'_>]) -> CollectProgress {
    let mut texts = Vec::new();
    let mut waiting = candidates
        .iter()
        .filter(|candidate| matches!(candidate.state, EntryState::Waiting | EntryState::HeldBack))
        .peekable();
    if let Some(first) = waiting.peek() {
        let name = super::trackers::display_name(first.entry);
        let count = waiting.count();
        texts.push(format!(
            "Waiting for {name} to delete. (At least {count} resources are deleting.)"
        ));
    }
    let mut unreachable: BTreeMap<&ClusterError, usize> = BTreeMap::new();
    for candidate in candidates {
        if let EntryState::Unreachable(error) = &candidate.state {
            *unreachable.entry(error).or_default() += 1;
        }
    }
    texts.extend(
        unreachable
            .iter()
            .map(|(error, count)| format!("{count} objects are not deleted: {error}")),
    );
    if texts.is_empty() {
        return CollectProgress::Done;
    }
    // What is held back waits for others, which decide when to look again. No event reports that clusters are known again.
    let is_unreported = |state: &EntryState| {
        matches!(
            state,
            EntryState::Waiting | EntryState::Unreachable(ClusterError::Unknown(_))
        )
    };
    let is_waiting = (candidates.iter()).any(|candidate| is_unreported(&candidate.state));
    CollectProgress::Waiting {
        message: texts.join(" "),
        is_unreachable: !unreachable.is_empty() && !is_waiting,
    }
}

/// A version and kind in a cluster.
type ClusterKind = (String, String, String);

/// The state of all objects in a cluster, where the keys of objects are not known.
type Unresolved = BTreeMap<String, EntryState>;

fn set_unresolved(candidates: &mut [GarbageCandidate<'_>], unresolved: &Unresolved) {
    for candidate in candidates {
        if let Some(state) = unresolved.get(cluster_name(&candidate.entry.cluster)) {
            candidate.state = state.clone();
        }
    }
}

fn kind_of(entry: &ManagedResource) -> ClusterKind {
    let cluster = cluster_name(&entry.cluster).to_owned();
    (entry.api_version.clone(), entry.kind.clone(), cluster)
}

fn has_finalizer(tracker: &Tracker) -> bool {
    (tracker.object.finalizers().iter()).any(|finalizer| finalizer == labels::TRACKER_FINALIZER)
}

fn retain(inventory: &mut Inventory, mut is_kept: impl FnMut(&Tracker) -> bool) {
    inventory.history.retain(&mut is_kept);
    let slots = [
        &mut inventory.current,
        &mut inventory.root,
        &mut inventory.component_revision,
    ];
    for slot in slots {
        slot.take_if(|tracker| !is_kept(tracker));
    }
}

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::decide::{GarbageDecision, decide, is_managed};
use super::failures::CollectFailures;
use super::{Collector, Subject};
use crate::api::oam::ManagedResource;
use crate::controllers::oam::clusters::ClusterError;
use crate::controllers::oam::objects::{CachedObject, ObjectError, ObjectId};
use crate::controllers::oam::trackers::{Inventory, Owners, ResourceKey, Tracker, display_name};

pub(super) struct GarbageCandidate<'a> {
    pub tracker: &'a Tracker,
    pub entry: &'a ManagedResource,
    pub state: EntryState,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum EntryState {
    /// The object does not exist, or does not belong to the Application.
    Gone,
    /// The cache lacks the object. It may be older than the object.
    Unconfirmed,
    /// The kind is not cached.
    Unknown,
    Delete {
        uid: String,
    },
    /// A JSON merge patch, after which the object no longer belongs to the Application.
    Release(Value),
    Waiting,
    /// Components that depend on the object exist.
    HeldBack,
    Failed,
    /// The object is in a cluster that can't be reached, or is not joined.
    Unreachable(ClusterError),
}

impl EntryState {
    fn of(live: Option<&Value>, subject: &Subject<'_>, entry: &ManagedResource) -> Self {
        let Some(live) = live.filter(|live| is_managed(live, &subject.app.name)) else {
            return Self::Gone;
        };
        match decide(subject, entry, live) {
            GarbageDecision::Leave => Self::Gone,
            GarbageDecision::Release(patch) => Self::Release(patch),
            GarbageDecision::Delete { uid } => Self::Delete { uid },
            GarbageDecision::Wait => Self::Waiting,
        }
    }

    fn removed_cluster(&self) -> Option<&str> {
        match self {
            Self::Unreachable(ClusterError::NotJoined { cluster }) => Some(cluster),
            _ => None,
        }
    }

    pub fn is_existing(&self) -> bool {
        matches!(
            self,
            Self::Delete { .. } | Self::Waiting | Self::HeldBack | Self::Failed | Self::Unreachable(_)
        )
    }
}

impl Collector {
    pub(super) fn candidates<'a>(&self, subject: &Subject<'_>, inventory: &'a Inventory) -> Vec<GarbageCandidate<'a>> {
        let owners = Owners::of(inventory);
        let deleting = inventory.all().filter(|tracker| tracker.is_deleting());
        let is_owned = |tracker: &Tracker, entry: &ManagedResource| {
            let owner = owners.owner(&ResourceKey::of(entry));
            owner.is_none_or(|owner| owner.name() == tracker.name())
        };
        deleting
            .flat_map(|tracker| tracker.entries.iter().map(move |entry| (tracker, entry)))
            .filter(|(tracker, entry)| is_owned(tracker, entry))
            .map(|(tracker, entry)| self.candidate(subject, tracker, entry))
            .collect()
    }

    fn candidate<'a>(
        &self,
        subject: &Subject<'_>,
        tracker: &'a Tracker,
        entry: &'a ManagedResource,
    ) -> GarbageCandidate<'a> {
        GarbageCandidate {
            tracker,
            entry,
            state: self.cached(subject, entry),
        }
    }

    fn cached(&self, subject: &Subject<'_>, entry: &ManagedResource) -> EntryState {
        match self.objects.cached(&ObjectId::of_entry(entry)) {
            CachedObject::Found(live) => EntryState::of(Some(&live), subject, entry),
            CachedObject::Absent => EntryState::Unconfirmed,
            CachedObject::Unknown => EntryState::Unknown,
        }
    }

    /// Absence is confirmed only if a tracker is about to be released, or all components are deleted in order.
    pub(super) async fn look_up(
        &self,
        subject: &Subject<'_>,
        candidates: &mut [GarbageCandidate<'_>],
        confirms_all: bool,
        failures: &mut CollectFailures,
    ) {
        let kept: HashSet<_> = (candidates.iter())
            .filter(|candidate| candidate.state.is_existing())
            .map(|candidate| candidate.tracker.name())
            .collect();
        let is_read = |candidate: &GarbageCandidate<'_>| match candidate.state {
            EntryState::Unknown => true,
            EntryState::Unconfirmed => confirms_all || !kept.contains(candidate.tracker.name()),
            _ => false,
        };
        let reads =
            positions(candidates, is_read).map(async |(index, candidate)| (index, self.read(subject, candidate).await));
        let states = self.concurrently(reads).await;
        update(candidates, states, failures);
        self.leave_removed_clusters(subject, candidates, failures).await;
    }

    async fn read(&self, subject: &Subject<'_>, candidate: &GarbageCandidate<'_>) -> Result<EntryState, String> {
        let entry = candidate.entry;
        match self.objects.get(&ObjectId::of_entry(entry)).await {
            Ok(live) => Ok(EntryState::of(live.as_ref(), subject, entry)),
            Err(ObjectError::NotInstalled { .. }) => Ok(EntryState::Gone),
            Err(ObjectError::Cluster(error)) => Ok(EntryState::Unreachable(error)),
            Err(ObjectError::Api(error)) if error.is_forbidden() && self.is_gone(subject, entry).await => {
                Ok(EntryState::Gone)
            }
            Err(error) => Err(format!("failed to get {}: {error}", display_name(entry))),
        }
    }

    /// Counts the objects in removed clusters as gone. Only a deletion does: a cluster may be joined again.
    async fn leave_removed_clusters(
        &self,
        subject: &Subject<'_>,
        candidates: &mut [GarbageCandidate<'_>],
        failures: &mut CollectFailures,
    ) {
        if !subject.is_deleting {
            return;
        }
        let removed: BTreeSet<String> = (candidates.iter())
            .filter_map(|candidate| candidate.state.removed_cluster().map(str::to_owned))
            .collect();
        for cluster in removed {
            let state = match self.objects.clusters().is_gone(&cluster).await {
                Ok(true) => EntryState::Gone,
                Ok(false) => continue,
                Err(error) => {
                    failures.push(format!("failed to look for cluster {cluster}: {error}"));
                    EntryState::Failed
                }
            };
            for candidate in candidates.iter_mut() {
                if candidate.state.removed_cluster() == Some(cluster.as_str()) {
                    candidate.state = state.clone();
                }
            }
        }
    }

    /// Returns true if the controller finds no object to delete. A user whose rights were removed, as with a namespace,
    /// could not tell, and the Application would stay.
    async fn is_gone(&self, subject: &Subject<'_>, entry: &ManagedResource) -> bool {
        let live = self.objects.as_controller().read(&ObjectId::of_entry(entry)).await;
        live.is_ok_and(|live| EntryState::of(live.as_ref(), subject, entry) == EntryState::Gone)
    }

    /// Returns the trackers of the history whose objects are gone or belong to newer trackers.
    pub(super) async fn find_empty_trackers<'a>(
        &self,
        subject: &Subject<'_>,
        inventory: &'a Inventory,
    ) -> Vec<&'a Tracker> {
        let owners = Owners::of(inventory);
        let mut empty = Vec::new();
        for tracker in &inventory.history {
            let mut candidates: Vec<_> = owners
                .owned_by(tracker)
                .map(|entry| self.candidate(subject, tracker, entry))
                .collect();
            let is_needed = |candidate: &GarbageCandidate<'_>| {
                !matches!(
                    candidate.state,
                    EntryState::Gone | EntryState::Unconfirmed | EntryState::Unknown
                )
            };
            if candidates.iter().any(is_needed) {
                continue;
            }
            // A tracker whose objects can't be read is kept.
            self.look_up(subject, &mut candidates, true, &mut CollectFailures::default())
                .await;
            if candidates.iter().all(|candidate| candidate.state == EntryState::Gone) {
                empty.push(tracker);
            }
        }
        empty
    }

    pub(super) async fn write(&self, candidates: &mut [GarbageCandidate<'_>], failures: &mut CollectFailures) {
        let is_written = |candidate: &GarbageCandidate<'_>| {
            matches!(candidate.state, EntryState::Delete { .. } | EntryState::Release(_))
        };
        let writes =
            positions(candidates, is_written).map(async |(index, candidate)| (index, self.apply(candidate).await));
        let states = self.concurrently(writes).await;
        update(candidates, states, failures);
    }

    async fn apply(&self, candidate: &GarbageCandidate<'_>) -> Result<EntryState, String> {
        let id = ObjectId::of_entry(candidate.entry);
        let (action, result, state) = match &candidate.state {
            EntryState::Delete { uid } => {
                let result = self.objects.delete(&id, uid).await;
                ("delete", result, EntryState::Waiting)
            }
            EntryState::Release(patch) => {
                let result = self.objects.patch(&id, patch, false).await;
                ("release", result.map(|_| ()), EntryState::Gone)
            }
            state => return Ok(state.clone()),
        };
        match result {
            Ok(()) => Ok(state),
            Err(ObjectError::NotInstalled { .. }) => Ok(EntryState::Gone),
            Err(ObjectError::Api(error)) if error.is_not_found() => Ok(EntryState::Gone),
            // The object has changed since; the next pass decides again.
            Err(ObjectError::Api(error)) if error.is_conflict() => Ok(EntryState::Waiting),
            Err(error) => Err(format!("failed to {action} {}: {error}", display_name(candidate.entry))),
        }
    }
}

fn positions<'c, 'a>(
    candidates: &'c [GarbageCandidate<'a>],
    is_chosen: impl Fn(&GarbageCandidate<'a>) -> bool,
) -> impl Iterator<Item = (usize, &'c GarbageCandidate<'a>)> {
    let candidates = candidates.iter().enumerate();
    candidates.filter(move |(_, candidate)| is_chosen(candidate))
}

fn update(
    candidates: &mut [GarbageCandidate<'_>],
    states: Vec<(usize, Result<EntryState, String>)>,
    failures: &mut CollectFailures,
) {
    for (index, state) in states {
        let state = state.unwrap_or_else(|failure| {
            failures.push(failure);
            EntryState::Failed
        });
        if let Some(candidate) = candidates.get_mut(index) {
            candidate.state = state;
        }
    }
}

//! The ResourceTrackers of an Application: what is applied is recorded before it is applied.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::api::oam::{ManagedResource, ResourceTracker, labels};
use crate::budget::leave_runtime_if_large;
use crate::controllers::oam::objects::{ClusterKinds, ObjectId};
use crate::controllers::oam::reconciler::env::{Env, post_parameters};
use crate::controllers::oam::reconciler::failure::{Failure, FailureKind, Stop};
use crate::controllers::oam::reconciler::observed::Observed;
use crate::controllers::oam::trackers::{
    AppIdentity, Inventory, ResourceKey, Tracker, TrackerType, create, encode, record, remove, tracker_selector,
    without_creators,
};
use crate::runtime::kube_client::call;

/// Time until the name of a tracker is tried again.
pub const TAKEN_RETRY: Duration = Duration::from_secs(10);

/// Trackers that are looked for before the finalizers are removed.
const MAX_LISTED: u32 = 100;

const WRITTEN: [TrackerType; 2] = [TrackerType::Versioned, TrackerType::Root];

pub struct Ledger<'p> {
    env: &'p Env<'p>,
    pub identity: AppIdentity,
    shard: Option<String>,
    pub inventory: Inventory,
    pub(super) of_policies: HashSet<ResourceKey>,
}

impl<'p> Ledger<'p> {
    pub fn new(env: &'p Env<'p>, observed: &Observed, inventory: Inventory) -> Self {
        Self {
            env,
            identity: observed.identity(env),
            shard: observed.app.labels().get(labels::SHARD_ID).cloned(),
            inventory,
            of_policies: HashSet::new(),
        }
    }

    pub fn current_entries(&self) -> impl Iterator<Item = &ManagedResource> {
        let trackers = self.inventory.current.iter().chain(&self.inventory.root);
        trackers.flat_map(|tracker| &tracker.entries)
    }

    /// Watches the kinds of all objects of the Application, and waits until the watches are complete.
    pub async fn subscribe(&self) -> Result<(), Stop> {
        let kinds = self.watch_kinds();
        self.env.use_clusters(kinds.keys().map(String::as_str)).await?;
        let objects = &self.env.reconciler.objects;
        objects.wait_until_settled(&kinds).await;
        // Objects are decoded and compared with their manifests. Others may have made them much larger.
        let entries = self.inventory.in_order().flat_map(|tracker| &tracker.entries);
        let bytes = entries.map(|entry| objects.cached_bytes(&ObjectId::of_entry(entry)));
        leave_runtime_if_large(bytes.sum()).await;
        Ok(())
    }

    fn watch_kinds(&self) -> ClusterKinds {
        let mut kinds = ClusterKinds::new();
        for entry in self.inventory.in_order().flat_map(|tracker| &tracker.entries) {
            let id = ObjectId::of_entry(entry);
            let kind = id.group_kind();
            kinds.entry(id.cluster).or_default().insert(kind);
        }
        // The pass may wait for a cluster where it has no objects.
        for cluster in self.env.used_clusters() {
            kinds.entry(cluster).or_default();
        }
        self.env.reconciler.objects.subscribe(self.env.name, kinds.clone());
        kinds
    }

    pub(super) async fn record(
        &mut self,
        type_: TrackerType,
        revision: &str,
        objects: &[ManagedResource],
    ) -> Result<(), Stop> {
        let tracker = self.tracker(type_);
        let recorded = tracker.map(|tracker| tracker.entries.as_slice()).unwrap_or_default();
        match record(recorded, objects) {
            Some(entries) => self.write(type_, entries, revision).await,
            None => Ok(()),
        }
    }

    /// Records objects of the current version as deleted, or else they would be restored.
    pub async fn record_deleted(&mut self, revision: &str, ids: &[ObjectId]) -> Result<(), Stop> {
        for type_ in WRITTEN {
            let entries = self.tracker(type_).into_iter().flat_map(|tracker| &tracker.entries);
            let named = entries.filter(|entry| ids.iter().any(|id| id.is_of(entry)));
            let deleted = named.map(|entry| ManagedResource {
                deleted: true,
                ..entry.clone()
            });
            let deleted: Vec<_> = deleted.collect();
            if !deleted.is_empty() {
                self.record(type_, revision, &deleted).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn forget(&mut self, gone: &[ManagedResource]) -> Result<(), Stop> {
        if gone.is_empty() {
            return Ok(());
        }
        for type_ in WRITTEN {
            let entries = self.tracker(type_).and_then(|tracker| remove(&tracker.entries, gone));
            if let Some(entries) = entries {
                self.write(type_, entries, "").await?;
            }
        }
        Ok(())
    }

    /// Removes what KubeVela would take for other objects from the trackers that are written to.
    pub async fn remove_creators(&mut self) -> Result<(), Stop> {
        for type_ in WRITTEN {
            let tracker = self.tracker(type_).filter(|tracker| !tracker.is_deleting());
            if let Some(entries) = tracker.and_then(|tracker| without_creators(&tracker.entries)) {
                self.write(type_, entries, "").await?;
            }
        }
        Ok(())
    }

    /// Asks the API server for trackers of the Application: the cache may lack a tracker that was just created.
    pub async fn has_any(&self) -> Result<bool, Stop> {
        let AppIdentity { name, uid, .. } = &self.identity;
        let parameters = ListParams::default().labels(&tracker_selector(name)).limit(MAX_LISTED);
        let listed = call(self.api().list_metadata(&parameters))
            .await
            .map_err(|error| Failure::new(FailureKind::Collect, error.to_string()))?;
        let is_own = |owner: Option<&String>| owner.is_none_or(|owner| owner == uid);
        let mut trackers = listed.items.iter();
        Ok(trackers.any(|tracker| is_own(tracker.labels().get(labels::APP_UID))))
    }

    fn tracker(&self, type_: TrackerType) -> Option<&Tracker> {
        match type_ {
            TrackerType::Root => self.inventory.root.as_ref(),
            TrackerType::Versioned => self.inventory.current.as_ref(),
            TrackerType::ComponentRevision => self.inventory.component_revision.as_ref(),
        }
    }

    /// Replaces the entries of a tracker, or creates it.
    async fn write(&mut self, type_: TrackerType, entries: Vec<ManagedResource>, revision: &str) -> Result<(), Stop> {
        let failed = |message: String| Failure::new(FailureKind::Apply, message);
        let reconciler = self.env.reconciler;
        let encoded =
            encode(entries.clone(), reconciler.options.tracker_format).map_err(|error| failed(error.to_string()))?;
        let checked = reconciler.tracker_crd.check(self.api(), &encoded.compression).await;
        checked.map_err(failed)?;
        if !encoded.omitted_manifests.is_empty() {
            let count = encoded.omitted_manifests.len();
            tracing::warn!(
                count,
                "resourcetracker is too large for all manifests; the state of these objects is not kept"
            );
        }
        let tracker = self.tracker(type_).map(|tracker| Arc::clone(&tracker.object));
        let is_created = tracker.is_none();
        let written = match tracker {
            Some(tracker) => {
                let mut changed = ResourceTracker::clone(&tracker);
                changed.spec.managed_resources = encoded.managed_resources;
                changed.spec.compression = encoded.compression;
                call(self.api().replace(&tracker.name_any(), &post_parameters(), &changed)).await
            }
            None => {
                let new = create(&self.identity, type_, Some(revision), self.shard.as_deref(), encoded);
                match call(self.api().create(&post_parameters(), &new)).await {
                    Err(error) if error.is_conflict() => return Err(self.explain_conflict(&new.name_any()).await),
                    result => result,
                }
            }
        };
        reconciler.metrics.count_write("apply", "ResourceTracker");
        let written = match written {
            Ok(written) => Arc::new(written),
            // Changed since; the cache will have it.
            Err(error) if error.is_conflict() => return Err(Stop::Stale),
            Err(error) => return Err(failed(error.to_string()).into()),
        };
        reconciler.caches.assume_tracker(&written, is_created);
        let tracker = Some(Tracker {
            object: written,
            entries,
        });
        match type_ {
            TrackerType::Root => self.inventory.root = tracker,
            TrackerType::Versioned => self.inventory.current = tracker,
            TrackerType::ComponentRevision => self.inventory.component_revision = tracker,
        }
        // Its kinds may be new.
        self.watch_kinds();
        Ok(())
    }

    async fn explain_conflict(&self, name: &str) -> Stop {
        let existing = call(self.api().get_opt(name)).await;
        let uid = existing
            .as_ref()
            .ok()
            .and_then(|tracker| tracker.as_ref()?.labels().get(labels::APP_UID).cloned());
        if uid.as_ref() == Some(&self.identity.uid) {
            // Created before a crash; the cache will have it.
            return Stop::Stale;
        }
        let message = format!(
            "resourcetracker {name} exists but controlled by another application (uid: {}); choose another name or \
             published version, or delete it manually",
            uid.unwrap_or_default()
        );
        Failure::new(FailureKind::Apply, message)
            .retried_after(TAKEN_RETRY)
            .into()
    }

    fn api(&self) -> Api<ResourceTracker> {
        Api::all(self.env.reconciler.client.clone())
    }
}

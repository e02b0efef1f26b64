//! Reads ResourceTrackers, and records in them what is applied, before it is applied.

use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use kube::core::DeserializeGuard;
use kube::{Api, ResourceExt};

use super::conditions::Failure;
use super::pass::{Pass, Stop};
use super::revision::Current;
use crate::api::Guarded;
use crate::api::oam::{ManagedResource, ResourceTracker, labels};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::cache::CachedTracker;
use crate::controllers::oam::trackers::{
    Inventory, InventoryError, Tracker, TrackerType, create, encode, record, without_creators,
};
use crate::runtime::kube_client::call;
use crate::runtime::watch::Cached;

/// Time until the name of a tracker is tried again.
pub(super) const TAKEN_RETRY: Duration = Duration::from_secs(10);

/// Memory that a pass takes for decoding without a reservation.
pub(super) const SMALL_BYTES: u64 = 1 << 20;

impl Pass<'_> {
    /// Decodes the trackers of the Application, and reads its latest revision.
    pub(super) async fn load(&mut self) -> Result<(), Stop> {
        let failed = |error: InventoryError| Failure::synced("FailedGC", error.to_string());
        let mut trackers = Vec::new();
        for cached in self.reconciler.caches.trackers_of(self.name) {
            let tracker = match cached {
                Cached::Object(tracker) => self.with_entries(&tracker).await?,
                Cached::Invalid { meta, error } => {
                    let (tracker, cause) = (meta.name.clone().unwrap_or_default(), error);
                    return Err(failed(InventoryError::Invalid { tracker, cause }).into());
                }
            };
            trackers.push(Tracker::decode(tracker).map_err(failed)?);
        }
        self.inventory = Inventory::of(&self.identity(), trackers).map_err(failed)?;
        self.latest = match self.read_latest().await {
            Ok(latest) => Ok(latest),
            Err(Stop::Failed(failure)) => Err(failure),
            Err(stop) => return Err(stop),
        };
        Ok(())
    }

    async fn with_entries(&self, cached: &CachedTracker) -> Result<Arc<ResourceTracker>, Stop> {
        if let Some(whole) = cached.whole() {
            return Ok(Arc::clone(whole));
        }
        // Decoded as leniently as those in the cache.
        let trackers: Api<Guarded<ResourceTracker>> = Api::all(self.reconciler.client.clone());
        let failed = |error: String| Failure::synced("FailedGC", error).into();
        match call(trackers.get_opt(&cached.name_any())).await {
            Ok(Some(Guarded(DeserializeGuard(tracker)))) => {
                tracker.map(Arc::new).map_err(|error| failed(error.to_string()))
            }
            // The cache is behind.
            Ok(None) => Err(Stop::Stale),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Records objects in the tracker of the current version, or in that of objects that live as long as the Application.
    pub(super) async fn record(
        &mut self,
        type_: TrackerType,
        current: &Current,
        objects: &[ManagedResource],
    ) -> Result<(), Stop> {
        let tracker = match type_ {
            TrackerType::Root => &self.inventory.root,
            _ => &self.inventory.current,
        };
        let recorded = tracker
            .as_ref()
            .map(|tracker| tracker.entries.as_slice())
            .unwrap_or_default();
        let Some(entries) = record(recorded, objects) else {
            return Ok(());
        };
        let tracker = tracker.as_ref().map(|tracker| Arc::clone(&tracker.object));
        self.write_tracker(type_, tracker, entries, &current.name()).await
    }

    /// Removes what KubeVela would take for other objects from the trackers that are written to.
    pub(super) async fn remove_creators(&mut self) -> Result<(), Stop> {
        for type_ in [TrackerType::Versioned, TrackerType::Root] {
            let tracker = match type_ {
                TrackerType::Root => &self.inventory.root,
                _ => &self.inventory.current,
            };
            let Some(tracker) = tracker.as_ref().filter(|tracker| !tracker.is_deleting()) else {
                continue;
            };
            if let Some(entries) = without_creators(&tracker.entries) {
                let object = Some(Arc::clone(&tracker.object));
                self.write_tracker(type_, object, entries, "").await?;
            }
        }
        Ok(())
    }

    /// Replaces the entries of a tracker.
    pub(super) async fn write_tracker(
        &mut self,
        type_: TrackerType,
        tracker: Option<Arc<ResourceTracker>>,
        entries: Vec<ManagedResource>,
        revision: &str,
    ) -> Result<(), Stop> {
        let failed = |message: String| Failure::synced("FailedApply", message);
        let encoded = encode(entries.clone(), self.reconciler.options.tracker_format);
        let encoded = encoded.map_err(|error| failed(error.to_string()))?;
        let crd = &self.reconciler.tracker_crd;
        let checked = crd.check(self.trackers(), &encoded.compression).await;
        checked.map_err(failed)?;
        if !encoded.omitted_manifests.is_empty() {
            let count = encoded.omitted_manifests.len();
            tracing::warn!(
                count,
                "resourcetracker is too large for all manifests; the state of these objects is not kept"
            );
        }
        let is_created = tracker.is_none();
        let written = match tracker {
            Some(tracker) => {
                let mut changed = ResourceTracker::clone(&tracker);
                changed.spec.managed_resources = encoded.managed_resources;
                changed.spec.compression = encoded.compression;
                call(self.trackers().replace(&tracker.name_any(), &parameters(), &changed)).await
            }
            None => {
                let shard = self.app.labels().get(labels::SHARD_ID).map(String::as_str);
                let new = create(&self.identity(), type_, Some(revision), shard, encoded);
                match call(self.trackers().create(&parameters(), &new)).await {
                    Err(error) if error.is_conflict() => return Err(self.taken(&new.name_any()).await),
                    result => result,
                }
            }
        };
        self.reconciler.metrics.count_write("apply", "ResourceTracker");
        let written = match written {
            Ok(written) => Arc::new(written),
            // Changed since; the cache will have it.
            Err(error) if error.is_conflict() => return Err(Stop::Stale),
            Err(error) => return Err(failed(error.to_string()).into()),
        };
        self.reconciler.caches.assume_tracker(&written, is_created);
        let tracker = Some(Tracker {
            object: written,
            entries,
        });
        match type_ {
            TrackerType::Root => self.inventory.root = tracker,
            _ => self.inventory.current = tracker,
        }
        // Its kinds may be new.
        self.watch_kinds();
        Ok(())
    }

    /// Returns the failure to create a tracker whose name is taken.
    async fn taken(&self, name: &str) -> Stop {
        let found = call(self.trackers().get_opt(name)).await;
        let uid = found
            .as_ref()
            .ok()
            .and_then(|found| found.as_ref()?.labels().get(labels::APP_UID).cloned());
        if uid.is_some() && uid == self.app.uid() {
            // Created before a crash; the cache will have it.
            return Stop::Stale;
        }
        let message = format!(
            "resourcetracker {name} exists but controlled by another application (uid: {}); choose another name or \
             published version, or delete it manually",
            uid.unwrap_or_default()
        );
        Failure::synced("FailedApply", message)
            .retried_after(TAKEN_RETRY)
            .into()
    }

    pub(super) fn trackers(&self) -> Api<ResourceTracker> {
        Api::all(self.reconciler.client.clone())
    }
}

fn parameters() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

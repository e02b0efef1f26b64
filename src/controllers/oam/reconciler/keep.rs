//! Keeps the state of deployed objects.

use std::collections::HashSet;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use serde_json::Value;

use super::conditions::{self, Failure};
use super::dispatch::{ApplyError, Creator, Planned, ToApply, joined};
use super::pass::{Pass, Stop};
use crate::api::oam::{ManagedResource, ResourceTracker};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::ApplyOnceMode;
use crate::controllers::oam::dispatch::decide::{Decision, Occasion};
use crate::controllers::oam::dispatch::fights::{Restore, last_other_manager};
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::objects::{CachedObject, ObjectId};
use crate::controllers::oam::parse::Parsed;
use crate::controllers::oam::policies::{Policies, Stage, Target};
use crate::controllers::oam::trackers::{ResourceKey, TrackerType, remove};

/// The result of keeping one object.
enum Outcome {
    Unchanged,
    Restored,
    /// Fought over; restored at this time.
    Later {
        after: Duration,
        warning: Option<String>,
    },
    /// Applied once, and gone since.
    Gone(Box<ManagedResource>),
}

impl Pass<'_> {
    /// Restores objects that have changed, and creates those that are gone.
    pub(super) async fn keep_state(&mut self, parsed: &Parsed) -> Result<(), Stop> {
        let _timer = self.reconciler.metrics.time(PassStage::StateKeep);
        if self.reconciler.options.apply_once == ApplyOnceMode::Force {
            return Ok(());
        }
        let entries = self.kept_entries().into_iter();
        let kept = entries
            .map(|entry| self.keep_object(&parsed.rules, entry).boxed())
            .collect();
        let results = self.concurrently(kept).await;
        let (mut errors, mut gone) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(Outcome::Unchanged) => {}
                Ok(Outcome::Restored) => self.reconciler.metrics.count_restored(),
                Ok(Outcome::Later { after, warning }) => {
                    self.look_again_in(after);
                    if let Some(warning) = warning {
                        self.warn("FailedStateKeep", &warning);
                    }
                }
                Ok(Outcome::Gone(entry)) => gone.push(*entry),
                Err(error) => errors.push(error),
            }
        }
        self.forget_entries(&gone).await?;
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(conditions::STATE_KEEP, "FailedStateKeep", joined(&errors)).into()),
        }
    }

    /// Returns the entries of the current version, each object once.
    fn kept_entries(&self) -> Vec<ManagedResource> {
        let trackers = self.inventory.current.iter().chain(&self.inventory.root);
        let entries = trackers
            .filter(|tracker| !tracker.is_deleting())
            .flat_map(|tracker| &tracker.entries);
        let mut seen = HashSet::new();
        let local = entries.filter(|entry| ResourceKey::of(entry).is_local());
        local
            .filter(|entry| seen.insert(ResourceKey::of(entry)))
            .cloned()
            .collect()
    }

    async fn keep_object(&self, policies: &Policies, entry: ManagedResource) -> Result<Outcome, ApplyError> {
        let id = ObjectId::of_entry(&entry);
        let objects = &self.objects;
        if entry.deleted {
            return self.delete_again(&id).await;
        }
        let Some(manifest) = entry.raw.as_ref().and_then(|raw| raw.parse().ok()) else {
            return Ok(Outcome::Unchanged);
        };
        if self.reconciler.options.apply_once == ApplyOnceMode::On {
            let live = objects.get(&id).await.map_err(ApplyError::Get)?;
            if live.is_some() {
                return Ok(Outcome::Unchanged);
            }
        }
        let strategy = policies.apply_once.strategy(&Target::of(&manifest));
        let is_applied_once = strategy.is_some_and(|strategy| strategy.affects(Stage::StateKeep));
        let object = ToApply {
            manifest,
            component: entry.component.clone(),
            trait_: entry.trait_.clone(),
            cluster: entry.cluster.clone(),
            creator: Creator::Workflow,
        };
        let planned = self.plan_object(policies, object, Occasion::StateKeep).await?;
        match &planned.decision {
            Decision::Nothing => Ok(Outcome::Unchanged),
            Decision::Record(_) => {
                // It must not use up the restores of other fields.
                let key = format!("{} recorded", planned.id);
                let kept = self.restore(policies, &planned, &key).await?;
                Ok(match kept {
                    // No fight: the value of the other manager stays.
                    Outcome::Later { after, .. } => Outcome::Later { after, warning: None },
                    _ => Outcome::Unchanged,
                })
            }
            // The cache may not have the object, if its labels were removed.
            Decision::Create(_) if is_applied_once => {
                let live = objects.get(&planned.id).await.map_err(ApplyError::Get)?;
                Ok(if live.is_none() {
                    Outcome::Gone(Box::new(entry))
                } else {
                    Outcome::Unchanged
                })
            }
            _ => self.restore(policies, &planned, &planned.id.to_string()).await,
        }
    }

    /// Deletes an object that the workflow has deleted, if it is still that of the Application.
    async fn delete_again(&self, id: &ObjectId) -> Result<Outcome, ApplyError> {
        let objects = &self.objects;
        let live = match objects.cached(id) {
            // Without the label of an Application, it is not ours.
            CachedObject::Absent => None,
            _ => objects.get(id).await.map_err(ApplyError::Get)?,
        };
        let text = |path: &str| {
            live.as_ref()
                .and_then(|live| live.pointer(path))
                .and_then(Value::as_str)
        };
        let is_ours = text("/metadata/labels/app.oam.dev~1name") == Some(&self.name.name)
            && text("/metadata/labels/app.oam.dev~1namespace") == Some(&self.name.namespace);
        let is_deleting = text("/metadata/deletionTimestamp").is_some();
        if let Some(uid) = text("/metadata/uid").filter(|_| is_ours && !is_deleting) {
            let deleted = objects.delete(id, uid).await;
            deleted.map_err(ApplyError::Delete)?;
        }
        Ok(Outcome::Unchanged)
    }

    /// Restores an object, unless it is fought over: changed or deleted again each time.
    /// Writes are counted under `key`.
    async fn restore(&self, policies: &Policies, planned: &Planned, key: &str) -> Result<Outcome, ApplyError> {
        let now = Timestamp::now();
        let restore = self.reconciler.fights.lock().restore(key, now);
        match restore {
            Restore::Now => {
                let written = self.write(policies, planned).await;
                if written.is_err() {
                    self.reconciler.fights.lock().take_back(key);
                }
                written.map(|_| Outcome::Restored)
            }
            Restore::At { time, is_new } => {
                let after = time.duration_since(now).try_into().unwrap_or_default();
                let warning = match is_new {
                    true => Some(self.fight_warning(&planned.id).await?),
                    false => None,
                };
                Ok(Outcome::Later { after, warning })
            }
        }
    }

    /// Names the manager that keeps changing an object. The cache has no managed fields.
    async fn fight_warning(&self, id: &ObjectId) -> Result<String, ApplyError> {
        let live = self.objects.read(id).await.map_err(ApplyError::Get)?;
        let manager = live.as_ref().and_then(|live| last_other_manager(live, FIELD_MANAGER));
        let manager = manager.unwrap_or("an unknown manager");
        let ObjectId {
            kind, namespace, name, ..
        } = id;
        Ok(format!(
            "{kind} {namespace}/{name} is changed again and again by {manager}; consider apply-once"
        ))
    }

    /// Removes objects that were applied once and are gone from the trackers.
    async fn forget_entries(&mut self, gone: &[ManagedResource]) -> Result<(), Stop> {
        if gone.is_empty() {
            return Ok(());
        }
        for type_ in [TrackerType::Versioned, TrackerType::Root] {
            let tracker = match type_ {
                TrackerType::Root => &self.inventory.root,
                _ => &self.inventory.current,
            };
            let Some(tracker) = tracker else { continue };
            if let Some(entries) = remove(&tracker.entries, gone) {
                let object: Option<std::sync::Arc<ResourceTracker>> = Some(std::sync::Arc::clone(&tracker.object));
                self.write_tracker(type_, object, entries, "").await?;
            }
        }
        Ok(())
    }
}

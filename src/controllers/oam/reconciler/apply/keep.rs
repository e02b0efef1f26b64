use std::collections::HashSet;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use serde_json::Value;

use super::plan::Applier;
use super::{AppObjects, ApplyError, Creator, Ledger, PlannedWrite, ToApply, joined};
use crate::api::oam::ManagedResource;
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::ApplyOnceMode;
use crate::controllers::oam::dispatch::decide::{DispatchDecision, Occasion};
use crate::controllers::oam::dispatch::fights::{Restore, last_other_manager};
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::objects::{CachedObject, ObjectId};
use crate::controllers::oam::policies::{ApplyOnceStage, Policies, PolicyTarget};
use crate::controllers::oam::reconciler::failure::{Failure, FailureKind, Stop};
use crate::controllers::oam::reconciler::outcome::Outcome;
use crate::controllers::oam::trackers::ResourceKey;

/// An object that may be fought over. Records of others' values must not use up the restores of other fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FightKey {
    Restored(ObjectId),
    Recorded(ObjectId),
}

enum KeepOutcome {
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

pub async fn keep_objects(objects: &mut AppObjects<'_>, rules: &Policies, outcome: &mut Outcome) -> Result<(), Stop> {
    let env = objects.env;
    let metrics = &env.reconciler.metrics;
    let _timer = metrics.time(PassStage::StateKeep);
    if env.options().apply_once == ApplyOnceMode::Force {
        return Ok(());
    }
    let applier = objects.applier(rules);
    let entries = kept_entries(&objects.ledger).into_iter();
    let kept = entries.map(|entry| applier.keep_object(entry).boxed()).collect();
    let (mut errors, mut gone) = (Vec::new(), Vec::new());
    for result in env.concurrently(kept).await {
        match result {
            Ok(KeepOutcome::Unchanged) => {}
            Ok(KeepOutcome::Restored) => metrics.count_restored(),
            Ok(KeepOutcome::Later { after, warning }) => {
                outcome.look_again_in(after);
                if let Some(warning) = warning {
                    outcome.warn("FailedStateKeep", warning);
                }
            }
            Ok(KeepOutcome::Gone(entry)) => gone.push(*entry),
            Err(error) => errors.push(error),
        }
    }
    objects.ledger.forget(&gone).await?;
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::new(FailureKind::StateKeep, joined(&errors)).into())
}

/// Returns the entries of the current version, each object once.
fn kept_entries(ledger: &Ledger<'_>) -> Vec<ManagedResource> {
    let inventory = &ledger.inventory;
    let trackers = inventory.current.iter().chain(&inventory.root);
    let entries = trackers
        .filter(|tracker| !tracker.is_deleting())
        .flat_map(|tracker| &tracker.entries);
    let mut seen = HashSet::new();
    entries
        .filter(|entry| seen.insert(ResourceKey::of(entry)))
        .cloned()
        .collect()
}

impl Applier<'_> {
    async fn keep_object(&self, entry: ManagedResource) -> Result<KeepOutcome, ApplyError> {
        let id = ObjectId::of_entry(&entry);
        let objects = &self.cluster.objects;
        if entry.deleted {
            return self.delete_again(&id).await;
        }
        let Some(manifest) = entry.raw.as_ref().and_then(|raw| raw.parse().ok()) else {
            return Ok(KeepOutcome::Unchanged);
        };
        if self.env.options().apply_once == ApplyOnceMode::On {
            let live = objects.get(&id).await.map_err(ApplyError::Get)?;
            if live.is_some() {
                return Ok(KeepOutcome::Unchanged);
            }
        }
        let strategy = self.policies.apply_once.strategy(&PolicyTarget::of(&manifest));
        let is_applied_once = strategy.is_some_and(|strategy| strategy.affects(ApplyOnceStage::StateKeep));
        let object = ToApply {
            manifest,
            component: entry.component.clone(),
            trait_: entry.trait_.clone(),
            cluster: entry.cluster.clone(),
            creator: Creator::Workflow,
        };
        let planned = self.plan_object(object, Occasion::StateKeep).await?;
        match &planned.decision {
            DispatchDecision::Nothing => Ok(KeepOutcome::Unchanged),
            DispatchDecision::Record(_) => {
                let key = FightKey::Recorded(planned.id.clone());
                Ok(match self.restore(&planned, &key).await? {
                    // No fight: the value of the other manager stays.
                    KeepOutcome::Later { after, .. } => KeepOutcome::Later { after, warning: None },
                    _ => KeepOutcome::Unchanged,
                })
            }
            // The cache may not have the object, if its labels were removed.
            DispatchDecision::Create(_) if is_applied_once => {
                let live = objects.get(&planned.id).await.map_err(ApplyError::Get)?;
                Ok(if live.is_none() {
                    KeepOutcome::Gone(Box::new(entry))
                } else {
                    KeepOutcome::Unchanged
                })
            }
            _ => self.restore(&planned, &FightKey::Restored(planned.id.clone())).await,
        }
    }

    /// Deletes an object that the workflow has deleted, if it still belongs to the Application.
    async fn delete_again(&self, id: &ObjectId) -> Result<KeepOutcome, ApplyError> {
        let objects = &self.cluster.objects;
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
        let is_ours = text("/metadata/labels/app.oam.dev~1name") == Some(&self.env.name.name)
            && text("/metadata/labels/app.oam.dev~1namespace") == Some(&self.env.name.namespace);
        let is_deleting = text("/metadata/deletionTimestamp").is_some();
        if let Some(uid) = text("/metadata/uid").filter(|_| is_ours && !is_deleting) {
            let deleted = objects.delete(id, uid).await;
            deleted.map_err(ApplyError::Delete)?;
        }
        Ok(KeepOutcome::Unchanged)
    }

    /// Restores an object, unless it is fought over. Writes are counted under `key`.
    async fn restore(&self, planned: &PlannedWrite, key: &FightKey) -> Result<KeepOutcome, ApplyError> {
        let now = Timestamp::now();
        let restore = self.env.reconciler.fights.lock().restore(key, now);
        match restore {
            Restore::Now => {
                let written = self.write(planned).await;
                if written.is_err() {
                    self.env.reconciler.fights.lock().take_back(key);
                }
                written.map(|_| KeepOutcome::Restored)
            }
            Restore::At { time, is_new } => {
                let after = time.duration_since(now).try_into().unwrap_or_default();
                let warning = if is_new {
                    Some(self.fight_warning(&planned.id).await?)
                } else {
                    None
                };
                Ok(KeepOutcome::Later { after, warning })
            }
        }
    }

    /// Names the manager that keeps changing an object. The cache has no managed fields.
    async fn fight_warning(&self, id: &ObjectId) -> Result<String, ApplyError> {
        let live = self.cluster.objects.read(id).await.map_err(ApplyError::Get)?;
        let manager = live.as_ref().and_then(|live| last_other_manager(live, FIELD_MANAGER));
        let manager = manager.unwrap_or("an unknown manager");
        let ObjectId {
            kind, namespace, name, ..
        } = id;
        Ok(format!(
            "{kind} {namespace}/{name} is changed again and again by {manager}; consider apply-once"
        ))
    }
}

//! Sends writes, and dry runs of them.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{ApplyError, Planned};
use crate::controllers::oam::dispatch::decide::{Decision, Occasion};
use crate::controllers::oam::objects::{ObjectError, ObjectId};
use crate::controllers::oam::policies::Policies;
use crate::controllers::oam::reconciler::pass::Pass;

/// Longest wait for a recreated object to be gone. The next pass continues.
const RECREATE_TIMEOUT: Duration = Duration::from_secs(5);
const RECREATE_POLL: Duration = Duration::from_millis(500);

impl Pass<'_> {
    /// Checks a write. An object that exists although the cache does not have it is read and decided about.
    pub(super) fn dry_run<'p>(
        &'p self,
        policies: &'p Policies,
        planned: &'p Planned,
    ) -> BoxFuture<'p, Result<(), ApplyError>> {
        let objects = &self.objects;
        async move {
            match &planned.decision {
                Decision::Create(object) => match objects.create(object, true).await {
                    Err(ObjectError::Api(error)) if error.is_conflict() => {
                        let live = objects.read(&planned.id).await.map_err(ApplyError::Get)?;
                        let (object, id) = (planned.object.clone(), planned.id.clone());
                        let again = self.decide_with(policies, object, id, live.as_ref(), Occasion::Dispatch);
                        let again = again.await?;
                        match again.decision {
                            Decision::Create(_) => Ok(()),
                            _ => self.dry_run(policies, &again).await,
                        }
                    }
                    result => result.map(drop).map_err(ApplyError::Create),
                },
                Decision::Patch(patch) | Decision::Share(patch) => {
                    let result = objects.patch(&planned.id, patch, true).await;
                    ignore_conflict(result).map_err(ApplyError::Patch)
                }
                Decision::Replace(object) => {
                    ignore_conflict(objects.replace(object, true).await).map_err(ApplyError::Patch)
                }
                Decision::Nothing | Decision::Recreate { .. } => Ok(()),
            }
        }
        .boxed()
    }

    /// Writes an object as decided. Returns it as stored, if it was written.
    pub(in crate::controllers::oam::reconciler) async fn write(
        &self,
        policies: &Policies,
        planned: &Planned,
    ) -> Result<Option<Value>, ApplyError> {
        let mut decision = planned.decision.clone();
        for _ in 0..3 {
            match self.try_write(&planned.id, &decision).await {
                // The object has changed since, or exists although the cache does not have it.
                Err(ApplyError::Create(ObjectError::Api(error)) | ApplyError::Patch(ObjectError::Api(error)))
                    if error.is_conflict() || (error.is_not_found() && !matches!(decision, Decision::Create(_))) =>
                {
                    let live = self.objects.read(&planned.id).await.map_err(ApplyError::Get)?;
                    let object = planned.object.clone();
                    let again = self
                        .decide_with(policies, object, planned.id.clone(), live.as_ref(), planned.occasion)
                        .await?;
                    decision = again.decision;
                }
                result => return result,
            }
        }
        self.try_write(&planned.id, &decision).await
    }

    async fn try_write(&self, id: &ObjectId, decision: &Decision) -> Result<Option<Value>, ApplyError> {
        let objects = &self.objects;
        let (verb, result) = match decision {
            Decision::Nothing => return Ok(None),
            Decision::Create(object) => (
                "create",
                objects.create(object, false).await.map_err(ApplyError::Create),
            ),
            Decision::Patch(patch) | Decision::Share(patch) => (
                "patch",
                objects.patch(id, patch, false).await.map_err(ApplyError::Patch),
            ),
            Decision::Replace(object) => (
                "update",
                objects.replace(object, false).await.map_err(ApplyError::Patch),
            ),
            Decision::Recreate { uid, object } => ("recreate", self.recreate(id, uid, object).await),
        };
        self.reconciler.metrics.count_write(verb, &id.kind);
        result.map(Some)
    }

    /// Deletes an object, and creates another one once it is gone.
    async fn recreate(&self, id: &ObjectId, uid: &str, object: &Value) -> Result<Value, ApplyError> {
        let objects = &self.objects;
        objects.delete(id, uid).await.map_err(ApplyError::Delete)?;
        let deadline = Instant::now() + RECREATE_TIMEOUT;
        loop {
            match objects.create(object, false).await {
                Err(ObjectError::Api(error)) if error.is_conflict() => {}
                result => return result.map_err(ApplyError::Create),
            }
            if Instant::now() >= deadline {
                return Err(ApplyError::Deleting {
                    kind: id.kind.clone(),
                    name: id.name.clone(),
                });
            }
            sleep(RECREATE_POLL).await;
        }
    }
}

/// A conflict of a dry run says nothing about the object: the write reads it again.
fn ignore_conflict(result: Result<Value, ObjectError>) -> Result<(), ObjectError> {
    match result {
        Err(ObjectError::Api(error)) if error.is_conflict() => Ok(()),
        result => result.map(drop),
    }
}

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::plan::Applier;
use super::{ApplyError, PlannedWrite};
use crate::controllers::oam::dispatch::decide::DispatchDecision;
use crate::controllers::oam::objects::{ObjectError, ObjectId};

/// Longest wait for a recreated object to be gone. The next pass continues.
const RECREATE_TIMEOUT: Duration = Duration::from_secs(5);
const RECREATE_POLL: Duration = Duration::from_millis(500);

impl Applier<'_> {
    /// Checks a write. An object that exists although the cache does not have it is read and decided about.
    pub(super) fn dry_run<'p>(&'p self, planned: &'p PlannedWrite) -> BoxFuture<'p, Result<(), ApplyError>> {
        let objects = &self.cluster.objects;
        async move {
            match &planned.decision {
                DispatchDecision::Create(object) => match objects.create(&planned.id, object, true).await {
                    Err(error) if is_refusal(&error) => match self.decide_again(planned, error).await? {
                        again if matches!(again.decision, DispatchDecision::Create(_)) => Ok(()),
                        again => self.dry_run(&again).await,
                    },
                    result => result.map(drop).map_err(ApplyError::Create),
                },
                DispatchDecision::Patch(patch) | DispatchDecision::Share(patch) | DispatchDecision::Record(patch) => {
                    let result = objects.patch(&planned.id, patch, true).await;
                    ignore_conflict(result).map_err(ApplyError::Patch)
                }
                DispatchDecision::Replace(object) => {
                    ignore_conflict(objects.replace(&planned.id, object, true).await).map_err(ApplyError::Patch)
                }
                DispatchDecision::Nothing | DispatchDecision::Recreate { .. } => Ok(()),
            }
        }
        .boxed()
    }

    /// Writes an object as decided. Returns it as stored, if it was written.
    pub(super) async fn write(&self, planned: &PlannedWrite) -> Result<Option<Value>, ApplyError> {
        let mut decision = planned.decision.clone();
        for _ in 0..3 {
            match self.try_write(&planned.id, &decision).await {
                // The object exists although the cache does not have it.
                Err(ApplyError::Create(error)) if is_refusal(&error) => {
                    decision = self.decide_again(planned, error).await?.decision;
                }
                // The object has changed since.
                Err(ApplyError::Patch(ObjectError::Api(error))) if error.is_conflict() || error.is_not_found() => {
                    decision = self.read_and_decide(planned).await?.1.decision;
                }
                result => return result,
            }
        }
        self.try_write(&planned.id, &decision).await
    }

    /// Decides about an object whose creation is refused. The refusal stands if the object does not exist: a quota, a
    /// webhook or the schema refuse a manifest that is only a change of an existing object.
    async fn decide_again(&self, planned: &PlannedWrite, refusal: ObjectError) -> Result<PlannedWrite, ApplyError> {
        let is_taken = matches!(&refusal, ObjectError::Api(error) if error.is_conflict());
        match self.read_and_decide(planned).await? {
            (false, _) if !is_taken => Err(ApplyError::Create(refusal)),
            (_, again) => Ok(again),
        }
    }

    /// Reads an object, and decides about it. Returns true if it exists.
    async fn read_and_decide(&self, planned: &PlannedWrite) -> Result<(bool, PlannedWrite), ApplyError> {
        let live = self.cluster.objects.read(&planned.id).await.map_err(ApplyError::Get)?;
        let (object, id) = (planned.object.clone(), planned.id.clone());
        let again = self.decide_with(object, id, live.as_ref(), planned.occasion);
        Ok((live.is_some(), again.await?))
    }

    async fn try_write(&self, id: &ObjectId, decision: &DispatchDecision) -> Result<Option<Value>, ApplyError> {
        let objects = &self.cluster.objects;
        let (verb, result) = match decision {
            DispatchDecision::Nothing => return Ok(None),
            DispatchDecision::Create(object) => (
                "create",
                objects.create(id, object, false).await.map_err(ApplyError::Create),
            ),
            DispatchDecision::Patch(patch) | DispatchDecision::Share(patch) | DispatchDecision::Record(patch) => (
                "patch",
                objects.patch(id, patch, false).await.map_err(ApplyError::Patch),
            ),
            DispatchDecision::Replace(object) => (
                "update",
                objects.replace(id, object, false).await.map_err(ApplyError::Patch),
            ),
            DispatchDecision::Recreate { uid, object } => ("recreate", self.recreate(id, uid, object).await),
        };
        self.env.reconciler.metrics.count_write(verb, &id.kind);
        result.map(Some)
    }

    async fn recreate(&self, id: &ObjectId, uid: &str, object: &Value) -> Result<Value, ApplyError> {
        let objects = &self.cluster.objects;
        objects.delete(id, uid).await.map_err(ApplyError::Delete)?;
        let deadline = Instant::now() + RECREATE_TIMEOUT;
        loop {
            match objects.create(id, object, false).await {
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

/// Returns true if the API server, a webhook or a quota has refused to create an object.
fn is_refusal(error: &ObjectError) -> bool {
    matches!(error, ObjectError::Api(error) if matches!(error.code, Some(400 | 403 | 409 | 422)))
}

/// A conflict of a dry run says nothing about the object: the write reads it again.
fn ignore_conflict(result: Result<Value, ObjectError>) -> Result<(), ObjectError> {
    match result {
        Err(ObjectError::Api(error)) if error.is_conflict() => Ok(()),
        result => result.map(drop),
    }
}

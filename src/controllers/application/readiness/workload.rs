use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{Conditions, decode, describe, expect_generation};
use super::{FieldSet, NotReady, ReadinessRule};
use crate::api::lenient::integer;

/// Ready when all replicas are updated, ready and available, and no old replica is left.
#[derive(Debug)]
pub struct Deployment;

/// Ready when all replicas are ready and of the current revision. A partial update (by a partition or `OnDelete`)
/// stays in progress, as in kubernetes-sigs' controller.
#[derive(Debug)]
pub struct StatefulSet;

#[derive(Debug)]
pub struct ReplicaSet;

#[derive(Debug)]
pub struct ReplicationController;

#[derive(Debug)]
pub struct DaemonSet;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: Option<Count>,
}

#[derive(Deserialize)]
struct Count(#[serde(deserialize_with = "integer")] i64);

impl Spec {
    /// Defaults to one, like Kubernetes.
    fn replicas(&self) -> i64 {
        self.replicas.as_ref().map_or(1, |Count(replicas)| *replicas)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "integer")]
    observed_generation: i64,
    #[serde(deserialize_with = "integer")]
    replicas: i64,
    #[serde(deserialize_with = "integer")]
    ready_replicas: i64,
    #[serde(deserialize_with = "integer")]
    available_replicas: i64,
    #[serde(deserialize_with = "integer")]
    updated_replicas: i64,
    #[serde(deserialize_with = "integer")]
    current_replicas: i64,
    #[serde(deserialize_with = "integer")]
    desired_number_scheduled: i64,
    #[serde(deserialize_with = "integer")]
    number_ready: i64,
    #[serde(deserialize_with = "integer")]
    number_available: i64,
    conditions: Conditions,
}

impl Status {
    fn expect_no_failure(&self) -> Result<(), NotReady> {
        match self.conditions.holding("ReplicaFailure") {
            Some(failure) => Err(NotReady::missing(describe("ReplicaFailure", "True", &failure.reason))),
            None => Ok(()),
        }
    }

    fn expect_available(&self, desired: i64) -> Result<(), NotReady> {
        expect_replicas(self.ready_replicas, desired, "ready")?;
        expect_replicas(self.available_replicas, desired, "available")?;
        expect_replicas(self.replicas, desired, "present")
    }
}

/// Decodes the desired number of replicas, and the status if it is up to date.
fn decode_replicas(
    generation: i64,
    spec: Option<&RawValue>,
    status: Option<&RawValue>,
) -> Result<(i64, Status), NotReady> {
    let desired = decode::<Spec>("spec", spec)?.replicas();
    let status: Status = decode("status", status)?;
    expect_generation(status.observed_generation, generation)?;
    Ok((desired, status))
}

fn expect_replicas(actual: i64, desired: i64, state: &str) -> Result<(), NotReady> {
    expect_count(actual, desired, "replicas", state)
}

/// Requires an exact count: surplus pods are about to be deleted.
fn expect_count(actual: i64, desired: i64, objects: &str, state: &str) -> Result<(), NotReady> {
    if actual == desired {
        return Ok(());
    }
    Err(NotReady::missing(if actual < desired {
        format!("{actual} of {desired} {objects} {state}")
    } else {
        format!("{actual} {objects} {state}, expected {desired}")
    }))
}

impl ReadinessRule for Deployment {
    const FIELDS: FieldSet = FieldSet::SpecAndStatus;

    fn check(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let (desired, status) = decode_replicas(generation, spec, status)?;
        status.expect_no_failure()?;
        // The kubernetes-sigs controller ignores this and counts pods of the old template too.
        expect_replicas(status.updated_replicas, desired, "updated")?;
        status.expect_available(desired)?;
        let rolled_out = status
            .conditions
            .of_type("Progressing")
            .any(|progressing| progressing.status == "True" && progressing.reason == "NewReplicaSetAvailable");
        if rolled_out || status.conditions.holding("Available").is_some() {
            Ok(())
        } else if status.conditions.is_empty() {
            Err(NotReady::missing("no conditions yet"))
        } else {
            Err(NotReady::missing("neither available nor rolled out"))
        }
    }
}

impl ReadinessRule for StatefulSet {
    const FIELDS: FieldSet = FieldSet::SpecAndStatus;

    fn check(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let (desired, status) = decode_replicas(generation, spec, status)?;
        expect_replicas(status.ready_replicas, desired, "ready")?;
        expect_replicas(status.current_replicas, desired, "at the current revision")?;
        expect_replicas(status.replicas, desired, "present")
    }
}

impl ReadinessRule for ReplicaSet {
    const FIELDS: FieldSet = FieldSet::SpecAndStatus;

    fn check(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let (desired, status) = decode_replicas(generation, spec, status)?;
        status.expect_no_failure()?;
        status.expect_available(desired)
    }
}

impl ReadinessRule for ReplicationController {
    const FIELDS: FieldSet = FieldSet::SpecAndStatus;

    fn check(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let (desired, status) = decode_replicas(generation, spec, status)?;
        status.expect_available(desired)
    }
}

impl ReadinessRule for DaemonSet {
    const FIELDS: FieldSet = FieldSet::Status;

    fn check(generation: i64, _: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let status: Status = decode("status", status)?;
        expect_generation(status.observed_generation, generation)?;
        let desired = status.desired_number_scheduled;
        expect_count(status.number_ready, desired, "pods", "ready")?;
        expect_count(status.number_available, desired, "pods", "available")
    }
}

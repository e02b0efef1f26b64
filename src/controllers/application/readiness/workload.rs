//! Controllers of pods: Deployment, StatefulSet, ReplicaSet, ReplicationController and DaemonSet.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{Conditions, decode, describe};
use super::{NotReady, Reads, Rule};
use crate::api::lenient::integer;

/// `apps` Deployment: all replicas are of the newest template, ready and available, and no other is left.
#[derive(Debug)]
pub struct Deployment;

/// `apps` StatefulSet: all replicas are ready and of the current revision. One that is updated in part (by a partition, or
/// only on deletion) stays in progress, as with the peer.
#[derive(Debug)]
pub struct StatefulSet;

/// `apps` ReplicaSet: all replicas are ready and available.
#[derive(Debug)]
pub struct ReplicaSet;

/// ReplicationController: all replicas are ready and available.
#[derive(Debug)]
pub struct ReplicationController;

/// `apps` DaemonSet: as many pods are ready and available as nodes want one.
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
    /// The replicas that are wanted; Kubernetes' default is one.
    fn replicas(&self) -> i64 {
        self.replicas.as_ref().map_or(1, |Count(replicas)| *replicas)
    }
}

/// The fields of all five in one: each rule looks at those that its kind has.
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
    /// What the status says is about the spec of this generation.
    fn is_of(&self, generation: i64) -> Result<(), NotReady> {
        if self.observed_generation == generation {
            return Ok(());
        }
        Err(NotReady::missing(format!(
            "the rollout of generation {generation} is not observed yet"
        )))
    }

    /// No pod was refused, as for want of quota.
    fn has_not_failed(&self) -> Result<(), NotReady> {
        match self.conditions.holding("ReplicaFailure") {
            Some(failure) => Err(NotReady::missing(describe("ReplicaFailure", "True", &failure.reason))),
            None => Ok(()),
        }
    }

    /// Exactly the replicas that are wanted are there, ready and available.
    fn has_available(&self, wanted: i64) -> Result<(), NotReady> {
        replicas(self.ready_replicas, wanted, "ready")?;
        replicas(self.available_replicas, wanted, "available")?;
        replicas(self.replicas, wanted, "there")
    }
}

fn replicas(found: i64, wanted: i64, are: &str) -> Result<(), NotReady> {
    counted(found, wanted, "replicas", are)
}

/// A count is exactly as wanted: too many are as wrong as too few, since some of them are about to go.
fn counted(found: i64, wanted: i64, things: &str, are: &str) -> Result<(), NotReady> {
    match found {
        _ if found == wanted => Ok(()),
        _ if found < wanted => Err(NotReady::missing(format!("{found} of {wanted} {things} {are}"))),
        _ => Err(NotReady::missing(format!(
            "{found} {things} {are}, where {wanted} are wanted"
        ))),
    }
}

impl Rule for Deployment {
    const READS: Reads = Reads::SpecAndStatus;

    fn check(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let wanted = decode::<Spec>("spec", spec)?.replicas();
        let status: Status = decode("status", status)?;
        status.is_of(generation)?;
        status.has_not_failed()?;
        // Not looked at by the peer, to which pods of the last template are as good as new ones.
        replicas(status.updated_replicas, wanted, "updated")?;
        status.has_available(wanted)?;
        let rolled_out = status
            .conditions
            .of_type("Progressing")
            .any(|progressing| progressing.status == "True" && progressing.reason == "NewReplicaSetAvailable");
        if rolled_out || status.conditions.holding("Available").is_some() {
            Ok(())
        } else if status.conditions.is_empty() {
            Err(NotReady::missing("no conditions yet"))
        } else {
            Err(NotReady::missing("neither available nor rolled out by its conditions"))
        }
    }
}

impl Rule for StatefulSet {
    const READS: Reads = Reads::SpecAndStatus;

    fn check(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let wanted = decode::<Spec>("spec", spec)?.replicas();
        let status: Status = decode("status", status)?;
        status.is_of(generation)?;
        replicas(status.ready_replicas, wanted, "ready")?;
        replicas(status.current_replicas, wanted, "at the current revision")?;
        replicas(status.replicas, wanted, "there")
    }
}

impl Rule for ReplicaSet {
    const READS: Reads = Reads::SpecAndStatus;

    fn check(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let wanted = decode::<Spec>("spec", spec)?.replicas();
        let status: Status = decode("status", status)?;
        status.is_of(generation)?;
        status.has_not_failed()?;
        status.has_available(wanted)
    }
}

impl Rule for ReplicationController {
    const READS: Reads = Reads::SpecAndStatus;

    fn check(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let wanted = decode::<Spec>("spec", spec)?.replicas();
        let status: Status = decode("status", status)?;
        status.is_of(generation)?;
        status.has_available(wanted)
    }
}

impl Rule for DaemonSet {
    const READS: Reads = Reads::Status;

    fn check(generation: i64, _: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let status: Status = decode("status", status)?;
        status.is_of(generation)?;
        let wanted = status.desired_number_scheduled;
        counted(status.number_ready, wanted, "pods", "ready")?;
        counted(status.number_available, wanted, "pods", "available")
    }
}

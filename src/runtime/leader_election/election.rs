use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::{Instant, timeout};

use super::marks::Marks;
use super::metrics::LeaderElectionMetrics;
use super::record::{self, ObservedLease, holder};
use super::{Generation, Timing, WriteFence};
use crate::runtime::kube_client::ApiError;

#[derive(Debug, thiserror::Error)]
pub(super) enum LeaseError {
    #[error("{0}")]
    Api(ApiError),
    #[error("no response from the API server within {0:?}")]
    Timeout(Duration),
    #[error("lease is held by {0:?}")]
    Taken(String),
    /// This process holds other Leases, and a process without a Lease comes first.
    #[error("lease is left to other replicas for now")]
    LeftToOthers,
}

impl From<kube::Error> for LeaseError {
    fn from(error: kube::Error) -> Self {
        Self::Api(ApiError::from(error))
    }
}

#[derive(Debug)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    fence: WriteFence,
    metrics: LeaderElectionMetrics,
    marks: Marks,
    /// The Lease as last written by this process; none if another write may have followed.
    written: Option<Lease>,
    generation: Generation,
    observed: ObservedLease,
    /// Seen last; a Lease that is created again continues with them.
    transitions: Option<i32>,
    free_since: Option<Instant>,
}

impl Election {
    /// `identity` must be unique among all processes, even across restarts (see [`super::identity`]).
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, timing: Timing) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            fence: WriteFence::default(),
            metrics: LeaderElectionMetrics::default(),
            marks: Marks::default(),
            written: None,
            generation: Generation::default(),
            observed: ObservedLease::default(),
            transitions: None,
            free_since: None,
        }
    }

    #[must_use]
    pub fn with_fence(mut self, fence: WriteFence) -> Self {
        self.fence = fence;
        self
    }

    #[must_use]
    pub fn with_metrics(mut self, metrics: LeaderElectionMetrics) -> Self {
        metrics.set_leading(&self.name, false);
        self.metrics = metrics;
        self
    }

    #[must_use]
    pub(super) fn with_marks(mut self, marks: Marks) -> Self {
        self.marks = marks;
        self
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    pub(super) fn fence(&self) -> &WriteFence {
        &self.fence
    }

    pub(super) fn metrics(&self) -> &LeaderElectionMetrics {
        &self.metrics
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the generation of the Lease when this process took it. A Lease that this process creates again later,
    /// after it was deleted, is newer still for the next holder.
    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    /// Takes the Lease if it has been free for `patience`. Canceled or without a response, it may be taken all the
    /// same; the next call finds out.
    pub(super) async fn take(&mut self, patience: Duration) -> Result<(), LeaseError> {
        let lease = self.api.get_opt(&self.name).await?;
        let spec = lease.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        self.transitions = self.transitions.max(spec.lease_transitions);
        let duration = self.timing.lease_duration;
        let now = Instant::now();
        let is_own = holder(&spec) == Some(&self.identity);
        if !is_own {
            if !self.observed.may_take(&spec, duration, now) {
                self.free_since = None;
                return Err(LeaseError::Taken(holder(&spec).unwrap_or_default().to_owned()));
            }
            if now.duration_since(*self.free_since.get_or_insert(now)) < patience {
                return Err(LeaseError::LeftToOthers);
            }
        }
        match lease {
            None => self.create().await?,
            Some(lease) if is_own => {
                // Written by an attempt whose response was lost.
                let renewed = record::renewed(&spec, &self.identity, duration, Timestamp::now());
                self.replace(lease, renewed).await?;
            }
            Some(lease) => {
                let taken = record::taken(&spec, &self.identity, duration, Timestamp::now());
                self.replace(lease, taken).await?;
            }
        }
        self.generation = self.written.as_ref().map(Generation::of).unwrap_or_default();
        self.free_since = None;
        Ok(())
    }

    pub(super) async fn renew(&mut self) -> Result<(), LeaseError> {
        let (identity, timing) = (self.identity.clone(), self.timing);
        let renewal = async {
            let renewed = |spec: &LeaseSpec| record::renewed(spec, &identity, timing.lease_duration, Timestamp::now());
            if !self.rewrite(renewed).await? {
                // A deleted Lease has no new holder.
                self.create().await?;
            }
            Ok(())
        };
        attempt(timing, renewal).await
    }

    pub(super) async fn release(&mut self) -> Result<(), LeaseError> {
        let released = |spec: &LeaseSpec| record::released(spec, Timestamp::now());
        match attempt(self.timing, self.rewrite(released)).await {
            Ok(_) | Err(LeaseError::Taken(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Updates the Lease; returns false if it does not exist. Fails if another process holds it.
    async fn rewrite(&mut self, next: impl Fn(&LeaseSpec) -> LeaseSpec) -> Result<bool, LeaseError> {
        // Usually there was no other write, and one request is enough.
        if let Some(written) = self.written.take() {
            let spec = self.own_spec(&written)?;
            match self.replace(written, next(&spec)).await {
                Ok(()) => return Ok(true),
                Err(error) => {
                    tracing::debug!(lease = self.name, %error, "failed to update lease, reading it again")
                }
            }
        }
        let Some(lease) = self.api.get_opt(&self.name).await? else {
            return Ok(false);
        };
        let spec = self.own_spec(&lease)?;
        self.replace(lease, next(&spec)).await?;
        Ok(true)
    }

    fn own_spec(&self, lease: &Lease) -> Result<LeaseSpec, LeaseError> {
        let spec = lease.spec.clone().unwrap_or_default();
        match holder(&spec) {
            Some(holder) if holder == self.identity => Ok(spec),
            other => Err(LeaseError::Taken(other.unwrap_or_default().to_owned())),
        }
    }

    async fn create(&mut self) -> Result<(), LeaseError> {
        let first = record::first(&self.identity, self.timing.lease_duration, Timestamp::now());
        let mut lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            // Creation times are whole seconds, so the transitions go on.
            spec: Some(LeaseSpec {
                lease_transitions: Some(self.transitions.map_or(0, |last| last.max(0).saturating_add(1))),
                ..first
            }),
        };
        self.marks.apply(&mut lease.metadata);
        self.written = Some(self.api.create(&PostParams::default(), &lease).await?);
        self.transitions = lease.spec.and_then(|spec| spec.lease_transitions);
        Ok(())
    }

    /// Replaces the Lease; the resource version makes concurrent writes fail.
    async fn replace(&mut self, current: Lease, next: LeaseSpec) -> Result<(), LeaseError> {
        let mut lease = Lease {
            spec: Some(next),
            ..current
        };
        self.marks.apply(&mut lease.metadata);
        self.transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        self.written = Some(self.api.replace(&self.name, &PostParams::default(), &lease).await?);
        Ok(())
    }
}

/// Limits the time of an attempt, so that a second attempt fits before the deadline.
pub(super) async fn attempt<T>(
    timing: Timing,
    work: impl Future<Output = Result<T, LeaseError>>,
) -> Result<T, LeaseError> {
    let limit = timing.renew_deadline / 2;
    timeout(limit, work).await.unwrap_or(Err(LeaseError::Timeout(limit)))
}

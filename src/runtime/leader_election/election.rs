use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};

use super::record::{self, Observed, holder};
use super::{LeaderGuard, Timing, random};

#[derive(Debug, thiserror::Error)]
pub(super) enum LeaseError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no response from the API server within {0:?}")]
    Timeout(Duration),
    #[error("lease is held by {0:?}")]
    Taken(String),
}

/// A contender for a Lease.
#[derive(Debug)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    /// The Lease as last written by this process; none if another write may have followed.
    written: Option<Lease>,
    is_known: Arc<AtomicBool>,
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
            written: None,
            is_known: Arc::default(),
        }
    }

    /// Returns a function that is true once the last attempt to acquire the Lease showed who holds it.
    pub fn is_known(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let is_known = Arc::clone(&self.is_known);
        move || is_known.load(Ordering::Relaxed)
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until this process holds the Lease. Errors are logged and retried. Dropping the future withdraws the
    /// contender.
    pub async fn acquire(mut self) -> LeaderGuard {
        let mut observed = Observed::default();
        let mut logged_holder = None;
        loop {
            let started = Instant::now();
            let attempted = attempt(self.timing, self.take(&mut observed)).await;
            let is_known = matches!(attempted, Ok(()) | Err(LeaseError::Taken(_)));
            self.is_known.store(is_known, Ordering::Relaxed);
            match attempted {
                Ok(()) => {
                    tracing::info!(lease = self.name, identity = self.identity, "started leading");
                    return LeaderGuard::start(self, started);
                }
                Err(LeaseError::Taken(holder)) if logged_holder.as_ref() == Some(&holder) => {}
                Err(LeaseError::Taken(holder)) => {
                    tracing::info!(lease = self.name, holder, "lease held by another replica, waiting");
                    logged_holder = Some(holder);
                }
                Err(error) => tracing::warn!(lease = self.name, %error, "failed to acquire lease, retrying"),
            }
            sleep(jittered(self.timing.retry_period)).await;
        }
    }

    async fn take(&mut self, observed: &mut Observed) -> Result<(), LeaseError> {
        let Some(found) = self.api.get_opt(&self.name).await? else {
            return self.create().await;
        };
        let spec = found.spec.clone().unwrap_or_default();
        let duration = self.timing.lease_duration;
        let now = Timestamp::now();
        let next = if holder(&spec) == Some(&self.identity) {
            // Written by an attempt whose response was lost.
            record::renewed(&spec, &self.identity, duration, now)
        } else if observed.may_take(&spec, duration, Instant::now()) {
            record::taken(&spec, &self.identity, duration, now)
        } else {
            return Err(LeaseError::Taken(holder(&spec).unwrap_or_default().to_owned()));
        };
        self.replace(found, next).await
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
        let Some(found) = self.api.get_opt(&self.name).await? else {
            return Ok(false);
        };
        let spec = self.own_spec(&found)?;
        self.replace(found, next(&spec)).await?;
        Ok(true)
    }

    fn own_spec(&self, found: &Lease) -> Result<LeaseSpec, LeaseError> {
        let spec = found.spec.clone().unwrap_or_default();
        match holder(&spec) {
            Some(holder) if holder == self.identity => Ok(spec),
            other => Err(LeaseError::Taken(other.unwrap_or_default().to_owned())),
        }
    }

    async fn create(&mut self) -> Result<(), LeaseError> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(record::first(
                &self.identity,
                self.timing.lease_duration,
                Timestamp::now(),
            )),
        };
        self.written = Some(self.api.create(&PostParams::default(), &lease).await?);
        Ok(())
    }

    /// Replaces the Lease; the resource version makes concurrent writes fail.
    async fn replace(&mut self, found: Lease, next: LeaseSpec) -> Result<(), LeaseError> {
        let lease = Lease {
            spec: Some(next),
            ..found
        };
        self.written = Some(self.api.replace(&self.name, &PostParams::default(), &lease).await?);
        Ok(())
    }
}

/// Limits the time of an attempt, so that a second one fits before the deadline.
async fn attempt<T>(timing: Timing, work: impl Future<Output = Result<T, LeaseError>>) -> Result<T, LeaseError> {
    let limit = timing.renew_deadline / 2;
    timeout(limit, work).await.unwrap_or(Err(LeaseError::Timeout(limit)))
}

/// Shortens a period by up to a fifth, so that contenders do not send requests together.
fn jittered(period: Duration) -> Duration {
    let thousandth = u32::try_from(random() % 200).unwrap_or_default();
    period - period / 1000 * thousandth
}

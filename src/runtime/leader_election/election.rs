use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Timing, random,
    record::{self, Observed, holder},
};

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no response from the API server within {0:?}")]
    Timeout(Duration),
    #[error("lease is held by {0:?}")]
    Taken(String),
}

#[derive(Debug)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    /// The Lease as last written by this process; none if another write may have followed.
    written: Option<Lease>,
}

impl Election {
    pub fn new(api: Api<Lease>, name: &str, identity: &str, timing: Timing) -> Self {
        let (name, identity) = (name.to_owned(), identity.to_owned());
        Self {
            api,
            name,
            identity,
            timing,
            written: None,
        }
    }

    pub fn timing(&self) -> Timing {
        self.timing
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until this process holds the Lease; returns the time at which the successful request was sent.
    pub async fn win(mut self) -> (Self, Instant) {
        let mut observed = Observed::default();
        let mut logged_holder = None;
        loop {
            let started = Instant::now();
            let attempt = timeout(self.attempt_timeout(), self.take(&mut observed)).await;
            match attempt.unwrap_or_else(|_| Err(Failure::Timeout(self.attempt_timeout()))) {
                Ok(()) => {
                    tracing::info!(lease = self.name, identity = self.identity, "started leading");
                    return (self, started);
                }
                Err(Failure::Taken(holder)) if logged_holder.as_ref() == Some(&holder) => {}
                Err(Failure::Taken(holder)) => {
                    tracing::info!(lease = self.name, holder, "lease held by another replica, waiting");
                    logged_holder = Some(holder);
                }
                Err(error) => tracing::warn!(lease = self.name, %error, "failed to acquire lease, retrying"),
            }
            sleep(jittered(self.timing.retry_period)).await;
        }
    }

    async fn take(&mut self, observed: &mut Observed) -> Result<(), Failure> {
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
            return Err(Failure::Taken(holder(&spec).unwrap_or_default().to_owned()));
        };
        self.replace(found, next).await
    }

    pub async fn renew(&mut self) -> Result<(), Failure> {
        let (identity, duration) = (self.identity.clone(), self.timing.lease_duration);
        let attempt_timeout = self.attempt_timeout();
        let attempt = timeout(attempt_timeout, async {
            let renewed = |spec: &LeaseSpec| record::renewed(spec, &identity, duration, Timestamp::now());
            if !self.rewrite(renewed).await? {
                // A deleted Lease has no new holder.
                self.create().await?;
            }
            Ok(())
        });
        attempt.await.unwrap_or(Err(Failure::Timeout(attempt_timeout)))
    }

    pub async fn release(&mut self) -> Result<(), Failure> {
        let attempt_timeout = self.attempt_timeout();
        let released = |spec: &LeaseSpec| record::released(spec, Timestamp::now());
        match timeout(attempt_timeout, self.rewrite(released)).await {
            Ok(Ok(_) | Err(Failure::Taken(_))) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Failure::Timeout(attempt_timeout)),
        }
    }

    /// Updates the Lease; returns false if it does not exist. Fails if another process holds it.
    async fn rewrite(&mut self, next: impl Fn(&LeaseSpec) -> LeaseSpec) -> Result<bool, Failure> {
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

    fn own_spec(&self, found: &Lease) -> Result<LeaseSpec, Failure> {
        let spec = found.spec.clone().unwrap_or_default();
        match holder(&spec) {
            Some(holder) if holder == self.identity => Ok(spec),
            other => Err(Failure::Taken(other.unwrap_or_default().to_owned())),
        }
    }

    async fn create(&mut self) -> Result<(), Failure> {
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
    async fn replace(&mut self, found: Lease, next: LeaseSpec) -> Result<(), Failure> {
        let lease = Lease {
            spec: Some(next),
            ..found
        };
        self.written = Some(self.api.replace(&self.name, &PostParams::default(), &lease).await?);
        Ok(())
    }

    /// Time limit of an attempt; leaves time for a second one before the deadline.
    fn attempt_timeout(&self) -> Duration {
        self.timing.renew_deadline / 2
    }
}

/// Shortens a period by up to a fifth, so that contenders do not send requests together.
fn jittered(period: Duration) -> Duration {
    let thousandth = u32::try_from(random() % 200).unwrap_or_default();
    period - period / 1000 * thousandth
}

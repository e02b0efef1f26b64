//! The requests of an election.

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

/// Why a Lease was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The API server could not be asked, or did not do it.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// It has not answered in time.
    #[error("the API server has not answered for {0:?}")]
    Silence(Duration),
    /// Somebody else has it, or (the empty name) it was taken from us and given to nobody.
    #[error("it is held by {0:?}")]
    Taken(String),
}

/// A contender, and what it knows of the Lease.
#[derive(Debug)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    /// The Lease as this process has written it last; none where it may have been written since.
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

    /// Waits until the Lease is ours, and gives the time when it was asked for.
    pub async fn win(mut self) -> (Self, Instant) {
        let mut observed = Observed::default();
        let mut told = None;
        loop {
            let started = Instant::now();
            let attempt = timeout(self.patience(), self.take(&mut observed)).await;
            match attempt.unwrap_or_else(|_| Err(Failure::Silence(self.patience()))) {
                Ok(()) => {
                    tracing::info!(lease = self.name, identity = self.identity, "started leading");
                    return (self, started);
                }
                Err(Failure::Taken(holder)) if told.as_ref() == Some(&holder) => {}
                Err(Failure::Taken(holder)) => {
                    tracing::info!(lease = self.name, holder, "lease held by another replica, waiting");
                    told = Some(holder);
                }
                Err(error) => tracing::warn!(lease = self.name, %error, "failed to acquire lease, retrying"),
            }
            sleep(spread(self.timing.retry_period)).await;
        }
    }

    /// Takes the Lease if it may be taken.
    async fn take(&mut self, observed: &mut Observed) -> Result<(), Failure> {
        let Some(found) = self.api.get_opt(&self.name).await? else {
            return self.create().await;
        };
        let spec = found.spec.clone().unwrap_or_default();
        let duration = self.timing.lease_duration;
        let now = Timestamp::now();
        let next = if holder(&spec) == Some(&self.identity) {
            // Written by an attempt whose answer was lost.
            record::renewed(&spec, &self.identity, duration, now)
        } else if observed.may_take(&spec, duration, Instant::now()) {
            record::taken(&spec, &self.identity, duration, now)
        } else {
            return Err(Failure::Taken(holder(&spec).unwrap_or_default().to_owned()));
        };
        self.replace(found, next).await
    }

    /// Renews the Lease, which is ours unless somebody has taken it.
    pub async fn renew(&mut self) -> Result<(), Failure> {
        let (identity, duration) = (self.identity.clone(), self.timing.lease_duration);
        let patience = self.patience();
        let attempt = timeout(patience, async {
            let renewed = |spec: &LeaseSpec| record::renewed(spec, &identity, duration, Timestamp::now());
            if !self.rewrite(renewed).await? {
                // Whoever deleted it has not taken it.
                self.create().await?;
            }
            Ok(())
        });
        attempt.await.unwrap_or(Err(Failure::Silence(patience)))
    }

    /// Gives the Lease back, if it still is ours.
    pub async fn release(&mut self) -> Result<(), Failure> {
        let patience = self.patience();
        let released = |spec: &LeaseSpec| record::released(spec, Timestamp::now());
        match timeout(patience, self.rewrite(released)).await {
            Ok(Ok(_) | Err(Failure::Taken(_))) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Failure::Silence(patience)),
        }
    }

    /// Writes the Lease if it is there, which is the answer, and ours.
    async fn rewrite(&mut self, next: impl Fn(&LeaseSpec) -> LeaseSpec) -> Result<bool, Failure> {
        // Mostly nobody has written since, and one request is enough.
        if let Some(written) = self.written.take() {
            let spec = self.ours(&written)?;
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
        let spec = self.ours(&found)?;
        self.replace(found, next(&spec)).await?;
        Ok(true)
    }

    /// What stands in a Lease that is ours.
    fn ours(&self, found: &Lease) -> Result<LeaseSpec, Failure> {
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

    /// Writes the Lease if nobody has since it was `found`: its resource version stands in it.
    async fn replace(&mut self, found: Lease, next: LeaseSpec) -> Result<(), Failure> {
        let lease = Lease {
            spec: Some(next),
            ..found
        };
        self.written = Some(self.api.replace(&self.name, &PostParams::default(), &lease).await?);
        Ok(())
    }

    /// How long one attempt may take: so that before the deadline there is time for another.
    fn patience(&self) -> Duration {
        self.timing.renew_deadline / 2
    }
}

/// Up to a fifth shorter, so that contenders that started together don't keep asking together.
fn spread(period: Duration) -> Duration {
    let thousandth = u32::try_from(random() % 200).unwrap_or_default();
    period - period / 1000 * thousandth
}

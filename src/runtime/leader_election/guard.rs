use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::Generation;
use super::election::{Election, LeaseError};
use crate::runtime::boot_time::boot_time;

/// The timeout of the release of a Lease, which otherwise expires.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Lost {
    /// Another process may soon take it.
    #[error("failed to renew lease {lease} for {}s: {error}", .after.as_secs_f64())]
    NotRenewed {
        lease: String,
        after: Duration,
        error: String,
    },
    #[error("lease {lease} was taken by {holder:?}")]
    Taken {
        lease: String,
        /// Empty if there is none.
        holder: String,
    },
    #[error("lease renewal task terminated unexpectedly")]
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    at: Instant,
    since_boot: Duration,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self {
            at: Instant::now(),
            since_boot: boot_time(),
        }
    }
}

/// Renewed in the background. Dropping it stops the renewal; the Lease then expires as after a crash.
#[derive(Debug)]
pub struct LeaderGuard {
    name: String,
    identity: String,
    generation: Generation,
    lost: watch::Receiver<Option<Lost>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl LeaderGuard {
    /// Renews a Lease that was taken by a request sent at `since`.
    pub(super) fn start(election: Election, since: Moment) -> Self {
        let (name, identity) = (election.name().to_owned(), election.identity().to_owned());
        let generation = election.generation();
        election.metrics().set_leading(&name, true);
        extend_fence(&election, since);
        let (sender, lost) = watch::channel(None);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let fence = election.fence().clone();
            let metrics = election.metrics().clone();
            let name = election.name().to_owned();
            if let Some(reason) = renew_until_lost(election, since, &stopped).await {
                // Also for work that does not learn of the loss.
                fence.extend(&name, Duration::ZERO);
                sender.send_replace(Some(reason));
            }
            metrics.set_leading(&name, false);
        });
        Self {
            name,
            identity,
            generation,
            lost,
            stop,
            task,
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    pub async fn lost(&mut self) -> Lost {
        match self.lost.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(Lost::Abandoned),
            Err(_) => Lost::Abandoned,
        }
    }

    /// Lets another process take the Lease. Call it after all leader-only work. If it fails, the Lease expires.
    pub async fn release(mut self) {
        self.stop.cancel();
        // A panic of the task needs no handling here.
        if timeout(RELEASE_TIMEOUT, &mut self.task).await.is_err() {
            tracing::warn!("failed to release lease in time, it will expire");
        }
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews the Lease until `stop`, then releases it; returns the reason if the Lease is lost.
async fn renew_until_lost(mut election: Election, since: Moment, stop: &CancellationToken) -> Option<Lost> {
    let timing = election.timing();
    let mut renewed = since.at;
    let mut next = renewed + timing.retry_period;
    let mut last_error = None;
    loop {
        let deadline = renewed + timing.renew_deadline;
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                election.fence().remove(election.name());
                match election.release().await {
                    Ok(()) => tracing::info!(lease = election.name(), "stopped leading"),
                    Err(error) => tracing::warn!(lease = election.name(), %error, "failed to release lease, it will expire"),
                }
                return None;
            }
            () = sleep_until(next.min(deadline)) => {}
        }
        let sent = Moment::now();
        let started = sent.at;
        if started >= deadline {
            return Some(Lost::NotRenewed {
                lease: election.name().to_owned(),
                after: timing.renew_deadline,
                error: last_error.unwrap_or_else(|| "process was suspended".to_owned()),
            });
        }
        // The outcome of an attempt that is cut off by the deadline is unknown.
        let attempt = tokio::time::timeout_at(deadline, election.renew()).await;
        match attempt {
            Ok(Ok(())) => {
                extend_fence(&election, sent);
                renewed = started;
                next = started + timing.retry_period;
                last_error = None;
                continue;
            }
            Ok(Err(LeaseError::Taken(holder))) => {
                let lease = election.name().to_owned();
                return Some(Lost::Taken { lease, holder });
            }
            Ok(Err(error)) => {
                // The first failure of a series is enough: the last failure is the reason of a loss.
                match last_error {
                    None => tracing::warn!(lease = election.name(), %error, "failed to renew lease, retrying"),
                    Some(_) => tracing::debug!(lease = election.name(), %error, "failed to renew lease, retrying"),
                }
                last_error = Some(error.to_string());
            }
            Err(_) => {
                last_error.get_or_insert_with(|| "no response from the API server".to_owned());
            }
        }
        next = Instant::now() + timing.retry_period;
    }
}

fn extend_fence(election: &Election, sent: Moment) {
    let until = sent.since_boot + election.timing().renew_deadline;
    election.fence().extend(election.name(), until);
}

//! A Lease that is held, and renewed until it is lost or released.

use std::time::Duration;

use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::election::{Election, Failure};

/// Why this process leads no more.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Lost {
    /// It could not be renewed in time, and another process may soon take it.
    #[error("the Lease {lease} could not be renewed for {} s: {error}", .after.as_secs_f64())]
    NotRenewed {
        /// Its name.
        lease: String,
        /// For how long.
        after: Duration,
        /// What was in the way last.
        error: String,
    },
    /// It was taken away.
    #[error("the Lease {lease} was taken away; its holder is {holder:?} now")]
    Taken {
        /// Its name.
        lease: String,
        /// Who holds it; empty where nobody does.
        holder: String,
    },
    /// Nothing renews it any more: a bug.
    #[error("the Lease is not renewed any more, because the task that does it has ended")]
    Abandoned,
}

/// The Lease is ours: it is renewed in the background. If this is dropped it is renewed no more, and stands until it runs
/// out, as after a crash.
#[derive(Debug)]
pub struct LeaderGuard {
    lost: watch::Receiver<Option<Lost>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl LeaderGuard {
    /// Starts to renew a Lease that is ours by a request of the time `since`.
    pub(super) fn start(election: Election, since: Instant) -> Self {
        let (tell, lost) = watch::channel(None);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            if let Some(reason) = keep(election, since, &stopped).await {
                tell.send_replace(Some(reason));
            }
        });
        Self { lost, stop, task }
    }

    /// Waits until the Lease is lost. From then on nothing may be done any more that only a leader may do. It may be called
    /// again, and dropped without harm.
    pub async fn lost(&mut self) -> Lost {
        match self.lost.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(Lost::Abandoned),
            Err(_) => Lost::Abandoned,
        }
    }

    /// Gives the Lease back, so that another process need not wait: to be called when nothing is done any more that only a
    /// leader may do. That it could not be given back is logged; it then runs out by itself.
    pub async fn release(mut self) {
        self.stop.cancel();
        // There is nothing to be done about a panic in it.
        let _ = (&mut self.task).await;
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews until it is asked to stop, and then releases; or until the Lease is lost, which it tells.
async fn keep(mut election: Election, since: Instant, stop: &CancellationToken) -> Option<Lost> {
    let timing = election.timing();
    let mut renewed = since;
    let mut next = renewed + timing.retry_period;
    let mut last_error = None;
    loop {
        let deadline = renewed + timing.renew_deadline;
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                match election.release().await {
                    Ok(()) => tracing::info!(lease = election.name(), "stopped leading"),
                    Err(error) => tracing::warn!(lease = election.name(), %error, "failed to release lease, it will expire"),
                }
                return None;
            }
            () = sleep_until(next.min(deadline)) => {}
        }
        let started = Instant::now();
        if started >= deadline {
            return Some(Lost::NotRenewed {
                lease: election.name().to_owned(),
                after: timing.renew_deadline,
                error: last_error.unwrap_or_else(|| "this process did not run".to_owned()),
            });
        }
        // An attempt that is cut off by the deadline has an outcome that nobody knows.
        let attempt = tokio::time::timeout_at(deadline, election.renew()).await;
        match attempt {
            Ok(Ok(())) => {
                renewed = started;
                next = started + timing.retry_period;
                last_error = None;
                continue;
            }
            Ok(Err(Failure::Taken(holder))) => {
                let lease = election.name().to_owned();
                return Some(Lost::Taken { lease, holder });
            }
            Ok(Err(error)) => {
                tracing::warn!(lease = election.name(), %error, "failed to renew lease, retrying");
                last_error = Some(error.to_string());
            }
            Err(_) => {
                last_error.get_or_insert_with(|| "the API server does not answer".to_owned());
            }
        }
        next = Instant::now() + timing.retry_period;
    }
}

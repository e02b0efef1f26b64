//! Tasks that keep the database usable without a restart.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::Error;
use super::startup::{PasswordSecret, Patience, read_password};
use crate::catalog::{Catalog, ClusterClaim, ErrorKind, Fault, RENEW_INTERVAL};
use crate::controllers::Task;
use crate::text::printable;

const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Pause until the next try of the first claim.
const CLAIM_RETRY: Duration = Duration::from_secs(1);

/// Pause between two reads of the Secret, which may change later than the password of the database.
const PASSWORD_RETRY: Duration = Duration::from_secs(5);

/// The identity of this process to other users of the database.
#[derive(Clone, Debug)]
pub(super) struct DatabaseIdentity {
    pub(super) origin: String,
    /// `None` for a directory of manifests, which claims no database.
    pub(super) cluster_id: Option<String>,
}

/// Returns false if the database is not reachable, and must be claimed later. Logs a failure only if `is_logged`.
pub(super) async fn claim(catalog: &Catalog, identity: &DatabaseIdentity, is_logged: bool) -> Result<bool, Error> {
    let Some(cluster_id) = &identity.cluster_id else {
        return Ok(true);
    };
    match catalog.claim(cluster_id, &identity.origin).await {
        Ok(ClusterClaim::Held) => Ok(true),
        Ok(ClusterClaim::TakenOver { from }) => {
            tracing::warn!(
                cluster = from,
                "taking over the database of a cluster that has not used it for 5 minutes, keeping its charts"
            );
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::OtherCluster { .. }) => Err(Error::from_display(error)),
        Err(error) if is_logged => {
            tracing::warn!(%error, "failed to claim the database, retrying");
            Ok(false)
        }
        Err(_) => Ok(false),
    }
}

pub(super) fn leader_tasks(catalog: &Catalog, identity: &DatabaseIdentity) -> Vec<Task> {
    vec![
        renew_claim(catalog.clone(), identity.clone()).boxed(),
        follow_file(catalog.clone(), identity.origin.clone()).boxed(),
    ]
}

/// Claims the database for the Leases that this process holds, as soon as it is reachable. Never returns.
pub(super) async fn claim_leases(catalog: Catalog) {
    let started = Instant::now();
    let mut is_waiting = false;
    // A refused claim ends the process by `Catalog::fenced`.
    while let Err(error) = catalog.claim_leases().await {
        tracing::debug!(%error, "failed to claim the database, retrying");
        if error.fault() == Some(Fault::Locked) && !is_waiting {
            is_waiting = report_blockers(&catalog).await;
        }
        sleep(CLAIM_RETRY).await;
    }
    if is_waiting {
        tracing::info!(duration = ?started.elapsed(), "transactions of the former leader have ended");
    }
    std::future::pending().await
}

/// Logs the transactions that this leader waits for. Returns false if none was found.
async fn report_blockers(catalog: &Catalog) -> bool {
    let blockers = match catalog.blockers().await {
        Ok(blockers) if blockers.sessions.is_empty() => return false,
        Ok(blockers) => blockers,
        Err(error) => {
            tracing::debug!(%error, "failed to list the sessions of the database");
            return false;
        }
    };
    let sessions: Vec<String> = blockers.sessions.iter().map(ToString::to_string).collect();
    tracing::warn!(
        former_holder = printable(&blockers.former_holder),
        sessions = printable(&sessions.join(", ")),
        "waiting for transactions of the former leader, which the database ends after a minute"
    );
    true
}

/// Returns only if another cluster has taken over the database, which ends the process.
async fn renew_claim(catalog: Catalog, identity: DatabaseIdentity) {
    let error = renew(|is_logged| claim(&catalog, &identity, is_logged)).await;
    tracing::error!(%error, "lost the database to another cluster");
}

/// Claims again and again. Until the first claim succeeds, another cluster may use the database.
async fn renew<F>(claim: impl Fn(bool) -> F) -> Error
where
    F: Future<Output = Result<bool, Error>>,
{
    let (mut is_claimed, mut logged) = (false, None::<Instant>);
    loop {
        let is_logged = logged.is_none_or(|logged| logged.elapsed() >= RENEW_INTERVAL);
        match claim(is_logged).await {
            Ok(has_succeeded) => is_claimed |= has_succeeded,
            Err(error) => return error,
        }
        if is_logged {
            logged = Some(Instant::now());
        }
        sleep(if is_claimed { RENEW_INTERVAL } else { CLAIM_RETRY }).await;
    }
}

/// Opens the SQLite file again after it was deleted or replaced. Never returns.
async fn follow_file(catalog: Catalog, origin: String) {
    let mut ticks = interval(FILE_CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match catalog.follow_file(&origin).await {
            Ok(false) => {}
            Ok(true) => tracing::info!("opened the database file, syncing all repositories"),
            Err(error) => tracing::error!(%error, "failed to open the database file, retrying"),
        }
    }
}

/// Reads the Secret again whenever Postgres refuses the password. Never returns.
pub(super) async fn refresh_password(catalog: Catalog, secret: PasswordSecret, client: kube::Client) {
    let mut refused = catalog.refused_logins();
    while refused.changed().await.is_ok() {
        match read_password(&secret, &client, Patience::Fail).await {
            Ok(password) => catalog.set_password(&password),
            Err(error) => tracing::warn!(%error, "failed to read the password of the database"),
        }
        sleep(PASSWORD_RETRY).await;
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_claim_is_retried_each_second_and_renewed_each_minute() {
        let (start, times) = (Instant::now(), RefCell::new(Vec::new()));
        let results = RefCell::new(vec![Ok(false), Ok(false), Ok(true), Ok(false), Ok(true)].into_iter());
        let lost = || Err(Error("lost".to_owned()));
        let error = renew(|is_logged| {
            times.borrow_mut().push((start.elapsed().as_secs(), is_logged));
            let result = results.borrow_mut().next().unwrap_or_else(lost);
            async { result }
        });
        assert_eq!(error.await, Error("lost".to_owned()));
        assert_eq!(
            *times.borrow(),
            [(0, true), (1, false), (2, false), (62, true), (122, true), (182, true)]
        );
    }
}

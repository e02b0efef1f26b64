//! Tasks that keep the database usable without a restart.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::Error;
use super::startup::{PasswordSecret, Patience, read_password};
use crate::catalog::{self, Catalog, Claim, RENEW_INTERVAL};
use crate::controllers::Task;

const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Pause until the next try of the first claim.
const CLAIM_RETRY: Duration = Duration::from_secs(1);

/// Pause between two reads of the Secret, which may change later than the password of the database.
const PASSWORD_RETRY: Duration = Duration::from_secs(5);

/// The identity of this process to other users of the database.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) origin: String,
    /// `None` for a directory of manifests, which claims no database.
    pub(super) cluster_id: Option<String>,
}

/// Claims the database for this cluster. Returns false if it is not reachable, and must be claimed later.
pub(super) async fn claim(catalog: &Catalog, identity: &Identity) -> Result<bool, Error> {
    let Some(cluster_id) = &identity.cluster_id else {
        return Ok(true);
    };
    match catalog.claim(cluster_id, &identity.origin).await {
        Ok(Claim::Held) => Ok(true),
        Ok(Claim::TakenOver { from }) => {
            tracing::warn!(
                cluster = from,
                "taking over the database of a cluster that has not used it for 5 minutes, keeping its charts"
            );
            Ok(true)
        }
        Err(error @ catalog::Error::OtherCluster { .. }) => Err(Error::from_display(error)),
        Err(error) => {
            tracing::warn!(%error, "failed to claim the database, retrying");
            Ok(false)
        }
    }
}

pub(super) fn tasks(
    catalog: &Catalog,
    identity: &Identity,
    password: Option<(PasswordSecret, kube::Client)>,
) -> Vec<Task> {
    let mut tasks = vec![
        renew_claim(catalog.clone(), identity.clone()).boxed(),
        follow_file(catalog.clone(), identity.origin.clone()).boxed(),
    ];
    if let Some((secret, client)) = password {
        tasks.push(refresh_password(catalog.clone(), secret, client).boxed());
    }
    tasks
}

/// Returns only if another cluster has taken over the database, which ends the process.
async fn renew_claim(catalog: Catalog, identity: Identity) {
    let mut is_claimed = false;
    loop {
        match claim(&catalog, &identity).await {
            Ok(now_claimed) => is_claimed |= now_claimed,
            Err(error) => {
                tracing::error!(%error, "lost the database to another cluster");
                return;
            }
        }
        // Until the first claim, another cluster may use the database.
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
async fn refresh_password(catalog: Catalog, secret: PasswordSecret, client: kube::Client) {
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

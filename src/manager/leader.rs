//! Leader election: of several replicas, only the holder of the Lease reconciles.

use super::{Error, Options, SourceOptions};
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::{ConnectOptions, connect};
use crate::runtime::leader_election::{Election, LeaderGuard, Timing, identity};

/// The name of the Lease.
const NAME: &str = "portolan";

/// The Lease, if leader election is enabled.
pub(super) enum Leadership {
    Disabled,
    Candidate(Box<Election>),
    Leader(LeaderGuard),
}

impl Leadership {
    pub(super) async fn new(options: &Options, requests: &RequestMetrics) -> Result<Self, Error> {
        let (Some(namespace), SourceOptions::Cluster(cluster)) = (&options.lease_namespace, &options.source) else {
            return Ok(Self::Disabled);
        };
        // A renewal never waits behind other requests.
        let unlimited = ConnectOptions {
            limits: None,
            ..cluster.clone()
        };
        let client = connect(&unlimited, requests).await.map_err(Error::from_display)?;
        let pod = std::env::var("POD_NAME").unwrap_or_else(|_| NAME.to_owned());
        let lease = Election::new(client, namespace, NAME, &identity(&pod), Timing::default());
        Ok(Self::Candidate(Box::new(lease)))
    }

    /// Returns a function that is true while the holder of the Lease is known; none if leader election is disabled.
    pub(super) fn is_known(&self) -> Option<Box<dyn Fn() -> bool + Send + Sync>> {
        match self {
            Self::Candidate(lease) => Some(Box::new(lease.is_known())),
            _ => None,
        }
    }

    pub(super) fn is_candidate(&self) -> bool {
        matches!(self, Self::Candidate(_))
    }

    /// Waits until this replica leads; returns immediately if it does, or if leader election is disabled.
    pub(super) async fn acquire(&mut self) {
        *self = match std::mem::replace(self, Self::Disabled) {
            Self::Candidate(lease) => {
                tracing::info!(lease = NAME, "waiting for the leader lease");
                Self::Leader(lease.acquire().await)
            }
            other => other,
        };
    }

    /// Waits until the Lease is lost; forever if leader election is disabled.
    pub(super) async fn lost(&mut self) -> Error {
        match self {
            Self::Leader(guard) => Error(format!("{}, exiting to start again as a standby", guard.lost().await)),
            _ => std::future::pending().await,
        }
    }

    /// Releases the Lease, after everything else has ended.
    pub(super) async fn release(self) {
        if let Self::Leader(guard) = self {
            guard.release().await;
        }
    }
}

//! Leader election: of several replicas, only the holder of the Lease reconciles.

use super::startup::Patience;
use super::{Error, Options, SourceOptions};
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::{ApiError, ConnectOptions, connect};
use crate::runtime::leader_election::{Election, LeaderGuard, Timing, active_holder, identity};

/// The name of the Lease, and of a process outside of a pod.
const NAME: &str = "portolan";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderElection {
    /// The Lease is not looked at.
    Disabled,
    /// This process runs alone. It does not start while another process holds the Lease.
    RefuseIfHeld(LeaseOptions),
    Enabled(LeaseOptions),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    pub namespace: String,
    pub name: String,
    pub timing: Timing,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            name: NAME.to_owned(),
            timing: Timing::default(),
        }
    }
}

/// The Lease, if leader election is enabled.
pub(super) enum Leadership {
    Disabled,
    Candidate(Box<Election>),
    Leader(LeaderGuard),
}

impl Leadership {
    /// Fails if another process leads and leader election is disabled.
    pub(super) async fn new(options: &Options, requests: &RequestMetrics) -> Result<Self, Error> {
        let SourceOptions::Cluster(cluster) = &options.source else {
            return Ok(Self::Disabled);
        };
        // A renewal never waits behind other requests.
        let unlimited = ConnectOptions {
            limits: None,
            ..cluster.clone()
        };
        let connect = async || connect(&unlimited, requests).await.map_err(Error::from_display);
        match &options.leader_election {
            LeaderElection::Disabled => Ok(Self::Disabled),
            LeaderElection::RefuseIfHeld(lease) => {
                refuse_if_held(&connect().await?, lease).await?;
                Ok(Self::Disabled)
            }
            LeaderElection::Enabled(lease) => {
                let pod = std::env::var("POD_NAME").unwrap_or_else(|_| NAME.to_owned());
                let client = connect().await?;
                let LeaseOptions {
                    namespace,
                    name,
                    timing,
                } = lease;
                let election = Election::new(client, namespace, name, &identity(&pod), *timing);
                Ok(Self::Candidate(Box::new(election)))
            }
        }
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
                tracing::info!(lease = lease.name(), "waiting for the leader lease");
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

async fn refuse_if_held(client: &kube::Client, lease: &LeaseOptions) -> Result<(), Error> {
    let LeaseOptions {
        namespace,
        name,
        timing,
    } = lease;
    let find = || active_holder(client, namespace, name, *timing);
    let what = format!("the Lease {namespace}/{name}");
    match Patience::Wait.get(&what, ApiError::is_retryable, find).await? {
        None => Ok(()),
        Some(holder) => Err(Error(format!(
            "{holder} holds the Lease {namespace}/{name} and would write the same objects; stop it, or use --enable-leader-election"
        ))),
    }
}

//! Leader election: of several replicas, only the holder of a shard's Lease reconciles the objects of the shard.

use std::num::NonZeroU32;

use futures::FutureExt;
use futures::future::{join_all, select_all};

use super::startup::Patience;
use super::{Error, Options, SourceOptions};
use crate::catalog::{Catalog, HeldLease, LeaseGeneration};
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::{ApiError, ConnectOptions, connect};
use crate::runtime::leader_election::{
    Candidacy, LeaderElectionMetrics, LeaderGuard, Marks, Timing, WriteFence, active_holder_of_any, identity,
};
use crate::runtime::shards::Shards;

/// The name of the Lease, and of a process outside of a pod.
pub const NAME: &str = "portolan";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderElection {
    /// The Lease is not looked at.
    Disabled,
    /// This process runs alone. It does not start while another process holds the Lease, or the Lease of a shard.
    RefuseIfHeld(LeaseOptions),
    Enabled(LeaseOptions),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    pub namespace: String,
    pub name: String,
    pub timing: Timing,
    /// Each shard has a Lease of its own.
    pub shards: NonZeroU32,
}

/// The Leases of this process, if leader election is enabled.
pub(super) struct Leadership {
    candidacy: Option<Candidacy>,
    namespace: String,
    held: Vec<LeaderGuard>,
    shards: Shards,
    fence: Option<WriteFence>,
    /// The catalog that is fenced by the Leases, with the origin of this cluster.
    catalog: Option<(Catalog, String)>,
}

pub(super) enum LeaderEvent {
    /// This process has taken a further shard.
    Gained,
    Lost(Error),
}

impl Leadership {
    /// Fails if another process leads and leader election is disabled.
    pub(super) async fn new(
        options: &Options,
        requests: &RequestMetrics,
        metrics: &LeaderElectionMetrics,
    ) -> Result<Self, Error> {
        let SourceOptions::Cluster(cluster) = &options.source else {
            return Ok(Self::disabled());
        };
        // A renewal never waits behind other requests.
        let unlimited = ConnectOptions {
            limits: None,
            ..cluster.clone()
        };
        let connect = async || connect(&unlimited, requests).await.map_err(Error::from_display);
        match &options.leader_election {
            LeaderElection::Disabled => Ok(Self::disabled()),
            LeaderElection::RefuseIfHeld(lease) => {
                refuse_if_held(&connect().await?, lease).await?;
                Ok(Self::disabled())
            }
            LeaderElection::Enabled(lease) => {
                let pod = std::env::var("POD_NAME").unwrap_or_else(|_| NAME.to_owned());
                let marks = Marks {
                    lease: lease.name.clone(),
                    shards: lease.shards.get(),
                    selector: options.label_selector.clone().unwrap_or_default(),
                };
                let fence = metrics.fence();
                let candidacy = Candidacy::new(
                    &connect().await?,
                    &lease.namespace,
                    &marks,
                    &identity(&pod),
                    lease.timing,
                    (&fence, metrics),
                );
                Ok(Self {
                    candidacy: Some(candidacy),
                    namespace: lease.namespace.clone(),
                    held: Vec::new(),
                    shards: Shards::new(marks.shards),
                    fence: Some(fence),
                    catalog: None,
                })
            }
        }
    }

    fn disabled() -> Self {
        Self {
            candidacy: None,
            namespace: String::new(),
            held: Vec::new(),
            shards: Shards::all(),
            fence: None,
            catalog: None,
        }
    }

    /// Returns the options with clients that write only while this process leads.
    pub(super) fn fence_options(&self, options: &Options) -> Options {
        let mut options = options.clone();
        if let SourceOptions::Cluster(cluster) = &mut options.source {
            cluster.write_fence.clone_from(&self.fence);
        }
        options
    }

    pub(super) fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Returns a function that is true while the holder of the Lease is known; none if leader election is disabled.
    pub(super) fn is_known(&self) -> Option<Box<dyn Fn() -> bool + Send + Sync>> {
        let candidacy = self.candidacy.as_ref()?;
        Some(Box::new(candidacy.is_known()))
    }

    pub(super) fn is_candidate(&self) -> bool {
        self.candidacy.is_some() && self.held.is_empty()
    }

    /// Fences the writes to the catalog by the Leases of this process.
    pub(super) fn fence_catalog(&mut self, catalog: &Catalog, origin: &str) {
        for guard in &self.held {
            catalog.hold_lease(held_lease(guard, &self.namespace, origin));
        }
        self.catalog = Some((catalog.clone(), origin.to_owned()));
    }

    /// Waits until this replica leads a shard; returns immediately if it does, or if leader election is disabled.
    pub(super) async fn acquire(&mut self) {
        if self.is_candidate() {
            tracing::info!("waiting for the leader lease");
            let acquired = acquire_shard(self.candidacy.as_mut()).await;
            self.add_shard(acquired);
        }
    }

    fn add_shard(&mut self, (shard, guard): (u32, LeaderGuard)) {
        // The fence precedes the first write of the shard.
        if let Some((catalog, origin)) = &self.catalog {
            catalog.hold_lease(held_lease(&guard, &self.namespace, origin));
        }
        self.held.push(guard);
        self.shards.add(shard);
    }

    /// Waits until a further shard is taken, or until a Lease is lost.
    pub(super) async fn next_event(&mut self) -> LeaderEvent {
        let acquired = tokio::select! {
            biased;
            error = lost(&mut self.held, self.catalog.as_ref()) => return LeaderEvent::Lost(error),
            acquired = acquire_shard(self.candidacy.as_mut()) => acquired,
        };
        self.add_shard(acquired);
        LeaderEvent::Gained
    }

    /// Waits until a Lease is lost; forever if leader election is disabled.
    pub(super) async fn lost(&mut self) -> Error {
        lost(&mut self.held, self.catalog.as_ref()).await
    }

    /// Releases the Leases, after everything else has ended.
    pub(super) async fn release(self) {
        join_all(self.held.into_iter().map(LeaderGuard::release)).await;
    }
}

async fn acquire_shard(candidacy: Option<&mut Candidacy>) -> (u32, LeaderGuard) {
    match candidacy {
        Some(candidacy) => candidacy.acquire().await,
        None => std::future::pending().await,
    }
}

/// Waits until one of the Leases is lost, or until the catalog refuses a write because another process leads.
async fn lost(held: &mut [LeaderGuard], catalog: Option<&(Catalog, String)>) -> Error {
    if held.is_empty() {
        return std::future::pending().await;
    }
    let leases = select_all(held.iter_mut().map(|guard| guard.lost().boxed()));
    let fenced = async {
        match catalog {
            Some((catalog, _)) => catalog.fenced().await,
            None => std::future::pending().await,
        }
    };
    let reason = tokio::select! {
        (lost, ..) = leases => lost.to_string(),
        fenced = fenced => fenced.to_string(),
    };
    Error(format!("{reason}, exiting to start again as a standby"))
}

fn held_lease(guard: &LeaderGuard, namespace: &str, origin: &str) -> HeldLease {
    let generation = guard.generation();
    HeldLease {
        origin: origin.to_owned(),
        name: format!("{namespace}/{}", guard.name()),
        generation: LeaseGeneration {
            created: generation.created,
            transitions: generation.transitions,
        },
        holder: guard.identity().to_owned(),
    }
}

async fn refuse_if_held(client: &kube::Client, lease: &LeaseOptions) -> Result<(), Error> {
    let LeaseOptions {
        namespace,
        name,
        timing,
        ..
    } = lease;
    let find = || active_holder_of_any(client, namespace, name, *timing);
    let what = format!("the Lease {namespace}/{name}");
    match Patience::Wait.get(&what, ApiError::is_retryable, find).await? {
        None => Ok(()),
        Some((lease, holder)) => Err(Error(format!(
            "{holder} holds the Lease {namespace}/{lease} and would write the same objects; stop it, or use --enable-leader-election"
        ))),
    }
}

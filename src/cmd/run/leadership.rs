//! Of several processes of `portolan run`, one works: the one that holds the Lease.

use super::Run;
use crate::cmd::{Failure, cluster};
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::leader_election::{LeaderGuard, Lease, Timing, identity};

/// The name of the Lease.
const NAME: &str = "portolan";

/// Waits until this process leads, if it has to; nothing is held where it has not.
pub(super) async fn wait(run: &Run, requests: &RequestMetrics) -> Result<Option<LeaderGuard>, Failure> {
    if !run.enable_leader_election {
        return Ok(None);
    }
    if run.manifests.is_some() {
        return Err(Failure::usage(
            "--enable-leader-election needs an API server, and --manifests has none: leave one of them out",
        ));
    }
    let client = cluster::client(&run.cluster, requests).await?;
    let namespace = cluster::pod_namespace(run.namespace.as_deref());
    let pod = std::env::var("POD_NAME").unwrap_or_else(|_| NAME.to_owned());
    let lease = Lease::new(client, &namespace, NAME, &identity(&pod), Timing::default());
    tracing::info!(lease = NAME, namespace, "waiting for the leader lease");
    Ok(Some(lease.acquire().await))
}

/// Ends when what is held is lost, and says why; never, where nothing is held.
pub(super) async fn lost(held: Option<&mut LeaderGuard>) -> Failure {
    match held {
        Some(held) => Failure::failed(format!(
            "{}; the process ends, so that it can start anew",
            held.lost().await
        )),
        None => std::future::pending().await,
    }
}

//! Finds controllers that run, and stops them.

use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::objects::is_lease;
use super::pages::{Pages, retry};
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::leader_election::{Timing, active_holder};

const POLL: Duration = Duration::from_secs(1);

/// Finds Leases of ours, or of a name. Waits until a Lease is renewed or has expired.
pub(super) async fn holders(client: &Client, namespace: &str, name: Option<&str>) -> Result<Vec<String>, ApiError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let mut pages = Pages::new(&leases, None);
    let mut names = Vec::new();
    while let Some(page) = pages.next().await? {
        let ours = page.iter().filter(|lease| is_lease(&lease.metadata, name));
        names.extend(ours.map(ResourceExt::name_any));
    }
    let find = names.iter().map(|name| async move {
        let holder = retry(|| active_holder(client, namespace, name, Timing::default())).await?;
        Ok::<_, ApiError>(holder.map(|holder| format!("{holder} holds the Lease {namespace}/{name}")))
    });
    Ok(try_join_all(find).await?.into_iter().flatten().collect())
}

/// Scales a Deployment to zero and waits until its pods are gone. Returns false if it does not exist.
pub(super) async fn scale_down(client: &Client, namespace: &str, name: &str, limit: Duration) -> Result<bool, String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = retry(|| call(deployments.get_opt(name))).await;
    let Some(deployment) = deployment.map_err(|error| error.to_string())? else {
        return Ok(false);
    };
    let patch = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    let parameters = PatchParams::default();
    let scaled = retry(|| call(deployments.patch_scale(name, &parameters, &patch))).await;
    scaled.map_err(|error| error.to_string())?;
    let deadline = Instant::now() + limit;
    loop {
        // The Deployment does not count pods that are shutting down.
        let pods = count_pods(client, namespace, &deployment)
            .await
            .map_err(|error| error.to_string())?;
        if pods == 0 {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Err(format!("{pods} pods are left after {limit:?}"));
        }
        sleep(POLL).await;
    }
}

async fn count_pods(client: &Client, namespace: &str, deployment: &Deployment) -> Result<usize, ApiError> {
    let labels = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.match_labels.as_ref());
    let labels: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = labels.join(",");
    let mut pages = Pages::new(&pods, Some(&selector));
    let mut running = 0;
    while let Some(page) = pages.next().await? {
        let phases = page
            .iter()
            .map(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()));
        running += phases
            .filter(|phase| !matches!(phase, Some("Succeeded" | "Failed")))
            .count();
    }
    Ok(running)
}

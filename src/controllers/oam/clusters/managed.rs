//! ManagedClusters of Open Cluster Management, which cluster-gateway reaches.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::credential::{CLUSTER_PROXY, ENDPOINT_TYPE};
use super::{CREDENTIAL_TYPE, MAX_CLUSTERS};
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::watch::{MetadataEvent, Store, watch_cluster_metadata};

const API_VERSION: &str = "cluster.open-cluster-management.io/v1";
const PLURAL: &str = "managedclusters";
/// The credential type by which KubeVela shows them.
const MANAGED_CLUSTER: &str = "ManagedCluster";
/// Time between looks for the CustomResourceDefinition.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(300);
/// Same after a failure. An API server that starts does not know all definitions.
const RETRY: Duration = Duration::from_secs(30);

/// The object by which a cluster is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterSource {
    Secret,
    ManagedCluster,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ManagedCluster {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    managed_cluster_client_configs: Option<Vec<IgnoredAny>>,
}

impl Resource for ManagedCluster {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "ManagedCluster".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        "cluster.open-cluster-management.io".into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl ManagedCluster {
    /// KubeVela ignores others: they name no API server.
    fn has_endpoint(&self) -> bool {
        let configs = self.spec.managed_cluster_client_configs.as_ref();
        configs.is_some_and(|configs| !configs.is_empty())
    }

    /// Returns the Secret that would join the cluster.
    #[must_use]
    pub fn into_secret(self) -> Secret {
        let mut secret = Secret {
            metadata: self.metadata,
            ..Secret::default()
        };
        for (label, value) in [(CREDENTIAL_TYPE, MANAGED_CLUSTER), (ENDPOINT_TYPE, CLUSTER_PROXY)] {
            secret.labels_mut().insert(label.to_owned(), value.to_owned());
        }
        secret
    }
}

/// Returns the ManagedClusters with an endpoint; none if their kind is not served.
pub async fn managed_clusters(client: &Client) -> Result<Vec<ManagedCluster>, ApiError> {
    if !is_served(client).await? {
        return Ok(Vec::new());
    }
    let api: Api<ManagedCluster> = Api::all(client.clone());
    let listed = call(api.list(&ListParams::default().limit(MAX_CLUSTERS))).await?;
    if listed.metadata.continue_.is_some_and(|next| !next.is_empty()) {
        return Err(ApiError::bad_request(format!(
            "more than {MAX_CLUSTERS} ManagedClusters"
        )));
    }
    Ok(listed.items.into_iter().filter(ManagedCluster::has_endpoint).collect())
}

/// Returns true if the ManagedCluster does not exist (any more).
pub(super) async fn is_gone(client: &Client, name: &str) -> Result<bool, ApiError> {
    let api: Api<ManagedCluster> = Api::all(client.clone());
    Ok(call(api.get_opt(name)).await?.is_none())
}

/// Watches ManagedClusters as long as their kind is served, which it reports otherwise. Never ends.
pub(super) async fn watch(client: Client, on_event: impl Fn(MetadataEvent) + Send + Sync + 'static) {
    let on_event = Arc::new(on_event);
    // Has what the last watch has reported.
    let mut store = Store::default();
    let mut is_known = false;
    loop {
        let wait = match is_served(&client).await {
            Ok(true) => {
                watch_while_served(&client, &store, &on_event).await;
                RETRY
            }
            Ok(false) => {
                store = Store::default();
                on_event(MetadataEvent::NotServed);
                DISCOVERY_PERIOD
            }
            Err(error) => {
                if !is_known {
                    on_event(MetadataEvent::Failed(error.to_string()));
                }
                sleep(RETRY).await;
                continue;
            }
        };
        is_known = true;
        sleep(wait).await;
    }
}

async fn watch_while_served<F>(client: &Client, store: &Store<Arc<ObjectMeta>>, on_event: &Arc<F>)
where
    F: Fn(MetadataEvent) + Send + Sync + 'static,
{
    let ended = Arc::new(Notify::new());
    let (notify, on_event) = (Arc::clone(&ended), Arc::clone(on_event));
    let report = move |event| match event {
        MetadataEvent::NotServed => notify.notify_one(),
        event => on_event(event),
    };
    let watch = watch_cluster_metadata(
        client.clone(),
        store.clone(),
        RETRY,
        ManagedCluster::has_endpoint,
        report,
    );
    tokio::select! {
        () = watch => {}
        () = ended.notified() => {}
    }
}

async fn is_served(client: &Client) -> Result<bool, ApiError> {
    match call(client.list_api_group_resources(API_VERSION)).await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == PLURAL)),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;

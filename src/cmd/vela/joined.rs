//! The clusters that have objects of Applications, as commands reach them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};

use super::objects;
use crate::api::is_object_name;
use crate::cmd::Error;
use crate::cmd::flags::cluster::ClusterFlags;
use crate::cmd::flags::joined::{ConnectorFlags, version};
use crate::controllers::oam::clusters::managed::{ManagedCluster, managed_clusters};
use crate::controllers::oam::clusters::{CREDENTIAL_TYPE, JoinedCluster, joined_clusters};
use crate::controllers::oam::render::release::context_version;
use crate::controllers::oam::trackers::{LOCAL, cluster_name, is_local};
use crate::runtime::kube_client::{ApiError, call, call_within};

/// The time for the first request to a joined cluster, with DNS and TLS.
const DEADLINE: Duration = Duration::from_secs(10);

/// Returns the Secrets of all joined clusters, and those that ManagedClusters would have, sorted by name.
pub async fn secrets(client: &Client, namespace: &str) -> Result<Vec<Secret>, ApiError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut secrets = objects::list_all(&api, &ListParams::default().labels(CREDENTIAL_TYPE)).await?;
    let names: BTreeSet<String> = secrets.iter().map(ResourceExt::name_any).collect();
    let managed = managed_clusters(client).await?.into_iter();
    let managed = managed.filter(|cluster| !names.contains(&cluster.name_any()));
    secrets.extend(managed.map(ManagedCluster::into_secret));
    secrets.sort_by_key(ResourceExt::name_any);
    Ok(secrets)
}

/// Returns the part of a name that says in which cluster an object is; nothing for the controller's own.
pub fn suffix(cluster: &str) -> String {
    if is_local(cluster) {
        return String::new();
    }
    format!(" in cluster {cluster}")
}

/// A cluster that has answered.
#[derive(Clone)]
pub struct ReachedCluster {
    pub client: Client,
    /// As templates see it.
    pub version: Value,
}

/// The controller's own cluster and the joined ones, each connected when it is first used.
pub struct Clusters {
    own: Client,
    /// The namespace of the Secrets.
    namespace: String,
    connector: ConnectorFlags,
    cluster: ClusterFlags,
    /// A cluster that can't be reached is asked once.
    reached: Mutex<BTreeMap<String, Result<ReachedCluster, String>>>,
    joined: OnceCell<Result<Vec<JoinedCluster>, String>>,
}

impl Clusters {
    pub fn new(own: Client, namespace: &str, connector: &ConnectorFlags, cluster: &ClusterFlags) -> Self {
        Self {
            own,
            namespace: namespace.to_owned(),
            connector: connector.clone(),
            cluster: cluster.clone(),
            reached: Mutex::default(),
            joined: OnceCell::new(),
        }
    }

    pub fn own(&self) -> &Client {
        &self.own
    }

    /// Returns the joined clusters, or the reason why they are not known.
    pub async fn joined(&self) -> Result<&[JoinedCluster], &str> {
        let namespace = &self.namespace;
        let listed = async {
            match joined_clusters(&self.own, namespace).await {
                // The controller ignores a Secret named local.
                Ok(joined) => Ok(joined.into_iter().filter(|one| !is_local(&one.name)).collect()),
                Err(error) => Err(format!(
                    "failed to look for joined clusters in namespace {namespace}: {error}"
                )),
            }
        };
        let joined = self.joined.get_or_init(|| listed).await;
        joined.as_deref().map_err(String::as_str)
    }

    /// Returns a client of a cluster, or the reason why it can't be reached.
    pub async fn client(&self, name: &str) -> Result<Client, String> {
        if is_local(name) {
            return Ok(self.own.clone());
        }
        Ok(self.reach(name).await?.client)
    }

    /// Returns a cluster with its version, or the reason why it can't be reached.
    pub async fn reach(&self, name: &str) -> Result<ReachedCluster, String> {
        let name = cluster_name(name);
        // Held meanwhile: others wait for the answer.
        let mut reached = self.reached.lock().await;
        if let Some(cluster) = reached.get(name) {
            return cluster.clone();
        }
        let cluster = match name {
            LOCAL => self.reach_own().await,
            joined => self.reach_joined(joined).await,
        };
        reached.insert(name.to_owned(), cluster.clone());
        cluster
    }

    async fn reach_own(&self) -> Result<ReachedCluster, String> {
        let failed = |error: &dyn Display| format!("failed to read the version of the cluster: {error}");
        let info = call(self.own.apiserver_version()).await;
        let version = serde_json::to_value(info.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
        Ok(ReachedCluster {
            client: self.own.clone(),
            version: context_version(&version),
        })
    }

    async fn reach_joined(&self, name: &str) -> Result<ReachedCluster, String> {
        let secret = self.secret(name).await?;
        let connector = self.connector.connector(&self.cluster).await;
        let connector = connector.map_err(Error::into_message)?;
        let client = connector.connect(&secret).await?;
        let answered = call_within(DEADLINE, version(&client)).await;
        let version = answered.map_err(|error| error.to_string())??;
        Ok(ReachedCluster {
            client,
            version: context_version(&version),
        })
    }

    async fn secret(&self, name: &str) -> Result<Secret, String> {
        let namespace = &self.namespace;
        // Names come from steps and trackers, and are a part of the path.
        if is_object_name(name) {
            let api: Api<Secret> = Api::namespaced(self.own.clone(), namespace);
            let secret = call(api.get_opt(name)).await;
            let secret =
                secret.map_err(|error| format!("failed to read its Secret in namespace {namespace}: {error}"))?;
            if let Some(secret) = secret.filter(|secret| secret.labels().contains_key(CREDENTIAL_TYPE)) {
                return Ok(secret);
            }
            let managed = managed_clusters(&self.own).await;
            let managed = managed.map_err(|error| format!("failed to look for its ManagedCluster: {error}"))?;
            if let Some(cluster) = managed.into_iter().find(|cluster| cluster.name_any() == name) {
                return Ok(cluster.into_secret());
            }
        }
        Err(format!(
            "no such cluster in namespace {namespace}; `portolan cluster list` shows all"
        ))
    }
}

//! The parts that the monitors of all clusters share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::Uri;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use tokio::sync::OnceCell;

use super::ask::SYSTEM_NAMESPACE;
use super::connection::{self, RemoteTransport};
use super::credential::{ClusterAccess, ClusterCredential};
use super::gateway;
use super::registry::ClusterSettings;
use crate::runtime::kube_client::{ApiError, RemoteOptions, call, call_within};

const UID_TIMEOUT: Duration = Duration::from_secs(5);

type Transport = Result<(RemoteTransport, Uri), String>;

/// Returns the transport to a cluster, or the reason why its credential is refused. Sends nothing.
pub(super) type Connector = Box<dyn Fn(ClusterCredential) -> BoxFuture<'static, Transport> + Send + Sync>;

/// Gets the name of a cluster that has changed.
type OnChange = Box<dyn Fn(&str) + Send + Sync>;

pub(super) struct Shared {
    pub(super) settings: ClusterSettings,
    pub(super) options: RemoteOptions,
    connector: Connector,
    on_change: OnceLock<OnChange>,
    own_uid: OnceCell<Option<String>>,
    connections: AtomicU64,
}

impl Shared {
    pub(super) fn new(settings: ClusterSettings, connector: Connector) -> Self {
        Self {
            options: connection::remote_options(settings.write_fence.clone()),
            settings,
            connector,
            on_change: OnceLock::new(),
            own_uid: OnceCell::new(),
            connections: AtomicU64::new(0),
        }
    }

    /// Only the first call has an effect.
    pub(super) fn on_change(&self, changed: impl Fn(&str) + Send + Sync + 'static) {
        // Fails if it is set.
        let _ = self.on_change.set(Box::new(changed));
    }

    pub(super) fn notify(&self, cluster: &str) {
        if let Some(changed) = self.on_change.get() {
            changed(cluster);
        }
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.settings.client.clone(), &self.settings.namespace)
    }

    pub(super) async fn read_secret(&self, name: &str) -> Result<Secret, String> {
        let read = call(self.secrets().get(name)).await;
        read.map_err(|error| format!("failed to read the Secret of the cluster: {error}"))
    }

    pub(super) async fn transport(&self, cluster: &str, access: ClusterAccess) -> Transport {
        match access {
            ClusterAccess::Direct(credential) => (self.connector)(*credential).await,
            ClusterAccess::Gateway => gateway::transport(&self.settings.gateway, cluster),
        }
    }

    pub(super) fn next_number(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns true if this UID identifies the controller's own cluster. False, with a warning, if its UID can't be read.
    pub(super) async fn is_own(&self, cluster: &str, uid: &str) -> bool {
        match self.own_uid.get_or_try_init(|| self.read_own_uid()).await {
            Ok(own) => own.as_deref() == Some(uid),
            Err(error) => {
                let error = error.to_string();
                tracing::warn!(
                    cluster,
                    error,
                    "not checked that the joined cluster is not that of Portolan, whose objects would be written twice;                      grant `get` on namespace {SYSTEM_NAMESPACE}"
                );
                false
            }
        }
    }

    async fn read_own_uid(&self) -> Result<Option<String>, ApiError> {
        let api: Api<Namespace> = Api::all(self.settings.client.clone());
        let read = call_within(UID_TIMEOUT, api.get_metadata(SYSTEM_NAMESPACE)).await?;
        Ok(read?.metadata.uid)
    }
}

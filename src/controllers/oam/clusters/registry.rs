//! The joined clusters and their connections.
//!
//! ```text
//!  Secrets, metadata only ──watch──┬─► JoinedClusters ──first use──► Monitor, a task per cluster ──► Link ──► connection
//!  ManagedClusters, if served ─────┘
//! ```

mod entries;
mod known;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use self::entries::{Clusters, MonitorHandle};
use self::known::{Known, Listing};
use super::connection::{Connection, transport};
use super::error::ClusterError;
use super::link::{Link, LinkState};
use super::managed::{self, ClusterSource};
use super::monitor::Monitor;
use super::shared::{Connector, Shared};
use super::{CREDENTIAL_TYPE, JoinedCluster, MAX_CLUSTERS, too_many};
use crate::api::is_object_name;
use crate::controllers::oam::trackers::{LOCAL, is_local};
use crate::http::Fetcher;
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::write_fence::WriteFence;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::watch::{MetadataEvent, Scope, Selection, watch_metadata};

/// Time between lists while the Secrets may not be listed, or not watched.
const POLL: Duration = Duration::from_secs(30);
const MAX_WAIT: Duration = Duration::from_secs(5);

pub struct ClusterSettings {
    /// The controller's own client.
    pub client: Client,
    /// Sends requests through cluster-gateway, to the same API server without limits.
    pub gateway: Client,
    /// Holds the Secrets of clusters, and the definitions.
    pub namespace: String,
    /// Decides which addresses are allowed.
    pub fetcher: Fetcher,
    pub allow_insecure: bool,
    pub requests: RequestMetrics,
    pub write_fence: Option<WriteFence>,
}

/// The numbers of joined clusters by state. Unused clusters are those to which no connection was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterCounts {
    pub up: usize,
    pub connecting: usize,
    pub unreachable: usize,
    pub refused: usize,
    pub unused: usize,
}

/// Clones share the connections, which end with the last one.
#[derive(Clone)]
pub struct JoinedClusters(Arc<Registry>);

struct Registry {
    shared: Arc<Shared>,
    clusters: Mutex<Clusters>,
    known: watch::Sender<Known>,
    has_warned_of_local: AtomicBool,
}

impl JoinedClusters {
    #[must_use]
    pub fn new(settings: ClusterSettings) -> Self {
        let fetcher = settings.fetcher.clone();
        let connector: Connector = Box::new(move |credential| {
            let fetcher = fetcher.clone();
            async move { transport(credential, &fetcher).await }.boxed()
        });
        Self::with_connector(settings, connector)
    }

    pub(super) fn with_connector(settings: ClusterSettings, connector: Connector) -> Self {
        Self(Arc::new(Registry {
            shared: Arc::new(Shared::new(settings, connector)),
            clusters: Mutex::default(),
            known: watch::Sender::default(),
            has_warned_of_local: AtomicBool::new(false),
        }))
    }

    /// Calls it with the name of a cluster that was joined or removed, that has other labels or another credential, or
    /// that is reached (again). Only the first call, before [`Self::run`], has an effect.
    pub fn on_change(&self, changed: impl Fn(&str) + Send + Sync + 'static) {
        self.0.shared.on_change(changed);
    }

    /// Watches the Secrets, and ManagedClusters if their kind is served. Never returns.
    pub async fn run(self) {
        let registry = Arc::clone(&self.0);
        let client = self.0.shared.settings.client.clone();
        let managed = managed::watch(client, move |event| {
            registry.apply(ClusterSource::ManagedCluster, event)
        });
        futures::join!(managed, self.run_secrets());
    }

    async fn run_secrets(&self) {
        let registry = Arc::clone(&self.0);
        let settings = &self.0.shared.settings;
        let selection = Selection {
            scope: Scope::Namespace(settings.namespace.clone()),
            labels: Some(CREDENTIAL_TYPE.to_owned()),
        };
        let client = settings.client.clone();
        let report = move |event| registry.apply(ClusterSource::Secret, event);
        watch_metadata::<Secret>(client, selection, POLL, report).await;
    }

    /// In place of [`Self::run`]: the clusters stay unknown, and no request looks for them.
    pub fn disable(&self) {
        let problem = "joined clusters are disabled; see --joined-clusters and the chart value oam.clusters.enabled";
        let failed = Listing::Failed(problem.to_owned());
        self.0.set_known(ClusterSource::Secret, failed);
        self.0.set_known(ClusterSource::ManagedCluster, Listing::NotServed);
    }

    /// Returns the joined clusters, sorted by name, or the reason why they are not known. Sends no request.
    pub fn list(&self) -> Result<Arc<[JoinedCluster]>, String> {
        if let Some(problem) = self.0.problem() {
            return Err(problem);
        }
        let mut clusters = self.0.clusters.lock();
        self.0.check_number(&clusters)?;
        Ok(clusters.list())
    }

    /// Waits until the Secrets and ManagedClusters are listed, or that failed.
    pub async fn wait_until_known(&self) {
        let mut known = self.0.known.subscribe();
        // Fails only without a sender, which `self` owns.
        let _ = known.wait_for(Known::is_settled).await;
    }

    /// Returns the connection to a cluster. The first call starts connecting; while that lasts, and while the cluster can't
    /// be reached, it fails at once. Called in a runtime.
    pub fn connection(&self, cluster: &str) -> Result<Arc<Connection>, ClusterError> {
        self.0.link(cluster)?.connection(cluster)
    }

    /// Waits until the first attempts to connect to these clusters have ended, at most 5 s. Starts connecting to all.
    pub async fn wait_until_tried(&self, clusters: &BTreeSet<String>) {
        let links: Vec<_> = clusters.iter().filter_map(|name| self.0.link(name).ok()).collect();
        let tried = join_all(links.iter().map(|link| link.wait_until_tried()));
        // The caller learns from the connections which attempts have not ended.
        let _ = timeout(MAX_WAIT, tried).await;
    }

    /// Asks the API server whether the Secret and the ManagedCluster of a cluster are gone.
    pub async fn is_gone(&self, cluster: &str) -> Result<bool, ApiError> {
        if is_local(cluster) {
            return Ok(false);
        }
        // The name may come from a tracker, and becomes a part of a path.
        if !is_object_name(cluster) {
            return Ok(true);
        }
        let secret = call(self.0.shared.secrets().get_metadata_opt(cluster)).await?;
        if secret.is_some() {
            return Ok(false);
        }
        let has_managed = self.0.known.borrow().has_managed();
        Ok(!has_managed || managed::is_gone(&self.0.shared.settings.client, cluster).await?)
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        self.0.shared.secrets()
    }

    #[must_use]
    pub fn counts(&self) -> ClusterCounts {
        let mut counts = ClusterCounts::default();
        for entry in self.0.clusters.lock().entries.values() {
            let count = match entry.monitor.as_ref().map(|monitor| monitor.link.state()) {
                None => &mut counts.unused,
                Some(LinkState::Connecting) => &mut counts.connecting,
                Some(LinkState::Refused(_)) => &mut counts.refused,
                Some(LinkState::Failed(_)) => &mut counts.unreachable,
                Some(LinkState::Connected { circuit, .. }) if circuit.problem().is_some() => &mut counts.unreachable,
                Some(LinkState::Connected { .. }) => &mut counts.up,
            };
            *count += 1;
        }
        counts
    }
}

impl Registry {
    pub(super) fn apply(&self, source: ClusterSource, event: MetadataEvent) {
        match event {
            MetadataEvent::Applied(meta) => self.join(source, meta),
            MetadataEvent::Deleted(meta) => self.remove(source, meta.name.as_deref().unwrap_or_default()),
            MetadataEvent::Listed => {
                if matches!(self.set_known(source, Listing::Listed), Listing::Failed(_)) {
                    tracing::info!("joined clusters are known again");
                }
            }
            // Secrets are always served: the list will fail, or succeed again.
            MetadataEvent::NotServed if source == ClusterSource::Secret => {}
            MetadataEvent::NotServed => {
                self.set_known(source, Listing::NotServed);
                let removed = self.clusters.lock().remove_managed();
                removed.iter().for_each(|name| self.shared.notify(name));
            }
            MetadataEvent::Failed(message) => self.fail(source, &message),
        }
    }

    /// Returns the state before.
    fn set_known(&self, source: ClusterSource, listing: Listing) -> Listing {
        let mut before = Listing::Pending;
        self.known.send_modify(|known| before = known.set(source, listing));
        before
    }

    fn join(&self, source: ClusterSource, meta: Arc<ObjectMeta>) {
        let Some(name) = meta.name.clone() else { return };
        if name == LOCAL {
            if !self.has_warned_of_local.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    namespace = self.shared.settings.namespace,
                    ?source,
                    "a joined cluster has the name local, which belongs to the cluster of Portolan; join the cluster by \
                     another name"
                );
            }
            return;
        }
        let has_changed = self.clusters.lock().join(source, &name, meta);
        if has_changed {
            self.shared.notify(&name);
        }
    }

    fn remove(&self, source: ClusterSource, name: &str) {
        let is_removed = self.clusters.lock().remove(source, name);
        if is_removed {
            self.shared.notify(name);
        }
    }

    fn fail(&self, source: ClusterSource, message: &str) {
        let namespace = &self.shared.settings.namespace;
        let problem = match source {
            ClusterSource::Secret => format!("failed to look for joined clusters in namespace {namespace}: {message}"),
            ClusterSource::ManagedCluster => format!("failed to look for ManagedClusters: {message}"),
        };
        let before = self.set_known(source, Listing::Failed(problem.clone()));
        if !matches!(before, Listing::Failed(_)) {
            tracing::warn!("{problem}; retrying");
        }
    }

    /// Returns the reason why the clusters are not known.
    fn problem(&self) -> Option<String> {
        self.known.borrow().problem(&self.shared.settings.namespace)
    }

    fn check_number(&self, clusters: &Clusters) -> Result<(), String> {
        if clusters.entries.len() > MAX_CLUSTERS as usize {
            return Err(too_many(&self.shared.settings.namespace));
        }
        Ok(())
    }

    /// Starts the monitor of a cluster if none runs.
    fn link(&self, cluster: &str) -> Result<Arc<Link>, ClusterError> {
        let mut clusters = self.clusters.lock();
        let monitor = clusters.entries.get(cluster).and_then(|entry| entry.monitor.as_ref());
        if let Some(monitor) = monitor.filter(|monitor| !monitor.task.is_finished()) {
            return Ok(Arc::clone(&monitor.link));
        }
        self.check_number(&clusters).map_err(ClusterError::Unknown)?;
        let Some(entry) = clusters.entries.get_mut(cluster) else {
            let cluster = cluster.to_owned();
            return Err(self
                .problem()
                .map_or(ClusterError::NotJoined { cluster }, ClusterError::Unknown));
        };
        let link = Arc::new(Link::default());
        let monitor = Monitor {
            cluster: cluster.to_owned(),
            source: entry.source(),
            shared: Arc::clone(&self.shared),
            link: Arc::clone(&link),
        };
        entry.monitor = Some(MonitorHandle {
            link: Arc::clone(&link),
            task: tokio::spawn(monitor.run()).abort_handle(),
        });
        Ok(link)
    }
}

#[cfg(test)]
mod tests;

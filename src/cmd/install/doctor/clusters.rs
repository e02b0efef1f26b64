//! Checks of joined clusters, and of the rights of Applications there.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::api::oam::ResourceTracker;
use crate::cmd::flags::joined::{Connector, may};
use crate::cmd::output::checks::{Checked, Finding, fine};
use crate::cmd::vela::joined::secrets;
use crate::cmd::vela::objects::list_all;
use crate::controllers::oam::trackers::{decode, is_local};
use crate::runtime::kube_client::{ApiError, call_within};

/// The time for all requests to a cluster.
const DEADLINE: Duration = Duration::from_secs(10);
const MAX_CONCURRENT: usize = 16;

/// Checks all Secrets of clusters, and asks those clusters in which Applications have objects. Finds nothing if no cluster is
/// joined.
pub(super) async fn check(client: &Client, namespace: &str, connector: &Connector) -> Vec<Checked> {
    let usage = match ClusterUse::read(client).await {
        Ok(usage) => usage,
        Err(error) => return vec![Err(format!("failed to look for objects in joined clusters: {error}"))],
    };
    let secrets = match secrets(client, namespace).await {
        Ok(secrets) => secrets,
        Err(error) if error.is_forbidden() && usage.clusters.is_empty() => {
            return vec![fine(format!(
                "no right to list Secrets in namespace {namespace}, so Applications can't use joined clusters; see the chart \
                 value oam.clusters.enabled"
            ))];
        }
        Err(error) => return vec![Err(format!("failed to list Secrets of clusters: {error}"))],
    };
    let checked = stream::iter(&secrets).map(|secret| usage.check(connector, secret));
    let checked: Vec<Option<Checked>> = checked.buffered(MAX_CONCURRENT).collect().await;
    let mut checks = usage.missing(&secrets);
    checks.extend(checked.into_iter().flatten());
    if checks.is_empty() && !secrets.is_empty() {
        checks.push(fine(format!("{} joined clusters are accepted", secrets.len())));
    }
    checks
}

/// The use that Applications make of joined clusters.
struct ClusterUse {
    /// The clusters with recorded objects.
    clusters: BTreeSet<String>,
}

impl ClusterUse {
    async fn read(client: &Client) -> Result<Self, ApiError> {
        let trackers = list_all(&Api::<ResourceTracker>::all(client.clone()), &ListParams::default()).await;
        let trackers = none_if_not_found(trackers)?;
        // Another check names those that can't be decoded.
        let entries = trackers
            .iter()
            .filter_map(|tracker| decode(&tracker.spec).ok())
            .flatten();
        let clusters = entries.map(|entry| entry.cluster).filter(|cluster| !is_local(cluster));
        Ok(Self {
            clusters: clusters.collect(),
        })
    }

    /// Returns a warning for each cluster that has objects and no Secret.
    fn missing(&self, secrets: &[Secret]) -> Vec<Checked> {
        let joined: BTreeSet<String> = secrets.iter().map(ResourceExt::name_any).collect();
        let missing = self.clusters.difference(&joined);
        let warnings = missing.map(|cluster| {
            Ok(Finding::Warning(format!(
                "cluster {cluster}: Applications have objects there, and it is not joined; join it again, or drop the records \
                 with `portolan vela delete NAME --forget-cluster {cluster}`"
            )))
        });
        warnings.collect()
    }

    /// Returns nothing for a cluster that is accepted and has not to be asked.
    async fn check(&self, connector: &Connector, secret: &Secret) -> Option<Checked> {
        let name = secret.name_any();
        let client = match connector.connect(secret).await {
            Ok(client) => client,
            Err(problem) => return Some(Err(format!("cluster {name} is refused: {problem}"))),
        };
        // Flags of the controller may give identities to Applications that name none.
        if !self.clusters.contains(&name) {
            return None;
        }
        let allowed = call_within(DEADLINE, may(&client, "impersonate", "", "users")).await;
        Some(match allowed.map_err(|error| error.to_string()).flatten() {
            Ok(true) => fine(format!(
                "cluster {name}: the credential may impersonate the users of Applications"
            )),
            Ok(false) => Ok(Finding::Warning(format!(
                "cluster {name}: the credential may not impersonate users, so Applications with an identity have all of its \
                 rights there"
            ))),
            Err(problem) => Err(format!("cluster {name}: {problem}")),
        })
    }
}

/// Without the CRDs, which another check names, there is nothing.
fn none_if_not_found<T>(listed: Result<Vec<T>, ApiError>) -> Result<Vec<T>, ApiError> {
    match listed {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        listed => listed,
    }
}

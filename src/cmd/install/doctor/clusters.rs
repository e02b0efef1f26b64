//! Checks of joined clusters, and of the rights of Applications there.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::api::oam::ResourceTracker;
use crate::cmd::flags::joined::{Connector, may, version};
use crate::cmd::output::checks::{Checked, Finding, fine};
use crate::cmd::vela::joined::secrets;
use crate::cmd::vela::objects::list_all;
use crate::controllers::oam::clusters::IdentityKinds;
use crate::controllers::oam::clusters::credential::{CLUSTER_PROXY, ENDPOINT_TYPE};
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
                "no right to look for joined clusters, so Applications can't use them; see the chart value \
                 oam.clusters.enabled: {error}"
            ))];
        }
        Err(error) => return vec![Err(format!("failed to look for joined clusters: {error}"))],
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
        let found = match secret.labels().get(ENDPOINT_TYPE).map(String::as_str) {
            Some(CLUSTER_PROXY) => call_within(DEADLINE, gateway(&client)).await,
            _ => call_within(DEADLINE, impersonation(&client)).await,
        };
        let found = found.map_err(|error| error.to_string()).flatten();
        Some(match found {
            Ok((true, text)) => fine(format!("cluster {name}: {text}")),
            Ok((false, text)) => Ok(Finding::Warning(format!("cluster {name}: {text}"))),
            Err(problem) => Err(format!("cluster {name}: {problem}")),
        })
    }
}

/// Says whose rights Applications with an identity have in a cluster. True if they are those of the identity.
async fn impersonation(client: &Client) -> Result<(bool, String), String> {
    let reviews = IdentityKinds::RESOURCES.map(|resource| may(client, "impersonate", "", resource));
    let [users, groups, service_accounts] = reviews;
    let allowed = IdentityKinds::of([users.await?, groups.await?, service_accounts.await?]);
    let missing = allowed.missing(IdentityKinds::ALL);
    Ok(match allowed {
        IdentityKinds::ALL => (
            true,
            "the credential may impersonate the users of Applications".to_owned(),
        ),
        IdentityKinds::NONE => (
            false,
            "the credential may not impersonate users, so Applications with an identity have all of its rights there"
                .to_owned(),
        ),
        _ => (
            false,
            format!("the credential may not impersonate {missing}, so Applications with such an identity fail there"),
        ),
    })
}

async fn gateway(client: &Client) -> Result<(bool, String), String> {
    version(client).await?;
    let text = "cluster-gateway reaches it; Applications with an identity need `clustergateways/proxy` in the cluster of \
                Portolan, and have the rights of the credential there unless cluster-gateway has the feature gate \
                ClientIdentityPenetration";
    Ok((true, text.to_owned()))
}

/// Without the CRDs, which another check names, there is nothing.
fn none_if_not_found<T>(listed: Result<Vec<T>, ApiError>) -> Result<Vec<T>, ApiError> {
    match listed {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        listed => listed,
    }
}

//! The clusters that are joined to the controller's own. It does not serve them, and says so; `portolan cluster` reaches them.

pub mod connection;
pub mod credential;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::runtime::kube_client::{ApiError, call};

/// Label of the Secrets of clusters, which are in the namespace of the definitions.
pub const CREDENTIAL_TYPE: &str = "cluster.core.oam.dev/cluster-credential-type";
/// Annotation with another name, for people.
pub const ALIAS: &str = "cluster.core.oam.dev/cluster-alias";
/// Label of clusters, `true` for the controller's own, which has no other label.
pub const CONTROL_PLANE: &str = "cluster.core.oam.dev/control-plane";
const MAX_CLUSTERS: u32 = 1_000;
/// Time for which a list is used. Workflows that run ask in each pass.
const LIFETIME: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedCluster {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSelector(pub BTreeMap<String, String>);

impl ClusterSelector {
    #[must_use]
    pub fn selects_local(&self) -> bool {
        self.0
            .iter()
            .all(|(label, value)| label == CONTROL_PLANE && value == "true")
    }

    #[must_use]
    pub fn may_select_joined(&self) -> bool {
        self.0.get(CONTROL_PLANE).is_none_or(|value| value == "false")
    }

    #[must_use]
    pub fn selects(&self, cluster: &JoinedCluster) -> bool {
        let mut labels = self.0.iter().filter(|(label, _)| *label != CONTROL_PLANE);
        self.may_select_joined() && labels.all(|(label, value)| cluster.labels.get(label) == Some(value))
    }
}

/// A list, or the reason why there is none.
type Listed = Result<Arc<[JoinedCluster]>, String>;

/// The joined clusters, listed once for all passes that ask at the same time.
pub struct JoinedClusters {
    client: Client,
    namespace: String,
    /// The last list, with the time before its request.
    last: Mutex<Option<(Instant, Listed)>>,
}

impl JoinedClusters {
    /// `namespace` holds the definitions.
    #[must_use]
    pub fn new(client: Client, namespace: String) -> Self {
        Self {
            client,
            namespace,
            last: Mutex::new(None),
        }
    }

    /// Returns the clusters as they were at most [`LIFETIME`] ago.
    pub async fn list(&self) -> Listed {
        let now = Instant::now();
        self.list_since(now.checked_sub(LIFETIME).unwrap_or(now)).await
    }

    pub async fn list_again(&self) -> Listed {
        self.list_since(Instant::now()).await
    }

    async fn list_since(&self, earliest: Instant) -> Listed {
        // Held during the request: others wait for its answer.
        let mut last = self.last.lock().await;
        if let Some((_, listed)) = last.as_ref().filter(|(time, _)| *time >= earliest) {
            return listed.clone();
        }
        let started = Instant::now();
        let namespace = &self.namespace;
        let listed = joined_clusters(&self.client, namespace)
            .await
            .map(Arc::from)
            .map_err(|error| format!("failed to look for joined clusters in namespace {namespace}: {error}"));
        *last = Some((started, listed.clone()));
        listed
    }
}

/// Reads no data of Secrets.
pub async fn joined_clusters(client: &Client, namespace: &str) -> Result<Vec<JoinedCluster>, ApiError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let parameters = ListParams::default().labels(CREDENTIAL_TYPE).limit(MAX_CLUSTERS);
    let listed = call(api.list_metadata(&parameters)).await?;
    if listed.metadata.continue_.is_some_and(|next| !next.is_empty()) {
        let message = format!("namespace {namespace} has more than {MAX_CLUSTERS} Secrets of clusters");
        return Err(ApiError::bad_request(message));
    }
    let clusters = listed.items.into_iter().map(|secret| JoinedCluster {
        name: secret.name_any(),
        labels: secret.metadata.labels.unwrap_or_default(),
    });
    Ok(clusters.collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn passes_that_ask_at_the_same_time_share_a_request_and_its_failure() {
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let server = tower::service_fn(move |_: Request<Body>| {
            let number = counter.fetch_add(1, Ordering::SeqCst);
            async move {
                let list = serde_json::json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {},
                    "items": [{ "metadata": { "name": "prod" } }],
                });
                let mut response = Response::new(Body::from(list.to_string().into_bytes()));
                if number == 0 {
                    *response.status_mut() = axum::http::StatusCode::FORBIDDEN;
                }
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let clusters = JoinedClusters::new(Client::new(server, "default"), "vela-system".to_owned());
        let (one, other) = tokio::join!(clusters.list(), clusters.list());
        assert!(one.is_err() && other.is_err());
        assert_eq!(requests.load(Ordering::SeqCst), 1);
        tokio::time::advance(2 * LIFETIME).await;
        let (one, other) = tokio::join!(clusters.list(), clusters.list());
        assert_eq!(one.unwrap()[0].name, "prod");
        assert!(other.is_ok());
        assert_eq!(requests.load(Ordering::SeqCst), 2);
        tokio::time::advance(LIFETIME / 2).await;
        assert!(clusters.list().await.is_ok());
        assert_eq!(requests.load(Ordering::SeqCst), 2);
        assert!(clusters.list_again().await.is_ok());
        assert_eq!(requests.load(Ordering::SeqCst), 3);
    }

    fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        let labels = labels.iter();
        labels
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    /// Returns true for the local and for the joined cluster if they match.
    fn selected(selector: &[(&str, &str)]) -> (bool, bool) {
        let selector = ClusterSelector(labels(selector));
        let joined = JoinedCluster {
            name: "prod".to_owned(),
            labels: labels(&[("region", "eu"), (CREDENTIAL_TYPE, "X509Certificate")]),
        };
        (selector.selects_local(), selector.selects(&joined))
    }

    #[test]
    fn a_selector_matches_the_local_cluster_joined_ones_or_all() {
        assert_eq!(selected(&[]), (true, true));
        assert_eq!(selected(&[(CONTROL_PLANE, "true")]), (true, false));
        assert_eq!(selected(&[(CONTROL_PLANE, "false")]), (false, true));
        assert_eq!(selected(&[("region", "eu")]), (false, true));
        assert_eq!(selected(&[("region", "us")]), (false, false));
        assert_eq!(selected(&[("region", "eu"), (CONTROL_PLANE, "true")]), (false, false));
        assert_eq!(selected(&[("region", "eu"), (CONTROL_PLANE, "false")]), (false, true));
    }
}

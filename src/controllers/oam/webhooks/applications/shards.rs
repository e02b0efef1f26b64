//! Shards for new Applications.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::runtime::kube_client::{ApiError, call};

/// The label of a pod with the shard that it reconciles.
const SHARD_OF_POD: &str = "controller.core.oam.dev/shard-id";
/// Pods of KubeVela, and ours.
const PODS: &str = "controller.core.oam.dev/shard-id,app.kubernetes.io/name in (vela-core,portolan)";
const MAX_PODS: u32 = 500;
/// Time for which the shards of the last list are used.
const LIFETIME: Duration = Duration::from_secs(5);
/// Longest wait for a list. The review has no more time.
const DEADLINE: Duration = Duration::from_secs(2);

/// Returns a shard for the UID of a request, which is random.
#[must_use]
pub fn choose_shard<'a>(shards: &'a [String], uid: &str) -> Option<&'a str> {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let index = hasher.finish().checked_rem(shards.len() as u64)?;
    shards.get(usize::try_from(index).ok()?).map(String::as_str)
}

/// The shards that have a ready pod.
pub struct ReadyShards {
    client: Client,
    namespace: String,
    listed: Mutex<Option<ListedShards>>,
    turn: AtomicUsize,
}

#[derive(Clone)]
struct ListedShards {
    at: Instant,
    shards: Arc<[String]>,
}

impl ReadyShards {
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            listed: Mutex::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Returns the next shard in turn; `None` if no pod is ready.
    ///
    /// # Errors
    /// The API server does not list the pods.
    pub async fn next(&self) -> Result<Option<String>, ApiError> {
        let no_response = |_| ApiError::unavailable(format!("no response within {}s", DEADLINE.as_secs()));
        let shards = timeout(DEADLINE, self.shards()).await.map_err(no_response)??;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let index = turn.checked_rem(shards.len());
        Ok(index.and_then(|index| shards.get(index).cloned()))
    }

    /// Reviews that wait share a list.
    async fn shards(&self) -> Result<Arc<[String]>, ApiError> {
        let mut listed = self.listed.lock().await;
        if let Some(listed) = listed.as_ref().filter(|listed| listed.at.elapsed() < LIFETIME) {
            return Ok(Arc::clone(&listed.shards));
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let pods = call(pods.list(&ListParams::default().labels(PODS).limit(MAX_PODS))).await?;
        let shards: Arc<[String]> = ready_shards(&pods.items).into_iter().collect();
        *listed = Some(ListedShards {
            at: Instant::now(),
            shards: Arc::clone(&shards),
        });
        Ok(shards)
    }
}

fn ready_shards(pods: &[Pod]) -> BTreeSet<String> {
    let ready = pods.iter().filter(|pod| is_ready(pod));
    let shards = ready.filter_map(|pod| pod.labels().get(SHARD_OF_POD));
    shards.filter(|shard| !shard.is_empty()).cloned().collect()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex as Lock;
    use serde_json::{Value, json};

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn shards_are_chosen_evenly() {
        let shards = names(&["a", "b", "c"]);
        assert_eq!(choose_shard(&[], "uid"), None);
        for shard in &shards {
            let count = (0..300).filter(|number| choose_shard(&shards, &format!("uid-{number}")) == Some(shard));
            assert!((60..140).contains(&count.count()), "{shard}");
        }
    }

    fn pod(shard: &str, ready: &str) -> Value {
        json!({
            "metadata": { "name": "p", "labels": { SHARD_OF_POD: shard } },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        })
    }

    /// Answers with these pods, and records the requests.
    fn shards_of(pods: Option<Value>) -> (ReadyShards, Arc<Lock<Vec<String>>>) {
        let requests: Arc<Lock<Vec<String>>> = Arc::default();
        let record = Arc::clone(&requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            record.lock().push(request.uri().to_string());
            let pods = pods.clone();
            async move {
                let Some(pods) = pods else {
                    return std::future::pending().await;
                };
                let list = json!({ "metadata": {}, "items": pods });
                Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
            }
        });
        (ReadyShards::new(Client::new(service, "home"), "vela-system"), requests)
    }

    #[tokio::test(start_paused = true)]
    async fn shards_with_a_ready_pod_are_assigned_in_turn() {
        let pods = json!([pod("b", "True"), pod("a", "False"), pod("a", "True"), pod("c", "False")]);
        let (shards, requests) = shards_of(Some(pods));
        let mut assigned = Vec::new();
        for _ in 0..3 {
            assigned.push(shards.next().await.unwrap().unwrap());
        }
        assert_eq!(assigned, ["a", "b", "a"]);
        assert_eq!(requests.lock().len(), 1);
        tokio::time::advance(LIFETIME).await;
        shards.next().await.unwrap();
        let requests = requests.lock();
        assert_eq!(requests.len(), 2);
        assert!(
            requests[0].starts_with("/api/v1/namespaces/vela-system/pods?"),
            "{}",
            requests[0]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_application_stays_without_a_shard_if_none_is_known() {
        let (shards, _) = shards_of(Some(json!([pod("a", "False")])));
        assert_eq!(shards.next().await, Ok(None));
        let (shards, _) = shards_of(None);
        let start = Instant::now();
        assert!(shards.next().await.is_err());
        assert!(start.elapsed() < DEADLINE + Duration::from_millis(10));
    }
}

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ObjectId;
use crate::runtime::kube_client::{ApiError, call};

/// Time for which a list is used. An Application with an autoscaler asks in each pass.
const LIFETIME: Duration = Duration::from_secs(60);
const PAGE: u32 = 500;
/// Pages of one namespace.
const MAX_PAGES: usize = 20;

/// Kinds and names.
type Targets = Arc<HashSet<(String, String)>>;

/// By cluster and namespace.
#[derive(Default)]
pub struct Autoscalers(Mutex<HashMap<(String, String), (Instant, Targets)>>);

impl Autoscalers {
    /// `client` reaches the cluster. Returns the objects in the namespace of an object that autoscalers scale; none without the right to list them.
    pub async fn targets(&self, client: &Client, id: &ObjectId) -> Result<Targets, ApiError> {
        let place = (id.cluster.clone(), id.namespace.clone());
        let now = Instant::now();
        let is_current = |time: Instant| now.duration_since(time) < LIFETIME;
        let cached = self.0.lock().get(&place).cloned();
        if let Some((_, targets)) = cached.filter(|(time, _)| is_current(*time)) {
            return Ok(targets);
        }
        let targets = match list(client, &id.namespace).await {
            Ok(targets) => Arc::new(targets),
            Err(error) if error.is_forbidden() || error.is_not_found() => Arc::default(),
            Err(error) => return Err(error),
        };
        let mut lists = self.0.lock();
        lists.retain(|_, (time, _)| is_current(*time));
        lists.insert(place, (now, Arc::clone(&targets)));
        Ok(targets)
    }
}

async fn list(client: &Client, namespace: &str) -> Result<HashSet<(String, String)>, ApiError> {
    let api: Api<HorizontalPodAutoscaler> = Api::namespaced(client.clone(), namespace);
    let mut targets = HashSet::new();
    let mut parameters = ListParams::default().limit(PAGE);
    for _ in 0..MAX_PAGES {
        let page = call(api.list(&parameters)).await?;
        let specs = page.items.into_iter().filter_map(|autoscaler| autoscaler.spec);
        targets.extend(specs.map(|spec| (spec.scale_target_ref.kind, spec.scale_target_ref.name)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => break,
        }
    }
    Ok(targets)
}

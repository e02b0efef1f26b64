//! A kubelet without containers: binds pods to a node that does not exist, and reports them as ready.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Pods that are handled at the same time.
const CONCURRENCY: usize = 8;

/// Serves pods until it is dropped.
pub struct Kubelet(JoinHandle<()>);

impl Kubelet {
    /// Serves the pods of a namespace, or of all. Nodes have distinct names, because the garbage collection of pods
    /// judges them by their node.
    pub fn start(client: Client, namespace: Option<&str>) -> Self {
        let node = format!("node-of-{}", namespace.unwrap_or("all"));
        let pods: Api<Pod> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let task = async move {
            let events = watcher(pods, watcher::Config::default()).default_backoff();
            let pods = events.applied_objects().filter_map(async |pod| pod.ok());
            pods.for_each_concurrent(CONCURRENCY, |pod| {
                let (client, node) = (client.clone(), node.clone());
                // A conflict or a pod that is gone; a change of the pod is another event.
                async move { drop(serve(&client, &node, &pod).await) }
            })
            .await;
        };
        Self(tokio::spawn(task))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn serve(client: &Client, node: &str, pod: &Pod) -> kube::Result<()> {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    if pod.metadata.deletion_timestamp.is_some() {
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&name, &now).await?;
        return Ok(());
    }
    if pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": { "name": name, "namespace": namespace },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let _: Value = pods
            .create_subresource("binding", &name, &PostParams::default(), &binding)
            .await?;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase.is_none_or(|phase| phase == "Pending") {
        let patch = Patch::Merge(json!({ "status": status(pod) }));
        pods.patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// Pods of Jobs have succeeded, all others run.
fn status(pod: &Pod) -> Value {
    let is_of_job = pod.owner_references().iter().any(|owner| owner.kind == "Job");
    let now = jiff::Timestamp::now().to_string();
    let condition = |type_: &str| json!({ "type": type_, "status": "True", "lastTransitionTime": now });
    let conditions = ["Initialized", "PodScheduled", "ContainersReady", "Ready"].map(condition);
    json!({
        "phase": if is_of_job { "Succeeded" } else { "Running" },
        "conditions": conditions,
        "startTime": now,
        "podIP": "192.0.2.1",
        "podIPs": [{ "ip": "192.0.2.1" }],
    })
}

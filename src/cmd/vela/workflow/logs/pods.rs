//! Finds the pods that a step names, and reads their logs.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt};

use crate::api::{NamespacedName, is_object_name};
use crate::cmd::vela::joined::{Clusters, suffix};
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::trackers::{LOCAL, cluster_name};
use crate::controllers::oam::workflow::operations::logs::LogResource;
use crate::runtime::kube_client::call;

/// Pods and containers whose logs are shown. Each takes a request.
const MAX_PODS: u32 = 20;
const MAX_CONTAINERS: usize = 50;
/// Largest size of the log of one container.
const MAX_BYTES: u32 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogContainer {
    cluster: String,
    namespace: String,
    pod: String,
    container: String,
}

impl LogContainer {
    pub fn title(&self) -> String {
        format!("{}/{}{}", self.pod, self.container, suffix(&self.cluster))
    }
}

#[derive(Debug, Default)]
pub struct FoundPods {
    pub containers: Vec<LogContainer>,
    pub have_ended: bool,
    /// Sentences about pods that are not shown.
    pub notes: Vec<String>,
}

/// Finds the containers of the pods that resources select, in the namespace of the Application unless a resource names
/// another one. `cluster` limits them to one cluster.
pub async fn containers(
    clusters: &Clusters,
    name: &NamespacedName,
    resources: &[LogResource],
    cluster: Option<&str>,
) -> Result<FoundPods, Error> {
    let mut notes = Vec::new();
    let mut pods: Vec<(&str, Pod)> = Vec::new();
    for resource in resources {
        let place = cluster_name(&resource.cluster);
        let namespace = match resource.namespace.as_str() {
            "" => name.namespace.as_str(),
            namespace => namespace,
        };
        if cluster.is_some_and(|cluster| cluster != place) || !is_object_name(namespace) {
            continue;
        }
        let found = match clusters.client(place).await {
            Ok(client) => select(&client, namespace, resource, &mut notes).await,
            Err(problem) => Err(Error::Failed(problem)),
        };
        match found {
            Ok(found) => pods.extend(found.into_iter().map(|pod| (place, pod))),
            // The pods of other clusters are shown.
            Err(error) if place != LOCAL => {
                let problem = error.into_message();
                notes.push(format!("pods in cluster {place} are not shown: {problem}"));
            }
            Err(error) => return Err(error),
        }
    }
    let has_ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let have_ended = pods.iter().all(|(_, pod)| has_ended(pod));
    let containers = pods.iter().flat_map(|(cluster, pod)| containers_of(cluster, pod));
    let mut containers: Vec<LogContainer> = containers.collect();
    containers.sort();
    containers.dedup();
    if containers.len() > MAX_CONTAINERS {
        notes.push(format!(
            "only {MAX_CONTAINERS} of {} containers are shown",
            containers.len()
        ));
        containers.truncate(MAX_CONTAINERS);
    }
    if containers.is_empty() {
        let reason = notes
            .first()
            .map_or("the pods of the step are not there", String::as_str);
        return Err(Error::Failed(format!("{name}: no logs: {reason}")));
    }
    Ok(FoundPods {
        containers,
        have_ended,
        notes,
    })
}

/// Returns the pods that a resource selects: by labels if it has any, else by name. An empty one selects nothing.
async fn select(
    client: &Client,
    namespace: &str,
    resource: &LogResource,
    notes: &mut Vec<String>,
) -> Result<Vec<Pod>, Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    if resource.label_selector.is_empty() {
        if !is_object_name(&resource.name) {
            return Ok(Vec::new());
        }
        let pod = call(pods.get_opt(&resource.name))
            .await
            .map_err(failed_to(format!("read pod {}", resource.name)))?;
        return Ok(pod.into_iter().collect());
    }
    let labels = resource.label_selector.iter();
    let selector = Vec::from_iter(labels.map(|(label, value)| format!("{label}={value}"))).join(",");
    let parameters = ListParams::default().labels(&selector).limit(MAX_PODS);
    let page = call(pods.list(&parameters))
        .await
        .map_err(failed_to(format!("list the pods with {selector}")))?;
    if page.metadata.continue_.is_some_and(|token| !token.is_empty()) {
        notes.push(format!("only {MAX_PODS} of the pods with {selector} are shown"));
    }
    Ok(page.items)
}

fn containers_of(cluster: &str, pod: &Pod) -> Vec<LogContainer> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let named = containers.map(|container| LogContainer {
        cluster: cluster.to_owned(),
        namespace: pod.namespace().unwrap_or_default(),
        pod: pod.name_any(),
        container: container.name.clone(),
    });
    named.collect()
}

#[derive(Debug)]
pub struct LogRequest {
    tail: Option<u32>,
    since: Option<Timestamp>,
    has_times: bool,
}

impl LogRequest {
    pub fn tail(lines: u32) -> Self {
        Self {
            tail: Some(lines),
            since: None,
            has_times: false,
        }
    }

    /// The lines since the last one, or at first the last lines, each with its time.
    pub fn after(lines: u32, last: Option<Timestamp>) -> Self {
        Self {
            tail: last.is_none().then_some(lines),
            since: last,
            has_times: true,
        }
    }
}

pub async fn read(clusters: &Clusters, container: &LogContainer, request: &LogRequest) -> Result<String, String> {
    let client = clusters.client(&container.cluster).await?;
    let parameters = LogParams {
        container: Some(container.container.clone()),
        limit_bytes: Some(MAX_BYTES.into()),
        tail_lines: request.tail.map(i64::from),
        since_time: request.since,
        timestamps: request.has_times,
        ..LogParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(client, &container.namespace);
    let text = call(pods.logs(&container.pod, &parameters)).await;
    text.map_err(|error| error.message)
}

/// Drops the line that the size limit has cut; the next read returns it. A larger line is returned as it is.
pub fn complete_lines(text: &str) -> &str {
    let is_cut = text.len() >= MAX_BYTES as usize && !text.ends_with('\n');
    match text.rfind('\n').filter(|_| is_cut) {
        Some(end) => text.get(..=end).unwrap_or(text),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_the_size_limit_has_cut_is_left_for_the_next_read() {
        let limit = MAX_BYTES as usize;
        let line = "x".repeat(limit - 5);
        let cut = format!("{line}\nabcd");
        assert_eq!((cut.len(), complete_lines(&cut).len()), (limit, limit - 4));
        let ended = format!("{line}\nabc\n");
        assert_eq!(complete_lines(&ended), ended);
        let without_newline = "a\nlast words";
        assert_eq!(complete_lines(without_newline), without_newline);
        let one_line = "x".repeat(limit);
        assert_eq!(complete_lines(&one_line), one_line);
    }
}

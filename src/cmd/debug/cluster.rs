//! Status of objects, events and Leases, from the cluster. Secrets are not read.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::archive::BundlePart;
use super::{Bundle, within};
use crate::cmd::Error;
use crate::cmd::output::redacted_url;
use crate::runtime::kube_client::{ApiError, call};

/// The maximum number of objects of a kind in the archive.
const MAX_OBJECTS: usize = 500;
/// The maximum number of objects of a kind among which those that fail are searched.
const MAX_LISTED: usize = 10_000;
/// The maximum number of events that are searched for those of our objects.
const MAX_EVENTS: usize = 2000;
const PAGE: u32 = 500;

struct DebugKind {
    part: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// The maximum number of objects that are listed.
    limit: usize,
    /// Returns the parts of an object that are shown; none leaves it out.
    show: fn(&DynamicObject) -> Option<Value>,
}

const KINDS: [DebugKind; 6] = [
    DebugKind {
        part: "cluster/apprepositories.json",
        group: "kubeapps.com",
        version: "v1alpha1",
        kind: "AppRepository",
        plural: "apprepositories",
        limit: MAX_LISTED,
        show: |object| Some(apprepository(object)),
    },
    DebugKind {
        part: "cluster/applications.app.k8s.io.json",
        group: "app.k8s.io",
        version: "v1beta1",
        kind: "Application",
        plural: "applications",
        limit: MAX_LISTED,
        show: |object| Some(with_status(object)),
    },
    DebugKind {
        part: "cluster/applications.core.oam.dev.json",
        group: "core.oam.dev",
        version: "v1beta1",
        kind: "Application",
        plural: "applications",
        limit: MAX_LISTED,
        show: |object| Some(with_status(object)),
    },
    DebugKind {
        part: "cluster/leases.json",
        group: "coordination.k8s.io",
        version: "v1",
        kind: "Lease",
        plural: "leases",
        limit: MAX_LISTED,
        show: lease,
    },
    DebugKind {
        part: "cluster/events.json",
        group: "",
        version: "v1",
        kind: "Event",
        plural: "events",
        limit: MAX_EVENTS,
        show: event,
    },
    DebugKind {
        part: "cluster/cronjobs.json",
        group: "batch",
        version: "v1",
        kind: "CronJob",
        plural: "cronjobs",
        limit: MAX_LISTED,
        show: cronjob,
    },
];

impl Bundle {
    pub(super) async fn cluster_parts(&self) -> Vec<BundlePart> {
        let client = match self.cluster.client().await {
            Ok(client) => client,
            Err(error) => return vec![BundlePart::failed("cluster.txt", error)],
        };
        let mut parts = within("cluster/version", version(&client)).await;
        for kind in &KINDS {
            parts.push(self.objects(&client, kind).await);
        }
        parts
    }

    async fn objects(&self, client: &Client, kind: &DebugKind) -> BundlePart {
        let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
        let objects: Api<DynamicObject> = match self.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        match list(&objects, kind).await {
            Ok((mut items, is_complete)) => {
                let count = items.len();
                // Stable, so that objects of the same state stay in the order of the API server.
                items.sort_by_key(|item| state(&item["status"]));
                let keep = if kind.kind == "Event" { MAX_EVENTS } else { MAX_OBJECTS };
                items.truncate(keep);
                let is_complete = is_complete && count <= keep;
                let note = || {
                    format!(
                        "{} of at least {count} {}, those that fail first",
                        items.len(),
                        kind.plural
                    )
                };
                let cut = (!is_complete).then(note);
                let text = json!({ "complete": is_complete, "items": items });
                BundlePart::new(kind.part, format!("{text:#}\n")).cut(cut)
            }
            Err(error) if error.is_not_found() => {
                BundlePart::new(kind.part, format!("{:#}\n", json!({ "installed": false })))
            }
            Err(error) => BundlePart::failed(kind.part, failed_to_list(kind.plural, &error)),
        }
    }
}

/// Returns the shown parts of the listed objects, and true if these are all.
async fn list(objects: &Api<DynamicObject>, kind: &DebugKind) -> Result<(Vec<Value>, bool), ApiError> {
    let (mut items, mut listed) = (Vec::new(), 0);
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = call(objects.list(&parameters)).await?;
        listed += page.items.len();
        items.extend(page.items.iter().filter_map(kind.show));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(_) if listed >= kind.limit => return Ok((items, false)),
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok((items, true)),
        }
    }
}

/// The state of an object. Those that fail are shown first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Failing,
    Unknown,
    Ready,
}

/// Returns the state by the condition Ready, or by the phase of KubeVela's Applications.
fn state(status: &Value) -> State {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    match (
        ready.and_then(|ready| ready["status"].as_str()),
        status["status"].as_str(),
    ) {
        (_, Some("running")) | (Some("True"), None) => State::Ready,
        (_, Some(_)) | (Some("False"), None) => State::Failing,
        _ => State::Unknown,
    }
}

fn failed_to_list(plural: &str, error: &ApiError) -> Error {
    Error::Failed(format!("failed to list {plural}: {error}"))
}

async fn version(client: &Client) -> Result<Vec<BundlePart>, Error> {
    let version = call(client.apiserver_version())
        .await
        .map_err(|error| Error::Failed(format!("failed to get the version: {error}")))?;
    Ok(vec![BundlePart::new("cluster/version.txt", version.git_version + "\n")])
}

/// Returns the metadata without annotations and managed fields, which may contain anything.
fn metadata(object: &DynamicObject) -> Value {
    json!({
        "namespace": object.namespace(),
        "name": object.name_any(),
        "uid": object.metadata.uid,
        "generation": object.metadata.generation,
        "resourceVersion": object.metadata.resource_version,
        "creationTimestamp": object.metadata.creation_timestamp,
        "deletionTimestamp": object.metadata.deletion_timestamp,
        "finalizers": object.metadata.finalizers,
        "annotations": object.annotations().keys().collect::<Vec<_>>(),
    })
}

fn with_status(object: &DynamicObject) -> Value {
    json!({ "metadata": metadata(object), "status": object.data["status"] })
}

/// Returns the spec without its authentication, template and filter, in which users put secrets.
fn apprepository(object: &DynamicObject) -> Value {
    let spec = &object.data["spec"];
    let mut shown = with_status(object);
    shown["spec"] = json!({
        "type": spec["type"],
        "url": spec["url"].as_str().map(redacted_url),
        "interval": spec["interval"],
        "suspend": spec["suspend"],
        "ociRepositories": spec["ociRepositories"],
        "passCredentials": spec["passCredentials"],
        "tlsInsecureSkipVerify": spec["tlsInsecureSkipVerify"],
        "hasAuth": !spec["auth"].is_null(),
        "hasFilter": !spec["filterRule"].is_null(),
        "resyncRequests": spec["resyncRequests"],
    });
    shown
}

fn lease(object: &DynamicObject) -> Option<Value> {
    let name = object.name_any();
    let is_ours = name.starts_with("portolan") || name.starts_with("kubevela");
    is_ours.then(|| json!({ "metadata": metadata(object), "spec": object.data["spec"] }))
}

/// Returns an event about an object of our kinds.
fn event(object: &DynamicObject) -> Option<Value> {
    let event = &object.data;
    let regarding = &event["involvedObject"];
    let group = regarding["apiVersion"].as_str().unwrap_or_default();
    let is_ours = ["kubeapps.com/", "app.k8s.io/", "core.oam.dev/"]
        .iter()
        .any(|prefix| group.starts_with(prefix));
    is_ours.then(|| {
        json!({
            "namespace": regarding["namespace"],
            "kind": regarding["kind"],
            "name": regarding["name"],
            "type": event["type"],
            "reason": event["reason"],
            "message": event["message"],
            "count": event["count"],
            "reportingComponent": event["reportingComponent"],
            "time": object.metadata.creation_timestamp,
            "lastTimestamp": event["lastTimestamp"],
        })
    })
}

/// Returns the schedule and status of a CronJob of an AppRepository, without its pods' environment.
fn cronjob(object: &DynamicObject) -> Option<Value> {
    let is_ours = object
        .labels()
        .keys()
        .any(|label| label.starts_with("apprepositories.kubeapps.com/"));
    is_ours.then(|| {
        let mut shown = with_status(object);
        let spec = &object.data["spec"];
        shown["spec"] = json!({ "schedule": spec["schedule"], "suspend": spec["suspend"] });
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_fail_come_first() {
        let with_ready = |status: &str| json!({ "conditions": [{ "type": "Ready", "status": status }] });
        let statuses = [
            with_ready("True"),
            json!({ "status": "running", "conditions": [{ "type": "Ready", "status": "True" }] }),
            json!({}),
            with_ready("Unknown"),
            with_ready("False"),
            json!({ "status": "workflowFailed" }),
        ];
        use State::{Failing, Ready, Unknown};
        assert_eq!(
            statuses.each_ref().map(state),
            [Ready, Ready, Unknown, Unknown, Failing, Failing]
        );
        assert!(Failing < Unknown && Unknown < Ready);
    }
}

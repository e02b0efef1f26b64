//! The rights that the chart grants, compared with the requests of a process that does all of its work with them: none
//! is missing, and none is granted without need.

mod applications;
mod jobs;
mod repositories;
mod requests;
mod serve;
mod shards;

use std::collections::BTreeSet;

use requests::Right;
use serde_json::Value;

use super::release;
use crate::support::control_plane::control_plane;
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;
use crate::support::process::ScratchDir;

/// Returns true for lists of what Job mode and shards leave behind. Without the right, it is not looked for.
fn is_optional(verb: &str, resource: &str) -> bool {
    verb == "list" && matches!(resource, "batch/jobs" | "/secrets" | "coordination.k8s.io/leases")
}

/// One verb on one resource, granted by a role of the chart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    verb: String,
    /// As in [`Right`].
    resource: String,
    /// `None`: all names.
    name: Option<String>,
    /// `None`: all namespaces, and what has none.
    namespace: Option<String>,
}

impl Grant {
    fn covers(&self, right: &Right) -> bool {
        (&self.verb, &self.resource) == (&right.verb, &right.resource)
            && self.name.as_ref().is_none_or(|name| right.name.as_ref() == Some(name))
            && (self.namespace.is_none() || self.namespace == right.namespace)
    }
}

fn texts(value: &Value) -> Vec<String> {
    let values = value.as_array().into_iter().flatten();
    values.map(|value| value.as_str().unwrap().to_owned()).collect()
}

/// Returns the roles among `objects` that are bound to a service account.
fn roles_of<'a>(account: &str, objects: &'a [Value]) -> Vec<&'a Value> {
    let bindings = objects.iter().filter(|object| {
        object["kind"].as_str().unwrap().ends_with("RoleBinding") && object["subjects"][0]["name"] == account
    });
    let role = |binding: &Value| {
        let (kind, name) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
        let namespace = &binding["metadata"]["namespace"];
        let is_role = |object: &&Value| {
            (&object["kind"], &object["metadata"]["name"]) == (kind, name)
                && &object["metadata"]["namespace"] == namespace
        };
        objects.iter().find(is_role).expect("the bound role")
    };
    bindings.map(role).collect()
}

/// Returns what a role grants in its namespace, or in all.
fn grants_of(role: &Value) -> BTreeSet<Grant> {
    let namespace = role["metadata"]["namespace"].as_str();
    let rules = role["rules"].as_array().unwrap();
    rules.iter().flat_map(|rule| expand(rule, namespace)).collect()
}

fn expand(rule: &Value, namespace: Option<&str>) -> Vec<Grant> {
    let names = match texts(&rule["resourceNames"]) {
        names if names.is_empty() => vec![None],
        names => names.into_iter().map(Some).collect(),
    };
    let mut grants = Vec::new();
    for group in texts(&rule["apiGroups"]) {
        for resource in texts(&rule["resources"]) {
            for verb in texts(&rule["verbs"]) {
                for name in &names {
                    grants.push(Grant {
                        verb: verb.clone(),
                        resource: format!("{group}/{resource}"),
                        name: name.clone(),
                        namespace: namespace.map(str::to_owned),
                    });
                }
            }
        }
    }
    grants
}

/// Returns the grants without which each of `used` would still be allowed.
fn superfluous<'a>(grants: &'a BTreeSet<Grant>, used: &BTreeSet<Right>) -> Vec<&'a Grant> {
    let is_superfluous = |taken: &&Grant| {
        let others = || grants.iter().filter(|grant| grant != taken);
        let is_allowed = |right: &Right| others().any(|grant| grant.covers(right));
        let mut lost = used.iter().filter(|right| taken.covers(right) && !is_allowed(right));
        lost.next().is_none()
    };
    grants.iter().filter(is_superfluous).collect()
}

/// Creates a Lease of a shard that there is no more. Its collection is reported by an event.
async fn leave_expired_lease(namespace: &str) {
    let lease = serde_json::json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "portolan-7", "labels": { "app.kubernetes.io/managed-by": "portolan" } },
        "spec": {
            "holderIdentity": "old", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    let directory = ScratchDir::new("lease");
    let file = directory.write("lease.json", lease.to_string()).display().to_string();
    let apply = ["apply", "--namespace", namespace, "-f", &file];
    control_plane().await.kubectl(&apply).await;
}

/// Creates a CronJob of a repository that is gone. Its collection is reported by an event.
async fn leave_orphan(namespace: &str, watched: &str) {
    let pod =
        serde_json::json!({ "restartPolicy": "Never", "containers": [{ "name": "a", "image": "example.com/a" }] });
    let cron_job = serde_json::json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {
            "name": "orphan",
            "labels": { "app.kubernetes.io/managed-by": "portolan", "apprepositories.kubeapps.com/repo-name": "gone" },
            "annotations": { "portolan.dev/repository": format!("{watched}/gone"), "portolan.dev/repository-uid": "u" },
        },
        "spec": { "schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": { "spec": { "template": { "spec": pod } } } },
    });
    let directory = ScratchDir::new("orphan");
    let file = directory
        .write("orphan.json", cron_job.to_string())
        .display()
        .to_string();
    let apply = ["apply", "--namespace", namespace, "-f", &file];
    control_plane().await.kubectl(&apply).await;
}

/// Returns true for a right to the Lease of a shard that replicas of before an upgrade may hold. Those beyond the first are
/// read if that exists.
fn is_of_former_shards(grant: &Grant) -> bool {
    let is_later = |name: &String| {
        name.rsplit('-')
            .next()
            .is_some_and(|shard| shard.parse().is_ok_and(|shard: u32| shard > 0))
    };
    grant.resource == "coordination.k8s.io/leases" && grant.verb == "get" && grant.name.as_ref().is_some_and(is_later)
}

/// Waits until each right of the controller was used, without those of `exceptions`, and asserts that no other was
/// requested.
async fn compare(namespace: &str, proxy: &FaultProxy, exceptions: impl Fn(&Grant) -> bool) {
    compare_of(release::CONTROLLER, namespace, proxy, exceptions).await;
}

/// Same, for a service account of the release.
async fn compare_of(account: &str, namespace: &str, proxy: &FaultProxy, exceptions: impl Fn(&Grant) -> bool) {
    let is_excepted =
        |grant: &Grant| exceptions(grant) || is_of_former_shards(grant) || is_optional(&grant.verb, &grant.resource);
    let objects = release::objects(namespace).await;
    let granted = roles_of(account, &objects).into_iter().flat_map(grants_of);
    let (excepted, grants): (BTreeSet<Grant>, BTreeSet<Grant>) = granted.partition(is_excepted);
    eventually(SOON, "each right to be needed", async || {
        match superfluous(&grants, &requests::used(proxy)) {
            grants if grants.is_empty() => Ok(()),
            grants => Err(format!("not used: {grants:#?}")),
        }
    })
    .await;
    let missing: Vec<Right> = requests::used(proxy)
        .into_iter()
        .filter(|right| !grants.iter().chain(&excepted).any(|grant| grant.covers(right)))
        .filter(|right| !is_optional(&right.verb, &right.resource))
        .collect();
    assert!(missing.is_empty(), "not granted: {missing:#?}");
}

#[test]
fn a_right_that_no_request_needs_is_found() {
    let rule = serde_json::json!({
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": [], "verbs": ["get", "list"],
    });
    let grants: BTreeSet<Grant> = expand(&rule, Some("sea")).into_iter().collect();
    let right = |verb: &str, namespace: &str| Right {
        verb: verb.to_owned(),
        resource: "/secrets".to_owned(),
        name: None,
        namespace: Some(namespace.to_owned()),
    };
    let used = BTreeSet::from([right("get", "sea"), right("list", "land")]);
    let found: Vec<_> = superfluous(&grants, &used)
        .iter()
        .map(|grant| grant.verb.as_str())
        .collect();
    assert_eq!(found, ["list"]);
    assert!(!grants.iter().any(|grant| grant.covers(&right("list", "land"))));
}

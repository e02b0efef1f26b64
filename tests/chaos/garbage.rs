//! The remains of a repository that was deleted while no process ran: rows, a CronJob, a finished Job and a copied Secret;
//! and the expired Lease of a shard. The next process removes them.

use portolan::api::jobs::{MANAGED_BY, MANAGER, REPOSITORY, REPOSITORY_NAME, REPOSITORY_NAMESPACE, REPOSITORY_UID};
use serde_json::{Value, json};

use super::environment::{Environment, LEASE, OLD_LEASE};
use super::jobs::{CRON_JOB, JOB};
use super::repositories::{KIND, SECRET, chart, is_ready, serve};
use crate::support::portolan::Portolan;

pub const KINDS: [&str; 5] = [KIND, SECRET, CRON_JOB, JOB, LEASE];

const START: std::time::Duration = std::time::Duration::from_secs(60);

pub fn arguments(environment: &Environment) -> Vec<String> {
    vec![
        "--controllers=apprepository".to_owned(),
        "--crontab=@yearly".to_owned(),
        format!("--namespace={}", environment.namespace),
        // A collection that fails is repeated by the next one.
        "--gc-interval=10s".to_owned(),
    ]
}

pub async fn prepare(environment: &Environment) {
    let mut portolan = Portolan::start(environment.direct_command(&arguments(environment)));
    portolan.ready(START).await;
    for name in ["kept", "gone"] {
        serve(environment, name, &[chart("web", "1.0.0")]);
        let url = format!("{}/{name}", environment.server.url(""));
        let object = json!({ "spec": { "type": "helm", "url": url } });
        environment.apply(KIND, name, object).await;
        environment.until(KIND, name, "ready", is_ready).await;
    }
    portolan.signal("TERM");
    portolan.exit(START).await;
    let no_finalizers = json!({ "metadata": { "finalizers": null } });
    environment.edit(KIND, "gone", no_finalizers).await;
    environment.delete(KIND, "gone").await;
    environment.until_gone(KIND, "gone").await;

    let kept = environment.api_of(KIND).get("kept").await.unwrap();
    leave_objects(environment, "kept", &kept.metadata.uid.unwrap()).await;
    leave_objects(environment, "gone", "00000000-0000-4000-8000-000000000000").await;
    let spec = json!({
        "holderIdentity": "old", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z",
    });
    let lease = json!({ "metadata": { "labels": { MANAGED_BY: MANAGER } }, "spec": spec });
    environment.apply(LEASE, OLD_LEASE, lease).await;
}

/// Creates the objects that Jobs of a repository leave.
async fn leave_objects(environment: &Environment, name: &str, uid: &str) {
    let namespace = &environment.namespace;
    let labels = json!({ MANAGED_BY: MANAGER, REPOSITORY_NAME: name, REPOSITORY_NAMESPACE: namespace });
    let annotations = json!({ REPOSITORY: format!("{namespace}/{name}"), REPOSITORY_UID: uid });
    let meta = json!({ "labels": labels, "annotations": annotations });
    let containers = json!([{ "name": "sync", "image": "portolan" }]);
    let job =
        json!({ "completions": 0, "template": { "spec": { "restartPolicy": "Never", "containers": containers } } });
    let cron_job = json!({ "metadata": meta, "spec": { "schedule": "@yearly", "jobTemplate": { "spec": job } } });
    environment.apply(CRON_JOB, name, cron_job).await;
    environment
        .apply(JOB, name, json!({ "metadata": meta, "spec": job }))
        .await;
    environment.apply(SECRET, name, json!({ "metadata": meta })).await;
    environment.until(JOB, name, "complete", is_complete).await;
}

fn is_complete(job: &Value) -> bool {
    let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Complete" && condition["status"] == "True")
}

pub async fn drive(environment: &Environment) {
    for kind in [CRON_JOB, JOB, SECRET] {
        environment.until_gone(kind, "gone").await;
    }
    environment.until_gone(LEASE, OLD_LEASE).await;
}

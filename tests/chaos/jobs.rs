//! AppRepositories synced by Jobs: declared with a copied Secret, synced on request, moved; and another one that is
//! deleted.

use kube::api::{Api, ListParams};
use portolan::api::jobs::REPOSITORY_GENERATION;
use serde_json::{Value, json};

use super::environment::Environment;
use super::repositories::{KIND, SECRET, TOKEN, chart, login, serve, spec};
use crate::jobs::{is_finished, kubelet::Kubelet};
use crate::support::eventually::{SOON, eventually};
use crate::support::postgres::PASSWORD;

pub const JOB: &str = "batch/v1 Job";
pub const CRON_JOB: &str = "batch/v1 CronJob";
pub const KINDS: [&str; 4] = [KIND, SECRET, CRON_JOB, JOB];

const REQUESTED_AT: &str = portolan::api::REQUESTED_AT;

pub fn arguments(environment: &Environment) -> Vec<String> {
    vec![
        "--controllers=apprepository".to_owned(),
        "--crontab=@yearly".to_owned(),
        "--min-interval=1s".to_owned(),
        "--executor=job".to_owned(),
        "--job-image=portolan:test".to_owned(),
        format!("--namespace={}", environment.job_namespace()),
        "--database-secret-name=db".to_owned(),
        "--database-secret-key=password".to_owned(),
    ]
}

pub async fn prepare(environment: &Environment) -> Kubelet {
    environment.server.demand(TOKEN);
    serve(environment, "first", &[chart("web", "1.0.0"), chart("db", "1.0.0")]);
    serve(environment, "second", &[chart("web", "2.0.0")]);
    serve(environment, "brief", &[chart("tool", "1.0.0")]);
    environment.apply(SECRET, "login", login()).await;
    let password = json!({ "stringData": { "password": PASSWORD } });
    let namespace = environment.job_namespace();
    environment.apply_in(namespace, SECRET, "db", password).await;
    Kubelet::start(environment.client.clone(), namespace)
}

pub async fn drive(environment: &Environment) {
    environment.apply(KIND, "shop", spec(environment, "first")).await;
    until_synced(environment, "shop", "2 versions in 2 charts.").await;

    serve(
        environment,
        "first",
        &[chart("web", "1.1.0"), chart("web", "1.0.0"), chart("db", "1.0.0")],
    );
    let request = json!({ "metadata": { "annotations": { REQUESTED_AT: "first" } } });
    environment.edit(KIND, "shop", request).await;
    until_synced(environment, "shop", "3 versions in 2 charts.").await;

    environment.apply(KIND, "shop", spec(environment, "second")).await;
    until_synced(environment, "shop", "1 version in 1 chart.").await;

    environment.apply(KIND, "brief", spec(environment, "brief")).await;
    until_synced(environment, "brief", "1 version in 1 chart.").await;
    environment.delete(KIND, "brief").await;
    environment.until_gone(KIND, "brief").await;
}

/// Waits for the result in the status, and for the ends of all Jobs: a change ends those that run, which depends on time.
async fn until_synced(environment: &Environment, name: &str, message: &str) {
    environment
        .until(KIND, name, message, |object| is_synced(object, message))
        .await;
    let jobs = Api::namespaced(environment.client.clone(), environment.job_namespace());
    eventually(SOON, "the Jobs to end", async || {
        let jobs = jobs
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let unfinished = jobs.items.iter().find(|job| !is_finished(job));
        unfinished.map_or(Ok(()), |job| Err(format!("{:?}", job.metadata.name)))
    })
    .await;
}

fn is_synced(object: &Value, message: &str) -> bool {
    let status = &object["status"];
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let is_ready = conditions.any(|condition| {
        condition["type"] == "Ready" && condition["status"] == "True" && condition["message"] == message
    });
    is_ready && status["observedGeneration"] == object["metadata"]["generation"]
}

/// Returns true for Jobs of the deleted repository: they go with their time limit, or earlier with a new process.
pub fn is_garbage(job: &str) -> bool {
    ["-sync-brief-", "-cleanup-brief-"]
        .iter()
        .any(|part| job.contains(part))
}

/// Returns the Jobs of the last generation, and those that have not ended. A change deletes the Jobs of earlier
/// generations that run as far as the process knows, which depends on the events that it has seen.
pub fn latest(jobs: Vec<Value>) -> Vec<Value> {
    let generation = |job: &Value| {
        let annotation = job["metadata"]["annotations"][REPOSITORY_GENERATION].as_str();
        annotation.and_then(|generation| generation.parse::<i64>().ok())
    };
    let last = jobs.iter().filter_map(generation).max();
    let has_ended = |job: &Value| {
        let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| matches!(condition["type"].as_str(), Some("Complete" | "Failed")))
    };
    let is_compared = |job: &Value| generation(job) == last || !has_ended(job);
    jobs.into_iter().filter(is_compared).collect()
}

/// Removes what depends on the pods of a Job and on the pace of the Job controller.
pub fn without_attempts(job: &mut Value) {
    let Some(status) = job["status"].as_object_mut() else {
        return;
    };
    status.retain(|name, _| ["succeeded", "conditions"].contains(&name.as_str()));
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| condition["status"] == "True");
    }
}

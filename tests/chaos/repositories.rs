//! An AppRepository with credentials: declared, moved, synced on request and after a push; and another one that is deleted.

use serde_json::{Value, json};

use super::environment::Environment;
use super::point::Interruption;
use crate::support::archives::{self, Archive, Chart};
use crate::support::chart_server::Page;

pub const KIND: &str = "kubeapps.com/v1alpha1 AppRepository";
pub const SECRET: &str = "v1 Secret";
pub const KINDS: [&str; 5] = [KIND, SECRET, "v1 ConfigMap", "batch/v1 CronJob", "batch/v1 Job"];

pub const TOKEN: &str = "Bearer fair-winds";
const REQUESTED_AT: &str = portolan::api::REQUESTED_AT;
const POLL_AT: &str = portolan::api::POLL_AT;

pub fn arguments(interruption: Option<&Interruption>) -> Vec<String> {
    // Mistakes of users are tried again by schedule.
    let is_permanent = interruption.is_some_and(|interruption| interruption.fault.is_permanent());
    let crontab = if is_permanent { "*/5 * * * * *" } else { "@yearly" };
    let mut arguments = vec![
        "--controllers=apprepository".to_owned(),
        "--chart-files=all".to_owned(),
        "--min-interval=1s".to_owned(),
    ];
    arguments.push(format!("--crontab={crontab}"));
    arguments
}

/// Serves a repository of these charts.
pub fn serve(environment: &Environment, name: &str, archives: &[Archive]) {
    environment.server.serve_archives(name, archives);
    let entries = archives
        .iter()
        .map(|archive| archive.index_entry(&[&archive.file_name()]));
    let index = archives::index(entries);
    environment
        .server
        .serve(&format!("/{name}/index.yaml"), Page::new(index));
}

pub fn chart(name: &str, version: &str) -> Archive {
    Chart::new(name, version)
        .file("README.md", format!("# {name} {version}\n"))
        .file("values.yaml", "replicas: 1\n")
        .pack()
}

pub async fn prepare(environment: &Environment) {
    environment.server.demand(TOKEN);
    serve(environment, "first", &[chart("web", "1.0.0"), chart("db", "1.0.0")]);
    serve(environment, "second", &[chart("web", "2.0.0")]);
    serve(environment, "brief", &[chart("tool", "1.0.0")]);
    environment.apply(SECRET, "login", login()).await;
}

/// Returns a Secret with the credentials under two keys.
pub fn login() -> Value {
    json!({ "stringData": { "header": TOKEN, "second": TOKEN } })
}

pub async fn drive(environment: &Environment) {
    environment.apply(KIND, "shop", spec(environment, "first")).await;
    until_synced(environment, "shop", 2).await;
    environment.apply(KIND, "shop", spec(environment, "second")).await;
    until_synced(environment, "shop", 1).await;

    serve(environment, "second", &[chart("web", "2.0.0"), chart("web", "2.1.0")]);
    let request = json!({ "metadata": { "annotations": { REQUESTED_AT: "first" } } });
    environment.edit(KIND, "shop", request).await;
    environment
        .until(KIND, "shop", "the request to be handled", |object| {
            object["status"]["lastHandledReconcileAt"] == "first" && is_synced(object, 2)
        })
        .await;

    let pushed = ["2.0.0", "2.1.0", "2.2.0"].map(|version| chart("web", version));
    serve(environment, "second", &pushed);
    // Without a time, no later looks follow, whose number depends on the interruption.
    let push = json!({ "metadata": { "annotations": { POLL_AT: "first" } } });
    environment.edit(KIND, "shop", push).await;
    until_synced(environment, "shop", 3).await;

    environment.apply(KIND, "brief", spec(environment, "brief")).await;
    until_synced(environment, "brief", 1).await;
    environment.delete(KIND, "brief").await;
    environment.until_gone(KIND, "brief").await;
}

pub fn spec(environment: &Environment, path: &str) -> Value {
    let header = json!({ "secretKeyRef": { "name": "login", "key": "header" } });
    let url = format!("{}/{path}", environment.pages.url());
    json!({ "spec": { "type": "helm", "url": url, "auth": { "header": header } } })
}

async fn until_synced(environment: &Environment, name: &str, versions: i64) {
    let what = format!("{versions} versions with files");
    environment
        .until(KIND, name, &what, |object| is_synced(object, versions))
        .await;
}

/// Returns true if the current generation is synced with the files of all versions.
pub fn is_synced(object: &Value, versions: i64) -> bool {
    let status = &object["status"];
    let is_current = status["observedGeneration"] == object["metadata"]["generation"];
    let files = &status["files"];
    is_current && is_ready(object) && files["imported"] == versions && files["total"] == versions
}

pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

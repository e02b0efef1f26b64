//! A repository with a sink: its first sync, and versions that come and go. Each is delivered, and at least once.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::environment::{DEADLINE, Environment};
use super::point::Interruption;
use super::repositories::{self, KIND, SECRET, chart, is_synced, serve};
use crate::news::sink_server::SinkServer;
use crate::support::eventually::eventually;

/// Without Secrets: that of the sink has its port.
pub const KINDS: [&str; 1] = [KIND];

const REQUESTED_AT: &str = portolan::api::REQUESTED_AT;
/// A summary of the first sync, a version that is added, and one that is removed.
const MESSAGES: usize = 3;

pub fn arguments(interruption: Option<&Interruption>) -> Vec<String> {
    let mut arguments = repositories::arguments(interruption);
    arguments.push("--news-private-networks".to_owned());
    arguments
}

pub async fn prepare(environment: &Environment) {
    serve(environment, "shop", &[chart("web", "1.0.0"), chart("db", "1.0.0")]);
    let sink = environment.sink.as_ref().expect("the scenario has a sink");
    let values = json!({ "stringData": { "url": sink.url, "token": "a key" } });
    environment.apply(SECRET, "hook", values).await;
}

pub async fn drive(environment: &Environment) {
    let repository = json!({
        "metadata": { "annotations": { "portolan.dev/news": "hook" } },
        "spec": { "type": "helm", "url": format!("{}/shop", environment.pages.url()) },
    });
    environment.apply(KIND, "shop", repository).await;
    environment
        .until(KIND, "shop", "2 versions", |object| is_synced(object, 2))
        .await;

    serve(environment, "shop", &[chart("web", "1.0.0"), chart("web", "1.1.0")]);
    let request = json!({ "metadata": { "annotations": { REQUESTED_AT: "first" } } });
    environment.edit(KIND, "shop", request).await;
    environment
        .until(KIND, "shop", "the request to be handled", |object| {
            object["status"]["lastHandledReconcileAt"] == "first" && is_synced(object, 2)
        })
        .await;
    eventually(DEADLINE, "all news to be delivered", async || {
        let delivered = delivered(environment);
        if delivered.len() >= MESSAGES {
            Ok(())
        } else {
            Err(format!("{delivered:?}"))
        }
    })
    .await;
}

/// Returns the messages that the sink has received, each once. Failures, which an interruption may cause, are left out.
pub fn delivered(environment: &Environment) -> Vec<Value> {
    let requests = environment.sink.iter().flat_map(SinkServer::requests);
    let messages = requests.map(|request| request.json());
    let is_health = |message: &Value| {
        let kind = message["type"].as_str().unwrap_or_default();
        kind.ends_with(".failed") || kind.ends_with(".recovered")
    };
    // A message that is sent again has its ID and its content, or it is another one.
    let distinct: BTreeSet<(String, String)> = messages
        .filter(|message| !is_health(message))
        .map(|message| {
            let content = json!({
                "type": message["type"], "subject": message["subject"], "data": message["data"],
            });
            (message["id"].to_string(), content.to_string())
        })
        .collect();
    let contents = distinct.iter();
    contents
        .map(|(_, content)| serde_json::from_str(content).expect("it was JSON"))
        .collect()
}

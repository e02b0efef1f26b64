//! Applications (core.oam.dev): deployed, updated, and deleted.

use regex::Regex;
use serde_json::{Value, json};

use super::environment::Environment;
use super::state::objects_with;
use crate::oam_apps::apps::{config, spec, web};
pub use crate::oam_apps::kubelet::Kubelet;
pub use crate::oam_apps::setup::shared as control_plane;
use crate::oam_apps::{CONFIG_MAP, DEPLOYMENT, REVISION};
use crate::support::cue;

pub use crate::oam_apps::{APPLICATION as KIND, TRACKER};

pub const KINDS: [&str; 6] = [KIND, REVISION, TRACKER, CONFIG_MAP, DEPLOYMENT, "v1 Service"];

pub fn arguments(environment: &Environment) -> Vec<String> {
    let namespace = &environment.namespace;
    vec![
        "--controllers=oam".to_owned(),
        "--compat-version=UNKNOWN".to_owned(),
        "--application-re-sync-period=1m".to_owned(),
        "--max-workflow-wait-backoff-time=1".to_owned(),
        "--max-workflow-failed-backoff-time=1".to_owned(),
        format!("--leader-election-namespace={namespace}"),
        format!("--cue-evaluator={}", cue::executable().display()),
    ]
}

pub fn kubelet(environment: &Environment) -> Kubelet {
    Kubelet::start(environment.client.clone(), Some(&environment.namespace))
}

pub async fn drive(environment: &Environment) {
    let components = [config("settings", "one"), web("web", 1)];
    deploy(environment, "shop", spec(&components)).await;
    // Changes a component, removes another and adds a third.
    let components = [config("settings", "two"), config("more", "one")];
    deploy(environment, "shop", spec(&components)).await;
    environment.until_gone(DEPLOYMENT, "web").await;

    deploy(environment, "brief", spec(&[config("brief", "one")])).await;
    environment.delete(KIND, "brief").await;
    environment.until_gone(KIND, "brief").await;
    environment.until_gone(CONFIG_MAP, "brief").await;
}

pub async fn deploy(environment: &Environment, name: &str, spec: Value) {
    environment.apply(KIND, name, json!({ "spec": spec })).await;
    environment
        .until(KIND, name, "running", |app| {
            let status = &app["status"];
            let is_current = status["observedGeneration"] == app["metadata"]["generation"];
            is_current && status["status"] == "running"
        })
        .await;
}

/// Returns what Portolan created for an Application, but for revisions: each change leaves one.
pub async fn parts_of(environment: &Environment, name: &str) -> Value {
    objects_with(environment, &[CONFIG_MAP, TRACKER], ("app.oam.dev/name", name)).await
}

/// Replaces the numbers of revisions, which count changes.
pub fn without_versions(value: &Value) -> Value {
    let versions = Regex::new("-v[0-9]+").unwrap();
    let text = versions.replace_all(&value.to_string(), "-vN").into_owned();
    serde_json::from_str(&text).unwrap()
}

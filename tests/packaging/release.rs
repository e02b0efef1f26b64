//! Releases of the chart in the test's control plane, and their containers as local processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::Api;
use serde_json::Value;

use super::{chart, documents, helm_output};
use crate::support::control_plane::control_plane;
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::{command, run};

/// The controller's Deployment, and its service account.
pub const CONTROLLER: &str = "portolan";
/// The Deployment of `portolan serve`, and its service account.
pub const SERVE: &str = "portolan-serve";

/// Creates a namespace that admits only restricted pods.
pub async fn restricted_namespace() -> String {
    let control_plane = control_plane().await;
    let namespace = control_plane.namespace().await;
    let label = "pod-security.kubernetes.io/enforce=restricted";
    control_plane.kubectl(&["label", "namespace", &namespace, label]).await;
    namespace
}

/// Installs a release named portolan in a namespace that admits only restricted pods.
pub async fn install(settings: &[&str]) -> String {
    let namespace = restricted_namespace().await;
    install_in(&namespace, settings).await;
    namespace
}

/// Installs a release named portolan.
pub async fn install_in(namespace: &str, settings: &[&str]) {
    let arguments = ["install", "portolan", &chart(), "--namespace", namespace];
    let notes = helm_output(&[&arguments, settings].concat()).await;
    assert!(
        notes.contains("kubectl wait --for=condition=Ready apprepository/grafana"),
        "{notes}"
    );
}

/// Returns the objects of a release, without hooks.
pub async fn objects(namespace: &str) -> Vec<Value> {
    documents(&helm_output(&["get", "manifest", "portolan", "--namespace", namespace]).await)
}

/// The container's command, run as a local process with its arguments and environment, except for the database, a
/// directory for temporary files, and a kubeconfig instead of the pod's credentials.
pub async fn container(namespace: &str, database_url: &str) -> Command {
    let server = control_plane().await.url();
    container_for(namespace, &server, database_url).await
}

/// Same, with the address of the API server or a proxy in front of it.
pub async fn container_for(namespace: &str, server: &str, database_url: &str) -> Command {
    container_of(CONTROLLER, namespace, server, database_url).await
}

/// Same, for one of the Deployments of the release.
pub async fn container_of(deployment: &str, namespace: &str, server: &str, database_url: &str) -> Command {
    let mut pod = pod_of(deployment, namespace).await;
    let account = pod.service_account_name.expect("a service account");
    let mut command = process_as(&account, namespace, pod.containers.remove(0), server).await;
    command.env("PORTOLAN_DATABASE_URL", database_url);
    command
}

/// Returns the pod of the controller's Deployment.
pub async fn pod(namespace: &str) -> PodSpec {
    pod_of(CONTROLLER, namespace).await
}

async fn pod_of(deployment: &str, namespace: &str) -> PodSpec {
    let deployments: Api<Deployment> = Api::namespaced(control_plane().await.client().await, namespace);
    let deployment = deployments.get(deployment).await.unwrap();
    deployment.spec.unwrap().template.spec.unwrap()
}

/// A container's command with a token of the controller's service account.
pub async fn process(namespace: &str, container: Container, server: &str) -> Command {
    process_as(CONTROLLER, namespace, container, server).await
}

async fn process_as(account: &str, namespace: &str, container: Container, server: &str) -> Command {
    let control_plane = control_plane().await;
    let token = control_plane.token_for(namespace, account).await;
    let environment: BTreeMap<String, String> = container
        .env
        .unwrap_or_default()
        .into_iter()
        .filter_map(|variable| Some((variable.name, variable.value?)))
        .collect();
    let kubeconfig = control_plane.kubeconfig_for(server, &token);
    set_namespace(&kubeconfig, namespace);
    let mut command = command(container.args.unwrap());
    command
        .envs(environment)
        .env("KUBECONFIG", kubeconfig)
        .env("PORTOLAN_SPOOL_DIR", std::env::temp_dir());
    set_pod_namespace(&mut command, namespace);
    command
}

/// Sets the defaults that a command has in a pod of this namespace.
pub fn set_pod_namespace(command: &mut Command, namespace: &str) {
    // The flag of `portolan uninstall` has another meaning.
    if command.get_args().next().is_some_and(|argument| argument == "run") {
        command
            .env("PORTOLAN_NAMESPACE", namespace)
            .env("PORTOLAN_LEADER_ELECTION_NAMESPACE", namespace);
    }
    command
        .env("PORTOLAN_PORTOLAN_NAMESPACE", namespace)
        .env("PORTOLAN_KUBEAPPS_NAMESPACE", namespace);
}

/// Runs a container's command, which must succeed. The API server applies new roles with a short delay.
pub async fn run_to_end(namespace: &str, container: Container, server: &str) {
    eventually(SOON, "the container to succeed", async || {
        let output = run(process(namespace, container.clone(), server).await).await;
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    })
    .await;
}

/// Sets the namespace of a kubeconfig's context, which stands for that of a pod.
pub fn set_namespace(kubeconfig: &Path, namespace: &str) {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["contexts"][0]["context"]["namespace"] = namespace.into();
    std::fs::write(kubeconfig, config.to_string()).unwrap();
}

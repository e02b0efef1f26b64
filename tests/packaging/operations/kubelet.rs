//! A kubelet that runs the containers of Portolan's pods as processes of this machine.

use std::collections::HashMap;
use std::process::{Child, Command};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::packaging::release::{set_namespace, set_pod_namespace};
use crate::support::control_plane::ControlPlane;
use crate::support::cue::executable;
use crate::support::eventually::SOON;
use crate::support::portolan::{Portolan, command};

const INTERVAL: Duration = Duration::from_millis(200);
const LABEL: &str = "app.kubernetes.io/instance=portolan";

/// The process of a pod.
enum Running {
    Service(Portolan),
    /// A process that exits without a signal.
    Task(Child),
}

/// Serves the pods of a namespace until the future is dropped.
pub async fn serve(control_plane: &ControlPlane, namespace: &str) {
    let pods: Api<Pod> = Api::namespaced(control_plane.client().await, namespace);
    let mut running: HashMap<String, Running> = HashMap::new();
    loop {
        // The API server may be busy, and a pod may be gone meanwhile: the next round is another attempt.
        if let Ok(list) = pods.list(&ListParams::default().labels(LABEL)).await {
            let names: Vec<String> = list.items.iter().map(ResourceExt::name_any).collect();
            let gone: Vec<String> = running.keys().filter(|name| !names.contains(name)).cloned().collect();
            for name in gone {
                if let Some(Running::Service(mut process)) = running.remove(&name) {
                    process.signal("TERM");
                    process.exit(SOON).await;
                }
            }
            for pod in list.items {
                drop(sync(control_plane, &pods, &pod, &mut running).await);
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Starts a pod, or reports its state.
async fn sync(
    control_plane: &ControlPlane,
    pods: &Api<Pod>,
    pod: &Pod,
    running: &mut HashMap<String, Running>,
) -> kube::Result<()> {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return Ok(());
    }
    if !running.contains_key(&name) {
        eprintln!("starting {namespace}/{name}");
        running.insert(name.clone(), start(control_plane, pod).await);
    }
    let status = match running.get_mut(&name).expect("a running pod") {
        Running::Task(child) => match child.try_wait().expect("a child of this process") {
            None => json!({ "phase": "Running" }),
            Some(status) if status.success() => json!({ "phase": "Succeeded" }),
            Some(_) => json!({ "phase": "Failed" }),
        },
        Running::Service(process) => {
            let is_ready = matches!(process.get("/readyz").await, Ok((200, _)));
            let status = if is_ready { "True" } else { "False" };
            let condition =
                |type_: &str| json!({ "type": type_, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z" });
            json!({ "phase": "Running", "conditions": [condition("Ready"), condition("ContainersReady")] })
        }
    };
    report(pods, &name, status).await
}

async fn start(control_plane: &ControlPlane, pod: &Pod) -> Running {
    let container = &pod.spec.as_ref().expect("a pod has a spec").containers[0];
    let mut process = process(control_plane, pod, container).await;
    let mut arguments = container.args.iter().flatten();
    if arguments
        .next()
        .is_some_and(|argument| argument == "run" || argument == "serve")
    {
        return Running::Service(Portolan::start(process));
    }
    Running::Task(process.spawn().expect("the binary can be run"))
}

async fn report(pods: &Api<Pod>, name: &str, status: serde_json::Value) -> kube::Result<()> {
    let patch = Patch::Strategic(json!({ "status": status }));
    pods.patch_status(name, &PatchParams::default(), &patch).await.map(drop)
}

/// Returns the container's command, with its environment and a token of its service account.
async fn process(control_plane: &ControlPlane, pod: &Pod, container: &Container) -> Command {
    let namespace = pod.namespace().unwrap_or_default();
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let token = control_plane.token_for(&namespace, &account.unwrap_or_default()).await;
    let kubeconfig = control_plane.kubeconfig_for(&control_plane.url(), &token);
    set_namespace(&kubeconfig, &namespace);
    let mut process = command(container.args.clone().unwrap_or_default());
    let secrets: Api<Secret> = Api::namespaced(control_plane.client().await, &namespace);
    for variable in container.env.iter().flatten() {
        process.env(&variable.name, value(pod, &secrets, variable).await);
    }
    set_pod_namespace(&mut process, &namespace);
    // Pods import chart files, as the chart says.
    process.env_remove("PORTOLAN_CHART_FILES");
    // As in the image, the evaluator is found without a flag.
    let programs = executable().parent().expect("a directory").display().to_string();
    process
        .env(
            "PATH",
            format!("{programs}:{}", std::env::var("PATH").unwrap_or_default()),
        )
        .env("KUBECONFIG", kubeconfig)
        .env("PORTOLAN_SPOOL_DIR", std::env::temp_dir());
    process
}

async fn value(pod: &Pod, secrets: &Api<Secret>, variable: &EnvVar) -> String {
    let Some(source) = &variable.value_from else {
        return variable.value.clone().unwrap_or_default();
    };
    if let Some(reference) = &source.secret_key_ref {
        let secret = secrets.get(&reference.name).await.expect("the Secret exists");
        let data = secret.data.unwrap_or_default();
        return String::from_utf8(data[&reference.key].0.clone()).expect("text");
    }
    assert_eq!(
        source.field_ref.as_ref().map(|field| field.field_path.as_str()),
        Some("metadata.name")
    );
    pod.name_any()
}

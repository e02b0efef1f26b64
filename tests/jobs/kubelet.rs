//! A kubelet that runs the commands of pods as processes of this machine, and reports their ends. There is no node: the
//! pods stay unscheduled, which the Job controller does not mind. Pods with a node selector never start, and those of other
//! controllers are not served.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Request, Response};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::command;

/// A pod may have to wait for a change of its fate.
const RELIST_PERIOD: Duration = Duration::from_secs(1);

/// The fate of pods that start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Their command runs to its end.
    Run,
    /// They stay pending.
    Hold,
    /// Their image can't be pulled.
    NoImage,
    /// The node removes them.
    Evict,
    /// No node fits.
    Unschedulable,
}

/// The end of a pod's command.
#[derive(Clone, Debug)]
pub struct Ended {
    pub arguments: Vec<String>,
    pub output: String,
    pub is_success: bool,
}

/// Serves the pods of a namespace until it is dropped.
pub struct Kubelet {
    task: JoinHandle<()>,
    rounds: Arc<AtomicUsize>,
    fate: Arc<Mutex<Fate>>,
    ended: Arc<Mutex<Vec<Ended>>>,
}

impl Kubelet {
    pub fn start(client: Client, namespace: &str) -> Self {
        let (fate, ended) = (Arc::new(Mutex::new(Fate::Run)), Arc::<Mutex<Vec<Ended>>>::default());
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let (fates, ends) = (Arc::clone(&fate), Arc::clone(&ended));
        let rounds = Arc::<AtomicUsize>::default();
        let ended_rounds = Arc::clone(&rounds);
        let task = tokio::spawn(async move {
            let mut started = HashSet::new();
            loop {
                let end = Instant::now() + RELIST_PERIOD;
                let events = watcher(pods.clone(), watcher::Config::default()).default_backoff();
                let mut events = std::pin::pin!(events.applied_objects());
                let round = async {
                    while let Some(Ok(pod)) = events.next().await {
                        let has_selector = pod.spec.as_ref().is_some_and(|spec| spec.node_selector.is_some());
                        let fate = if has_selector {
                            Fate::Unschedulable
                        } else {
                            *fates.lock().unwrap()
                        };
                        let is_of_job = pod.labels().contains_key("batch.kubernetes.io/job-name");
                        let key = (pod.uid().unwrap_or_default(), fate);
                        let is_pending =
                            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
                        if is_of_job && is_pending && pod.metadata.deletion_timestamp.is_none() && started.insert(key) {
                            tokio::spawn(serve(client.clone(), pods.clone(), pod, fate, Arc::clone(&ends)));
                        }
                    }
                };
                let _ = timeout_at(end, round).await;
                ended_rounds.fetch_add(1, Ordering::Relaxed);
                // While a runtime ends, a client fails immediately, and a task that never waits cannot be ended.
                sleep_until(end).await;
            }
        });
        Self {
            task,
            rounds,
            fate,
            ended,
        }
    }

    /// Decides the fate of pods that start from now on, and of those that are pending.
    pub fn decide(&self, fate: Fate) {
        *self.fate.lock().unwrap() = fate;
    }

    /// Returns the commands that have ended.
    pub fn ended(&self) -> Vec<Ended> {
        self.ended.lock().unwrap().clone()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(client: Client, pods: Api<Pod>, pod: Pod, fate: Fate, ended: Arc<Mutex<Vec<Ended>>>) {
    match fate {
        Fate::Hold => {}
        Fate::NoImage => {
            let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image" } });
            report(&pods, &pod, json!({ "containerStatuses": [status(&pod, waiting)] })).await;
        }
        Fate::Unschedulable => {
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/3 nodes are available", "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            report(&pods, &pod, json!({ "conditions": [condition] })).await;
        }
        Fate::Evict => {
            let status =
                json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory" });
            report(&pods, &pod, status).await;
        }
        Fate::Run => {
            let output = match run(&client, &pod).await {
                Ok(output) => output,
                Err(missing) => {
                    let waiting = json!({ "waiting": { "reason": "CreateContainerConfigError", "message": missing } });
                    report(&pods, &pod, json!({ "containerStatuses": [status(&pod, waiting)] })).await;
                    return;
                }
            };
            let is_success = output.status.success();
            let text = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            ended.lock().unwrap().push(Ended {
                arguments: arguments(&pod, &BTreeMap::new()),
                output: text,
                is_success,
            });
            let code = output.status.code().unwrap_or(137);
            let reason = if is_success { "Completed" } else { "Error" };
            let terminated = json!({ "terminated": { "exitCode": code, "reason": reason } });
            let phase = if is_success { "Succeeded" } else { "Failed" };
            report(
                &pods,
                &pod,
                json!({ "phase": phase, "containerStatuses": [status(&pod, terminated)] }),
            )
            .await;
        }
    }
}

fn status(pod: &Pod, state: Value) -> Value {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    json!({
        "name": container.name, "image": container.image, "imageID": "", "ready": false, "restartCount": 0, "state": state,
    })
}

/// A pod that was deleted meanwhile has no status.
async fn report(pods: &Api<Pod>, pod: &Pod, status: Value) {
    let patch = Patch::Merge(json!({ "metadata": { "uid": pod.uid() }, "status": status }));
    let _ = pods
        .patch_status(&pod.name_any(), &PatchParams::default(), &patch)
        .await;
}

/// Runs the command of a pod, whether or not the pod still exists. Fails with the Secret that is missing.
pub async fn run(client: &Client, pod: &Pod) -> Result<Output, String> {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let value = match variable
            .value_from
            .as_ref()
            .and_then(|from| from.secret_key_ref.as_ref())
        {
            Some(reference) => secret(client, &pod.namespace().unwrap(), &reference.name, &reference.key).await?,
            None => expand(variable.value.as_deref().unwrap_or_default(), &variables),
        };
        variables.insert(variable.name.clone(), value);
    }
    let mut command = command(arguments(pod, &variables));
    command.envs(&variables).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut command = tokio::process::Command::from(command);
    Ok(command.kill_on_drop(true).output().await.unwrap())
}

async fn secret(client: &Client, namespace: &str, name: &str, key: &str) -> Result<String, String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get_opt(name).await.unwrap();
    let value = found.and_then(|secret| secret.data?.remove(key));
    let value = value.ok_or_else(|| format!("secret {name:?} not found"))?;
    Ok(String::from_utf8(value.0).unwrap())
}

/// Returns the arguments with the values of variables, as a kubelet passes them.
fn arguments(pod: &Pod, variables: &BTreeMap<String, String>) -> Vec<String> {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    assert_eq!(
        container.command.as_deref(),
        Some(&["/usr/local/bin/portolan".to_owned()][..])
    );
    let arguments = container.args.iter().flatten();
    arguments.map(|argument| expand(argument, variables)).collect()
}

fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let expression = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        if let Some(more) = after.strip_prefix('$') {
            out.push('$');
            rest = more;
        } else if let Some((value, more)) = expression.and_then(|(name, more)| Some((variables.get(name)?, more))) {
            out.push_str(value);
            rest = more;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out + rest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_ends_although_its_client_fails_immediately() {
    let with_ended_runtime = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let server =
                tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
            Client::new(server, "default")
        })
    });
    let kubelet = Kubelet::start(with_ended_runtime.join().unwrap(), "default");
    let rounds = Arc::clone(&kubelet.rounds);
    eventually(SOON, "a round", async || {
        (rounds.load(Ordering::Relaxed) > 0).then_some(())
    })
    .await;
    let task = kubelet.task.abort_handle();
    drop(kubelet);
    eventually(SOON, "the end of the kubelet", async || {
        task.is_finished().then_some(())
    })
    .await;
}

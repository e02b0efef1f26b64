//! `helm uninstall` with its hook: the controller ends first, and no object is left with a finalizer.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use portolan::api::Application;
use serde_json::{Value, json};

use super::release::{container, install, process};
use super::{KUBE_VERSION, chart, documents, helm, helm_command, helm_output};
use crate::cluster::{SOON, World, index};
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, run};
use crate::support::postgres::database;
use crate::support::process::ScratchDir;

const HOOK: &str = "batch.kubernetes.io/job-name=portolan-uninstall";
/// Hooks have `--timeout` (5 minutes by default) to end.
const UNINSTALLED: Duration = Duration::from_secs(120);

/// An Application that owns its component, for which it gets a finalizer.
const SHOP: &str = "
apiVersion: app.k8s.io/v1beta1
kind: Application
metadata: {name: shop}
spec:
  addOwnerRef: true
  selector: {matchLabels: {app: shop}}
  componentKinds: [{group: '', kind: ConfigMap}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: shop, labels: {app: shop}}
";

/// Runs the pod of the hook as a process, and reports its end as a kubelet does.
async fn play_hook(namespace: &str) {
    let control_plane = control_plane().await;
    let pods: Api<Pod> = Api::namespaced(control_plane.client().await, namespace);
    let list = ListParams::default().labels(HOOK);
    let mut pod = eventually(SOON, "the pod of the hook", async || {
        pods.list(&list).await.unwrap().items.into_iter().next()
    })
    .await;
    let container = pod.spec.take().unwrap().containers.remove(0);
    let output = run(process(namespace, container, &control_plane.url()).await).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("Deployment portolan scaled to 0"), "{printed}");
    let patch = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    let name = pod.metadata.name.unwrap();
    pods.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_keeps_a_finalizer_when_a_release_is_uninstalled() {
    let world = World::new().await;
    let settings = format!("--set=watchNamespace={},applications.enabled=true", world.namespace);
    let namespace = install(&[&settings]).await;
    let mut portolan = Portolan::start(container(&namespace, &database().await.url).await);
    portolan.ready(SOON).await;
    let url = world.serve("harbour", index(&[("beacon", &["1.0.0"])]));
    world.declare("harbour", &url).await;
    world.until_ready("harbour").await;
    let directory = ScratchDir::new("uninstalling");
    let file = directory.write("shop.yaml", SHOP).display().to_string();
    let apply = ["apply", "--namespace", &world.namespace, "-f", &file];
    control_plane().await.kubectl(&apply).await;
    let applications: Api<Application> = Api::namespaced(world.client.clone(), &world.namespace);
    eventually(SOON, "the finalizer", async || {
        let application = applications.get("shop").await.unwrap();
        let has_finalizer = application.metadata.finalizers.is_some_and(|names| !names.is_empty());
        has_finalizer.then_some(())
    })
    .await;

    let uninstall = helm_command(&["uninstall", "portolan", "--namespace", &namespace]).await;
    let uninstalled = tokio::spawn(helm::output(uninstall));
    // The pods of the Deployment were never scheduled, so that they end at once; the process stands for one of them.
    portolan.signal("TERM");
    assert!(portolan.exit(SOON).await.success());
    play_hook(&namespace).await;
    let text = tokio::time::timeout(UNINSTALLED, uninstalled).await.unwrap().unwrap();
    assert!(text.contains("uninstalled"), "{text}");

    let application = applications.get("shop").await.unwrap();
    assert_eq!(application.metadata.finalizers, None);
    let repository = world.repositories.get("harbour").await.unwrap();
    assert_eq!(repository.metadata.finalizers, None);
    world.delete("harbour").await;
    world.gone("harbour").await;
    let jobs: Api<Job> = Api::namespaced(control_plane().await.client().await, &namespace);
    eventually(SOON, "the hook to be removed", async || {
        let jobs = jobs.list(&ListParams::default()).await.unwrap().items;
        if jobs.is_empty() {
            Ok(())
        } else {
            Err(format!("{}", jobs.len()))
        }
    })
    .await;
    let roles = [
        "get",
        "roles,rolebindings,clusterroles,clusterrolebindings",
        "-A",
        "-o",
        "name",
    ];
    let roles = control_plane().await.kubectl(&roles).await;
    assert!(!roles.contains(&namespace), "{roles}");
}

/// Returns the rendered hook.
async fn hook(settings: &str) -> Vec<Value> {
    let arguments = [
        "template",
        "portolan",
        &chart(),
        KUBE_VERSION,
        "--namespace",
        "sea",
        "--set",
        settings,
    ];
    let only = ["--show-only=templates/uninstall.yaml"];
    documents(&helm_output(&[&arguments[..], &only].concat()).await)
}

#[tokio::test]
async fn without_roles_the_hook_creates_only_its_job() {
    let kinds =
        |objects: Vec<Value>| -> Vec<Value> { objects.into_iter().map(|mut object| object["kind"].take()).collect() };
    assert_eq!(kinds(hook("rbac.create=false").await), ["Job"]);
    let all = kinds(hook("").await);
    assert!(
        all.contains(&"ClusterRole".into()) && all.contains(&"Role".into()),
        "{all:?}"
    );
    // Within one namespace, nothing is granted for the cluster.
    let one = kinds(hook("watchNamespace=team").await);
    assert!(!one.contains(&"ClusterRole".into()), "{one:?}");
}

#[tokio::test]
async fn the_steps_of_the_hook_end_before_its_job_is_killed() {
    const WEBHOOKS: &str = "oam.enabled=true,oam.webhooks.enabled=true,";
    // Lists, removals and the check for other controllers.
    let cases = [
        ("", 9, 125),
        ("", 9, 240),
        ("", 9, 600),
        (WEBHOOKS, 10, 125),
        (WEBHOOKS, 10, 240),
    ];
    for (more, steps, limit) in cases {
        let settings = format!("{more}uninstallHook.timeoutSeconds={limit}");
        let job = hook(&settings).await.pop().unwrap();
        assert_eq!(job["spec"]["activeDeadlineSeconds"], limit);
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        let seconds = |flag: &str| {
            let arguments = container["args"].as_array().unwrap().iter();
            let mut values = arguments.filter_map(|argument| argument.as_str().unwrap().strip_prefix(flag));
            values.next().unwrap().trim_end_matches('s').parse::<u64>().unwrap()
        };
        let (pods, step) = (seconds("--scale-down-timeout="), seconds("--timeout="));
        // A pod of the chart has 45 s to end.
        assert!(pods > 45 && step >= 4 && pods + steps * step < limit, "{pods} {step}");
    }
}

#[tokio::test]
async fn the_hook_is_limited_to_the_watched_namespace_and_can_be_disabled() {
    let arguments = |mut objects: Vec<Value>| {
        let container = &mut objects.last_mut().unwrap()["spec"]["template"]["spec"]["containers"][0];
        container["args"].take()
    };
    let everywhere = arguments(hook("").await);
    assert_eq!(
        everywhere,
        json!([
            "uninstall",
            "--scale-down=portolan",
            "--scale-down-timeout=60s",
            "--timeout=17s",
            "--leader-election-name=portolan"
        ])
    );
    let one = arguments(hook("watchNamespace=team,oam.enabled=true").await);
    assert_eq!(
        one,
        json!([
            "uninstall",
            "--scale-down=portolan",
            "--scale-down-timeout=60s",
            "--timeout=17s",
            "--leader-election-name=portolan",
            "--kubeapps-namespace=team",
            "--kubevela",
            "--namespace=team"
        ])
    );
    let divided = arguments(hook("watchLabelSelector=team=a,fullnameOverride=harbour").await);
    assert_eq!(
        divided.as_array().unwrap()[4..],
        ["--leader-election-name=harbour", "--watch-label-selector=team=a"]
    );
    let arguments = [
        "template",
        "portolan",
        &chart(),
        KUBE_VERSION,
        "--set=uninstallHook.enabled=false",
    ];
    let output = helm(&arguments).await;
    assert!(!String::from_utf8_lossy(&output.stdout).contains("helm.sh/hook"));
}

//! The tutorials that need a cluster, each on a control plane of its own.

use kube::Client;
use portolan::api::oam::crds;
use serde_json::{Value, json};

use super::console::{Reader, blocks};
use super::read;
use super::tutorials::serve_charts;
use crate::cluster::adopting::{create, cron_job, repository};
use crate::oam_apps::kubelet::Kubelet;
use crate::packaging::operations::{kubelet, write_programs};
use crate::support::control_plane::{ControlPlane, tool};
use crate::support::cue::executable;
use crate::support::portolan::{BINARY, Portolan, command, run};
use crate::support::postgres::{PASSWORD, database};
use crate::support::project;

impl Reader {
    /// A reader who may do everything in a cluster, with the programs that the tutorials call.
    pub(super) fn of(control_plane: &ControlPlane) -> Self {
        let mut reader = Self::without_programs();
        write_programs(reader.directory.path());
        reader.link("charts");
        let directory = |name: &str| reader.directory.join(name).display().to_string();
        let environment = [
            ("HELM_CACHE_HOME", directory("cache")),
            ("HELM_CONFIG_HOME", directory("config")),
            ("HELM_DATA_HOME", directory("data")),
            ("KUBECONFIG", control_plane.kubeconfig().display().to_string()),
            ("REAL_KUBECTL", tool("kubectl").display().to_string()),
            ("PORTOLAN", BINARY.to_owned()),
            ("PORTOLAN_CUE_EVALUATOR", executable().display().to_string()),
        ];
        reader.environment = environment.map(|(name, value)| (name.to_owned(), value)).to_vec();
        reader
    }

    async fn follow_page(&self, name: &str) {
        for block in blocks(&read(format!("docs/tutorials/{name}.md").as_ref())) {
            self.follow(&block).await;
        }
    }

    /// Applies objects of the tutorial's starting point.
    async fn apply(&self, objects: &[Value]) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.directory.write("objects.json", list.to_string());
        let output = run(self.shell("kubectl apply --filename objects.json")).await;
        assert!(output.status.success(), "{output:#?}");
    }
}

fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// Creates what Kubeapps has: its definition, its controller with a pod, a repository with its CronJob, and the Secret
/// of the database.
async fn install_kubeapps(reader: &Reader, client: &Client, url: &str) {
    let crd = project("tests/commands/fixture/kubeapps-crd.yaml")
        .display()
        .to_string();
    let output = run(reader.shell(&format!("kubectl apply --server-side --filename {crd}"))).await;
    assert!(output.status.success(), "{output:#?}");
    let labels = json!({ "app.kubernetes.io/component": "apprepository" });
    let ready = ["Ready", "ContainersReady"].map(|type_| json!({ "type": type_, "status": "True" }));
    reader
        .apply(&[
            namespace("kubeapps"),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {
                    "name": "kubeapps-internal-apprepository-controller", "namespace": "kubeapps", "labels": labels,
                },
                "spec": {
                    "selector": { "matchLabels": labels },
                    "template": {
                        "metadata": { "labels": labels },
                        "spec": { "containers": [{ "name": "controller", "image": "apprepository-controller" }] },
                    },
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": "kubeapps-postgresql", "namespace": "kubeapps" },
                "stringData": { "postgres-password": PASSWORD },
            }),
            json!({
                "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
                "metadata": { "name": "stable", "namespace": "kubeapps" },
                "spec": { "type": "helm", "url": url },
            }),
        ])
        .await;
    let job = cron_job("apprepo-kubeapps-sync-stable", &repository("kubeapps", "stable"));
    create(client, "kubeapps", job).await;
    let status = json!({ "status": { "phase": "Running", "conditions": ready } });
    let patch = format!(
        "kubectl wait --for=create pod --selector app.kubernetes.io/component=apprepository --namespace kubeapps
         for pod in $(kubectl get pods --namespace kubeapps --output name); do
             kubectl patch $pod --namespace kubeapps --subresource status --type merge --patch '{status}'
         done"
    );
    let output = run(reader.shell(&patch)).await;
    assert!(output.status.success(), "{output:#?}");
}

async fn follow_from_kubeapps(control_plane: &ControlPlane) {
    let mut reader = Reader::of(control_plane);
    let (server, database) = (serve_charts().await, database().await);
    let url = server.url("");
    install_kubeapps(&reader, &control_plane.client().await, &url).await;
    reader.substitutes = vec![
        ("https://charts.example.com".to_owned(), url),
        (
            "postgres://postgres@kubeapps-postgresql:5432/assets".to_owned(),
            database.url.replace(&format!(":{PASSWORD}@"), "@"),
        ),
    ];
    reader
        .environment
        .push(("PORTOLAN_DATABASE_URL".to_owned(), database.url.clone()));
    reader.follow_page("from-kubeapps").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tutorial_replaces_kubeapps_controller_and_goes_back() {
    let control_plane = ControlPlane::start().await;
    tokio::select! {
        () = kubelet::serve(&control_plane, "kubeapps") => {}
        () = follow_from_kubeapps(&control_plane) => {}
    }
}

/// Creates what KubeVela has: its definitions, and an Application that was deployed. Portolan stands for vela-core,
/// whose formats it keeps.
async fn install_kubevela(reader: &Reader, control_plane: &ControlPlane) {
    for crd in crds() {
        control_plane.install_crd(&crd).await;
    }
    reader.apply(&[namespace("vela-system"), namespace("shop")]).await;
    let definitions = project("definitions").display().to_string();
    let apply = format!("kubectl apply --recursive --namespace vela-system --filename {definitions}");
    let output = run(reader.shell(&apply)).await;
    assert!(output.status.success(), "{output:#?}");
    let mut vela_core = command(["run", "--controllers=oam", "--enable-leader-election=false"]);
    vela_core
        .arg(format!("--cue-evaluator={}", executable().display()))
        .env("KUBECONFIG", control_plane.kubeconfig());
    let mut vela_core = Portolan::start(vela_core);
    let web = json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "components": [{
            "name": "web", "type": "webservice",
            "properties": { "image": "nginx:1.27", "ports": [{ "port": 80, "expose": true }] },
            "traits": [{ "type": "scaler", "properties": { "replicas": 2 } }],
        }] },
    });
    reader.apply(&[web]).await;
    let wait = "kubectl wait --for=jsonpath={.status.status}=running applications.core.oam.dev/web --namespace shop --timeout=2m";
    let output = run(reader.shell(wait)).await;
    assert!(output.status.success(), "{output:#?}\n{:#?}", vela_core.lines());
    vela_core.signal("TERM");
    vela_core.exit(crate::support::eventually::SOON).await;
}

async fn follow_from_kubevela(control_plane: &ControlPlane) {
    let reader = Reader::of(control_plane);
    let _kubelet = Kubelet::start(control_plane.client().await, Some("shop"));
    install_kubevela(&reader, control_plane).await;
    reader.follow_page("from-kubevela").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tutorial_hands_over_one_application_and_hands_it_back() {
    let control_plane = ControlPlane::start().await;
    tokio::select! {
        () = kubelet::serve(&control_plane, "portolan") => {}
        () = follow_from_kubevela(&control_plane) => {}
    }
}

//! A running Portolan on an API server of its own, with a tenant that declares one object for each of its controllers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use portolan::api::crds;
use serde_json::{Value, json};

use super::arena::{RECOVERY, Round, until_not_alive};
use super::objects::ObjectFault;
use super::{BESIDE, INDEX};
use crate::applications::{self, resource};
use crate::oam_apps::apps::{config, spec};
use crate::oam_apps::{self, setup};
use crate::support::chart_server::{ChartServer, Page};
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::support::cue;
use crate::support::eventually::{SOON, eventually, try_eventually};
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::{Portolan, command};
use crate::support::process::ScratchDir;

pub const REPOSITORY: &str = "kubeapps.com/v1alpha1 AppRepository";
/// Namespaces of hostile tenants: as many as Portolan has workers for reconciles.
const HOSTILE: usize = 4;
/// The API server takes seconds to write an object of 1.3 MB.
const WRITES: Duration = Duration::from_secs(180);
/// The budget of a container of 512 MiB, of which evaluators may take 256.
const BUDGET: &str = "85Mi";

pub struct Cluster {
    _control_plane: ControlPlane,
    pub proxy: FaultProxy,
    pub hostile: Vec<String>,
    pub portolan: Portolan,
    honest: String,
    charts: ChartServer,
    client: Client,
    kubeconfig: PathBuf,
    directory: ScratchDir,
    rounds: usize,
}

impl Cluster {
    pub async fn new() -> Self {
        let control_plane = ControlPlane::start_for_large_objects().await;
        setup::install(&control_plane).await;
        for crd in crds() {
            control_plane.install_crd(&crd).await;
        }
        let charts = ChartServer::start().await;
        charts.serve("/index.yaml", Page::new(INDEX.to_owned()));
        let proxy = FaultProxy::in_front_of(&control_plane).await;
        let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
        let directory = ScratchDir::new("cluster");
        let portolan = start(&kubeconfig, &directory).await;
        let mut hostile = Vec::new();
        for _ in 0..HOSTILE {
            hostile.push(control_plane.namespace().await);
        }
        Self {
            client: control_plane.client().await,
            honest: control_plane.namespace().await,
            _control_plane: control_plane,
            proxy,
            hostile,
            portolan,
            charts,
            kubeconfig,
            directory,
            rounds: 0,
        }
    }

    /// Ends Portolan and starts another process.
    pub async fn restart(&mut self) {
        self.portolan.signal("TERM");
        self.portolan.exit(SOON).await;
        self.portolan = start(&self.kubeconfig, &self.directory).await;
    }

    /// Injects a fault, keeps it for a time, lifts it, and waits for recovery. An error says what went wrong.
    pub async fn round(&mut self, fault: ObjectFault, hold: Duration) -> Result<Round, String> {
        self.rounds += 1;
        let name = format!("newcomer-{}", self.rounds);
        fault.inject(self).await;
        let liveness = tokio::spawn(until_not_alive(self.portolan.address().to_owned()));
        let held = Instant::now();
        let during = self.during(&name).await;
        tokio::time::sleep(hold.saturating_sub(held.elapsed())).await;
        fault.lift(self).await;

        let lifted = Instant::now();
        self.declare("resident", &self.rounds.to_string()).await;
        self.until_served("resident", &self.rounds.to_string(), RECOVERY)
            .await?;
        let recovered = lifted.elapsed();
        match self.portolan.get("/readyz?verbose").await {
            Ok((200, _)) => {}
            answer => return Err(format!("/readyz: {answer:?}")),
        }
        if liveness.is_finished() {
            return Err(liveness.await.unwrap());
        }
        liveness.abort();
        during.map(|round| Round { recovered, ..round })
    }

    /// Declares and deletes objects of the honest tenant.
    async fn during(&self, name: &str) -> Result<Round, String> {
        self.declare(name, "one").await;
        let ready = self.until_served(name, "one", BESIDE).await?;
        for kind in [REPOSITORY, applications::APPLICATION, oam_apps::APPLICATION] {
            let api = self.api(kind, &self.honest);
            let deleted = api.delete(name, &DeleteParams::default()).await;
            deleted.map_err(|error| error.to_string())?;
        }
        let deleted = self.until_gone(name, BESIDE).await?;
        Ok(Round {
            ready: Some(ready),
            deleted: Some(deleted),
            ..Round::default()
        })
    }

    /// Declares a repository, an Application of KubeVela with a ConfigMap, and an Application that selects the ConfigMap.
    pub async fn declare(&self, name: &str, value: &str) {
        let repository = json!({ "spec": { "type": "helm", "url": self.charts.url("") } });
        self.apply(REPOSITORY, name, repository).await;
        let app = json!({ "spec": spec(&[config(name, value)]) });
        self.apply(oam_apps::APPLICATION, name, app).await;
        let application = json!({ "spec": {
            "componentKinds": [{ "group": "", "kind": "ConfigMap" }],
            "selector": { "matchLabels": { "app.oam.dev/name": name } },
        } });
        self.apply(applications::APPLICATION, name, application).await;
    }

    async fn apply(&self, kind: &str, name: &str, object: Value) {
        self.apply_in(&self.honest, kind, name, object).await;
    }

    /// Applies an object, which may exist from an earlier round.
    async fn apply_in(&self, namespace: &str, kind: &str, name: &str, mut object: Value) {
        let (version, word) = kind.split_once(' ').unwrap();
        (object["apiVersion"], object["kind"]) = (version.into(), word.into());
        object["metadata"]["name"] = name.into();
        let apply = PatchParams::apply("tests").force();
        let api = self.api(kind, namespace);
        api.patch(name, &apply, &Patch::Apply(object)).await.unwrap();
    }

    /// Waits until all three controllers have served what the honest tenant declared, and returns how long that took.
    pub async fn until_served(&self, name: &str, value: &str, deadline: Duration) -> Result<Duration, String> {
        let started = Instant::now();
        let served = try_eventually(deadline, "what is declared to be served", async || {
            let (repository, application) = (
                self.get(REPOSITORY, name).await?,
                self.get(applications::APPLICATION, name).await?,
            );
            let (app, object) = (
                self.get(oam_apps::APPLICATION, name).await?,
                self.get(oam_apps::CONFIG_MAP, name).await?,
            );
            let is_served = repository["status"]["lastSync"]["charts"] == 1
                && application["status"]["componentsReady"] == "1/1"
                && app["status"]["status"] == "running"
                && object["data"]["key"] == value;
            let statuses = || json!([repository["status"], application["status"], app["status"]]).to_string();
            is_served.then_some(()).ok_or_else(statuses)
        });
        served.await.map(|()| started.elapsed())
    }

    async fn until_gone(&self, name: &str, deadline: Duration) -> Result<Duration, String> {
        let started = Instant::now();
        let gone = try_eventually(deadline, "what is deleted to be gone", async || {
            for kind in [
                REPOSITORY,
                applications::APPLICATION,
                oam_apps::APPLICATION,
                oam_apps::CONFIG_MAP,
            ] {
                if !self.get(kind, name).await?.is_null() {
                    return Err(format!("{kind} {name} is still there"));
                }
            }
            Ok(())
        });
        gone.await.map(|()| started.elapsed())
    }

    /// Returns an object of the honest tenant, or null.
    async fn get(&self, kind: &str, name: &str) -> Result<Value, String> {
        let found = self.api(kind, &self.honest).get_opt(name).await;
        found.map(|object| json!(object)).map_err(|error| error.to_string())
    }

    pub fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        match kind {
            oam_apps::TRACKER => Api::all_with(self.client.clone(), &resource(kind)),
            _ => Api::namespaced_with(self.client.clone(), namespace, &resource(kind)),
        }
    }

    /// Creates `count` objects named `hostile-N` in a hostile namespace, two at a time: the API server takes gigabytes for
    /// more of the largest.
    pub async fn attack(&self, kind: &str, namespace: usize, count: usize, object: impl Fn(usize) -> Value) {
        let (version, word) = kind.split_once(' ').unwrap();
        let api = self.api(kind, &self.hostile[namespace]);
        let created = stream::iter(0..count).map(|number| {
            let mut object = object(number);
            (object["apiVersion"], object["kind"]) = (version.into(), word.into());
            object["metadata"]["name"] = format!("hostile-{number}").into();
            let (object, api): (DynamicObject, _) = (serde_json::from_value(object).unwrap(), api.clone());
            async move {
                eventually(WRITES, &format!("{kind} to be created"), async || {
                    match api.create(&PostParams::default(), &object).await {
                        Ok(_) => Ok(()),
                        // By a request that timed out.
                        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                        Err(error) => Err(error.to_string()),
                    }
                })
                .await;
            }
        });
        created.buffer_unordered(2).collect::<Vec<()>>().await;
    }

    /// Deletes the hostile objects of a kind, and waits until they are gone. The API server holds them parsed, too.
    pub async fn withdraw(&self, kind: &str) {
        for namespace in &self.hostile {
            let api = self.api(kind, namespace);
            eventually(WRITES, &format!("{kind} to be gone"), async || {
                let listed = api.list_metadata(&ListParams::default()).await;
                let listed = listed.map_err(|error| error.to_string())?.items.into_iter();
                let names = listed.filter_map(|object| object.metadata.name);
                let left: Vec<String> = names.filter(|name| name.starts_with("hostile-")).collect();
                for name in &left {
                    match api.delete(name, &DeleteParams::default()).await {
                        Err(kube::Error::Api(status)) if status.code == 404 => {}
                        deleted => drop(deleted.map_err(|error| error.to_string())?),
                    }
                }
                left.is_empty().then_some(()).ok_or_else(|| left.join(", "))
            })
            .await;
        }
    }

    /// Waits until the status of a hostile object has these words.
    pub async fn until_said(&self, kind: &str, name: &str, words: &str) {
        let api = self.api(kind, &self.hostile[0]);
        eventually(SOON, &format!("{kind} {name} to say {words}"), async || {
            let found = json!(api.get_opt(name).await.map_err(|error| error.to_string())?);
            let status = found["status"].to_string();
            status.contains(words).then_some(()).ok_or(status)
        })
        .await;
    }

    /// Allows the default ServiceAccount of a hostile namespace everything there.
    pub async fn allow(&self, namespace: usize) {
        let namespace = &self.hostile[namespace];
        let binding = json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": namespace }],
        });
        self.apply_in(
            namespace,
            "rbac.authorization.k8s.io/v1 RoleBinding",
            "hostile",
            binding,
        )
        .await;
    }
}

async fn start(kubeconfig: &Path, directory: &ScratchDir) -> Portolan {
    let database = format!("sqlite://{}", directory.join("portolan.db").display());
    let mut command = command(["run", "--controllers=apprepository,application,oam"]);
    command.args(["--database-url", &database, "--compat-version=UNKNOWN"]);
    command.arg(format!("--memory-budget={BUDGET}"));
    command.arg(format!("--cue-evaluator={}", cue::executable().display()));
    command.arg("--kubeconfig").arg(kubeconfig);
    let portolan = Portolan::start(command);
    // The API server of these tests has no watch cache, and takes long to list large objects.
    portolan.ready(3 * SOON).await;
    portolan.with_probes()
}

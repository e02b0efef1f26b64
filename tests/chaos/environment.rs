//! The surroundings of one run: a namespace, a database and a chart server, each behind a proxy.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::clusters::Joined;
use super::point::Keys;
use super::scenario::Scenario;
use super::webhooks::reviewed;
use crate::applications::resource;
use crate::news::sink_server::{Answer, SinkServer};
use crate::oam_webhooks::site::Reviewed;
use crate::support::chart_server::ChartServer;
use crate::support::control_plane::ADMIN_TOKEN;
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;
use crate::support::forward::Upstream;
use crate::support::portolan::command;
use crate::support::postgres::{PASSWORD, TestDatabase, database};
use crate::support::postgres_proxy::PostgresProxy;

/// Longer than any backoff that one fault causes: a chart file is tried again after a minute.
pub const DEADLINE: Duration = Duration::from_secs(150);

pub const LEASE: &str = "coordination.k8s.io/v1 Lease";
/// A Lease that belongs to the scenario.
pub const OLD_LEASE: &str = "portolan-7";

/// The name of the namespace of definitions in all runs.
pub const DEFINITIONS: &str = "DEFINITIONS";

/// Begins kinds of objects in the joined cluster, and points of requests to it.
pub const JOINED: &str = "joined: ";
pub const JOINED_CONFIG_MAP: &str = "joined: v1 ConfigMap";

pub struct Environment {
    pub namespace: String,
    pub client: Client,
    pub api: FaultProxy,
    pub pages: FaultProxy,
    pub server: ChartServer,
    pub database: TestDatabase,
    pub commits: PostgresProxy,
    kubeconfig: PathBuf,
    direct_kubeconfig: PathBuf,
    /// The namespace of Jobs.
    jobs: Option<String>,
    pub joined: Option<Joined>,
    pub reviewed: Option<Reviewed>,
    /// Receives the news.
    pub sink: Option<SinkServer>,
}

impl Environment {
    pub async fn new(scenario: Scenario) -> Self {
        let control_plane = scenario.control_plane().await;
        let jobs = match scenario {
            Scenario::Jobs => Some(control_plane.namespace().await),
            _ => None,
        };
        let joined = match scenario {
            Scenario::Clusters => Some(Joined::new().await),
            _ => None,
        };
        let reviewed = match scenario {
            Scenario::Webhooks => Some(reviewed().await),
            _ => None,
        };
        let sink = match scenario {
            Scenario::News => Some(SinkServer::start(Answer::Status(200)).await),
            _ => None,
        };
        let sites = joined.iter().map(|joined| &joined.fleet.site);
        let mut sites = sites.chain(reviewed.iter().map(|reviewed| &reviewed.site));
        let namespace = match sites.next() {
            Some(site) => site.namespace.clone(),
            None => control_plane.namespace().await,
        };
        let api = FaultProxy::in_front_of(control_plane).await;
        let server = ChartServer::start().await;
        let pages = FaultProxy::to(Upstream::new(&server.url(""), None)).await;
        let database = database().await;
        let commits = PostgresProxy::in_front_of(&database).await;
        Self {
            namespace,
            client: control_plane.client().await,
            kubeconfig: control_plane.kubeconfig_for(&api.url(), ADMIN_TOKEN),
            direct_kubeconfig: control_plane.kubeconfig(),
            jobs,
            joined,
            reviewed,
            sink,
            api,
            pages,
            server,
            database,
            commits,
        }
    }

    /// Returns the command that runs Portolan behind the proxies.
    pub fn command(&self, arguments: &[String]) -> Command {
        let url = match self.jobs {
            // Pods take the password from a Secret.
            Some(_) => self.commits.url.replace(&format!(":{PASSWORD}@"), "@"),
            None => self.commits.url.clone(),
        };
        self.run(&url, &self.kubeconfig, arguments)
    }

    /// Returns the command that runs Portolan without proxies.
    pub fn direct_command(&self, arguments: &[String]) -> Command {
        self.run(&self.database.url, &self.direct_kubeconfig, arguments)
    }

    fn run(&self, database_url: &str, kubeconfig: &Path, arguments: &[String]) -> Command {
        let mut command = command(["run", "--watch-namespace", &self.namespace]);
        command.args(["--database-url", database_url]);
        command.arg("--kubeconfig").arg(kubeconfig).args(arguments);
        command
    }

    /// Returns the names under which requests of this run are recorded.
    pub fn keys(&self) -> Keys {
        Keys::of(self.namespaces())
    }

    /// Returns the namespaces of this run, each with a name that is the same in all runs.
    pub fn namespaces(&self) -> Vec<(String, &'static str)> {
        let jobs = self.jobs.iter().map(|jobs| (jobs.clone(), "JOBS"));
        let joined = self.joined.iter();
        let definitions = joined.map(|joined| (joined.fleet.definitions.clone(), DEFINITIONS));
        let own = (self.namespace.clone(), "NS");
        [own].into_iter().chain(jobs).chain(definitions).collect()
    }

    /// Returns the proxies of the API servers.
    pub fn apis(&self) -> impl Iterator<Item = &FaultProxy> {
        [&self.api]
            .into_iter()
            .chain(self.joined.iter().map(|joined| &joined.api))
    }

    /// Returns the proxy whose requests and watches fail.
    pub fn failing_api(&self) -> &FaultProxy {
        self.joined.as_ref().map_or(&self.api, |joined| &joined.api)
    }

    /// Returns the namespace of CronJobs and Jobs.
    pub fn job_namespace(&self) -> &str {
        self.jobs.as_deref().unwrap_or(&self.namespace)
    }

    pub fn api_of(&self, kind: &str) -> Api<DynamicObject> {
        self.api_in(&self.namespace, kind)
    }

    fn api_in(&self, namespace: &str, kind: &str) -> Api<DynamicObject> {
        if let (Some(kind), Some(joined)) = (kind.strip_prefix(JOINED), &self.joined) {
            return joined.fleet.east.api(kind);
        }
        let (client, resource) = (self.client.clone(), resource(kind));
        match kind {
            super::kubevela::TRACKER => Api::all_with(client, &resource),
            _ => Api::namespaced_with(client, namespace, &resource),
        }
    }

    /// Applies an object, as a user.
    pub async fn apply(&self, kind: &str, name: &str, object: Value) {
        // A namespace that was just created has no service account yet, which pods need.
        eventually(DEADLINE, &format!("{kind} {name} to be accepted"), async || {
            self.try_apply(kind, name, object.clone()).await
        })
        .await;
    }

    /// Applies an object in another namespace.
    pub async fn apply_in(&self, namespace: &str, kind: &str, name: &str, object: Value) {
        apply(&self.api_in(namespace, kind), kind, name, object).await.unwrap();
    }

    /// Applies an object once.
    pub async fn try_apply(&self, kind: &str, name: &str, object: Value) -> kube::Result<()> {
        apply(&self.api_of(kind), kind, name, object).await
    }

    /// Merges a change into an object.
    pub async fn edit(&self, kind: &str, name: &str, change: Value) {
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(change));
        self.api_of(kind).patch(name, &parameters, &patch).await.unwrap();
    }

    /// Writes the status of an object, like its controller.
    pub async fn edit_status(&self, kind: &str, name: &str, status: Value) {
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(json!({ "status": status })));
        self.api_of(kind).patch_status(name, &parameters, &patch).await.unwrap();
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.api_of(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes an object after what it owns.
    pub async fn delete_in_foreground(&self, kind: &str, name: &str) {
        self.api_of(kind)
            .delete(name, &DeleteParams::foreground())
            .await
            .unwrap();
    }

    pub async fn until_gone(&self, kind: &str, name: &str) {
        let api = self.api_of(kind);
        eventually(DEADLINE, &format!("{kind} {name} to be gone"), async || {
            match api.get_opt(name).await.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(object) => Err(format!("{:?}", object.metadata)),
            }
        })
        .await;
    }

    /// Waits until an object fits.
    pub async fn until(&self, kind: &str, name: &str, what: &str, fits: impl Fn(&Value) -> bool) {
        let api = self.api_of(kind);
        eventually(DEADLINE, &format!("{kind} {name}: {what}"), async || {
            let object = json!(api.get(name).await.map_err(|error| error.to_string())?);
            if fits(&object) {
                Ok(())
            } else {
                Err(object["status"].to_string())
            }
        })
        .await;
    }

    /// Returns the objects of a kind in the namespaces of this run.
    pub async fn list(&self, kind: &str) -> Vec<DynamicObject> {
        let mut all = Vec::new();
        for namespace in [Some(&self.namespace), self.jobs.as_ref()].into_iter().flatten() {
            let api = self.api_in(namespace, kind);
            let what = format!("a list of {kind}");
            let list = eventually(SOON, &what, async || api.list(&ListParams::default()).await);
            all.extend(list.await.items);
        }
        all
    }

    /// Deletes the leases of a process that was killed; they would expire.
    pub async fn expire_leases(&self) {
        let others = ListParams::default().fields(&format!("metadata.name!={OLD_LEASE}"));
        let leases = self.api_of(LEASE);
        leases
            .delete_collection(&DeleteParams::default(), &others)
            .await
            .unwrap();
    }
}

async fn apply(api: &Api<DynamicObject>, kind: &str, name: &str, mut object: Value) -> kube::Result<()> {
    let (version, word) = kind.split_once(' ').expect("a version and a kind");
    object["apiVersion"] = version.into();
    object["kind"] = word.into();
    object["metadata"]["name"] = name.into();
    let apply = PatchParams::apply("tests").force();
    api.patch(name, &apply, &Patch::Apply(object)).await.map(drop)
}

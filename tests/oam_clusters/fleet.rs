//! A namespace for Applications, and the same namespace in the clusters that they deploy to.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::applications::resource;
use crate::oam_apps::apps::with_policies;
use crate::oam_apps::setup;
use crate::oam_apps::site::{Site, condition};
use crate::oam_apps::{APPLICATION, CONFIG_MAP};
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane, joined_control_plane};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::Portolan;

/// Steps that fail are tried again until the cause is gone.
pub const PATIENT: &str = "--max-workflow-step-error-retry-times=100000";
pub const TOKEN: &str = "ServiceAccountToken";
pub const CERTIFICATE: &str = "X509Certificate";
const CREDENTIAL_TYPE: &str = "cluster.core.oam.dev/cluster-credential-type";
const ENDPOINT_TYPE: &str = "cluster.core.oam.dev/cluster-endpoint-type";
/// The part of the starter set that these tests use.
const DEFINITIONS: [&str; 12] = [
    "apply-component",
    "apply-object",
    "collect-service-endpoints",
    "deploy",
    "export-data",
    "export-service",
    "export2config",
    "k8s-objects",
    "read-object",
    "ref-objects",
    "scaler",
    "webservice",
];

pub struct Fleet {
    /// The controller's own cluster.
    pub site: Site,
    /// A cluster that is joined by this name.
    pub east: Site,
    /// Holds the definitions and the Secrets of clusters.
    pub definitions: String,
}

impl Fleet {
    /// A new namespace of two control planes, of which the second one is joined as `east`.
    pub async fn new() -> Self {
        let fleet = Self::without_clusters().await;
        fleet.join("east", &fleet.east).await;
        fleet
    }

    /// Same, but nothing is joined.
    pub async fn without_clusters() -> Self {
        let site = Site::new().await;
        let definitions = site.control_plane.namespace().await;
        for definition in setup::starter_set() {
            if DEFINITIONS.contains(&setup::name(&definition)) {
                setup::put(site.control_plane, &definitions, definition).await;
            }
        }
        Self {
            east: in_namespace_of(&site, joined_control_plane(0).await).await,
            site,
            definitions,
        }
    }

    /// Returns another cluster, which is not joined.
    pub async fn west(&self) -> Site {
        in_namespace_of(&self.site, joined_control_plane(1).await).await
    }

    /// Joins one more cluster as `west`.
    pub async fn with_west(&self) -> Site {
        let west = self.west().await;
        self.join("west", &west).await;
        west
    }

    /// Joins a cluster with an administrator's token.
    pub async fn join(&self, name: &str, cluster: &Site) {
        let data = credential(cluster, &cluster.control_plane.url());
        self.join_with(name, TOKEN, json!({}), data).await;
    }

    /// Joins a proxy of a cluster.
    pub async fn join_proxy(&self, name: &str, cluster: &Site) -> FaultProxy {
        let proxy = FaultProxy::in_front_of_tls(cluster.control_plane).await;
        self.join_with(name, TOKEN, json!({}), credential(cluster, &proxy.url()))
            .await;
        proxy
    }

    /// Creates or replaces the Secret of a cluster, as `vela cluster join` writes it.
    pub async fn join_with(&self, name: &str, type_: &str, mut labels: Value, data: Value) {
        labels[CREDENTIAL_TYPE] = type_.into();
        if labels[ENDPOINT_TYPE].is_null() {
            labels[ENDPOINT_TYPE] = "Const".into();
        }
        self.put_secret(name, "Opaque", &labels, &data).await;
    }

    /// Creates or replaces a Secret beside the definitions.
    pub async fn put_secret(&self, name: &str, type_: &str, labels: &Value, data: &Value) {
        let data = data.as_object().unwrap().iter();
        let data: BTreeMap<_, _> = data
            .map(|(key, text)| (key, ByteString(text.as_str().unwrap().as_bytes().to_vec())))
            .collect();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": type_, "data": data,
            "metadata": { "name": name, "labels": labels },
        });
        let apply = PatchParams::apply("tests").force();
        let secrets = self.secrets().await;
        secrets.patch(name, &apply, &Patch::Apply(secret)).await.unwrap();
    }

    /// Deletes the Secret of a cluster.
    pub async fn detach(&self, name: &str) {
        let secrets = self.secrets().await;
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.site.control_plane.client().await, &self.definitions)
    }

    /// Starts Portolan, and waits until it is ready.
    pub async fn portolan(&self, more: &[&str]) -> Portolan {
        let kubeconfig = self.site.control_plane.kubeconfig();
        let portolan = self.site.start(&kubeconfig, &self.flags(more));
        portolan.ready(SOON).await;
        portolan
    }

    /// Returns the flags of a process for these clusters.
    pub fn flags<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let own = ["--system-definition-namespace", &self.definitions];
        own.into_iter().chain(more.iter().copied()).collect()
    }

    /// Returns all records of an Application's objects in a cluster.
    pub async fn records(&self, app: &str, cluster: &str) -> Vec<Value> {
        let trackers = self.site.trackers(app).await;
        let entries = trackers
            .iter()
            .flat_map(|tracker| tracker["spec"]["managedResources"].as_array().into_iter().flatten());
        entries.filter(|entry| entry["cluster"] == cluster).cloned().collect()
    }

    /// Waits until an Application says that objects in a cluster are still to be deleted.
    pub async fn until_waiting(&self, app: &str, cluster: &str) {
        let what = format!("to wait for the deletion in {cluster}");
        self.site
            .until(APPLICATION, app, &what, |app| {
                let ready = condition(app, "Ready");
                let message = ready["message"].as_str().unwrap_or_default();
                ready["status"] == "False" && ready["reason"] == "Deleting" && message.contains(cluster)
            })
            .await;
    }

    /// Waits until these Applications run, which may take longer than a single one.
    pub async fn until_all_running(&self, apps: &[String], deadline: Duration) {
        eventually(deadline, "all Applications to run", async || {
            for name in apps {
                let app = self.site.get(APPLICATION, name).await.unwrap();
                if app["status"]["status"] != "running" {
                    return Err(format!("{name}: {:#}", app["status"]));
                }
            }
            Ok(())
        })
        .await;
    }
}

/// Returns the data of a Secret with an administrator's token for a cluster, reached at this address.
pub fn credential(cluster: &Site, endpoint: &str) -> Value {
    json!({ "endpoint": endpoint, "ca.crt": cluster.control_plane.ca_pem(), "token": ADMIN_TOKEN })
}

async fn in_namespace_of(site: &Site, control_plane: &'static ControlPlane) -> Site {
    setup::namespace(control_plane, &site.namespace).await;
    Site::of(control_plane, site.namespace.clone()).await
}

/// Returns the objects of a kind that has no namespace.
pub async fn cluster_scoped(cluster: &Site, kind: &str) -> Api<DynamicObject> {
    Api::all_with(cluster.control_plane.client().await, &resource(kind))
}

/// Edits the ConfigMap of `config` in a cluster, and waits until that is undone.
pub async fn assert_kept(cluster: &Site, name: &str, value: &str) {
    let drift = json!({ "data": { "key": "drift" } });
    cluster.edit(CONFIG_MAP, name, drift).await;
    cluster.until(CONFIG_MAP, name, "restored", has(value)).await;
}

/// Returns true for the ConfigMap of `config` with this value.
pub fn has(value: &str) -> impl Fn(&Value) -> bool {
    move |object| object["data"]["key"] == value
}

/// A spec whose components are placed in clusters.
pub fn placed(components: &[Value], clusters: &[&str]) -> Value {
    placed_by(components, json!({ "clusters": clusters }))
}

/// A spec whose components are placed by the properties of a topology.
pub fn placed_by(components: &[Value], topology: Value) -> Value {
    with_policies(components, &[("topology", topology)])
}

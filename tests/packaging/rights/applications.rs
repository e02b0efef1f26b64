//! KubeVela's Applications and definitions, without cluster-admin.

use std::collections::HashSet;
use std::sync::Mutex;

use axum::http::Method;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::PostParams;
use portolan::api::oam::labels::{MASTER_SHARD, SHARD_ID};
use serde_json::{Value, json};

use super::{Grant, compare};
use crate::oam_apps::apps::{config, web, with_policies};
use crate::oam_apps::{APPLICATION, REVISION, site::Site};
use crate::packaging::release::{container_for, install_in, pod, restricted_namespace, run_to_end};
use crate::support::control_plane::{ADMIN_TOKEN, control_plane, joined_control_plane};
use crate::support::cue::executable;
use crate::support::eventually::SOON;
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;

const DEFINITIONS: [&str; 4] = [
    "ComponentDefinition",
    "PolicyDefinition",
    "TraitDefinition",
    "WorkflowStepDefinition",
];

/// The objects of the Application below.
const RULES: &str = r#"--set-json=oam.rules=[{"apiGroups": ["apps"], "resources": ["deployments"],
    "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}, {"apiGroups": [""],
    "resources": ["services"], "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubevelas_applications_need_exactly_the_granted_rights() {
    let site = Site::new().await;
    let namespace = restricted_namespace().await;
    let settings = format!(
        "--set=watchNamespace={},oam.enabled=true,oam.clusterAdmin=false,oam.definitions.install=true,\
         oam.definitions.namespace={namespace},oam.clusters.enabled=true,allowLoopback=true,leaderElection.enabled=true,\
         oam.args={{--controllers=oam,--enable-sharding,--application-revision-limit=1,--definition-revision-limit=1,\
         --application-re-sync-period=5s}}",
        site.namespace
    );
    install_in(&namespace, &[&settings, RULES]).await;
    let proxy = FaultProxy::in_front_of(control_plane().await).await;
    for container in pod(&namespace).await.init_containers.unwrap() {
        run_to_end(&namespace, container, &proxy.url()).await;
    }
    let kinds = Mutex::default();
    proxy.inject(usize::MAX, ApiFault::Status(409), move |request: &ApiRequest| {
        is_first_write(&kinds, request)
    });
    let mut command = container_for(&namespace, &proxy.url(), "sqlite:///nonexistent/portolan.db").await;
    command.arg("--cue-evaluator").arg(executable());
    let portolan = Portolan::start(command);
    portolan.ready(SOON).await;
    story(&site).await;
    deploy_to_joined_cluster(&site, &namespace).await;
    let is_excepted = |grant: &Grant| match grant.resource.as_str() {
        "apps/deployments" | "/services" => true,
        // Read only after a conflict with a revision that the cache lacks.
        "core.oam.dev/applicationrevisions" => grant.verb == "get",
        // Read only if a webhook guards the group, which would disturb other tests.
        "discovery.k8s.io/endpointslices" => true,
        // Used only with cluster-gateway, and with Open Cluster Management.
        "cluster.core.oam.dev/clustergateways/proxy" | "cluster.open-cluster-management.io/managedclusters" => true,
        // The tests have installed the CRDs before.
        "apiextensions.k8s.io/customresourcedefinitions" => matches!(grant.verb.as_str(), "create" | "patch"),
        _ => false,
    };
    compare(&namespace, &proxy, is_excepted).await;
}

/// Two components in separate steps, a workflow that passes values on, and revisions of an Application and definitions.
async fn story(site: &Site) {
    let read = |name: &str| {
        json!({
            "name": name, "type": "read-object",
            "properties": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": site.namespace },
            "outputs": [{ "name": format!("{name}-kind"), "valueFrom": "output.$returns.value.kind" }],
        })
    };
    let apply = |name: &str| json!({ "name": name, "type": "apply-component", "properties": { "component": name } });
    for number in 1..=3 {
        let steps = [apply("web"), read("first"), read("second"), apply("api")];
        let components = [web("web", number), web("api", 1)];
        let spec = json!({ "components": components, "workflow": { "steps": steps } });
        site.declare("shop", spec).await;
        site.until_running("shop").await;
        for kind in DEFINITIONS {
            define(site, kind, number).await;
        }
    }
    // The revision has the labels of the Application. That of the shard is written alone.
    let labels = json!({ "metadata": { "labels": { "tier": "web", SHARD_ID: MASTER_SHARD } } });
    site.edit(APPLICATION, "shop", labels).await;
    let is_labeled = |revision: &Value| {
        let labels = &revision["metadata"]["labels"];
        labels["tier"] == "web" && labels[SHARD_ID] == MASTER_SHARD
    };
    site.until(REVISION, "shop-v3", "the label", is_labeled).await;
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
}

/// Joins a cluster, deploys an Application there, and deletes it.
async fn deploy_to_joined_cluster(site: &Site, definitions: &str) {
    let joined = joined_control_plane(0).await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": site.namespace } });
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    let namespaces: Api<Namespace> = Api::all(joined.client().await);
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let labels = json!({ "cluster.core.oam.dev/cluster-credential-type": "ServiceAccountToken" });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "edge", "labels": labels },
        "stringData": { "endpoint": joined.url(), "ca.crt": joined.ca_pem(), "token": ADMIN_TOKEN },
    });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let secrets: Api<Secret> = Api::namespaced(control_plane().await.client().await, definitions);
    secrets.create(&PostParams::default(), &secret).await.unwrap();

    let topology = ("topology", json!({ "clusters": ["edge"] }));
    site.declare("far", with_policies(&[config("far", "there")], &[topology]))
        .await;
    site.until_running("far").await;
    site.delete(APPLICATION, "far").await;
    site.until_gone(APPLICATION, "far").await;
}

/// Changes a definition, so that it gets a revision.
async fn define(site: &Site, kind: &str, number: usize) {
    let name = kind.to_lowercase();
    let mut spec = json!({ "schematic": { "cue": { "template": format!("parameter: number: *{number} | int") } } });
    if kind == "ComponentDefinition" {
        spec["workload"] = json!({ "type": "autodetects.core.oam.dev" });
    }
    let kind = format!("core.oam.dev/v1beta1 {kind}");
    site.apply(&kind, &name, json!({ "spec": spec })).await;
    site.until(&kind, &name, "its revision", |definition| {
        definition["status"]["latestRevision"]["revision"] == number
    })
    .await;
}

/// Returns true for the first creation of each kind of the group, which conflicts, so that the object is read.
fn is_first_write(kinds: &Mutex<HashSet<String>>, request: &ApiRequest) -> bool {
    let kind = request.path.rsplit('/').next().unwrap_or_default();
    let is_status = request.method == Method::PATCH && request.path.contains("/applications/") && kind == "status";
    let is_creation = request.method == Method::POST;
    let is_of_group = request.path.starts_with("/apis/core.oam.dev/");
    is_of_group && (is_creation || is_status) && kinds.lock().unwrap().insert(kind.to_owned())
}

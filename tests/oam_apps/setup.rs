//! The definitions of the group and of the starter set.

use std::fs;

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::applications::resource;
use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::project;

const DEFINITION_NAMESPACE: &str = "vela-system";

/// Returns the shared control plane with everything installed, once for all tests.
pub async fn shared() -> &'static ControlPlane {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let server = control_plane().await;
    INSTALLED.get_or_init(|| install(server)).await;
    server
}

/// Installs the CRDs and the starter set.
pub async fn install(server: &ControlPlane) {
    for crd in portolan::api::oam::crds() {
        server.install_crd(&crd).await;
    }
    namespace(server, DEFINITION_NAMESPACE).await;
    for definition in starter_set() {
        put(server, DEFINITION_NAMESPACE, definition).await;
    }
}

/// Returns the definitions of the project.
pub fn starter_set() -> Vec<Value> {
    let directories = ["components", "policies", "traits", "workflowsteps"];
    let files = directories
        .iter()
        .flat_map(|directory| fs::read_dir(project("definitions").join(directory)).unwrap());
    files
        .map(|file| serde_yaml::from_str(&fs::read_to_string(file.unwrap().path()).unwrap()).unwrap())
        .collect()
}

/// Creates a namespace by name, unless it exists.
pub async fn namespace(server: &ControlPlane, name: &str) {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let api: Api<DynamicObject> = Api::all_with(server.client().await, &resource("v1 Namespace"));
    let apply = PatchParams::apply("tests").force();
    api.patch(name, &apply, &Patch::Apply(object)).await.unwrap();
}

pub async fn put(server: &ControlPlane, namespace: &str, object: Value) {
    let (resource, name) = (resource(&kind(&object)), name(&object).to_owned());
    let api: Api<DynamicObject> = Api::namespaced_with(server.client().await, namespace, &resource);
    let apply = PatchParams::apply("tests").force();
    api.patch(&name, &apply, &Patch::Apply(object)).await.unwrap();
}

/// Returns version and kind like `apps/v1 Deployment`.
pub fn kind(object: &Value) -> String {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text("apiVersion"), text("kind"))
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

//! Many Applications of one webservice, whose Deployment has no pods, with a ConfigMap.

use std::fs;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use portolan::api::oam::{self, Application};
use serde_json::{Value, json};

use crate::support::control_plane::ControlPlane;
use crate::support::project;

/// Nobody is a node here.
pub const CONTROLLERS: &str = "*,-node-lifecycle-controller,-pod-garbage-collector-controller";
/// The phase of an Application that is deployed and healthy.
pub const RUNNING: &str = "running";
const NAMESPACES: usize = 10;
const DEFINITION_NAMESPACE: &str = "vela-system";
/// Concurrent requests to the API server.
const CONCURRENCY: usize = 16;

/// Applications in separate namespaces.
pub struct Fleet {
    pub size: usize,
    namespaces: Vec<String>,
    client: Client,
}

impl Fleet {
    /// Installs CRDs and definitions, and creates empty namespaces.
    pub async fn new(control_plane: &ControlPlane, size: usize) -> Self {
        for crd in oam::crds() {
            control_plane.install_crd(&crd).await;
        }
        let namespaces = stream::iter(0..NAMESPACES).then(|_| control_plane.namespace());
        let fleet = Self {
            size,
            namespaces: namespaces.collect().await,
            client: control_plane.client().await,
        };
        fleet.install_definitions().await;
        fleet
    }

    async fn install_definitions(&self) {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": DEFINITION_NAMESPACE },
        });
        create(&Api::all_with(self.client.clone(), &resource(&namespace)), namespace).await;
        for directory in ["components", "traits"] {
            let directory = fs::read_dir(project("definitions").join(directory)).expect("the project has definitions");
            for file in directory.flatten() {
                let text = fs::read_to_string(file.path()).expect("a definition can be read");
                let definition: Value = serde_yaml::from_str(&text).expect("a definition is YAML");
                let resource = resource(&definition);
                let api = Api::namespaced_with(self.client.clone(), DEFINITION_NAMESPACE, &resource);
                create(&api, definition).await;
            }
        }
    }

    pub fn applications(&self) -> Api<Application> {
        Api::all(self.client.clone())
    }

    pub fn all_deployments(&self) -> Api<Deployment> {
        Api::all(self.client.clone())
    }

    /// Creates objects like those of the Applications, under other names.
    pub async fn create_objects(&self) {
        let all = stream::iter(0..self.size);
        all.for_each_concurrent(CONCURRENCY, async |number| {
            for object in objects(number) {
                let api = Api::namespaced_with(self.client.clone(), self.namespace(number), &resource(&object));
                create(&api, object).await;
            }
        })
        .await;
    }

    /// Creates all Applications.
    pub async fn create(&self) {
        let all = stream::iter(0..self.size);
        all.for_each_concurrent(CONCURRENCY, async |number| {
            let application = application(number);
            let resource = resource(&application);
            let api = Api::namespaced_with(self.client.clone(), self.namespace(number), &resource);
            create(&api, application).await;
        })
        .await;
    }

    /// Returns the number of events about Applications.
    pub async fn events(&self) -> usize {
        let events: Api<Event> = Api::all(self.client.clone());
        let list = events.list(&ListParams::default()).await;
        let is_of_application = |event: &&Event| {
            let regarding = event.regarding.as_ref().and_then(|object| object.kind.as_deref());
            regarding == Some("Application")
        };
        let list = list.expect("the API server lists events");
        list.iter().filter(is_of_application).count()
    }

    /// Scales a Deployment, as somebody else would.
    pub async fn scale(&self, number: usize, replicas: i32) {
        let (name, parameters) = (component(number), PatchParams::default());
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        let patched = self.deployments(number).patch(&name, &parameters, &patch).await;
        patched.expect("the API server accepts a patch");
    }

    /// Returns the declared replicas of a Deployment.
    pub async fn replicas(&self, number: usize) -> Option<i32> {
        let deployment = self.deployments(number).get(&component(number)).await;
        deployment.expect("the Deployment exists").spec?.replicas
    }

    fn deployments(&self, number: usize) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), self.namespace(number))
    }

    fn namespace(&self, number: usize) -> &str {
        &self.namespaces[number % self.namespaces.len()]
    }
}

/// Returns the phase of an Application.
pub fn phase(application: &Application) -> Option<String> {
    application.status.as_ref().map(|status| status.phase.clone())
}

/// What [`observed`] returns for a Deployment that its controller has seen.
pub const OBSERVED: &str = "observed";

pub fn observed(deployment: &Deployment) -> Option<String> {
    let status = deployment.status.as_ref()?;
    status.observed_generation.map(|_| OBSERVED.to_owned())
}

fn objects(number: usize) -> [Value; 2] {
    let name = format!("alone-{number}");
    let labels = json!({ "app": name });
    let container =
        json!({ "name": name, "image": "registry.example.com/web:1", "ports": [{ "containerPort": 8080 }] });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": 0, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    });
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "setting": "value" },
    });
    [settings, deployment]
}

/// Returns the name of a component, and of its Deployment.
fn component(number: usize) -> String {
    format!("web-{number}")
}

pub fn application(number: usize) -> Value {
    let volume = json!({
        "name": format!("settings-{number}"), "mountPath": "/etc/settings", "data": { "setting": "value" },
    });
    let component = json!({
        "name": component(number),
        "type": "webservice",
        "properties": { "image": "registry.example.com/web:1", "ports": [{ "port": 8080 }] },
        "traits": [
            { "type": "scaler", "properties": { "replicas": 0 } },
            { "type": "storage", "properties": { "configMap": [volume] } },
        ],
    });
    json!({
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": { "name": format!("application-{number}") },
        "spec": { "components": [component] },
    })
}

fn resource(object: &Value) -> ApiResource {
    let text = |key: &str| object[key].as_str().expect("an object has a version and a kind");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", "v1"));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")))
}

async fn create(api: &Api<DynamicObject>, object: Value) {
    let object = serde_json::from_value(object).expect("an object");
    let created = api.create(&PostParams::default(), &object).await;
    created.expect("the API server accepts an object");
}

//! Many Applications and their components. The benchmark writes the statuses that their controllers would write.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use portolan::api::Application;
use serde_json::{Value, json};

use crate::support::control_plane::ControlPlane;
use crate::support::eventually::eventually;

/// Controllers that would overwrite these statuses or compete for CPU are disabled.
pub const CONTROLLERS: &str = "*,-deployment-controller,-replicaset-controller,-statefulset-controller,\
                               -endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller";
/// Kinds of an Application's components, repeated as needed. The readiness of the first one changes.
const KINDS: [&str; 5] = [
    "apps/v1 Deployment",
    "apps/v1 StatefulSet",
    "v1 Service",
    "v1 ConfigMap",
    "apps/v1 Deployment",
];
const APPLICATION: &str = "app.k8s.io/v1beta1 Application";
/// Concurrent requests to the API server.
const CONCURRENCY: usize = 16;

/// Size of a fleet.
#[derive(Clone, Copy)]
pub struct Size {
    pub applications: usize,
    /// Per Application; a multiple of five.
    pub components: usize,
    pub namespaces: usize,
}

/// Applications in separate namespaces.
pub struct Fleet {
    pub size: Size,
    pub namespaces: Vec<String>,
    client: Client,
}

impl Size {
    pub fn title(self) -> String {
        let applications = match self.applications {
            1000.. => format!("{},{:03}", self.applications / 1000, self.applications % 1000),
            count => count.to_string(),
        };
        format!("{applications}×{}", self.components)
    }
}

impl Fleet {
    /// Creates empty namespaces.
    pub async fn new(control_plane: &ControlPlane, size: Size) -> Self {
        let namespaces = stream::iter(0..size.namespaces).then(|_| control_plane.namespace());
        Self {
            size,
            namespaces: namespaces.collect().await,
            client: control_plane.client().await,
        }
    }

    /// Returns `componentsReady` when all components are ready.
    pub fn all_ready(&self) -> String {
        format!("{0}/{0}", self.size.components)
    }

    /// Returns `componentsReady` when one component is not ready.
    pub fn one_not_ready(&self) -> String {
        format!("{}/{}", self.size.components - 1, self.size.components)
    }

    /// Returns the Applications of all namespaces.
    pub fn applications(&self) -> Api<Application> {
        match self.namespaces.as_slice() {
            [namespace] => Api::namespaced(self.client.clone(), namespace),
            _ => Api::all(self.client.clone()),
        }
    }

    /// Creates each Application, its components and their statuses. Returns the time when the last one was done.
    pub async fn create(&self, adopts: bool) -> Instant {
        self.each(async |number| {
            let name = name(number);
            self.declare(number, adopts).await;
            for ordinal in 0..self.size.components {
                let kind = KINDS[ordinal % KINDS.len()];
                let mut object = component(kind, &name);
                object["metadata"]["name"] = format!("{name}-{ordinal}").into();
                self.make(number, kind, object).await;
                if kind.starts_with("apps/") {
                    self.set_ready(number, ordinal, true).await;
                }
            }
        })
        .await;
        Instant::now()
    }

    /// Removes everything that Portolan has written, and sets `addOwnerRef`.
    pub async fn forget(&self, adopts: bool) {
        self.each(async |number| {
            let name = name(number);
            for ordinal in 0..self.size.components {
                let owners = json!({ "metadata": { "ownerReferences": null } });
                let kind = KINDS[ordinal % KINDS.len()];
                self.patch(number, kind, &format!("{name}-{ordinal}"), owners).await;
            }
            let spec = json!({ "spec": { "addOwnerRef": adopts } });
            self.patch(number, APPLICATION, &name, spec).await;
            self.patch(number, APPLICATION, &name, json!({ "status": null })).await;
        })
        .await;
    }

    /// Waits until no Application has a finalizer, which is removed some time after its last adoption.
    pub async fn released(&self) {
        let applications = self.applications();
        eventually(Duration::from_secs(60), "Applications without finalizers", async || {
            let all = applications.list(&ListParams::default()).await;
            let all = all.map_err(|error| error.to_string())?;
            let held = all.iter().filter(|application| !application.finalizers().is_empty());
            match held.count() {
                0 => Ok(()),
                held => Err(format!("{held} have one")),
            }
        })
        .await;
    }

    /// Writes the status of a component, as its controller would.
    pub async fn set_ready(&self, number: usize, ordinal: usize, is_ready: bool) {
        let ready = i32::from(is_ready);
        let condition = if is_ready { "True" } else { "False" };
        let kind = KINDS[ordinal % KINDS.len()];
        let status = match kind {
            "apps/v1 Deployment" => json!({
                "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready, "availableReplicas": ready,
                "conditions": [{ "type": "Available", "status": condition, "reason": "Measured", "message": "" }],
            }),
            _ => json!({
                "observedGeneration": 1, "replicas": 1, "currentReplicas": 1, "updatedReplicas": 1,
                "readyReplicas": ready, "availableReplicas": ready,
            }),
        };
        let name = format!("{}-{ordinal}", name(number));
        self.patch(number, kind, &name, json!({ "status": status })).await;
    }

    async fn patch(&self, number: usize, kind: &str, name: &str, patch: Value) {
        let (api, parameters) = (self.api(number, kind), PatchParams::default());
        let is_status = patch.get("status").is_some();
        let patch = Patch::Merge(patch);
        let patched = if is_status {
            api.patch_status(name, &parameters, &patch).await
        } else {
            api.patch(name, &parameters, &patch).await
        };
        patched.expect("the API server accepts a patch");
    }

    async fn declare(&self, number: usize, adopts: bool) {
        let name = name(number);
        let spec = json!({
            "componentKinds": kinds(), "selector": { "matchLabels": labels(&name) }, "addOwnerRef": adopts,
        });
        let application = json!({ "metadata": { "name": name }, "spec": spec });
        self.make(number, APPLICATION, application).await;
    }

    async fn make(&self, number: usize, kind: &str, mut object: Value) {
        let (version, bare) = kind.split_once(' ').expect("a version and a kind");
        object["apiVersion"] = version.into();
        object["kind"] = bare.into();
        let object = serde_json::from_value(object).expect("an object");
        let made = self.api(number, kind).create(&PostParams::default(), &object).await;
        made.expect("the API server accepts an object");
    }

    async fn each(&self, work: impl AsyncFn(usize)) {
        let all = stream::iter(0..self.size.applications);
        all.for_each_concurrent(CONCURRENCY, async |number| work(number).await)
            .await;
    }

    fn namespace(&self, number: usize) -> &str {
        &self.namespaces[number % self.namespaces.len()]
    }

    fn api(&self, number: usize, kind: &str) -> Api<DynamicObject> {
        let (version, kind) = kind.split_once(' ').expect("a version and a kind");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), self.namespace(number), &resource)
    }
}

/// Returns the name of an Application, which is the prefix of its components' names.
pub fn name(number: usize) -> String {
    format!("application-{number}")
}

fn labels(application: &str) -> Value {
    json!({ "app.kubernetes.io/name": application })
}

/// Returns all kinds of components without duplicates.
fn kinds() -> Value {
    let mut kinds: Vec<Value> = Vec::new();
    for kind in KINDS {
        let (version, kind) = kind.split_once(' ').expect("a version and a kind");
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let kind = json!({ "group": group, "kind": kind });
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.into()
}

fn component(kind: &str, application: &str) -> Value {
    let metadata = json!({ "labels": labels(application) });
    let pod = json!({ "pod": application });
    let template = json!({
        "metadata": { "labels": pod },
        "spec": { "containers": [{ "name": "main", "image": "registry.example.com/main" }] },
    });
    let selector = json!({ "matchLabels": pod });
    match kind {
        "apps/v1 Deployment" => json!({ "metadata": metadata, "spec": { "selector": selector, "template": template } }),
        "apps/v1 StatefulSet" => json!({
            "metadata": metadata, "spec": { "serviceName": application, "selector": selector, "template": template },
        }),
        // Headless: allocating addresses would take the API server's time.
        "v1 Service" => json!({ "metadata": metadata, "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } }),
        _ => json!({ "metadata": metadata, "data": { "setting": "value" } }),
    }
}

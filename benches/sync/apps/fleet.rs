//! Many Applications and their components, whose controllers and kubelet the benchmark plays.

use std::time::Instant;

use futures::{StreamExt, stream};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use portolan::api::Application;
use serde_json::{Value, json};

use crate::support::control_plane::ControlPlane;

/// Those of the control plane that would undo what the benchmark writes into statuses, or take its cores.
pub const CONTROLLERS: &str = "*,-deployment-controller,-replicaset-controller,-statefulset-controller,\
                               -endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller";
/// The components of an Application, again and again. The first is the one whose readiness changes.
const KINDS: [&str; 5] = [
    "apps/v1 Deployment",
    "apps/v1 StatefulSet",
    "v1 Service",
    "v1 ConfigMap",
    "apps/v1 Deployment",
];
/// What marks Applications beside those that are counted.
const EXTRA: &str = "bench=extra";
/// Calls of the API server at the same time.
const AT_ONCE: usize = 16;

/// How many there are.
#[derive(Clone, Copy)]
pub struct Size {
    pub applications: usize,
    /// Of each Application; a multiple of five.
    pub components: usize,
    /// Among which they are spread.
    pub namespaces: usize,
}

/// Applications in namespaces of their own.
pub struct Fleet {
    pub size: Size,
    pub namespaces: Vec<String>,
    client: Client,
}

impl Fleet {
    /// Namespaces without anything.
    pub async fn new(control_plane: &ControlPlane, size: Size) -> Self {
        let namespaces = stream::iter(0..size.namespaces).then(|_| control_plane.namespace());
        Self {
            size,
            namespaces: namespaces.collect().await,
            client: control_plane.client().await,
        }
    }

    /// What an Application shows all of whose components are ready.
    pub fn all_ready(&self) -> String {
        format!("{0}/{0}", self.size.components)
    }

    /// The same, but for one component.
    pub fn one_not_ready(&self) -> String {
        format!("{}/{}", self.size.components - 1, self.size.components)
    }

    /// The Applications of all its namespaces.
    pub fn applications(&self) -> Api<Application> {
        match self.namespaces.as_slice() {
            [namespace] => Api::namespaced(self.client.clone(), namespace),
            _ => Api::all(self.client.clone()),
        }
    }

    /// Makes all: each Application, then its components, then what says that they are ready. When the last of it was done.
    pub async fn create(&self, adopts: bool) -> Instant {
        self.each(async |number| {
            let name = name(number);
            self.declare(number, &name, &kinds(), &name, adopts).await;
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

    /// Takes away all that Portolan has written, as if there had been none; whether Applications are to be owners from now on.
    pub async fn forget(&self, adopts: bool) {
        let status = json!({ "status": null });
        let spec = json!({ "spec": { "addOwnerRef": adopts } });
        let owners = json!({ "metadata": { "ownerReferences": null } });
        let parameters = PatchParams::default();
        self.each(async |number| {
            let applications: Api<Application> = Api::namespaced(self.client.clone(), self.namespace(number));
            let (name, done) = (name(number), "the API server takes it");
            for ordinal in 0..self.size.components {
                let api = self.api(number, KINDS[ordinal % KINDS.len()]);
                let component = format!("{name}-{ordinal}");
                let patched = api
                    .patch_metadata(&component, &parameters, &Patch::Merge(&owners))
                    .await;
                patched.expect(done);
            }
            let spec = applications.patch(&name, &parameters, &Patch::Merge(&spec)).await;
            spec.expect(done);
            let status = applications
                .patch_status(&name, &parameters, &Patch::Merge(&status))
                .await;
            status.expect(done);
        })
        .await;
    }

    /// Says whether a component of an Application is ready, as its controller would.
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
        let (api, name) = (self.api(number, kind), format!("{}-{ordinal}", name(number)));
        let patch = Patch::Merge(json!({ "status": status }));
        let patched = api.patch_status(&name, &PatchParams::default(), &patch).await;
        patched.expect("the API server takes a status");
    }

    /// One more Application, over the components of another.
    pub async fn declare_extra(&self, name: &str, number: usize) {
        self.declare(number, name, &kinds(), &self::name(number), false).await;
    }

    /// One more, whose only kind the cluster does not have.
    pub async fn declare_lost(&self, name: &str, number: usize, kind: &str) {
        let kinds = json!([{ "group": "nowhere.example.com", "kind": kind }]);
        self.declare(number, name, &kinds, &self::name(number), false).await;
    }

    /// Takes away those that came in addition.
    pub async fn delete_extra(&self) {
        let selected = ListParams::default().labels(EXTRA);
        for namespace in &self.namespaces {
            let api: Api<Application> = Api::namespaced(self.client.clone(), namespace);
            let deleted = api.delete_collection(&DeleteParams::default(), &selected).await;
            deleted.expect("the API server deletes Applications");
        }
    }

    async fn declare(&self, number: usize, name: &str, kinds: &Value, selected: &str, adopts: bool) {
        let mut metadata = json!({ "name": name });
        if name != selected {
            let (label, value) = EXTRA.split_once('=').expect("a label");
            metadata["labels"] = json!({ label: value });
        }
        let spec = json!({
            "componentKinds": kinds, "selector": { "matchLabels": labels(selected) }, "addOwnerRef": adopts,
        });
        let kind = "app.k8s.io/v1beta1 Application";
        self.make(number, kind, json!({ "metadata": metadata, "spec": spec }))
            .await;
    }

    async fn make(&self, number: usize, kind: &str, mut object: Value) {
        let (version, bare) = kind.split_once(' ').expect("a version and a kind");
        object["apiVersion"] = version.into();
        object["kind"] = bare.into();
        let object = serde_json::from_value(object).expect("an object");
        let made = self.api(number, kind).create(&PostParams::default(), &object).await;
        made.expect("the API server takes an object");
    }

    async fn each(&self, work: impl AsyncFn(usize)) {
        let all = stream::iter(0..self.size.applications);
        all.for_each_concurrent(AT_ONCE, async |number| work(number).await)
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

/// The name of an Application; its components have it before theirs.
pub fn name(number: usize) -> String {
    format!("application-{number}")
}

fn labels(application: &str) -> Value {
    json!({ "app.kubernetes.io/name": application })
}

/// All kinds of components, each once.
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
        // Without an address: giving those out is what would take the API server's time.
        "v1 Service" => json!({ "metadata": metadata, "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } }),
        _ => json!({ "metadata": metadata, "data": { "setting": "value" } }),
    }
}

//! A namespace for Applications and their objects.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::kubelet::Kubelet;
use super::{APPLICATION, CONFIG_MAP, DEPLOYMENT, REVISION, TRACKER, estate, setup};
use crate::applications::resource;
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::Portolan;
use crate::support::process::ScratchDir;

pub const CRD: &str = "apiextensions.k8s.io/v1 CustomResourceDefinition";
/// Kinds of the objects that these tests apply.
const KINDS: [&str; 4] = [CONFIG_MAP, DEPLOYMENT, "v1 Service", "v1 Secret"];

pub struct Site {
    pub namespace: String,
    pub control_plane: &'static ControlPlane,
    client: Client,
    directory: ScratchDir,
    _kubelet: Kubelet,
}

impl Site {
    /// A new namespace of the shared control plane.
    pub async fn new() -> Self {
        let control_plane = setup::shared().await;
        let namespace = control_plane.namespace().await;
        Self::of(control_plane, namespace).await
    }

    /// A namespace that exists.
    pub async fn of(control_plane: &'static ControlPlane, namespace: String) -> Self {
        let client = control_plane.client().await;
        Self {
            _kubelet: Kubelet::start(client.clone(), Some(&namespace)),
            namespace,
            control_plane,
            client,
            directory: ScratchDir::new("oam-apps"),
        }
    }

    /// Starts Portolan for this namespace, and waits until it is ready.
    pub async fn portolan(&self, more: &[&str]) -> Portolan {
        let portolan = self.start(&self.control_plane.kubeconfig(), more);
        portolan.ready(SOON).await;
        portolan
    }

    /// Starts Portolan for this namespace.
    pub fn start(&self, kubeconfig: &Path, more: &[&str]) -> Portolan {
        Portolan::start(self.command(kubeconfig, more))
    }

    /// Returns the command that runs Portolan for this namespace.
    pub fn command(&self, kubeconfig: &Path, more: &[&str]) -> Command {
        let mut command = estate::run(&self.directory, kubeconfig);
        // A process does not start beside the holder of the Lease of another test.
        let here = [
            "--watch-namespace",
            &self.namespace,
            "--leader-election-namespace",
            &self.namespace,
        ];
        command.args(here).args(more);
        command
    }

    /// A proxy of the API server, and an administrator's kubeconfig for it.
    pub async fn proxy(&self) -> (FaultProxy, PathBuf) {
        let proxy = FaultProxy::in_front_of(self.control_plane).await;
        let kubeconfig = self.control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
        (proxy, kubeconfig)
    }

    /// Returns the objects of a kind in this namespace, or in the cluster if they have no namespace.
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (client, resource) = (self.client.clone(), resource(kind));
        match kind {
            TRACKER | CRD | "v1 Namespace" => Api::all_with(client, &resource),
            _ => Api::namespaced_with(client, &self.namespace, &resource),
        }
    }

    /// Applies an object.
    pub async fn apply(&self, kind: &str, name: &str, mut object: Value) -> Value {
        let (version, word) = kind.split_once(' ').unwrap();
        object["apiVersion"] = version.into();
        object["kind"] = word.into();
        object["metadata"]["name"] = name.into();
        let apply = PatchParams::apply("tests").force();
        let applied = self.api(kind).patch(name, &apply, &Patch::Apply(object)).await.unwrap();
        json!(applied)
    }

    /// Creates an object as it is.
    pub async fn create(&self, object: &Value) -> Value {
        let api = self.api(&setup::kind(object));
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        json!(api.create(&PostParams::default(), &object).await.unwrap())
    }

    /// Creates or updates an Application.
    pub async fn declare(&self, name: &str, spec: Value) {
        self.apply(APPLICATION, name, json!({ "spec": spec })).await;
    }

    /// Merges a change into an object of any field manager.
    pub async fn edit(&self, kind: &str, name: &str, change: Value) {
        let patch = Patch::Merge(change);
        self.api(kind)
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Merges a change into a status, as another client would.
    pub async fn edit_status(&self, kind: &str, name: &str, change: Value) {
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(change));
        self.api(kind).patch_status(name, &parameters, &patch).await.unwrap();
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.api(kind).get_opt(name).await.unwrap().map(|object| json!(object))
    }

    /// Returns the objects of a kind that belong to any Application of this namespace.
    pub async fn managed(&self, kind: &str) -> Vec<Value> {
        let labels = format!("app.oam.dev/name,app.oam.dev/namespace={}", self.namespace);
        self.list(kind, &labels).await
    }

    /// Returns the objects of all kinds of these tests that belong to any Application of this namespace.
    pub async fn managed_objects(&self) -> Vec<Value> {
        let mut objects = Vec::new();
        for kind in KINDS {
            objects.extend(self.managed(kind).await);
        }
        objects
    }

    /// Returns the names of the revisions of an Application.
    pub async fn revisions(&self, app: &str) -> Vec<String> {
        let revisions = self.list(REVISION, &format!("app.oam.dev/name={app}")).await;
        revisions
            .iter()
            .map(|revision| setup::name(revision).to_owned())
            .collect()
    }

    pub async fn trackers(&self, app: &str) -> Vec<Value> {
        let labels = format!("app.oam.dev/name={app},app.oam.dev/namespace={}", self.namespace);
        self.list(TRACKER, &labels).await
    }

    /// Lists objects with version and kind, which lists of the API server lack.
    pub async fn list(&self, kind: &str, labels: &str) -> Vec<Value> {
        let (version, word) = kind.split_once(' ').unwrap();
        let list = self.api(kind).list(&ListParams::default().labels(labels)).await;
        let objects = list.unwrap().items.into_iter().map(|object| {
            let mut object = json!(object);
            object["apiVersion"] = version.into();
            object["kind"] = word.into();
            object
        });
        objects.collect()
    }

    /// Waits until an object satisfies `is_met`.
    pub async fn until(&self, kind: &str, name: &str, what: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, &format!("{name}: {what}"), async || {
            match self.get(kind, name).await {
                Some(object) if is_met(&object) => Ok(object),
                Some(object) if object["status"].is_object() => Err(format!("{:#}", object["status"])),
                object => Err(format!("{object:?}")),
            }
        })
        .await
    }

    /// Waits until the current generation of an Application runs.
    pub async fn until_running(&self, name: &str) -> Value {
        self.until(APPLICATION, name, "running", |app| {
            let status = &app["status"];
            let is_current = status["observedGeneration"] == app["metadata"]["generation"];
            is_current && status["status"] == "running" && condition(app, "Ready")["status"] == "True"
        })
        .await
    }

    /// Waits until the status contains `words`, in a condition or in a step.
    pub async fn until_said(&self, name: &str, words: &str) -> Value {
        self.until(APPLICATION, name, words, |app| says(app, words)).await
    }

    pub async fn until_gone(&self, kind: &str, name: &str) {
        eventually(SOON, &format!("{kind} {name} to be gone"), async || {
            match self.get(kind, name).await {
                None => Ok(()),
                Some(object) => Err(format!("{:#}", object["metadata"])),
            }
        })
        .await;
    }

    /// Defines a kind in a group of this namespace.
    pub async fn define(&self, kind: &str) {
        let (group, plural) = (self.group(), format!("{}s", kind.to_lowercase()));
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let crd = json!({
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced", "names": { "kind": kind, "plural": plural },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }]
            }
        });
        let crd: CustomResourceDefinition = serde_json::from_value(crd).unwrap();
        self.control_plane.install_crd(&crd).await;
    }

    /// Returns the group of the kinds of this namespace.
    pub fn group(&self) -> String {
        format!("{}.example.com", self.namespace)
    }
}

/// Returns a condition of an Application, or null.
pub fn condition<'a>(app: &'a Value, type_: &str) -> &'a Value {
    let mut conditions = app["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == type_)
        .unwrap_or(&Value::Null)
}

/// Returns true if a condition or a step contains `words`.
pub fn says(app: &Value, words: &str) -> bool {
    let conditions = app["status"]["conditions"].as_array().into_iter().flatten();
    let steps = app["status"]["workflow"]["steps"].as_array().into_iter().flatten();
    let mut messages = conditions.chain(steps).filter_map(|entry| entry["message"].as_str());
    messages.any(|message| message.contains(words))
}

pub fn version(object: &Value) -> &Value {
    &object["metadata"]["resourceVersion"]
}

//! Applications in a real API server with objects of real kinds, reconciled by the real binary.

mod collected;
mod excluded;
mod failing;
mod faults;
pub mod kinds;
mod large;
mod malformed;
mod many;
mod owning;
mod permissions;
mod quiet;
mod restarted;
mod selecting;
mod served;
mod sharing;
mod story;
mod times;
mod watching;
mod wide;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;

use axum::http::Method;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use portolan::api::{Application, ApplicationCondition, crds};
use serde_json::{Value, json};

use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane, control_plane};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiRequest, FaultProxy};
use crate::support::portolan::{Portolan, command};
use crate::support::process::ScratchDir;

pub use crate::support::eventually::SOON;

/// The value of `--application-kinds` with the behavior of kubernetes-sigs/application.
const PEER_KINDS: &str = "*,+/LimitRange,+/ResourceQuota,+/ServiceAccount,+networking.k8s.io/NetworkPolicy,\
                          +rbac.authorization.k8s.io/Role,+rbac.authorization.k8s.io/RoleBinding";
const CONFIG_MAPS: &[(&str, &str)] = &[("", "ConfigMap")];
pub const APPLICATION: &str = "app.k8s.io/v1beta1 Application";

/// A namespace for Applications and their components.
pub struct Site<'a> {
    pub namespace: String,
    pub client: Client,
    pub control_plane: &'a ControlPlane,
    directory: ScratchDir,
}

impl Site<'static> {
    /// A namespace of the shared control plane, with our definitions installed.
    pub async fn new() -> Self {
        Self::on(control_plane().await).await
    }
}

impl<'a> Site<'a> {
    /// A namespace of a control plane, with our definitions installed.
    pub async fn on(control_plane: &'a ControlPlane) -> Self {
        for crd in crds() {
            control_plane.install_crd(&crd).await;
        }
        Self {
            namespace: control_plane.namespace().await,
            client: control_plane.client().await,
            control_plane,
            directory: ScratchDir::new("applications"),
        }
    }

    /// Starts Portolan for this namespace with administrator permissions.
    pub async fn portolan(&self, more: &[&str]) -> Portolan {
        self.portolan_with(&self.control_plane.kubeconfig(), more).await
    }

    /// Starts Portolan for this namespace with a kubeconfig, and waits until it is ready.
    pub async fn portolan_with(&self, kubeconfig: &Path, more: &[&str]) -> Portolan {
        let here = ["--watch-namespace", &self.namespace];
        self.portolan_everywhere(kubeconfig, &[&here, more].concat()).await
    }

    /// Starts Portolan for all namespaces. Requires a control plane that no other test uses.
    pub async fn portolan_everywhere(&self, kubeconfig: &Path, more: &[&str]) -> Portolan {
        let portolan = Portolan::start(self.command(kubeconfig, more));
        portolan.ready(SOON).await;
        portolan
    }

    /// Starts Portolan with one thread that serves its probes and all tenants: a probe that is late shows that the thread
    /// was held.
    pub async fn portolan_with_one_thread(&self, kubeconfig: &Path, more: &[&str]) -> Portolan {
        let mut command = self.command(kubeconfig, more);
        command.env("TOKIO_WORKER_THREADS", "1");
        let portolan = Portolan::start(command);
        portolan.ready(SOON).await;
        portolan.with_probes()
    }

    fn command(&self, kubeconfig: &Path, more: &[&str]) -> Command {
        let database = format!("sqlite://{}", self.directory.path().join("portolan.db").display());
        let mut command = command(["run", "--database-url", &database]);
        // A flag takes precedence.
        command.env("PORTOLAN_APPLICATION_KINDS", PEER_KINDS);
        command.arg("--kubeconfig").arg(kubeconfig).args(more);
        command
    }

    /// A proxy of the API server, and an administrator's kubeconfig for it.
    pub async fn proxy(&self) -> (FaultProxy, PathBuf) {
        let proxy = FaultProxy::in_front_of(self.control_plane).await;
        let kubeconfig = self.control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
        (proxy, kubeconfig)
    }

    /// Defines a kind without a schema in a group of this test; returns it like `apps/v1 Deployment`.
    pub async fn define(&self, kind: &str, scope: &str) -> String {
        let group = self.group();
        let plural = format!("{}s", kind.to_lowercase());
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let definition = json!({
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group, "scope": scope, "names": { "kind": kind, "plural": plural },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }]
            }
        });
        let definition = serde_json::from_value(definition).unwrap();
        self.control_plane.install_crd(&definition).await;
        let kind = format!("{group}/v1 {kind}");
        // The definition is established shortly before its objects are served.
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(&kind));
        eventually(SOON, "objects of the new kind to be served", async || {
            api.list(&ListParams::default()).await
        })
        .await;
        kind
    }

    /// Deletes the definition of a kind and its objects.
    pub async fn undefine(&self, kind: &str) {
        let resource = resource(kind);
        let name = format!("{}.{}", resource.plural, resource.group);
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        definitions.delete(&name, &DeleteParams::default()).await.unwrap();
    }

    /// The group of the kinds defined by this test.
    pub fn group(&self) -> String {
        format!("{}.example.com", self.namespace)
    }

    pub fn applications(&self) -> Api<Application> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Applies an object. `kind` has the form `apps/v1 Deployment`.
    pub async fn apply(&self, kind: &str, name: &str, object: Value) -> DynamicObject {
        self.put(&self.api(kind), kind, name, object).await
    }

    /// Same for a cluster-scoped kind.
    pub async fn apply_to_cluster(&self, kind: &str, name: &str, object: Value) -> DynamicObject {
        let api = Api::all_with(self.client.clone(), &resource(kind));
        self.put(&api, kind, name, object).await
    }

    async fn put(&self, api: &Api<DynamicObject>, kind: &str, name: &str, mut object: Value) -> DynamicObject {
        let (version, kind) = kind.split_once(' ').unwrap();
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = name.into();
        let parameters = PatchParams::apply("tests").force();
        api.patch(name, &parameters, &Patch::Apply(object)).await.unwrap()
    }

    /// Writes the status of an object, like its controller.
    pub async fn status(&self, kind: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let (api, parameters) = (self.api(kind), PatchParams::default());
        api.patch_status(name, &parameters, &patch).await.unwrap();
    }

    /// Merges a change into an object of any field manager.
    pub async fn edit(&self, kind: &str, name: &str, change: Value) {
        let (api, parameters) = (self.api(kind), PatchParams::default());
        api.patch(name, &parameters, &Patch::Merge(change)).await.unwrap();
    }

    /// Creates a ConfigMap with these labels.
    pub async fn config_map(&self, name: &str, labels: &Value) -> DynamicObject {
        let object = json!({ "metadata": { "labels": labels } });
        self.apply("v1 ConfigMap", name, object).await
    }

    /// Creates ConfigMaps `many-00000` and so on with the label `app: shop`.
    pub async fn config_maps(&self, numbers: std::ops::Range<usize>) {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let make = async |number: usize| {
            let object = json!({ "metadata": { "name": format!("many-{number:05}"), "labels": { "app": "shop" } } });
            let object = serde_json::from_value(object).unwrap();
            api.create(&PostParams::default(), &object).await.unwrap();
        };
        stream::iter(numbers)
            .map(make)
            .buffer_unordered(32)
            .collect::<Vec<()>>()
            .await;
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Creates or updates an Application.
    pub async fn declare(&self, name: &str, spec: Value) {
        self.apply("app.k8s.io/v1beta1 Application", name, json!({ "spec": spec }))
            .await;
    }

    /// Waits until the Application satisfies `is_met`.
    pub async fn until(&self, name: &str, what: &str, is_met: impl Fn(&Application) -> bool) -> Application {
        let applications = self.applications();
        eventually(SOON, &format!("{name}: {what}"), async || {
            let application = applications.get(name).await.map_err(|error| error.to_string())?;
            if is_met(&application) {
                Ok(application)
            } else {
                Err(shown(&application))
            }
        })
        .await
    }

    /// Waits until `componentsReady` has this value, such as `1/2`.
    pub async fn until_components(&self, name: &str, ready: &str) -> Application {
        self.until(name, &format!("{ready} components ready"), |application| {
            let status = application.status.as_ref();
            status.and_then(|status| status.components_ready.as_deref()) == Some(ready)
                && status.and_then(|status| status.observed_generation) == application.metadata.generation
        })
        .await
    }

    /// Waits until the condition Error contains `words`, or is False if they are empty.
    pub async fn until_error(&self, name: &str, words: &str) -> Application {
        self.until(name, &format!("Error with {words:?}"), |application| {
            let (status, _, message) = condition(application, "Error");
            let is_current = application
                .status
                .as_ref()
                .and_then(|status| status.observed_generation)
                == application.metadata.generation;
            is_current && status == if words.is_empty() { "False" } else { "True" } && message.contains(words)
        })
        .await
    }

    /// The reasons of all events about an Application.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let list = events.list(&ListParams::default()).await.unwrap();
        let about = |event: &Event| event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(name);
        let about = list.items.into_iter().filter(about);
        about.filter_map(|event| event.reason).collect()
    }

    /// Waits until an object is owned by these Applications.
    pub async fn until_owned(&self, kind: &str, name: &str, owners: &[&str]) {
        let api = self.api(kind);
        eventually(SOON, &format!("{kind} {name} to be owned by {owners:?}"), async || {
            let object = api.get_metadata(name).await.map_err(|error| error.to_string())?;
            let names: Vec<_> = object
                .owner_references()
                .iter()
                .map(|owner| owner.name.as_str())
                .collect();
            if names == owners {
                Ok(())
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await;
    }
}

fn shown(application: &Application) -> String {
    serde_json::to_string_pretty(&application.status).unwrap()
}

/// Parses a kind such as `apps/v1 Deployment`.
pub fn resource(kind: &str) -> ApiResource {
    let (version, kind) = kind.split_once(' ').unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind))
}

/// A condition's status, reason and message.
pub fn condition(application: &Application, type_: &str) -> (String, String, String) {
    let conditions = application.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let condition = conditions.iter().find(|condition| condition.type_ == type_);
    let ApplicationCondition {
        status,
        reason,
        message,
        ..
    } = condition.cloned().unwrap_or_default();
    (status, reason.unwrap_or_default(), message.unwrap_or_default())
}

/// The components as `Deployment/web Ready`.
pub fn components(application: &Application) -> Vec<String> {
    let components = application.status.as_ref().map_or(&[][..], |status| &status.components);
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    components
        .iter()
        .map(|component| {
            format!(
                "{}/{} {}",
                text(&component.kind),
                text(&component.name),
                text(&component.status)
            )
        })
        .collect()
}

/// A Deployment of two pods with labels.
pub fn deployment(labels: &Value) -> Value {
    json!({
        "metadata": { "labels": labels },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "pod": "web" } },
            "template": {
                "metadata": { "labels": { "pod": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "example.com/web" }] }
            }
        }
    })
}

/// The spec of an Application of these kinds that selects `app: shop`.
pub fn shop(kinds: &[(&str, &str)], adopts: bool) -> Value {
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(group, kind)| json!({ "group": group, "kind": kind }))
        .collect();
    json!({ "componentKinds": kinds, "selector": { "matchLabels": { "app": "shop" } }, "addOwnerRef": adopts })
}

/// Asserts the condition Ready with a readable failure message.
pub fn assert_ready(application: &Application, expected: (&str, &str, &str)) {
    let (status, reason, message) = condition(application, "Ready");
    assert_eq!(
        (status.as_str(), reason.as_str(), message.as_str()),
        expected,
        "{}",
        shown(application)
    );
}

/// Same for the condition Error.
pub fn assert_error(application: &Application, expected: (&str, &str), words: &str)
where
    str: Debug,
{
    let (status, reason, message) = condition(application, "Error");
    assert_eq!((status.as_str(), reason.as_str()), expected, "{}", shown(application));
    assert!(message.contains(words), "{words} is missing in {message}");
}

/// A selector of `app: shop` with additional expressions.
pub fn selecting(kinds: &[(&str, &str)], selector: Value) -> Value {
    let mut spec = shop(kinds, false);
    spec["selector"] = selector;
    spec
}

/// Returns true for a status write of an Application; of any if `name` is empty.
pub fn is_status_patch(request: &ApiRequest, name: &str) -> bool {
    let end = format!("{name}/status");
    request.method == Method::PATCH && request.path.contains("/applications/") && request.path.ends_with(&end)
}

/// Returns true for a write of owner references.
pub fn is_owner_patch(request: &ApiRequest, plural: &str) -> bool {
    request.method == Method::PATCH
        && !request.path.ends_with("/status")
        && request.path.contains(&format!("/{plural}/"))
}

/// Counts the matching requests that the proxy has seen.
pub fn count(proxy: &FaultProxy, fits: impl Fn(&ApiRequest) -> bool) -> usize {
    proxy.requests().iter().filter(|request| fits(request)).count()
}

/// Fails the test if the process has logged a panic.
pub fn assert_no_panic(portolan: &Portolan) {
    let panics: Vec<_> = portolan
        .lines()
        .into_iter()
        .filter(|line| line.contains("panic"))
        .collect();
    assert!(panics.is_empty(), "{panics:#?}");
}

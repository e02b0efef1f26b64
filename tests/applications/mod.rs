//! Applications declared in a real API server, beside objects of real kinds, followed by the real binary.

mod story;

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use portolan::api::{Application, ApplicationCondition, crds};
use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command};
use crate::support::process::ScratchFolder;

/// How soon what users wait for has to be there. The promise is a second; a busy machine gets some more.
pub const SOON: Duration = Duration::from_secs(30);

/// A namespace of a control plane, in which Applications and their components are made.
pub struct Site {
    pub namespace: String,
    pub client: Client,
    pub control_plane: &'static ControlPlane,
    folder: ScratchFolder,
}

impl Site {
    /// A namespace of the shared control plane, with our definitions installed.
    pub async fn new() -> Self {
        let control_plane = control_plane().await;
        for crd in crds() {
            control_plane.install_crd(&crd).await;
        }
        Self {
            namespace: control_plane.namespace().await,
            client: control_plane.client().await,
            control_plane,
            folder: ScratchFolder::new("applications"),
        }
    }

    /// Starts Portolan over this namespace, with an administrator's rights.
    pub async fn portolan(&self, more: &[&str]) -> Portolan {
        self.portolan_with(&self.control_plane.kubeconfig(), more).await
    }

    /// Starts Portolan over this namespace with the rights of a kubeconfig, and waits until it is ready.
    pub async fn portolan_with(&self, kubeconfig: &std::path::Path, more: &[&str]) -> Portolan {
        let database = format!("sqlite://{}", self.folder.path().join("portolan.db").display());
        let mut command = command(["run", "--watch-namespace", &self.namespace, "--database-url", &database]);
        command.arg("--kubeconfig").arg(kubeconfig).args(more);
        let portolan = Portolan::start(command);
        portolan.ready(SOON).await;
        portolan
    }

    /// All Applications of the namespace.
    pub fn applications(&self) -> Api<Application> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes an object, or changes it to what is given. `kind` is as in `apps/v1 Deployment`.
    pub async fn apply(&self, kind: &str, name: &str, object: Value) -> DynamicObject {
        let api = self.api(kind);
        self.put(&api, kind, name, object, false).await
    }

    /// Writes an object's status, as the controller of its kind would.
    pub async fn status(&self, kind: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let (api, parameters) = (self.api(kind), PatchParams::default());
        api.patch_status(name, &parameters, &patch).await.unwrap();
    }

    async fn put(&self, api: &Api<DynamicObject>, kind: &str, name: &str, mut object: Value, _: bool) -> DynamicObject {
        let (version, kind) = kind.split_once(' ').unwrap();
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = name.into();
        let parameters = PatchParams::apply("tests").force();
        api.patch(name, &parameters, &Patch::Apply(object)).await.unwrap()
    }

    /// Objects of a kind in the namespace.
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Declares an Application.
    pub async fn declare(&self, name: &str, spec: Value) {
        self.apply("app.k8s.io/v1beta1 Application", name, json!({ "spec": spec }))
            .await;
    }

    /// Waits until the Application is as `look` says.
    pub async fn until(&self, name: &str, what: &str, look: impl Fn(&Application) -> bool) -> Application {
        let applications = self.applications();
        eventually(SOON, &format!("{name}: {what}"), async || {
            let application = applications.get(name).await.map_err(|error| error.to_string())?;
            if look(&application) {
                Ok(application)
            } else {
                Err(shown(&application))
            }
        })
        .await
    }

    /// Waits until so many components of so many are ready.
    pub async fn until_components(&self, name: &str, ready: &str) -> Application {
        self.until(name, &format!("{ready} components ready"), |application| {
            let status = application.status.as_ref();
            status.and_then(|status| status.components_ready.as_deref()) == Some(ready)
                && status.and_then(|status| status.observed_generation) == application.metadata.generation
        })
        .await
    }

    /// Waits until an object's owners are these Applications.
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

/// How a kind such as `apps/v1 Deployment` is asked for.
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

/// A Deployment of two pods, with labels.
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

/// What the status of such a Deployment is, once all is there.
pub fn deployed(generation: i64) -> Value {
    json!({
        "observedGeneration": generation, "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 2,
        "conditions": [{
            "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"
        }]
    })
}

/// An Application of these kinds whose components have the label `app: shop`.
pub fn shop(kinds: &[(&str, &str)], adopts: bool) -> Value {
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(group, kind)| json!({ "group": group, "kind": kind }))
        .collect();
    json!({ "componentKinds": kinds, "selector": { "matchLabels": { "app": "shop" } }, "addOwnerRef": adopts })
}

/// Shows what is compared where a test fails.
pub fn assert_ready(application: &Application, expected: (&str, &str, &str)) {
    let (status, reason, message) = condition(application, "Ready");
    assert_eq!(
        (status.as_str(), reason.as_str(), message.as_str()),
        expected,
        "{}",
        shown(application)
    );
}

/// As [`assert_ready`], of the condition Error.
pub fn assert_error(application: &Application, expected: (&str, &str), words: &str)
where
    str: Debug,
{
    let (status, reason, message) = condition(application, "Error");
    assert_eq!((status.as_str(), reason.as_str()), expected, "{}", shown(application));
    assert!(message.contains(words), "{words} is missing in {message}");
}
